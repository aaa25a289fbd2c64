"""Choice losses of all models: which texts count, and which models are left out of fits that read them.

A choice loss is −ln of the right answer's share of the probability of an item's options. It belongs to a text, not to
its tokens. In a table, the columns that tasks name as `choices` hold choice losses.

Axes: M models, S texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchcast.losses.support import MOST_LOST
from benchcast.messages import counted, few
from benchcast.records import CHOICE_COLUMN, Bools, Floats, Ints, TokenLosses

# Which of `CHOICE_LOSSES` a fit reads.
READ = "choice_norm"


def _no_texts() -> Bools:
    return np.zeros(0, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceSupport:
    """The texts whose choice losses a fit reads, and the models that lack them."""

    name: str = ""  # of `CHOICE_LOSSES` or `CHOICE_COLUMN`; empty: no text has one
    texts: Bools = field(default_factory=_no_texts)  # mask of the texts that count (S)
    lacking: Mapping[str, float] = field(default_factory=dict)  # model → share of all choice losses that it lacks
    left_out: tuple[str, ...] = ()  # models that fits which read choice losses do not learn from

    @property
    def used(self) -> bool:
        """Whether any choice losses are read."""
        return bool(self.texts.any())

    def for_texts(self, numbers: Ints) -> ChoiceSupport:
        """The support on some of the texts."""
        return replace(self, texts=self.texts[numbers]) if len(self.texts) else self

    def lines(self) -> list[str]:
        """Readable lines on models that lack choice losses, and what follows."""
        if not self.lacking:
            return []
        shares = sorted(self.lacking.items(), key=lambda item: (-item[1], item[0]))
        named = few([f"{model} {share:.0%}" for model, share in shares])
        if not self.used:
            return [f"choice losses are not used: too few models have the same ones; models that lack some: {named}"]
        lines = [
            f"models that lack choice losses: {named}; used are the {counted(int(self.texts.sum()), 'text')} of all"
        ]
        if self.left_out:
            lines = [
                f"`stack` and `salience` leave out {few(list(self.left_out))}, which lack more than {MOST_LOST:.0%} of "
                "the choice losses (import their logs again, or give the options)",
                *(lines if len(self.lacking) > len(self.left_out) else ()),
            ]
        return lines


def noting(losses: Iterable[TokenLosses], inputs: list[dict[str, Floats]]) -> Iterator[TokenLosses]:
    """The same losses; what may be read of each as choice losses is appended to `inputs`."""
    for x in losses:
        inputs.append(x.choice_inputs())
        yield x


def choice_arrays(inputs: Sequence[Mapping[str, Floats]], *, of_columns: bool) -> dict[str, Floats]:
    """Choice losses of several models (each M × S) by name; `of_columns`: those of a table, and no others."""
    names = dict.fromkeys(name for row in inputs for name in row if (name == CHOICE_COLUMN) == of_columns)
    texts = max((len(values) for row in inputs for values in row.values()), default=0)
    return {name: np.stack([row.get(name, np.full(texts, np.nan)) for row in inputs]) for name in names}


def texts_with(losses: TokenLosses, *, of_columns: bool) -> Bools:
    """Mask of the texts of which a model has what fits read as choice losses (S)."""
    values = losses.choice_inputs().get(CHOICE_COLUMN if of_columns else READ)
    return np.zeros(len(losses.counts), bool) if values is None else np.isfinite(values)


def choice_support(
    choices: Mapping[str, Floats], models: Sequence[str], *, columns: Ints, allowed: Bools | None = None
) -> ChoiceSupport:
    """Choose the texts, and the models to leave out: a text counts only if every other model has its choice loss.

    Either the models that lack more than `MOST_LOST` are left out, if these are at most half of all, or the texts that
    they lack, whichever keeps more values.

    Parameters
    ----------
    choices : as `choice_arrays` returns them, of all models
    models : names of the models
    columns : indices of the texts of a table that hold choice losses
    allowed : mask of the texts that may count (S); None: all
    """
    name = CHOICE_COLUMN if len(columns) else READ
    if name not in choices:
        return ChoiceSupport()
    have = np.isfinite(choices[name])
    if len(columns):
        have[:, np.setdiff1d(np.arange(have.shape[1]), columns)] = False
    if allowed is not None:
        have &= allowed
    anywhere = have.any(axis=0)
    if not anywhere.any():
        return ChoiceSupport()
    usual = 2 * have.sum(axis=0) > len(have)
    share = 1 - have[:, usual].mean(axis=1) if usual.any() else np.ones(len(have))
    complete = share <= MOST_LOST
    kept = np.ones(len(have), bool)
    if 2 * complete.sum() >= len(have) and _values(have, complete) > _values(have, kept):
        kept = complete
    lost = 1 - have[:, anywhere].mean(axis=1)
    return ChoiceSupport(
        name=name,
        texts=np.asarray(have[kept].all(axis=0)),
        lacking={model: float(x) for model, x in zip(models, lost, strict=True) if x > 0},
        left_out=tuple(model for model, keep in zip(models, kept, strict=True) if not keep),
    )


def _values(have: Bools, models: Bools) -> int:
    """Number of choice losses that remain with these models."""
    return int(models.sum() * have[models].all(axis=0).sum())
