"""Test whether a model was trained on the validation texts.

Each text with lettered options is compared with a variant, the same question with its options in another order. For a
model that was not trained on the text, either is equally likely to have the lower loss. A model that memorised the
text has a lower loss on the original order. A sign-flip test compares the losses of many pairs.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path

import numpy as np

from benchcast.errors import InputError, NotEnoughDataError
from benchcast.records import Floats, Text, TextSet, TokenLosses
from benchcast.study.study import Study, StudyLike
from benchcast.study.tables import read_texts

MARK = "~twin"  # ending of a variant's id; studies on disk contain it
FLIPS = 20_000  # random sign changes of the test
OPTION = re.compile(r"^(?P<open>\(?)(?P<letter>[A-Z])(?P<close>\.|\)) (?P<body>.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ContaminationCheck:
    """Difference of a model's losses between the original texts and their variants."""

    model: str
    pairs: int
    nats: float  # mean of variant − original over all pairs, per text; positive: the original has the lower loss
    stderr: float  # of that mean
    easier: float  # share of pairs in which the original has the lower loss; ties count half
    p_value: float  # probability of a mean at least as large for a model that was not trained on the texts


def with_options_moved(text: Text, *, seed: int = 0) -> Text | None:
    """The text with its options in another order and the answer's letter adapted; None without lettered options."""
    if text.answer_start is None:
        return None
    raw = text.text.encode()
    prompt, answer = raw[: text.answer_start].decode(), raw[text.answer_start :].decode()
    options = list(OPTION.finditer(prompt))
    letters = [m["letter"] for m in options]
    correct = answer.strip(" ().")
    if len(options) < 2 or letters != sorted(set(letters)) or correct not in letters:
        return None
    between = {prompt[a.end() : b.start()] for a, b in pairwise(options)}
    if between != {"\n"} or prompt[options[-1].end() :].count("\n") != 1:
        return None  # options must be on consecutive lines, followed by one line
    digest = hashlib.sha256(f"{seed}\n{text.id}".encode()).digest()
    order = sorted(range(len(options)), key=lambda i: hashlib.sha256(digest + bytes([i])).digest())
    if order[letters.index(correct)] == letters.index(correct):  # the correct option must move
        order = [*order[1:], order[0]]
    new_prompt = prompt
    for position in reversed(range(len(options))):
        start, stop = options[position].span("body")
        new_prompt = new_prompt[:start] + options[order[position]]["body"] + new_prompt[stop:]
    new_letter = letters[order.index(letters.index(correct))]
    new_text = new_prompt + answer.replace(correct, new_letter)
    return Text(id=f"{text.id}{MARK}", source=text.source, text=new_text, answer_start=len(new_prompt.encode()))


def make_variants(texts: TextSet, count: int, *, seed: int = 0, paraphrases: Sequence[Text] = ()) -> TextSet:
    """Build pairs of texts and variants for a contamination check.

    Parameters
    ----------
    texts : the texts of a study
    count : largest number of texts with lettered options to take
    seed : seed of the choice of texts and of the new order of options
    paraphrases : further variants; each has the id of the text that it paraphrases

    Returns
    -------
    The pairs, each text followed by its variant, whose id ends in `MARK`.
    """
    pairs: list[Text] = []
    shuffled = sorted(texts, key=lambda t: hashlib.sha256(f"{seed}\n{t.id}".encode()).digest())
    for text in shuffled:
        variant = with_options_moved(text, seed=seed) if len(pairs) < 2 * count else None
        if variant is not None:
            pairs += [text, variant]
    for paraphrase in paraphrases:
        if paraphrase.id not in texts.index:
            raise InputError(f"paraphrase of {paraphrase.id!r}: the study has no text with that id")
        variant_id = f"{paraphrase.id}{MARK}"
        if variant_id not in {t.id for t in pairs}:
            original = texts.texts[texts.index[paraphrase.id]]
            start = paraphrase.answer_start
            variant = Text(id=variant_id, source=original.source, text=paraphrase.text, answer_start=start)
            pairs += [original, variant]
    if not pairs:
        raise NotEnoughDataError("no text has lettered options and an answer; give paraphrases with --paraphrases")
    return TextSet.of(replace(text, options=()) for text in pairs)  # only whole texts are compared


def create_contamination_study(
    study: StudyLike, root: str | PathLike[str], *, count: int = 50, paraphrases: str | PathLike[str] | None = None
) -> Study:
    """Create a study of texts and their variants, on which models are then scored for `check_contamination`.

    Parameters
    ----------
    study : the study whose texts are to be checked, or its folder
    root : folder to create
    count : largest number of texts with lettered options to take
    paraphrases : JSONL of paraphrased texts, each with the id of its original; they are further variants

    Returns
    -------
    the new study: each text is followed by its variant; it has no losses yet

    >>> import benchcast as bc
    >>> study = bc.create_study("new", "texts.jsonl").study
    >>> len(bc.create_contamination_study(study, "variants").texts)       # 6 questions and their variants
    12
    """
    opened = Study.of(study)
    opened.texts.require_texts("contamination")
    rewritten = () if paraphrases is None else read_texts(Path(paraphrases)).texts
    pairs = make_variants(opened.texts, count, seed=opened.seed, paraphrases=rewritten)
    return Study.create(Path(root), pairs, seed=opened.seed)


def check_contamination(study: StudyLike) -> list[ContaminationCheck]:
    """Test for each model whether it was trained on the texts of a contamination study.

    Parameters
    ----------
    study : a study from `create_contamination_study` that has losses of models, or its folder

    Returns
    -------
    for each model with losses the mean difference in nats between variant and original, and its p-value

    >>> import benchcast as bc
    >>> study = bc.create_contamination_study(bc.create_study("new", "texts.jsonl").study, "variants")
    >>> collected = bc.collect(study, bc.open_backend("hf", "pretrained=checkpoint"))
    >>> [check.pairs for check in bc.check_contamination(study)]
    [6]
    """
    opened = Study.of(study)
    return [check_model(opened.losses(name), opened.texts) for name in opened.models_with_losses()]


def check_model(losses: TokenLosses, texts: TextSet) -> ContaminationCheck:
    """Compare one model's losses on texts and their variants, which `make_variants` paired."""
    # A first token without a loss is missing from both texts of a pair, so that their totals can be compared.
    text = np.repeat(np.arange(len(losses.counts)), losses.counts)
    known = np.isfinite(losses.nats)
    sums, tokens = (np.bincount(text[known], of, minlength=len(losses.counts)) for of in (losses.nats[known], None))
    totals = np.where(tokens > 0, sums, np.nan)
    pairs = [(i, texts.index[t.id + MARK]) for i, t in enumerate(texts) if t.id + MARK in texts.index]
    lengths = np.diff(texts.starts)
    gaps = np.array([totals[j] * lengths[i] / lengths[j] - totals[i] for i, j in pairs])
    gaps = gaps[np.isfinite(gaps)]
    if len(gaps) < 5:
        raise NotEnoughDataError(
            f"{losses.model}: {len(gaps)} pairs of text and variant have losses, a check needs at least 5"
        )
    return ContaminationCheck(
        model=losses.model,
        pairs=len(gaps),
        nats=float(gaps.mean()),
        stderr=float(gaps.std(ddof=1) / np.sqrt(len(gaps))),
        easier=float((gaps > 0).mean() + (gaps == 0).mean() / 2),
        p_value=_sign_flip(gaps),
    )


def _sign_flip(gaps: Floats) -> float:
    """p-value: the share of random sign changes with a mean at least as large, the observed signs included."""
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (FLIPS, len(gaps)))
    return float((1 + np.sum(signs @ gaps >= gaps.sum() - 1e-12)) / (FLIPS + 1))
