"""Create a study from the user's texts or from a mixture of benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from benchcast.presets import preset_tasks
from benchcast.records import TextSet
from benchcast.store import Study
from benchcast.texts.duplicates import count_repeats
from benchcast.texts.mix import SampledExamples, build_mixture, parse_mix
from benchcast.texts.own import read_own
from benchcast.texts.unicode import normalize as to_nfc
from benchcast.texts.unicode import not_normal


@dataclass(frozen=True, slots=True, repr=False)
class NewStudy:
    """A new study, and what to know about its texts."""

    study: Study
    notes: tuple[str, ...]  # one line for each choice that was made
    warnings: tuple[str, ...]  # one line for each problem

    def __repr__(self) -> str:
        return f"<NewStudy {str(self.study.root)!r}: {len(self.study.texts)} texts, {len(self.warnings)} warnings>"


def create_study(
    root: str | PathLike[str],
    texts: str | PathLike[str],
    *,
    column: str = "text",
    seed: int = 0,
    normalize: bool = False,
    preset: str = "",
) -> NewStudy:
    """Create a study from validation texts.

    Parameters
    ----------
    root : folder to create
    texts : JSONL with text, and optionally id, source and answer_start (in bytes); a folder of files; a Parquet file
    column : the column of a Parquet file that holds the texts
    seed : seed of everything random in the study
    normalize : store the texts in the Unicode normal form NFC
    preset : name of a suite whose tasks the study gets: "core", "olmes" or "open-llm-leaderboard"; empty: no tasks

    Returns
    -------
    the study (`.study`), with notes and warnings about the texts
    """
    stored, notes, warnings = _normal_form(read_own(Path(texts), column=column), normalize=normalize)
    filled = [t.text for t in stored if t.text.strip()]
    empty, repeats = len(stored) - len(filled), count_repeats(filled)
    if empty or repeats:
        warnings += (f"{empty} empty texts, {repeats} texts that repeat another; kept as they are",)
    tasks = preset_tasks(preset, stored) if preset else []
    return NewStudy(Study.create(Path(root), stored, tasks=tasks, seed=seed), notes, warnings)


def create_mixture(
    root: str | PathLike[str],
    mix: str | Mapping[str, int],
    *,
    data: str | PathLike[str] | None = None,
    seed: int = 0,
    normalize: bool = False,
) -> NewStudy:
    """Create a study from a sample of examples of benchmarks, with their tasks.

    Parameters
    ----------
    root : folder to create
    mix : number of examples of each benchmark: {"mmlu": 100, "bbh": 50} or "mmlu=100,bbh=50"
    data : folder with the benchmarks' files, one folder each; None: they are read from the Hugging Face hub
    seed : seed of the sample and of everything random in the study
    normalize : store the texts in the Unicode normal form NFC

    Returns
    -------
    the study (`.study`), with notes and warnings about the texts
    """
    counts = parse_mix(mix) if isinstance(mix, str) else mix
    mixture = build_mixture(counts, None if data is None else Path(data), seed=seed)
    stored, notes, warnings = _normal_form(mixture.texts, normalize=normalize)
    study = Study.create(Path(root), stored, tasks=mixture.tasks, seed=seed)
    skipped = [line for name, drawn in mixture.drawn.items() for line in _skipped(name, drawn)]
    return NewStudy(study, (*notes, *skipped), warnings)


def _skipped(name: str, drawn: SampledExamples) -> list[str]:
    lines = []
    if drawn.empty or drawn.repeated:
        lines.append(f"{name}: skipped {drawn.empty} empty and {drawn.repeated} near-duplicate examples")
    spares = sum(example.spare for example in drawn.examples)
    if spares:
        lines.append(f"{name}: {spares} of {len(drawn.examples)} put a worked example before another question")
    return lines


def _normal_form(texts: TextSet, *, normalize: bool) -> tuple[TextSet, tuple[str, ...], tuple[str, ...]]:
    """The texts to store, with notes and warnings on those that are not in NFC."""
    wrong = not_normal(texts)
    named = ", ".join(wrong[:3]) + (" …" if len(wrong) > 3 else "")
    if not wrong:
        return texts, (), ()
    if normalize:
        return to_nfc(texts), (f"{len(wrong)} texts were normalised to NFC ({named})",), ()
    line = (
        f"{len(wrong)} texts are not in Unicode NFC ({named}); tokenizers that normalise (Qwen, Command-R) "
        "refuse them; --normalize nfc stores them in NFC"
    )
    return texts, (), (line,)
