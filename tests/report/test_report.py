"""What the page is told: plain values that agree with the comparison, packed small, and escaped."""

from __future__ import annotations

import base64
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from benchcast.evaluation.compare import compare
from benchcast.forecasts.fit import fit
from benchcast.records import ModelInfo, Text, TextSet
from benchcast.reports.charts import Chart, effect_of_sources
from benchcast.reports.data import rounded, show_models
from benchcast.reports.drawing import named, page_style
from benchcast.reports.explain import make_units, weigh_units
from benchcast.reports.heat import STEPS, choose_texts, heat_data
from benchcast.reports.page import SCRIPTS, embed, render
from benchcast.reports.report import report_data, write_report
from benchcast.study.study import Study
from synthetic import Plan, make_world, write_study


@pytest.fixture(scope="module")
def opened(synthetic_folder) -> Study:
    return Study.open(synthetic_folder)


@pytest.fixture(scope="module")
def comparison(opened):
    return compare(opened, methods="all")


@pytest.fixture(scope="module")
def data(opened, comparison):
    return report_data(opened, comparison)


def test_the_page_lists_what_the_first_method_averages(data, comparison):
    members = data["members"]
    assert (members["method"], [row["task"] for row in members["tasks"]]) == ("stack", list(comparison.tasks))
    for row in members["tasks"]:
        assert re.match(r"(answers|texts|all|similar|kinds)[^:+]*, \d+%(; |$)", row["inside"])
    page = render("report.html", data, scripts=(), figures=False)
    assert "What the forecasts read" in page
    assert members["tasks"][0]["stronger"] in page


def test_no_placeholder_of_a_template_is_left_in_the_page(data):
    page = render("report.html", data, scripts=(), figures=False)
    assert "{{" not in page.split('<script type="application/json"')[0]
    assert "coverage of the 90% interval" in page


def test_numbers_of_the_page_are_those_of_the_comparison(data, comparison):
    for task in data["tasks"]:
        for method in data["methods"]:
            held, shown = comparison.held_out[task["name"], method], task["forecasts"][method]
            rows = [data["models"]["model"].index(m) for m in held.models]
            assert all(data["models"]["role"][i] == "test" for i in rows)
            for key in ("forecast", "low", "high"):
                assert [shown[key][i] for i in rows] == pytest.approx(getattr(held, key).tolist(), rel=1e-4, abs=1e-9)
            assert task["measures"][method]["mse"] == pytest.approx(
                comparison.measures(task["name"], method)["mse"], rel=1e-4
            )


def test_gains_over_all_tasks_are_shown_in_three_ways(data, comparison):
    gains = comparison.gains()
    assert set(gains) == {row[0] for row in data["gains"]} > {"all-token"}
    for method, value, _, median, summed in data["gains"]:
        assert (float(value), float(median), float(summed)) == pytest.approx(
            (gains[method].value, gains[method].median, gains[method].summed), abs=0.006
        )
    assert "Gain over all tasks" in render("report.html", data, scripts=(), figures=False)


def test_the_law_is_drawn_over_all_points(data):
    for task in data["tasks"]:
        law = task["laws"]["salience"]
        points = [p for p in law["points"] if p is not None]
        assert law["capability"][0] == pytest.approx(min(points), rel=1e-4)
        assert law["capability"][-1] == pytest.approx(max(points), rel=1e-4)
        assert all(a >= b for a, b in zip(law["accuracy"], law["accuracy"][1:], strict=False)), (
            "more loss, less accuracy"
        )
        assert all(x <= a <= y for x, a, y in zip(law["low"], law["accuracy"], law["high"], strict=True))
        assert task["laws"]["constant"] is None


def test_by_family_every_model_is_forecast_by_the_fold_that_had_not_seen_it(opened):
    by_family = compare(opened, split="family", methods=("label-token", "constant"))
    shown = show_models(opened, by_family)
    assert set(shown.role) == {"test"}
    for m, fold in enumerate(shown.fold):
        assert by_family.folds[fold].test[m]


def test_a_model_without_a_score_is_forecast_too(study, world):
    """The very question: what will it score?"""
    name = world.losses[-1].model
    rows = (study.root / "scores.csv").read_text().splitlines()
    (study.root / "scores.csv").write_text("\n".join(r for r in rows if not r.startswith(f"{name},")) + "\n")
    study.add_models([ModelInfo("only-a-row", "family0")])
    comparison = compare(study, methods=("label-token", "all-token"))
    page = report_data(study, comparison)
    i = page["models"]["model"].index(name)
    assert page["models"]["role"][i] == "new"
    assert page["tasks"][0]["observed"][i] is None
    forecast = fit(study, "task0", method="label-token").predict(study.losses(name))
    on_page = page["tasks"][0]["forecasts"]["label-token"]
    assert on_page["forecast"][i] == pytest.approx(forecast.accuracy, rel=1e-4)
    assert (on_page["low"][i], on_page["high"][i]) == pytest.approx((forecast.low, forecast.high), rel=1e-4)
    assert page["provenance"]["left_out"]["only-a-row"] == "no losses"


def test_a_model_that_lacks_losses_is_left_out_with_the_reason(study, world):
    whole = world.losses[0]
    holes = whole.nats.copy()
    holes[:5] = np.nan
    study.add_losses([replace(whole, model="holes", nats=holes)])
    shown = show_models(study, compare(study, methods=("all-token",)))
    assert "holes" not in [m.model for m in shown.infos]
    assert re.match(r"no loss on \d+\.\d% of the tokens", shown.left_out["holes"])


def test_convergence_keeps_every_shot_and_ends_where_the_errors_say(data, comparison):
    steps = data["steps"][0]
    assert steps["step"][0] == 0
    assert len(steps["capability"]) == len(steps["curves"]) == len(steps["test"]) == len(steps["step"])
    assert steps["train"][-1] < steps["train"][0]
    assert steps["chosen"] == comparison.fits["task0", "paper"][0].notes["best_step"]


def test_all_sources_together_give_the_error_of_the_comparison(opened, comparison):
    rows = effect_of_sources(comparison, opened.texts, opened.seed)
    whole = [r for r in rows if r["sources"] == len(opened.texts.sources)]
    assert [r["method"] + r["task"] for r in whole] == [m + t for m in ("ridge", "all-token") for t in comparison.tasks]
    for r in whole:
        assert r["texts_of"] == ", ".join(opened.texts.sources)
        assert r["mse"] == pytest.approx(comparison.measures(r["task"], r["method"])["mse"], rel=1e-3)


def test_a_chart_of_the_list_has_its_section_its_link_and_its_drawing(opened, comparison, tmp_path, monkeypatch):
    rows = [{"task": task, "mae": comparison.measures(task, "all-token")["mae"]} for task in comparison.tasks]
    figure = page_style(named("rows").mark_bar().encode(x="mae:Q", y="task:N").properties(width="container"))
    added = Chart("mean-error", "Mean error", "How far off?", "One bar.", "Mean absolute error", rows, figure)
    monkeypatch.setattr("benchcast.reports.charts.CHARTS", (lambda study, comparison, shown: added,))
    data = report_data(opened, comparison)
    assert data["charts"] == [added.words()]
    assert data["figures"]["mean-error"] == figure
    page = render("report.html", data, scripts=SCRIPTS, figures=False)
    for part in (
        '<a href="#mean-error">Mean error',
        '<section id="mean-error"',
        "How far off?",
        'id="mean-error-figure"',
    ):
        assert part in page


def test_one_source_has_no_effect_to_show(tmp_path):
    world = make_world(Plan(seed=1, families=4, sizes=3, checkpoints=1, tasks=1, texts_per_source=4))
    texts = TextSet.of([replace(t, source="one") for t in world.texts])
    study = write_study(replace(world, texts=texts), tmp_path / "study")
    comparison = compare(study, methods=("all-token",))
    assert effect_of_sources(comparison, study.texts, 0) == []
    page = report_data(study, comparison)
    assert page["steps"] is None, "Algorithm 2 was not tried"
    write_report(tmp_path / "report.html", study, comparison)
    assert 'id="steps"' not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_provenance_tells_how_the_losses_of_all_models_were_made(study, world):
    for losses, backend in zip(world.losses, ["vllm"] * 3 + ["hf"] * 17, strict=True):
        study.add_losses([replace(losses, about={"backend": backend, "dtype": "float32"})], force=True)
    page = report_data(study, compare(study, methods=("all-token",)))
    assert page["provenance"]["details"]["losses by"] == (
        "backend hf, dtype float32 (17 models); backend vllm, dtype float32 (3 models)"
    )
    before = page["provenance"]["files"]["losses of 20 models"]
    study.add_losses([replace(world.losses[0], nats=world.losses[0].nats + 0.1)], force=True)
    assert (
        report_data(study, compare(study, methods=("all-token",)))["provenance"]["files"]["losses of 20 models"]
        != before
    )


# ---- the first screen


def test_the_report_opens_with_held_out_models_beside_their_scores(data, comparison):
    opening = data["opening"]
    assert opening["lead"].startswith("Every model has a score.")
    assert "forecast by stack" in opening["lead"]
    held = comparison.held_out["task0", "stack"]
    assert {row["model"] for row in opening["models"]} <= set(held.models)
    first = opening["models"][0]
    i = held.models.index(first["model"])
    assert first["cells"][0]["forecast"] == f"{held.forecast[i]:.1%}"
    assert first["cells"][0]["score"] == f"{held.observed[i]:.1%}"
    assert opening["trust"].startswith("Over all 5 held-out models on 2 tasks, forecasts miss by ")


def test_the_report_opens_with_models_that_have_no_score_where_there_are_any(study, world):
    other = world.losses[0]
    study.add_losses(
        [replace(other, model=f"new@{n}", nats=other.nats * 1.01) for n in ("2.2M", "10.8M")], family="new"
    )
    page = report_data(study, compare(study, methods=("all-token",)))
    assert page["opening"]["lead"] == "2 models without a score, forecast by all-token."
    assert [row["model"] for row in page["opening"]["models"]] == ["new@2.2M", "new@10.8M"]
    assert {cell["score"] for row in page["opening"]["models"] for cell in row["cells"]} == {""}


def test_what_is_missing_is_said_on_the_first_screen(tmp_path):
    world = make_world(Plan(seed=1, families=4, sizes=3, checkpoints=1, tasks=1, texts_per_source=4))
    study = write_study(world, tmp_path / "study")
    study.add_models([ModelInfo("only-a-row", "family0")])
    page = report_data(study, compare(study, split="size", methods=("all-token", "constant")))
    missing = page["opening"]["missing"]
    assert missing[0].startswith("The study has 4 families: with 5 or more, intervals are narrower")
    assert any(line.startswith("Fewer than 5 held-out models have a score on task0") for line in missing)
    too_few = "4 held-out models: too few to say how far forecasts miss (5 are needed)."
    assert page["opening"]["trust"] == page["headline"] == too_few
    assert not page["gains"]
    assert not page["against"]
    measures = page["tasks"][0]["measures"]["all-token"]
    assert [k for k, value in measures.items() if value is not None] == ["n_test"]


def test_a_report_compares_the_main_methods_and_all_on_demand(study, cli, tmp_path):
    assert cli("report", study.root, "-o", tmp_path / "main.html").code == 0
    page = (tmp_path / "main.html").read_text(encoding="utf-8")
    assert 'id="steps"' not in page
    assert "perplexity-correlations" not in page
    assert "stack" in page.split('id="verdicts"')[0]


# ---- the heat map's data

TEXTS = TextSet.of([Text("a", "x", "é👍🏽 ok"), Text("b", "x", "second one", 7), Text("c", "y", "third")])


def unpack(packed: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(packed), kind)


def test_packed_salience_and_losses_come_back(data, comparison, opened):
    heat = data["heat"]
    dataset = comparison.dataset
    salience = fit(opened, "task0", method=comparison.methods[0]).salience
    packed = unpack(heat["salience"][0], "<i2") / STEPS * np.log1p(heat["reach"][0])
    assert np.sign(packed) * np.expm1(np.abs(packed)) == pytest.approx(
        salience / np.abs(salience).mean(), rel=1e-3, abs=1e-3
    ), "one unit a token here"
    family = heat["families"][0]
    mean = dataset.nats[dataset.families == family].mean(axis=0)
    assert unpack(heat["losses"][0], "<u2") / 1000 == pytest.approx(mean, abs=6e-4)


def test_texts_are_cut_as_a_browser_counts():
    units = make_units(TEXTS, np.arange(TEXTS.starts[-1] + 1))
    n = int(units.first[-1])
    heat = heat_data(
        [weigh_units(units, np.ones(n, np.float32), np.ones(n, bool), task="t", method="m")], {"f": np.ones(len(units))}
    )
    first = heat["texts"][0]
    assert first["cuts"] == [1, 4, 1, 1, 1], "é, then an emoji of two pairs of surrogates"
    assert first["answer"] is None
    assert heat["texts"][1]["answer"] == 7
    assert heat["together"] == {0: 2, 1: 8}
    assert heat["merged"] == 2


def test_a_missing_loss_stays_missing():
    units = make_units(TEXTS, np.arange(TEXTS.starts[-1] + 1))
    n = int(units.first[-1])
    losses = np.ones(len(units))
    losses[2] = np.nan
    heat = heat_data(
        [weigh_units(units, np.ones(n, np.float32), np.arange(n) > 1, task="t", method="m")], {"f": losses}
    )
    assert unpack(heat["salience"][0], "<i2")[0] == -32768
    assert unpack(heat["losses"][0], "<u2")[2] == 65535


def test_a_large_study_shows_texts_of_every_source_and_says_how_many_are_not_shown():
    texts = TextSet.of([Text(f"{s}{i}", s, "word " * 10) for s in ("a", "b") for i in range(20)])
    units = make_units(texts, np.arange(texts.starts[-1] + 1))
    kept = choose_texts(units, 300)
    assert kept == [0, 1, 2, 20, 21, 22]
    assert choose_texts(units, 300, first=35) == [0, 1, 2, 20, 21, 22, 35]
    assert choose_texts(units, 1) == [0], "one text at least"
    assert choose_texts(units, 10**6) == list(range(40))


# ---- the page


def test_embedded_json_cannot_end_its_script():
    evil = {"</script><script>": ["<!--", "\u2028", "&", 1.5, None]}
    text = embed(evil)
    assert "<" not in text
    assert ">" not in text
    assert "\u2028" not in text
    assert json.loads(text) == evil
    with pytest.raises(ValueError, match="JSON"):
        embed(float("nan"))


def test_numbers_are_short_and_never_nan():
    assert rounded([1 / 3, 2.0, np.nan, np.inf, 1e-12, 123456.7]) == [0.33333, 2, None, None, 1e-12, 123460]


def test_only_scripts_of_the_page_may_run_and_nothing_may_be_fetched(opened, comparison, tmp_path):
    write_report(tmp_path / "report.html", opened, comparison)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page).group(1).replace("&#39;", "'")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert not re.search(r"<(?:link|img|iframe|object|script[^>]* src)", page.split("<script")[0])


def test_every_control_of_the_page_has_a_name(opened, comparison, tmp_path):
    write_report(tmp_path / "report.html", opened, comparison)
    page = (tmp_path / "report.html").read_text(encoding="utf-8").split('<script type="application/json"')[0]
    labelled = set(re.findall(r'<label[^>]* for="([^"]+)"', page)) | {"theme"}
    controls = re.findall(r'<(?:select|input)[^>]* id="([^"]+)"', page)
    assert controls
    assert set(controls) <= labelled


def test_a_report_into_a_folder_is_refused_before_the_work(synthetic_folder, cli, tmp_path):
    ran = cli("report", synthetic_folder, "-o", tmp_path)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"error: {tmp_path}: a folder; name a file to write, such as {tmp_path / 'report.html'}\n"


def test_explain_writes_a_page_of_its_own(study, cli, tmp_path):
    page = tmp_path / "heat.html"
    ran = cli("explain", study.root, "--task", "task0", "--text", "source1-2", "--html", page)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.endswith(f"heat map: {page}\n")
    blob = re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.S).group(1)
    heat = json.loads(blob)["heat"]
    assert heat["texts"][heat["open"]]["id"] == "source1-2"
    assert len(page.read_text(encoding="utf-8")) < 400_000, "no plotting library is needed"


def test_a_study_without_features_or_compute_still_has_a_report(study, tmp_path):
    shutil.rmtree(study.root / "features")
    comparison = compare(study, methods="all")
    page = report_data(study, comparison)
    assert page["steps"] is None
    assert page["provenance"]["left_out"]["paper"] == "needs features of a scorer"
    assert page["charts"] == [], "what weights gain from more sources shows only beside a method without them"
    write_report(tmp_path / "report.html", study, comparison)
