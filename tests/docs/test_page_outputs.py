"""Pages whose commands need nothing but the package run as they stand and print what they show, but for numbers."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchcast.losses.support import Support
from benchcast.study.study import Study
from tools.site.pages import blocks, command_lines, renew, shape, steps

DOCS = Path(__file__).parents[2] / "docs"
Run = Callable[..., Any]
needs_ladder = pytest.mark.skipif(
    "BENCHCAST_DATA" not in os.environ, reason="BENCHCAST_DATA is not set: no files of the OLMo ladder"
)
ALONE = ("index.md", "arrays.md", "formats.md", "undo.md", "how-many.md")


@pytest.fixture
def rerun(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """A page with its output made anew, in an empty folder."""

    def run(line: str) -> str:
        code, out, err = cli(*shlex.split(line)[1:])
        assert code == 0, (line, err)
        return out + err

    def again(name: str) -> str:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("COLUMNS", "80")
        return renew((DOCS / name).read_text(encoding="utf-8"), run)

    return again


def words(page: str) -> list[str]:
    """The words of a page without its numbers; long lines may be broken elsewhere."""
    return " ".join(shape(page)).split()


@pytest.mark.parametrize("name", ALONE)
def test_a_page_prints_what_it_shows(name: str, rerun: Callable[[str], str]) -> None:
    assert words(rerun(name)) == words((DOCS / name).read_text(encoding="utf-8"))


def test_the_python_of_the_readme_runs_after_its_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the README installs has no pandas."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    (code,) = (block for kind, block in blocks(readme) if kind == "python")
    exec(compile(code, "README.md", "exec"), {})
    printed = [line.split()[0][:10] for line in capsys.readouterr().out.splitlines()]
    assert printed.count("oak-a-50M@") == 5


@pytest.mark.slow
@needs_ladder
def test_the_tutorial_prints_what_it_shows(rerun: Callable[[str], str], tmp_path: Path) -> None:
    assert words(rerun("tutorial.md")) == words((DOCS / "tutorial.md").read_text(encoding="utf-8"))
    assert (tmp_path / "ladder-demo" / "report.html").is_file()
    assert Study.open(tmp_path / "ladder").fitted_tasks() == ["hellaswag_val", "arc_easy_test"]


@pytest.mark.slow
@needs_ladder
def test_what_the_tutorial_says_of_its_pictures_is_so() -> None:
    """HellaSwag's intervals hold, those of ARC-Easy do not; over all tasks about nine in ten do."""
    import benchcast as bc
    from tools.site.tutorial import EASY, HARD, TARGETS

    result = bc.compare(bc.datasets.fetch_olmo_ladder(), split="column", methods=["stack"])
    covered = {task: result.measures(task, "stack")["coverage"] for task in result.tasks}
    assert covered[EASY] == 1
    assert covered[HARD] < 0.5
    assert 0.8 < sum(covered.values()) / len(covered) < 0.97
    held = result.held_out[HARD, "stack"]
    assert (held.forecast < held.observed).all()
    targets = [
        held.low[i] <= held.observed[i] <= held.high[i]
        for held in (result.held_out[task, "stack"] for task in result.tasks)
        for i, model in enumerate(held.models)
        if model in TARGETS
    ]
    assert len(targets) == 26
    assert sum(targets) == 22


@needs_ladder
def test_the_page_of_runs_shows_what_the_ladder_gives(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchcast.datasets import copy_dataset, fetch_olmo_ladder
    from lab import run_calibration

    page = (DOCS / "runs.md").read_text(encoding="utf-8")
    shown, calibration = (block for kind, block in blocks(page) if kind == "text")
    copy_dataset("olmo-ladder", tmp_path / "ladder")
    assert run_calibration.lines(run_calibration.rerun_calibration(fetch_olmo_ladder())) == calibration.splitlines()
    monkeypatch.setenv("COLUMNS", "80")
    command, *lines = shown.splitlines()
    said = cli(*command.replace(" ladder ", f" {tmp_path / 'ladder'} ").split()[2:])
    assert words("\n".join(lines)) == words(said.out + said.err)


@pytest.mark.parametrize("options", [(), ("--texts", "50")])
def test_the_page_of_the_paper_shows_what_a_cluster_would_take(lab: Run, options: tuple[str, ...]) -> None:
    page = (DOCS / "paper.md").read_text(encoding="utf-8")
    assert ("text", lab("cluster", *options).out) in blocks(page)


def test_the_page_of_scores_shows_the_error_on_mixed_shots(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("losses.csv").write_text("model,web\noak,2.9\nash,2.8\n", encoding="utf-8")
    assert cli("init", "study", "--table", "losses.csv").code == 0
    with Path("study/study.toml").open("a", encoding="utf-8") as settings:
        settings.write("[tasks.mmlu]\n")
    Path("scores.csv").write_text("model,task,accuracy,shots\noak,mmlu,0.3,0\nash,mmlu,0.4,5\n", encoding="utf-8")
    assert ("text", cli("import", "scores", "study", "scores.csv").err) in blocks(
        (DOCS / "scores.md").read_text("utf-8")
    )


def test_the_page_of_the_method_shows_the_notes_on_missing_text() -> None:
    support = Support(left={"words": 0.88}, costs={"elm-1b": ("words", 0.05), "ash-7b": ("words", 0.09)})
    shown = "".join(f"note: {line}\n" for line in support.lines())
    assert ("text", shown) in blocks((DOCS / "forecasts.md").read_text(encoding="utf-8"))


def test_output_that_changed_is_noticed() -> None:
    page = "```console\n$ benchcast status x\nx: 3 texts\nnext: y\n```\n"
    assert shape(renew(page, lambda _: "x: 4 texts\nnext: y\n")) == shape(page)
    assert shape(renew(page, lambda _: "x: 4 pages\nnext: y\n")) != shape(page)
    assert renew(page, lambda _: "x: 4 texts\n") == "```console\n$ benchcast status x\nx: 4 texts\n```\n"


def test_bash_blocks_write_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = "```bash\ncat > a.csv <<END\nx,y\nEND\ncat >> a.csv <<END\n1,2\nEND\nbenchcast status x\n```\n"
    assert renew(page, str) == page
    assert Path("a.csv").read_text(encoding="utf-8") == "x,y\n1,2\n"
    assert [words[0] for words in steps(page)] == ["cat > a.csv", "cat >> a.csv"]
    assert command_lines(page) == ["cat > a.csv", "cat >> a.csv", "benchcast status x"]


def test_a_line_of_dots_stands_for_any_lines() -> None:
    page = "```console\n$ benchcast status x\n…\nnext: 1 y\n```\n"
    assert renew(page, lambda _: "x: 4 texts\nnext: 2 y\n") == page.replace("1", "2")
