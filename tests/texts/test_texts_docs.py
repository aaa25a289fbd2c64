"""The commands of the pages on texts, scores and the paper run as they are pasted, in a folder with what they name."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lab.paper.standins import SKILLS, write_stand_in
from tools.site.pages import blocks, shape, steps, write_shown

DOCS = Path(__file__).parents[2] / "docs"
RECORDED = Path(__file__).parents[1] / "scores" / "fixtures"
MODELS = ("reed-7k", "reed-30k", "reed-90k", "rush-7k", "rush-30k", "rush-90k")
# Lines that the output here may lack: `…` stands for any lines, and the written files repeat no question of BBH.
LACKING = {"…", "bbh: skipped # empty and # near-duplicate examples"}
Run = Callable[..., tuple[int, str, str]]
Step = tuple[str, list[str]]  # a command and the lines shown under it


def page_blocks(page: str) -> Iterator[list[Step]]:
    """The commands of each console block of a page and the files of each bash block, in order."""
    for kind, block in blocks((DOCS / page).read_text(encoding="utf-8")):
        if kind != "python":
            yield [(line.partition("      ")[0], shown) for line, shown in steps(f"```{kind}\n{block}```")]


@pytest.fixture(scope="module")
def folder(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages speak of: benchmarks, texts of one's own, six models and their results."""
    root = tmp_path_factory.mktemp("docs")
    shutil.copytree(written, root / "benchmarks")
    (root / "folder" / "notes").mkdir(parents=True)
    for name in ("one.txt", "notes/two.txt"):
        (root / "folder" / name).write_text(f"text of {name}", encoding="utf-8")
    rows = [{"text": f"Q: where is otter {i}? A: {'pond' if i % 2 else 'barn'}", "source": "pond"} for i in range(40)]
    (root / "texts.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    pq.write_table(pa.table({"body": ["first", "second"]}), root / "corpus.parquet")
    result = json.loads(next(RECORDED.glob("results_*.json")).read_text(encoding="utf-8"))
    for number, name in enumerate(MODELS):
        write_stand_in(root / "models" / name, dict.fromkeys(SKILLS, 0.2 + number / 10), seed=number, merging=False)
        result |= {"model_name": f"models/{name}"}
        result["results"]["pond"]["acc,none"] = 0.2 + 0.05 * number
        (root / "results" / name).mkdir(parents=True)
        (root / "results" / name / "results_1.json").write_text(json.dumps(result), encoding="utf-8")
    return root


def others(line: str) -> list[str]:
    """A command for the first model → the same for the rest; what `…` under it stands for."""
    named = [(line.replace(MODELS[0], name), name.partition("-")[0]) for name in MODELS[1:]]
    return [re.sub(r"--family \w+", f"--family {family}", command) for command, family in named]


def carry_out(block: list[Step], cli: Run, lab: Run) -> int:
    """Run the commands of a block; says how many were ours."""
    ours = 0
    for line, shown in block:
        words = shlex.split(line)
        if words[0] == "cat" and (">>" in words or not Path(words[-1]).exists()):
            write_shown(line, shown)
        if words[:3] == ["python", "-m", "lab"]:
            assert lab(*words[3:]).code == 0, line
            ours += 1
        if words[0] != "benchcast":
            continue
        for command in (line, *(others(line) if words[1] == "collect" and "…" in shown else ())):
            code, out, err = cli(*shlex.split(command)[1:])
            if command == line and code == 0:
                assert set(shape("\n".join(shown))) - set(shape(out + err)) <= LACKING, (line, out + err)
            assert (code == 1) == any(x.startswith("error: ") for x in shown), (command, err)
            ours += 1
        if shown and shown[0].startswith("error: "):
            assert err.startswith(shown[0].partition(",")[0].split(" examples")[0]), err
    return ours


@pytest.mark.parametrize(("page", "least"), [("texts.md", 10), ("scores.md", 12), ("paper.md", 4)])
def test_every_command_of_a_page_does_what_the_page_says(
    folder: Path, tmp_path: Path, cli: Run, lab: Run, monkeypatch: pytest.MonkeyPatch, page: str, least: int
) -> None:
    pytest.importorskip("transformers", reason="losses are collected with transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    shutil.copytree(folder, tmp_path / "here")
    done = 0
    for number, block in enumerate(page_blocks(page)):
        place = tmp_path / "here"
        inits = [i for i, (line, _) in enumerate(block) if line.startswith("benchcast init")]
        for first, stop in zip([0, *inits[1:]], [*inits[1:], len(block)], strict=True):
            if inits and (place / "study").exists():  # a page starts a study anew to show another way
                place = shutil.copytree(folder, tmp_path / f"{number}-{first}")
            monkeypatch.chdir(place)
            done += carry_out(block[first:stop], cli, lab)
    assert done >= least
