"""Create a study from the user's texts or from a mixture of benchmarks.

Some tokenizers (Qwen, Command-R) normalise a text first. Their tokens do not cover the bytes of a text that is not in
Unicode normal form C (NFC), so `collect` raises an error for it; the texts are checked, and normalised where asked.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from benchcast.errors import InputError
from benchcast.importers.mixture import SampledExamples, build_mixture, count_repeats, parse_mix
from benchcast.importers.presets import preset_tasks
from benchcast.messages import counted, did_you_mean, few
from benchcast.records import Text, TextSet
from benchcast.study.reading import need_file, read_utf8
from benchcast.study.study import Study
from benchcast.study.tables import parse_options, read_texts


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
    texts : JSONL with text, and optionally id, source, answer_start (in bytes) and options; a folder of files; a
        Parquet file
    column : the column of a Parquet file that holds the texts
    seed : seed of everything random in the study
    normalize : store the texts in the Unicode normal form NFC
    preset : name of a suite whose tasks the study gets: "core", "olmes" or "open-llm-leaderboard"; empty: no tasks

    Returns
    -------
    the study (`.study`), with notes and warnings about the texts

    >>> import benchcast as bc
    >>> bc.create_study("new", "texts.jsonl")
    <NewStudy 'new': 6 texts, 0 warnings>
    """
    stored, notes, warnings = _normal_form(read_own(Path(texts), column=column), normalize=normalize)
    filled = [t.text for t in stored if t.text.strip()]
    empty, repeats = len(stored) - len(filled), count_repeats(filled)
    if empty or repeats:
        warnings += (f"{empty} empty texts, {repeats} texts that repeat another; kept as they are",)
    warnings += _odd_spaces(stored)
    tasks = preset_tasks(preset, stored) if preset else []
    study = Study.create(Path(root), stored, tasks=tasks, seed=seed)
    return NewStudy(study=study, notes=notes, warnings=warnings)


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

    >>> import benchcast as bc
    >>> bc.create_mixture("new", {"mmlu": 5, "gsm8k": 5}, data="benchmarks")
    <NewStudy 'new': 10 texts, 0 warnings>
    """
    counts = parse_mix(mix) if isinstance(mix, str) else mix
    mixture = build_mixture(counts, None if data is None else Path(data), seed=seed)
    stored, notes, warnings = _normal_form(mixture.texts, normalize=normalize)
    study = Study.create(Path(root), stored, tasks=mixture.tasks, seed=seed)
    skipped = [line for name, drawn in mixture.drawn.items() for line in _skipped(name, drawn)]
    return NewStudy(study=study, notes=(*notes, *skipped), warnings=warnings)


def _skipped(name: str, drawn: SampledExamples) -> list[str]:
    lines = []
    if drawn.empty or drawn.repeated:
        lines.append(f"{name}: skipped {drawn.empty} empty and {drawn.repeated} near-duplicate examples")
    spares = sum(example.spare for example in drawn.examples)
    if spares:
        lines.append(f"{name}: {spares} of {len(drawn.examples)} put a worked example before another question")
    return lines


def _odd_spaces(texts: Iterable[Text]) -> tuple[str, ...]:
    """A line on texts whose answer starts with white space and an option does not, or the other way round."""
    odd = [t.id for t in texts if any(o[0].isspace() != t.answer[0].isspace() for o in t.options)]
    if not odd:
        return ()
    has = f"{counted(len(odd), 'text')} {'has' if len(odd) == 1 else 'have'}"
    return (
        f"{has} options that start otherwise than the answer ({few(odd)}): one with a space, one without; "
        "an option replaces the answer byte for byte, so give both the same",
    )


def _normal_form(texts: TextSet, *, normalize: bool) -> tuple[TextSet, tuple[str, ...], tuple[str, ...]]:
    """The texts to store, with notes and warnings on those that are not in NFC."""
    wrong = not_normal(texts)
    named = ", ".join(wrong[:3]) + (" …" if len(wrong) > 3 else "")
    if not wrong:
        return texts, (), ()
    if normalize:
        return to_normal_form(texts), (f"{len(wrong)} texts were normalised to NFC ({named})",), ()
    line = (
        f"{len(wrong)} texts are not in Unicode NFC ({named}); tokenizers that normalise (Qwen, Command-R) "
        "refuse them; --normalize nfc stores them in NFC"
    )
    return texts, (), (line,)


def not_normal(texts: Iterable[Text]) -> list[str]:
    """Ids of the texts that are not in NFC."""
    normal = partial(unicodedata.is_normalized, "NFC")
    return [t.id for t in texts if not (normal(t.text) and all(normal(t.prompt + option) for option in t.options))]


def to_normal_form(texts: TextSet) -> TextSet:
    """The same texts and options in NFC, with `answer_start` moved to the same character."""
    return TextSet.of(_normal(t) for t in texts)


def _normal(text: Text) -> Text:
    nfc = partial(unicodedata.normalize, "NFC")
    if text.answer_start is None or not not_normal([text]):
        return replace(text, text=nfc(text.text))
    prompt = text.text.encode()[: text.answer_start].decode(errors="ignore")
    ends = [text.text[len(prompt) :], *text.options]
    cut = len(prompt)
    # A combining mark at the start of the answer joins the previous letter: then the answer starts with that letter.
    while any(nfc(prompt[:cut]) + nfc(prompt[cut:] + end) != nfc(prompt + end) for end in ends):
        cut -= 1
    answer, *options = (nfc(prompt[cut:] + end) for end in ends)
    start = len(nfc(prompt[:cut]).encode())
    return replace(text, text=nfc(prompt[:cut]) + answer, answer_start=start, options=tuple(options))


def read_own(path: Path, *, column: str = "text") -> TextSet:
    """Read all texts at a path: a folder, a Parquet file (`column` has the texts), or a JSONL file."""
    if path.is_dir():
        return read_folder(path)
    if path.suffix.lower() == ".parquet":
        return read_column(path, column)
    return read_texts(path)


def read_folder(folder: Path) -> TextSet:
    """Read each file of a folder, except hidden ones, as a text; its source is the subfolder, or the folder."""
    texts = []
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in relative.parts):
            source = relative.parts[0] if len(relative.parts) > 1 else folder.resolve().name
            texts.append(Text(relative.as_posix(), source, read_utf8(path)))
    if not texts:
        raise InputError(f"{folder}: no files; a study needs at least one text")
    return TextSet.of(texts)


def read_column(path: Path, column: str) -> TextSet:
    """Read each row of a Parquet file as a text, with id, source, answer_start and options where it has them."""
    from benchcast.study.parquet import read_schema, read_table

    need_file(path)
    names = read_schema(path).names
    if column not in names:
        hint = f"found {', '.join(names)}; choose one with --column"
        raise InputError(f"{path}: no column {column!r}{did_you_mean(column, names)} ({hint})")
    optional = [n for n in ("id", "source", "answer_start", "options") if n in names and n != column]
    rows: list[dict[str, Any]] = read_table(path, [column, *optional]).to_pylist()
    if not rows:
        raise InputError(f"{path}: no rows; a study needs at least one text")
    return TextSet.of(_row(path, i, row, column) for i, row in enumerate(rows, start=1))


def _row(path: Path, number: int, row: dict[str, Any], column: str) -> Text:
    where = f"{path}: row {number}"
    text, start = row[column], row.get("answer_start")
    if not isinstance(text, str):
        raise InputError(f"{where}: {column} must be text, found {text!r}")
    if start is not None and (isinstance(start, bool) or not isinstance(start, int)):
        raise InputError(f"{where}: answer_start must be a whole number of bytes, found {start!r}")
    name, source = row.get("id"), row.get("source")
    return Text(
        id=f"{path.stem}-{number}" if name is None else str(name),
        source=path.stem if source is None else str(source),
        text=text,
        answer_start=start,
        options=parse_options(where, row.get("options")),
    )
