"""Benchmark files in their authors' layouts, with invented items; small enough to be written by each run."""

from __future__ import annotations

import csv
import json
from pathlib import Path

REAL = Path(__file__).parents[1].parent / "shared" / "benchmarks"  # pieces of the real ones, where they are
ANIMALS = ("otter", "heron", "lynx", "toad", "wren", "mole", "carp", "newt", "ibis", "hare", "stoat", "finch")
PLACES = ("pond", "barn", "moor", "cliff", "creek", "orchard", "quarry", "meadow", "harbour", "attic")
CHINESE = "山水风云雨雪花草树木鸟鱼马牛羊"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")


def write_csv(path: Path, rows: list[list[str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as out:
        csv.writer(out).writerows(rows)


def jsonl(rows: list[dict[str, object]]) -> str:
    return "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows)


def scenes(n: int) -> list[tuple[str, str, int]]:
    """Distinct animals, places and numbers."""
    return [(ANIMALS[i % 12], PLACES[(i // 12) % 10], i) for i in range(n)]


def write_benchmarks(root: Path) -> Path:
    """All six benchmarks in their original layouts, 12 to 120 invented items each."""
    _write_mmlu(root / "mmlu")
    _write_bbh(root / "bbh")
    rows = [
        {"question": f"{i} {a}s in a {p} lose {i % 7}?", "answer": f"{i} - {i % 7}\n#### {i}"}
        for a, p, i in scenes(120)
    ]
    write(root / "gsm8k" / "train.jsonl", jsonl(rows))
    _write_hellaswag(root / "hellaswag")
    for name, head in (
        ("cmmlu", ["", "Question", "A", "B", "C", "D", "Answer"]),
        ("ceval", ["id", "question", "A", "B", "C", "D", "answer"]),
    ):
        place = root / "cmmlu" if name == "cmmlu" else root / "ceval" / "val"
        for s, subject in enumerate(("anatomy", "history")):
            items = [
                [
                    str(i),
                    f"{CHINESE[i % 15]}{CHINESE[(i // 15 + s * 4) % 15]}第{i}题是",
                    *(f"{o}{i}" for o in "甲乙丙丁"),
                    "ABCD"[i % 4],
                ]
                for i in range(60)
            ]
            write_csv(place / f"{subject}{'_val' if name == 'ceval' else ''}.csv", [head, *items])
    return root


def _write_mmlu(folder: Path) -> None:
    for s, subject in enumerate(("anatomy", "law")):
        rows = [
            {
                "question": f"Where does {a} {i + 60 * s} sleep?",
                "subject": subject,
                "choices": [f"{p} {k}" for k in range(4)],
                "answer": i % 4,
            }
            for a, p, i in scenes(60)
        ]
        write(folder / "val" / f"{subject}.jsonl", jsonl(rows))


def _write_bbh(folder: Path) -> None:
    for s, task in enumerate(("date_understanding", "word_sorting")):
        rows = [
            {
                "input": f"Task {s}: where is {a} {i} of the {p}?\nOptions:\n(A) {p} {i}\n(B) sea {i}",
                "target": "(A)" if i % 2 else "(B)",
            }
            for a, p, i in scenes(100)
        ]
        write(folder / f"{task}.json", json.dumps({"canary": "none", "examples": rows}))
        worked = [
            f"Q: How many {a}s are there {s}?\nA: Let's think step by step.\nCount {i}. So the answer is {i}."
            for a, _, i in scenes(3)
        ]
        write(folder / "cot-prompts" / f"{task}.txt", "canary\n-----\nA task.\n\n" + "\n\n".join(worked))


def _write_hellaswag(folder: Path) -> None:
    rows = [
        {
            "ind": 2 * i,
            "activity_label": "Walking",
            "ctx": f"The {a} leaves the {p} at {i}. it",
            "endings": ["runs.", "[step] sits down.", "flies.", "sings."],
            "label": str(i % 4),
        }
        for a, p, i in scenes(120)
    ]
    write(folder / "hellaswag_val.jsonl", jsonl(rows))
