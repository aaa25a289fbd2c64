"""Whether each model of a study was scored with a BOS before every text, and lines on models that differ.

Without BOS the first token of a text has no loss, and is lost for every fit in which such a model takes part. Some
models have much larger losses without the BOS that they were trained with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchcast.errors import BenchcastError
from benchcast.messages import counted, few
from benchcast.records import NamedTexts, TokenLosses
from benchcast.study.loss_files import HABIT
from benchcast.study.parquet import read_metadata
from benchcast.study.study import Study


@dataclass(frozen=True, slots=True)
class BosPolicy:
    """How one model was scored."""

    present: bool | None  # whether a BOS stood before each text; None: unknown
    stated: str = ""  # the policy as `collect` stores it; empty: not stated
    habit: str = ""  # what the tokenizer puts before a text by itself, if that is something else; "none" is nothing

    @classmethod
    def of(cls, losses: TokenLosses) -> BosPolicy:
        """The policy as it was stored with the losses, else whether first tokens have one."""
        stated = losses.about.get("bos", "")
        if stated:
            return cls(present=_present(stated), stated=stated, habit=losses.about.get(HABIT, ""))
        if losses.lacks_first_tokens:
            return cls(present=False)
        firsts = (np.cumsum(losses.counts) - losses.counts)[losses.counts > 0]
        known = np.isfinite(losses.nats[firsts]).mean() if len(firsts) else 0.0
        return cls(present=True if known > 0.5 else None)


def _present(stated: str) -> bool:
    return stated.partition(",")[0] != "none"


def bos_lines_of(study: Study, models: Sequence[str]) -> list[str]:
    """Lines on these models, compared with all others of the study."""
    if isinstance(study.texts, NamedTexts):
        return []
    policies = {}
    for name in study.models_with_losses():
        try:
            stored = read_metadata(study.losses_path(name))
            stated = stored.get("bos", "")
            known = BosPolicy(present=_present(stated), stated=stated, habit=stored.get(HABIT, ""))
            policies[name] = known if stated else BosPolicy.of(study.losses(name))
        except BenchcastError:  # `status` reports it
            continue
    return bos_lines(policies, models)


def bos_lines(policies: Mapping[str, BosPolicy], models: Collection[str]) -> list[str]:
    """A line for each of the named models whose policy is not its tokenizer's, and one if the models differ.

    Parameters
    ----------
    policies : of all models of a study, by name
    models : those that lines are wanted on

    Returns
    -------
    the lines; models that differ are named by the smaller group
    """
    lines = [_habit_line(name, policies[name]) for name in policies if name in models and policies[name].habit]
    without, having = ([m for m, p in policies.items() if p.present is present] for present in (False, True))
    fewer = without if len(without) <= len(having) else having
    if not (without and having) or not set(fewer) & set(models):
        return lines
    verb = "was" if len(fewer) == 1 else "were"
    how, others = ("without", "with") if fewer is without else ("with", "without")
    return [
        *lines,
        f"{counted(len(fewer), 'model')} {verb} scored {how} BOS, the other {max(len(without), len(having))} {others}: "
        f"{few(fewer)}; the first token of a text has no loss without BOS, and leaves every fit that learns from both "
        "(add_bos_token=true or false in --model_args decides)",
    ]


def _habit_line(name: str, policy: BosPolicy) -> str:
    usual = "no BOS" if policy.habit == "none" else policy.habit
    used = policy.stated.partition(",")[0] if policy.present else "no BOS"
    return f"model {name} was scored with {used} before each text, as asked; its tokenizer puts {usual} there"
