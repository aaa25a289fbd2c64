"""Figures that commands write, opened in a real browser: names are text in every file, and nothing is fetched."""

from __future__ import annotations

import pytest

from benchcast.study.study import Study
from conftest import hostile_world
from synthetic import write_study

pytestmark = pytest.mark.browser
READY = {"html": "html[data-drawn=yes]", "svg": "svg text"}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Study:
    return write_study(hostile_world(), tmp_path_factory.mktemp("figures") / "study")


def texts(page) -> str:
    """All words of a figure without white space: long names stand in several lines."""
    return squeezed("".join(page.eval_on_selector_all("svg text", "all => all.map(t => t.textContent)")))


def squeezed(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("kind", ["html", "svg"])
def test_names_in_the_figure_of_extrapolate_are_text(visit, keep, cli, hostile, tmp_path, kind):
    family = hostile.models()[1].family
    figure = tmp_path / f"ahead.{kind}"
    at = ("--family", family, "--to", "params=128M,tokens=500B")
    ran = cli("extrapolate", hostile.root, *at, "--plot", figure)
    assert (ran.code, ran.err) == (0, "")
    page = visit(figure, ready=READY[kind])
    said = texts(page)
    assert squeezed(family) in said
    for task in hostile.tasks:
        assert squeezed(task.name) in said
    for word in ("parameters", "training compute (FLOPs)", "accuracy", "scored model", "target", "90% interval"):
        assert squeezed(word) in said
    keep(page, f"extrapolate-{kind}")


@pytest.mark.parametrize("kind", ["html", "svg"])
def test_names_in_the_figure_of_select_are_text(visit, keep, cli, hostile, tmp_path, kind):
    figure = tmp_path / f"budget.{kind}"
    ran = cli("select", hostile.root, "--budget", 4, "--figure", figure)
    assert (ran.code, ran.err) == (0, "")
    page = visit(figure, ready=READY[kind])
    said = texts(page)
    for word in (
        "Forecast error against the number of texts",
        "number of texts",
        "squared error",
        "chosen",
        "all texts",
    ):
        assert squeezed(word) in said
    keep(page, f"select-{kind}")


def test_a_page_of_a_figure_may_reach_nothing(cli, hostile, tmp_path):
    figure = tmp_path / "budget.html"
    cli("select", hostile.root, "--budget", 4, "--figure", figure)
    head = figure.read_text(encoding="utf-8").split("<script")[0]
    assert "default-src &#39;none&#39;" in head
