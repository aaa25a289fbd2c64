"""`python -m lab`: files that open, and one clear line where a study lacks the parts."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchcast.errors import BenchcastError
from benchcast.study.study import Study
from lab import quality
from lab.commands import lab
from lab.decision_accuracy import lines, zoo_decisions
from lab.reproduce.context import StudyContext
from lab.reproduce.document import PARTS, write_page, write_part
from lab.reproduce.png import SIGNATURE, _chunks

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
    "live": ("live",),
    "extrapolate": ("extrapolate",),
    "order": (),
}
QUICK = {
    "fig8": ["--method", "label-token", "--draws", "2"],
    "learning": ["--draws", "1"],
    "live": ["--method", "label-token"],
    "extrapolate": ["--worlds", "2"],
}


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


def test_methods_are_measured_on_a_study_of_ones_own(study: Study, monkeypatch: Any) -> None:
    monkeypatch.setattr(quality, "METHODS", ("salience", "pls", "logistic-4", "all-token"))
    rows = quality.measure_study("own", "family", study)
    by_method = {row.method: row for row in rows}
    assert set(by_method) == {"salience", "pls", "logistic-4", "all-token", *quality.AVERAGES}
    assert by_method["all-token"].gain == pytest.approx(1.0)
    best = max(row.gain for row in rows if row.method in quality.SINGLE)
    assert all(row.gain * row.regret == pytest.approx(best) for row in rows)
    every, over_all = quality.tables(rows)
    assert (len(every.rows), len(over_all.rows)) == (len(rows), len(rows))


def test_families_of_a_study_are_ordered_by_every_signal(study: Study) -> None:
    accuracies = zoo_decisions(study)
    assert [x.signal for x in accuracies] == ["its own score", "salience", "label-token", "all-token"]
    assert all(0 <= x.right <= 1 and x.decisions > 0 for x in accuracies)
    assert lines(accuracies)[0].startswith("its own score")
