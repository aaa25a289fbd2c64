"""`python -m lab`: files that open, and one clear line where a study lacks the parts."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from benchcast.errors import BenchcastError
from benchcast.store import Study
from lab.commands import lab
from lab.paper.tables import TASKS
from lab.reproduce.context import StudyContext
from lab.reproduce.document import PARTS, as_markdown, paper_table, write_page, write_part
from lab.reproduce.outcome import Table
from lab.reproduce.png import SIGNATURE, _chunks, shrink

FIGURES = {
    "table1": ("table1", "table1-family"),
    "fig1": ("fig1",),
    "fig2": ("fig2",),
    "fig4": ("fig4",),
    "fig5": ("fig5", "fig5-reverse"),
    "fig6": ("fig6", "fig6-errors"),
    "fig7": ("fig7",),
    "fig8": ("fig8",),
    "fig9": ("fig9",),
    "ablation": ("ablation",),
    "uncertainty": (),
    "learning": ("learning", "learning-intervals"),
    "decisions": ("decisions",),
    "select": ("select",),
}
QUICK = {"fig8": ["--method", "label-token", "--draws", "2"], "learning": ["--draws", "1"]}


def refuse_constant(name: str) -> Any:
    raise AssertionError(f"{name} in JSON")


def open_png(path: Path) -> tuple[int, int]:
    """Width and height of a PNG whose pixels unpack to that size."""
    blob = path.read_bytes()
    assert blob.startswith(SIGNATURE)
    parts = list(_chunks(blob))
    width, height = (int.from_bytes(parts[0][1][i : i + 4], "big") for i in (0, 4))
    depth = {3: 1, 6: 4}[parts[0][1][9]]
    raw = zlib.decompress(b"".join(d for kind, d in parts if kind == b"IDAT"))
    assert len(raw) == height * (1 + depth * width)
    return width, height


@pytest.mark.parametrize("what", FIGURES)
def test_every_command_writes_files_that_open(what: str, study: Study, tmp_path: Path, monkeypatch: Any) -> None:
    import lab.reproduce.ablation as ablation

    monkeypatch.setattr(ablation, "HEADS", dict(list(ablation.HEADS.items())[:2]))
    done = CliRunner().invoke(lab, [what, str(study.root), "--out", str(tmp_path / "out"), *QUICK.get(what, [])])
    assert done.exit_code == 0, done.output
    numbers = json.loads((tmp_path / "out" / f"{what}.json").read_text(), parse_constant=refuse_constant)
    assert numbers["study"] == "study"
    for stem in FIGURES[what]:
        width, height = open_png(tmp_path / "out" / f"{stem}.png")
        assert min(width, height) > 100
        assert (tmp_path / "out" / f"{stem}.png").stat().st_size < 200_000
        root = ElementTree.parse(tmp_path / "out" / f"{stem}.svg").getroot()
        assert root.tag.endswith("svg")
        assert (tmp_path / "out" / f"{stem}.pdf").read_bytes().startswith(b"%PDF")
    assert f"{what}.json" in done.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fig1"], "no two families share a name up to the last hyphen"),
        (["fig1", "--runs", "twina,twinb"], "fig1 needs training FLOPs of twina and twinb; fill flops"),
        (
            ["fig5", "--runs", "twina,twinb"],
            "fig5 needs early and later checkpoints of twina: 0 lie in the first third",
        ),
        (["fig5", "--runs", "twina"], "two different families wanted"),
        (["fig6"], "fig6 needs features of a scorer"),
        (["fig8"], "fig8 with paper needs features"),
        (["fig8", "--method", "label-token"], "fig8 needs test models"),
        (["fig9", "--method", "paper"], "fig9 with paper needs features"),
        (["fig9", "--method", "compute"], "method 'compute' weighs no tokens"),
        (["fig9", "--task", "tsk0"], "unknown task 'tsk0'"),
        (["fig9", "--text", "nope"], "unknown text 'nope'"),
        (["fig9", "--method", "magic"], "unknown method 'magic'"),
        (["table1"], "no test models"),
        (["fig4"], "no test models"),
        (["ablation"], "ablation needs test models"),
        (["decisions"], "fill params and tokens in models.csv"),
    ],
)
def test_a_study_without_the_parts_gets_one_clear_line(
    arguments: list[str], says: str, bare: Path, tmp_path: Path
) -> None:
    what, *rest = arguments
    done = CliRunner().invoke(lab, [what, str(bare), "--out", str(tmp_path / "out"), *rest])
    assert isinstance(done.exception, BenchcastError), done.output
    assert says in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_figure_4_names_the_methods_it_knows(study: Study, tmp_path: Path) -> None:
    done = CliRunner().invoke(lab, ["fig4", str(study.root), "--out", str(tmp_path), "--method", "magic"])
    assert "unknown method 'magic'; known: stack, salience, paper" in str(done.exception)


def test_a_smaller_png_shows_the_same_picture(tmp_path: Path) -> None:
    import vl_convert

    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "data": {"values": [{"x": 1, "y": 2}, {"x": 3, "y": 1}]},
        "mark": "point",
        "encoding": {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y", "type": "quantitative"}},
    }
    large = vl_convert.vegalite_to_png(spec)
    small = shrink(large)
    assert len(small) < len(large)
    before, after = pixels(large), pixels(small)
    assert before.shape == after.shape
    assert np.abs(before.astype(int) - after).max() <= 24
    assert shrink(small) == small


def pixels(png: bytes) -> np.ndarray[Any, Any]:
    """RGB values of a PNG as `vl_convert` or `shrink` writes them."""
    parts = list(_chunks(png))
    width, height = (int.from_bytes(parts[0][1][i : i + 4], "big") for i in (0, 4))
    raw = zlib.decompress(b"".join(d for kind, d in parts if kind == b"IDAT"))
    rows = np.frombuffer(raw, np.uint8).reshape(height, -1)[:, 1:]
    if parts[0][1][9] == 3:
        palette = np.frombuffer(dict(parts)[b"PLTE"], np.uint8).reshape(-1, 3)
        return palette[rows]
    return np.cumsum(rows.reshape(height, width, 4), axis=1, dtype=np.uint8)[..., :3]


def test_the_page_of_results_holds_every_part(context: StudyContext, tmp_path: Path) -> None:
    quick = [work(context) for name, _, work in PARTS if name in ("table1", "fig1", "fig2", "fig4")]
    for part in quick:
        write_part(part, tmp_path)
    write_page(context, tmp_path)
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    for part in quick:
        assert f"python -m lab {part.name}" in page
        for ending in part.figures:
            assert f"figures/{part.name}{ending}.png" in page
            assert (tmp_path / "figures" / f"{part.name}{ending}.png").exists()
    assert "1.45e-03" in page  # the paper's own mmlu
    assert "nan" not in page.replace("nanos", "")


def test_the_best_cell_of_a_row_is_bold() -> None:
    assert as_markdown(Table(("a", "b"), (("x", "*1"),), "so")) == "So:\n\n| a | b |\n|---|---:|\n| x | **1** |"


def test_the_page_shows_what_the_papers_scores_tell_alone_beside_its_table_1() -> None:
    rows = {line.split(" | ")[0].removeprefix("| "): line.split(" | ") for line in paper_table().splitlines()}
    head = rows["test MSE"]
    assert rows["mmlu"][1:4] == ["1.45e-03", "2.40e-02", "3.31e-02"]
    assert rows["mmlu"][head.index("constant")] == "2.43e-02"
    assert rows["mmlu"][head.index("observational")] == "1.78e-03"
    assert rows["mmlu"][-1] == "– |"
    assert all(len(row) == len(head) for task, row in rows.items() if task in TASKS)
