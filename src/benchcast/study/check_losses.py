"""Check the losses of a study: implausible values, unreadable files, and the text that all models share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from benchcast.errors import BenchcastError, StudyError
from benchcast.losses.assemble import reference_of, shared_text
from benchcast.losses.dataset import ReferenceTokens
from benchcast.losses.plausible import WordLosses, WordSample, describe, reference_models, suspicious
from benchcast.losses.regroup import align_models
from benchcast.losses.support import Support
from benchcast.records import Bools, NamedTexts
from benchcast.steps import steps
from benchcast.study.bos_policies import BosPolicy, bos_lines
from benchcast.study.parquet import read_metadata
from benchcast.study.study import Study


@dataclass(frozen=True, slots=True)
class LossCheck:
    """Results of checking the losses of a study."""

    support: Support  # common support of the models with scores
    suspicious: dict[str, str]  # model → the likely mistake in its losses
    unreadable: dict[str, str]  # model → error message
    policies: dict[str, BosPolicy]  # model → whether a BOS stood before its texts

    def lines(self) -> list[str]:
        """One line for each problem."""
        excluded = [f"model {m} is left out of fits: it {self.support.why(m)}" for m in self.support.excluded]
        of_bos = bos_lines(self.policies, self.policies)
        return [*self.unreadable.values(), *describe(self.suspicious), *of_bos, *excluded, *self.support.lines()]


def check_losses(study: Study, names: Sequence[str], scored: Collection[str]) -> LossCheck:
    """Check the losses of models, reading each file once.

    Parameters
    ----------
    study : the study
    names : models to check
    scored : models with scores; the common support is that of these models
    """
    sample = WordSample.of(study.texts, without=study.choice_columns)
    words: dict[str, WordLosses] = {}
    lacking: dict[str, Bools] = {}
    policies: dict[str, BosPolicy] = {}
    unreadable: dict[str, str] = {}
    tokens = None
    for name in steps(names, "models read"):
        try:
            losses = study.losses(name)
        except BenchcastError as error:
            unreadable[name] = str(error)
            continue
        words[name] = sample.read(losses)
        if not isinstance(study.texts, NamedTexts):
            policies[name] = BosPolicy.of(losses)
        if name in scored and np.isnan(losses.nats).any():
            tokens = _reference(study) if tokens is None else tokens
            mask = np.isnan(align_models([losses], tokens.edges, study.texts)[0])
            mask &= ~tokens.of_texts(study.choice_columns)
            if mask.any():
                lacking[name] = mask
    support = Support()
    if tokens is not None:
        support = shared_text(lacking, sum(m in scored for m in words), tokens, guarded=study.tasks)
    return LossCheck(support, suspicious(sample, words), unreadable, policies)


def _reference(study: Study) -> ReferenceTokens:
    try:
        features = study.features()
    except StudyError:  # reported with the scorer
        features = None
    return reference_of(study.texts, features)[0]


def suspicious_losses(study: Study, models: Sequence[str]) -> list[str]:
    """One line for each of the named models whose losses are implausible as nats, compared with other models."""
    sample = WordSample.of(study.texts, without=study.choice_columns)
    others = reference_models([m for m in study.models_with_losses() if m not in models])
    words = {}
    for name in [*others, *models]:
        try:
            words[name] = sample.read(study.losses(name))
        except BenchcastError:  # `status` reports it
            continue
    return describe({m: mistake for m, mistake in suspicious(sample, words).items() if m in models})


def scored_without_options(study: Study) -> list[str]:
    """Names of the models that were collected before the texts had their present options."""
    digest = study.texts.options_digest
    if not digest:
        return []
    stored = {name: read_metadata(study.losses_path(name)) for name in study.models_with_losses()}
    return [name for name, about in stored.items() if "asked" in about and about.get("options") != digest]
