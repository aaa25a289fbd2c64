"""`predict` for several models at once, and `compare` where only families can be held out."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchcast.study.study import Study


@pytest.fixture(scope="module")
def fitted(synthetic_folder: Path, tmp_path_factory: pytest.TempPathFactory, cli) -> Path:
    """The synthetic study with fits; not to be written to."""
    folder = tmp_path_factory.mktemp("predict") / "study"
    shutil.copytree(synthetic_folder, folder)
    assert cli("fit", folder, "--method", "all-token").code == 0
    return folder


def models_of(out: str) -> list[str]:
    return list(dict.fromkeys(f["model"] for f in json.loads(out)))


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))


def test_every_model_that_is_named_is_forecast(fitted, cli, world):
    one, two = world.models[4].model, world.models[1].model
    ran = cli("predict", fitted, "--model", one, "--model", two, "--json")
    assert models_of(ran.out) == [one, two]
    alone = json.loads(cli("predict", fitted, "--model", one, "--json").out)
    assert json.loads(ran.out)[:2] == alone
    text = cli("predict", fitted, "--model", one, "--model", two).out
    assert one in text
    assert two in text


def test_patterns_and_all(fitted, cli, world):
    names = [m.model for m in sorted(world.models, key=lambda m: (m.family, m.params, m.tokens))]
    family_models = [n for n in names if n.startswith("family1-")]
    assert models_of(cli("predict", fitted, "--model", "family1-*", "--json").out) == family_models
    assert models_of(cli("predict", fitted, "--model", family_models[1], "--model", "family1-*", "--json").out) == [
        family_models[1],
        *(n for n in family_models if n != family_models[1]),
    ]
    assert models_of(cli("predict", fitted, "--all", "--json").out) == names


def test_a_mistyped_model_is_suggested(fitted, cli, world):
    name = world.models[0].model
    ran = cli("predict", fitted, "--model", name.replace("family", "famly"))
    assert ran.code == 1
    assert f"did you mean '{name}'?" in ran.err
    assert "no losses of model 'x*'" in cli("predict", fitted, "--model", "x*").err


def test_a_registered_forecast_is_of_one_model(fitted, cli, tmp_path):
    ran = cli("predict", fitted, "--model", "family1-*", "--register", tmp_path / "made.json")
    assert ran.code == 1
    assert "--register takes one model, found 4" in ran.err
    assert not (tmp_path / "made.json").exists()


def test_a_model_that_cannot_be_forecast_does_not_keep_the_others_back(fitted, cli, tmp_path, world):
    shutil.copytree(fitted, tmp_path / "study")
    holes = world.losses[0].nats.copy()
    holes[:5] = np.nan
    Study.open(tmp_path / "study").add_losses([replace(world.losses[0], model="holes", nats=holes)])
    ran = cli("predict", tmp_path / "study", "--model", "holes", "--model", world.models[1].model, "--json")
    assert ran.code == 1
    assert models_of(ran.out) == [world.models[1].model]
    assert "model 'holes' has no loss on" in ran.err


@pytest.fixture
def only_families(study, world) -> Study:
    """A study whose families have one size each: nothing but families can be held out."""
    (study.root / "models.csv").unlink()
    study.add_models([replace(m, params=float("nan")) for m in world.models])
    return study


def test_compare_falls_back_to_families_and_says_so(only_families, cli):
    ran = cli("compare", only_families.root, "--method", "all-token", "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["split"] == "family"
    assert (
        ran.err
        == "split by family: no split column; a split by size needs a family of three sizes and 4 training models\n"
    )
    assert cli("compare", only_families.root, "--method", "all-token", "--split", "family").err == ""


def test_report_falls_back_to_families_and_says_so(only_families, cli, tmp_path):
    ran = cli("report", only_families.root, "-o", tmp_path / "report.html")
    assert ran.code == 0
    assert (
        ran.err
        == "split by family: no split column; a split by size needs a family of three sizes and 4 training models\n"
    )
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1))
    assert data["split"] == "family"


def test_a_task_without_a_fit_is_named(fitted, cli, world, tmp_path):
    copy = tmp_path / "study"
    shutil.copytree(fitted, copy)
    shutil.rmtree(copy / "fits" / "task1")
    ran = cli("predict", copy, "--model", world.models[0].model)
    assert ran.code == 0
    assert "note: no fit of task1; `benchcast fit" in ran.err
    assert "no fit of" not in cli("predict", copy, "--model", world.models[0].model, "--task", "task0").err


def test_the_table_says_how_a_model_is_related_to_the_training_models(fitted, cli, world, tmp_path):
    """A model that the fit was trained on was called "unseen family"."""
    folder = shutil.copytree(fitted, tmp_path / "study")
    study, other = Study.open(folder), world.losses[0]
    study.add_losses([replace(other, model="sister", nats=other.nats * 1.01)], family="family0")
    study.add_losses([replace(other, model="stranger", nats=other.nats * 1.01)], family="new")
    for model, relation in (
        (world.models[0].model, "seen in training"),
        ("sister", "known family"),
        ("stranger", "unseen family"),
    ):
        printed = cli("predict", folder, "--model", model).out
        assert re.search(rf"interval for +capability\n.* – [\d.]+ +{relation} ", printed)
        said = json.loads(cli("predict", folder, "--model", model, "--json").out)
        assert {row["relation"] for row in said} == {relation}
    assert {row["question"] for row in json.loads(cli("predict", folder, "--model", "sister", "--json").out)} == {
        "unseen family"
    }


def test_all_models_are_one_table_in_the_order_of_training_with_remarks_once(fitted, cli, world, tmp_path):
    """225 models were 3,374 lines."""
    ran = cli("predict", fitted, "--all", "--csv", tmp_path / "all.csv")
    lines = ran.out.splitlines()
    names = [m.model for m in sorted(world.models, key=lambda m: (m.family, m.params, m.tokens))]
    assert lines[1].split() == ["model", "task0", "task1", "interval", "for"]
    assert [line.split()[0] for line in lines[2 : 2 + len(names)]] == names
    assert lines[2].endswith("seen in training")
    assert lines[2 + len(names)].startswith("± 90% interval")
    assert len(lines) < len(names) + 10
    rows = rows_of(tmp_path / "all.csv")
    assert len(rows) == 2 * len(names)
    said = json.loads(cli("predict", fitted, "--all", "--json").out)
    assert [(r["model"], r["task"], float(r["low"])) for r in rows] == [(r["model"], r["task"], r["low"]) for r in said]


def test_a_remark_of_many_forecasts_is_printed_once(fitted, cli, world, tmp_path):
    folder = shutil.copytree(fitted, tmp_path / "study")
    strong = [replace(x, model=f"strong{i}", nats=x.nats * 0.2) for i, x in enumerate(world.losses[:3])]
    Study.open(folder).add_losses(strong, family="new")
    printed = " ".join(cli("predict", folder, "--model", "strong*").out.split())
    assert printed.count("extrapolation: ") == 1
    assert "6 forecasts of strong0, strong1 and 1 more: extrapolation: stronger than every training model" in printed


def test_a_name_that_a_spreadsheet_would_run_is_harmless_in_the_csv(fitted, cli, world, tmp_path):
    folder = shutil.copytree(fitted, tmp_path / "study")
    Study.open(folder).add_losses([replace(world.losses[0], model="=1+1")])
    cli("predict", folder, "--model", "=1+1", "--csv", tmp_path / "one.csv")
    rows = rows_of(tmp_path / "one.csv")
    assert {row["model"] for row in rows} == {"'=1+1"}
    assert 0 <= float(rows[0]["low"]) <= 1
