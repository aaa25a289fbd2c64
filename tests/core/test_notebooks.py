"""What a notebook and `print` show of results, their tables, and the names of the package."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import benchcast as bc
from benchcast.display import MOST_ROWS, html_table, text_table
from benchcast.errors import InputError
from benchcast.forecasts.forecast import Forecast, Forecasts

EVIL = "<script>alert(1)</script>\x1b[31m"


class Cells(HTMLParser):
    """The texts of the cells of a table."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def fit(synthetic_folder: Path) -> bc.Fit:
    return bc.fit(synthetic_folder, "task0", method="all-token", split="size")


@pytest.fixture(scope="module")
def forecasts(fit: bc.Fit, synthetic_folder: Path) -> Forecasts:
    return fit.predict(bc.Study.open(synthetic_folder), models=["family1-*"])


def test_printed_forecasts_show_the_numbers(forecasts):
    title, header, *rows = str(forecasts).splitlines()
    assert title == "Forecasts of 4 models on task0, 90% interval"
    assert header.split() == ["model", "task", "forecast", "low", "high", "score"]
    for row, forecast in zip(rows, forecasts, strict=False):
        values = (forecast.accuracy, forecast.low, forecast.high, forecast.observed)
        assert row.split() == [forecast.model, "task0", *(f"{value:.3f}" for value in values)]
    assert repr(forecasts) == "<Forecasts of 4 models on task0>"


def test_a_remark_is_printed_once_with_its_count(forecasts):
    seen = [row for row in forecasts if row.remark.startswith("seen")]
    assert str(forecasts).count("seen: ") == 1
    assert f"{len(seen)} forecasts: seen: the fit was trained" in str(forecasts)


def test_printed_forecasts_without_scores_or_numbers_have_no_column_of_dashes(forecasts):
    unscored = Forecasts(tuple(replace(row, observed=np.nan) for row in forecasts))
    assert "score" not in str(unscored).splitlines()[1]
    missing = Forecasts((Forecast.missing("task0", "holes", "no losses"),))
    assert str(missing).splitlines()[2:] == ["holes  task0         –    –     –", "1 forecast: no losses"]
    assert str(Forecasts(())) == "<Forecasts of 0 models on no task>"


def test_tables_have_capability_level_and_the_known_score(forecasts, synthetic_folder):
    frame = forecasts.to_pandas()
    known = {s.model: s.accuracy for s in bc.Study.open(synthetic_folder).scores() if s.task == "task0"}
    assert frame["observed"].tolist() == [known[model] for model in frame["model"]]
    assert frame["capability"].tolist() == [row.capability for row in forecasts]
    assert set(frame["level"]) == {0.9}


def test_models_and_scores_are_lists_and_tables(synthetic_folder):
    study = bc.Study.open(synthetic_folder)
    for rows in (study.models(), study.scores()):
        frame = rows.to_pandas()
        assert frame.shape == (len(rows), len(type(rows[0]).__dataclass_fields__))
        assert frame["model"].tolist() == [row.model for row in rows]
        assert rows == list(rows)
        assert isinstance(rows, list)
    assert study.scores().to_arrow()["n_items"].null_count == sum(np.isnan(s.n_items) for s in study.scores())


def test_an_empty_study_has_empty_tables(tmp_path, world):
    study = bc.Study.create(tmp_path / "new", world.texts)
    assert study.models().to_pandas().empty
    assert study.scores().to_arrow().num_rows == 0
    assert "0 models" in study._repr_html_()


def shown(name: str, study: bc.Study, fit: bc.Fit, forecasts: Forecasts) -> object:
    if name == "comparison":
        return bc.compare(study, ["task0"], methods=["all-token", "constant"], split="size")
    if name == "forecaster":
        losses = np.linspace(3, 1, 12)[:, None] * [1.0, 0.5]
        return bc.Forecaster(method="all-token").fit(losses, np.linspace(0.1, 0.8, 12))
    return {"study": study, "fit": fit, "forecasts": forecasts, "models": study.models(), "new": bc.Forecaster()}[name]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("study", ["task0", "task1", "20 models, 20 with losses"]),
        ("fit", ["Fit of 'task0' by all-token", "mean error on them"]),
        ("forecasts", ["Forecasts of 4 models on task0", "forecast", "score"]),
        ("comparison", ["all-token", "constant", "mean error", "coverage"]),
        ("forecaster", ["Forecaster(method='all-token')", "training models", "12"]),
        ("new", ["Forecaster()", "not fitted"]),
        ("models", ["20 ModelInfos", "family"]),
    ],
)
def test_a_notebook_shows_a_table(name, says, synthetic_folder, fit, forecasts):
    html = shown(name, bc.Study.open(synthetic_folder), fit, forecasts)._repr_html_()
    cells = Cells(html)
    assert "table" in cells.tags
    for words in says:
        assert any(words in text for text in cells.texts), words


def test_names_in_tables_are_never_markup_or_control_characters(forecasts):
    hostile = Forecasts(tuple(replace(row, model=EVIL, task=EVIL, remark=EVIL) for row in forecasts))
    assert "script" not in Cells(hostile._repr_html_()).tags
    for shown_text in (str(hostile), hostile._repr_html_(), html_table(EVIL, [EVIL], [[EVIL]], notes=[EVIL])):
        assert "\x1b" not in shown_text


def test_a_long_table_is_cut_and_says_so():
    rows = [[f"model {i}", i / 1000] for i in range(MOST_ROWS + 3)]
    assert text_table(["model", "score"], rows).splitlines()[-1] == "… and 3 more; .to_pandas() has all"
    assert html_table("t", ["model", "score"], rows).count("<tr>") == MOST_ROWS + 1


def test_a_damaged_study_is_one_line_in_a_notebook(study):
    (study.root / "models.csv").write_text("model,colour\na,b\n", encoding="utf-8")
    assert "unknown column" in bc.Study.open(study.root)._repr_html_()


def test_forecasts_are_drawn_with_intervals_and_scores(forecasts):
    chart = forecasts.plot().to_dict()
    (panel,) = chart["concat"]
    (values,) = {
        str(part["data"]["values"]): part["data"]["values"] for part in (chart, panel) if "data" in part
    }.values()
    assert [v["observed"] for v in values] == [row.observed for row in forecasts]
    assert [layer["encoding"]["x"]["field"] for layer in panel["layer"]] == ["low", "accuracy", "observed"]


def test_the_name_of_a_model_alone_says_that_the_study_is_missing(fit, world):
    name = world.models[0].model
    with pytest.raises(InputError, match=r"neither a study nor a file of losses.*fit.predict\(STUDY, models=\['"):
        fit.predict(name)
    with pytest.raises(InputError, match="found list; needed are the losses of one model"):
        fit.predict([name])


def test_dir_is_the_list_of_public_names_before_and_after_use():
    code = (
        "import benchcast as bc; before = dir(bc); bc.Study, bc.fit, bc.datasets, bc.errors;"
        "import benchcast.cli; assert before == dir(bc) == sorted(bc.__all__), set(dir(bc)) ^ set(bc.__all__)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
