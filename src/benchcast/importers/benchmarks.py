"""The benchmarks of a mixture: how an item becomes a prompt and an answer, as in evaluation harnesses; their files.

The answer includes the space before it: tokenizers put that space into the answer's first token, and a
boundary inside a token would assign part of the answer's loss to the question.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchcast.errors import InputError
from benchcast.records import Text
from benchcast.study.reading import parse_json, read_utf8

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
TAG = re.compile(r"\s*\[[^\]]*\]\s*")  # markup of WikiHow in HellaSwag, such as [header]


@dataclass(frozen=True, slots=True)
class Example:
    """A benchmark item as it is scored: the prompt, followed by the answer."""

    id: str
    prompt: str
    answer: str
    content: str  # the part that distinguishes it from other items; empty if the item is empty
    spare: bool = False  # drawn only if there are too few other items
    options: tuple[str, ...] = ()  # the wrong answers, written like the right one

    def as_text(self, source: str) -> Text:
        """The item as a text of a study."""
        try:
            start = len(self.prompt.encode())
            "".join((self.answer, *self.options)).encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"{self.id}: the text contains half a surrogate pair, which is not valid Unicode"
            ) from error
        text = self.prompt + self.answer
        return Text(id=self.id, source=source, text=text, answer_start=start, options=self.options)


@dataclass(frozen=True, slots=True)
class Row:
    """One item as read from a file or the hub."""

    where: str  # origin, for messages
    id: str
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        if name not in self.fields:
            present = ", ".join(str(k) for k in self.fields)
            raise InputError(f"{self.where}: no field {name!r}; found {present}")
        return self.fields[name]

    def text(self, name: str) -> str:
        """A text field without surrounding white space; an error if it is not text."""
        value = self[name]
        if not isinstance(value, str):
            raise InputError(f"{self.where}: {name} must be text, found {value!r}")
        return value.strip()


def mmlu(row: Row) -> Example:
    """Question, four lettered options, `Answer:` and the letter."""
    options = row["choices"]
    if not isinstance(options, Sequence) or isinstance(options, str):
        raise InputError(f"{row.where}: choices must be a list, found {options!r}")
    answer = row["answer"]
    index = LETTERS.find(answer) if isinstance(answer, str) and len(answer) == 1 else answer
    question, listed = row.text("question"), [str(o) for o in options]
    return _multiple_choice(row, question, listed, correct=index, ask="\nAnswer:", space=" ")


def cmmlu(row: Row) -> Example:
    """As `mmlu`, in Chinese, with the columns of CMMLU."""
    return _chinese(row, "Question", "Answer")


def ceval(row: Row) -> Example:
    """As `mmlu`, in Chinese, with the columns of C-Eval."""
    return _chinese(row, "question", "answer")


def _chinese(row: Row, question: str, answer: str) -> Example:
    options = [row.text(letter) for letter in "ABCD"]
    correct = "ABCD".find(row.text(answer) or "?")
    return _multiple_choice(row, row.text(question), options, correct=correct, ask="\n答案：", space="")


def _multiple_choice(row: Row, question: str, options: Sequence[str], *, correct: Any, ask: str, space: str) -> Example:
    if isinstance(correct, bool) or not isinstance(correct, int) or not 0 <= correct < len(options):
        raise InputError(f"{row.where}: the answer is none of the {len(options)} options")
    listed = "\n".join(f"{letter}. {option.strip()}" for letter, option in zip(LETTERS, options, strict=False))
    content = f"{question}\n{listed}" if question else ""
    answers = [space + letter for letter in LETTERS[: len(options)]]
    right = answers.pop(correct)
    prompt = f"{question}\n{listed}{ask}"
    return Example(id=row.id, prompt=prompt, answer=right, content=content, options=tuple(answers))


def hellaswag(row: Row) -> Example:
    """Context and correct ending; no options are shown, as harnesses compare whole endings."""
    endings = row["endings"]
    label = str(row["label"])
    if not isinstance(endings, Sequence) or not all(isinstance(ending, str) for ending in endings):
        raise InputError(f"{row.where}: endings must be a list of texts, found {endings!r:.60}")
    if not label.isdigit() or int(label) >= len(endings):
        raise InputError(f"{row.where}: label {label!r} is none of the endings")
    ctx = _tidy(row.text("ctx"))
    answers = [f" {_tidy(ending)}" for ending in endings]
    right = answers.pop(int(label))
    # An item with an empty ending, or with the right one twice, has no choice among its endings.
    options = tuple(answers) if all(map(str.strip, answers)) and right not in answers else ()
    return Example(id=row.id, prompt=f"{row.text('activity_label')}: {ctx}", answer=right, content=ctx, options=options)


def _tidy(text: str) -> str:
    return TAG.sub(" ", text.replace(" [title]", ". ")).replace("  ", " ").strip()


def gsm8k(row: Row) -> Example:
    """Question and worked solution; the answer includes the steps."""
    question, solution = row.text("question"), row.text("answer")
    answer = f" {solution}" if solution else ""
    return Example(id=row.id, prompt=f"Question: {question}\nAnswer:", answer=answer, content=question)


def bbh(row: Row) -> Example:
    """Question and target."""
    question, target = row.text("input"), row.text("target")
    answer = f" {target}" if target else ""
    return Example(id=row.id, prompt=f"Q: {question}\nA:", answer=answer, content=question)


def bbh_cot(row: Row) -> Example:
    """A worked example of the chain-of-thought prompts; or, as a spare, a BBH item preceded by one."""
    if "worked" in row.fields:
        item = bbh(row)
        return replace(item, prompt=f"{row.text('worked')}\n\n{item.prompt}", spare=True)
    question, steps = row.text("question"), row.text("steps")
    answer = f" {steps}" if steps else ""
    return Example(id=row.id, prompt=f"Q: {question}\nA:", answer=answer, content=question)


TEMPLATES: dict[str, Callable[[Row], Example]] = {
    "mmlu": mmlu,
    "bbh": bbh,
    "gsm8k": gsm8k,
    "hellaswag": hellaswag,
    "cmmlu": cmmlu,
    "ceval": ceval,
    "bbh-cot": bbh_cot,
}

WORKED = re.compile(r"^Q: (?P<question>.*?)\nA: (?P<steps>.*?)(?=\n\nQ: |\Z)", re.DOTALL | re.MULTILINE)


def read_rows(benchmark: str, data: Path) -> Iterator[Row]:
    """All items of one benchmark in the folder `data`, which has one subfolder for each benchmark."""
    if not data.is_dir():
        raise InputError(f"{data}: no such folder; --data needs a folder with one subfolder for each benchmark")
    return _READERS[benchmark](data)


def _mmlu(data: Path) -> Iterator[Row]:
    folder = _split(data, "mmlu", "val")
    for path in _files(folder, "*.jsonl", "*.csv"):
        subject = path.stem.removesuffix("_val")
        if path.suffix == ".jsonl":
            for i, (where, fields) in enumerate(_jsonl(path)):
                yield Row(where, f"mmlu-{subject}-{i}", fields)
            continue
        for i, (where, cells) in enumerate(_csv_lines(path)):
            if len(cells) != 6:
                raise InputError(f"{where}: a row needs question, four options and answer, found {len(cells)} cells")
            question, *options, answer = cells
            fields = {"question": question, "choices": options, "answer": answer.strip()}
            yield Row(where, f"mmlu-{subject}-{i}", fields)


def _bbh(data: Path) -> Iterator[Row]:
    for path in _files(_folder(data, "bbh"), "*.json"):
        for i, item in enumerate(_bbh_items(path)):
            yield Row(f"{path}: example {i}", f"bbh-{path.stem}-{i}", item)


def _bbh_items(path: Path) -> list[dict[str, Any]]:
    document = parse_json(read_utf8(path), str(path))
    items = document.get("examples") if isinstance(document, dict) else None
    if not isinstance(items, list) or not all(isinstance(x, dict) for x in items):
        raise InputError(f"{path}: a BBH task needs a list 'examples' of input and target")
    return items


def _bbh_cot(data: Path) -> Iterator[Row]:
    """Worked examples; then, as spares, items of each task preceded by one of its worked examples."""
    bbh = _folder(data, "bbh")
    beside = data / "cot-prompts"
    prompts = beside if beside.is_dir() else _split(data, "bbh", "cot-prompts")
    for path in _files(prompts, "*.txt"):
        worked = list(WORKED.finditer(read_utf8(path)))
        if not worked:
            raise InputError(f"{path}: no worked example (a question after 'Q: ', its steps after 'A: ')")
        for i, match in enumerate(worked):
            yield Row(f"{path}: example {i}", f"bbh-cot-{path.stem}-{i}", match.groupdict())
        task = bbh / f"{path.stem}.json"
        for i, item in enumerate(_bbh_items(task) if task.is_file() else []):
            before = worked[i % len(worked)].group().strip()
            yield Row(f"{task}: example {i}", f"bbh-cot-{path.stem}-before-{i}", {**item, "worked": before})


def _gsm8k(data: Path) -> Iterator[Row]:
    path = _folder(data, "gsm8k") / "train.jsonl"
    for i, (where, fields) in enumerate(_jsonl(_present(path))):
        yield Row(where, f"gsm8k-{i}", fields)


def _hellaswag(data: Path) -> Iterator[Row]:
    path = _folder(data, "hellaswag") / "hellaswag_val.jsonl"
    for i, (where, fields) in enumerate(_jsonl(_present(path))):
        yield Row(where, f"hellaswag-{fields.get('ind', i)}", fields)


def _cmmlu(data: Path) -> Iterator[Row]:
    folder = _folder(data, "cmmlu")
    return _subjects("cmmlu", folder / "test" if (folder / "test").is_dir() else folder)


def _ceval(data: Path) -> Iterator[Row]:
    return _subjects("ceval", _split(data, "ceval", "val"))


def _subjects(benchmark: str, folder: Path) -> Iterator[Row]:
    for path in _files(folder, "*.csv"):
        lines = _csv_lines(path)
        _, header = next(lines, ("", []))
        for i, (where, cells) in enumerate(lines):
            if len(cells) != len(header):
                raise InputError(f"{where}: {len(cells)} cells, the header has {len(header)}")
            yield Row(where, f"{benchmark}-{path.stem.removesuffix('_val')}-{i}", dict(zip(header, cells, strict=True)))


_READERS = {
    "mmlu": _mmlu,
    "bbh": _bbh,
    "bbh-cot": _bbh_cot,
    "gsm8k": _gsm8k,
    "hellaswag": _hellaswag,
    "cmmlu": _cmmlu,
    "ceval": _ceval,
}


def _folder(data: Path, benchmark: str) -> Path:
    folder = data / benchmark
    if not folder.is_dir():
        folders = ", ".join(sorted(p.name for p in data.iterdir() if p.is_dir())) or "none"
        raise InputError(f"{data}: no folder {benchmark!r}; found {folders}")
    return folder


def _split(data: Path, benchmark: str, split: str) -> Path:
    folder = _folder(data, benchmark) / split
    if not folder.is_dir():
        beside = _beside(folder)
        raise InputError(f"{folder}: no such folder; {benchmark} is read from its {split!r}, found {beside}")
    return folder


def _present(path: Path) -> Path:
    if not path.is_file():
        raise InputError(f"{path}: no such file; the texts are drawn from it, found {_beside(path)}")
    return path


def _beside(path: Path) -> str:
    return ", ".join(sorted(p.name for p in path.parent.iterdir())[:6]) or "nothing"


def _files(folder: Path, *patterns: str) -> list[Path]:
    paths = sorted(p for pattern in patterns for p in folder.glob(pattern) if p.is_file())
    if not paths:
        raise InputError(f"{folder}: no file {' or '.join(patterns)}")
    return paths


def _jsonl(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(read_utf8(path).split("\n"), start=1):
        if line.strip():
            where = f"{path}: line {number}"
            fields = parse_json(line, where)
            if not isinstance(fields, dict):
                raise InputError(f"{where}: a row must be an object, found {type(fields).__name__}")
            yield where, fields


def _csv_lines(path: Path) -> Iterator[tuple[str, list[str]]]:
    try:
        for number, cells in enumerate(csv.reader(read_utf8(path).splitlines(keepends=True), strict=True), start=1):
            if cells:
                yield f"{path}: row {number}", cells
    except csv.Error as error:
        raise InputError(f"{path}: not a CSV file ({error})") from error
