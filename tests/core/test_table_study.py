"""A table of losses is enough for a study: texts are known by name only."""

from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import benchcast
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.forecasts.stored_fit import Fit
from benchcast.importers.loss_table import create_table_study
from benchcast.methods import METHODS
from benchcast.methods.stack.settings import StackSettings
from benchcast.methods.stack.token_groups import group_tokens
from benchcast.records import ModelInfo, NamedTexts, Task
from benchcast.splits import make_folds
from benchcast.study.study import Study

COLUMNS = ("bpb.sums", "bpb.facts", "ce.web", "ce.books", "ce.code")
UNITS = ("nats", "bpb.*=bits-per-byte")
FAMILIES, SIZES = 5, 4
TASKS = (Task("sums", 0.25, answers=("bpb.sums",)), Task("facts", 0.0, answers=("bpb.facts",)))


def rows() -> list[list[str]]:
    """Losses that fall with size; the two answers' losses each on their own scale."""
    rng = np.random.default_rng(5)
    table = []
    for f in range(FAMILIES):
        for s in range(SIZES):
            skill = s + 0.3 * f + rng.normal(0, 0.1, len(COLUMNS))
            table.append([f"f{f}-{s}", *(f"{x:.6g}" for x in 0.6 + 3 * np.exp(-skill / 3) + 0.2 * np.arange(5))])
    return table


def write_table(path: Path, table: list[list[str]], columns: tuple[str, ...] = COLUMNS) -> Path:
    with path.open("w", encoding="utf-8", newline="") as lines:
        csv.writer(lines).writerows([["model", *columns], *table])
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, cli) -> Path:
    """A study made by commands alone; not to be written to."""
    root = tmp_path_factory.mktemp("table")
    assert cli("init", root / "study", "--table", write_table(root / "losses.csv", rows()), *by_unit()).code == 0
    toml = 'format = 1\n[tasks.sums]\nchance = 0.25\nanswers = ["bpb.sums"]\n[tasks.facts]\nanswers = ["bpb.facts"]\n'
    (root / "study" / "study.toml").write_text(toml)
    with (root / "scores.csv").open("w") as lines:
        lines.write("model,task,accuracy\n")
        for model, sums, metadata, *_ in rows():
            lines.write(f"{model},sums,{0.25 + 0.75 / (1 + np.exp(2 * float(sums) - 4)):.5f}\n")
            lines.write(f"{model},facts,{1 / (1 + np.exp(3 * float(metadata) - 6)):.5f}\n")
    models = "".join(f"f{f}-{s},f{f},{10.0 ** (7 + s)}\n" for f in range(FAMILIES) for s in range(SIZES))
    (root / "models.csv").write_text("model,family,params\n" + models)
    assert cli("import", "scores", root / "study", root / "scores.csv").code == 0
    assert cli("import", "models", root / "study", root / "models.csv").code == 0
    return root / "study"


def by_unit() -> list[str]:
    return [word for unit in UNITS for word in ("--unit", unit)]


@pytest.fixture
def study(folder: Path, tmp_path: Path) -> Study:
    shutil.copytree(folder, tmp_path / "study")
    return Study.open(tmp_path / "study")


def test_texts_are_known_by_name_source_and_unit(folder):
    texts = Study.open(folder).texts
    assert isinstance(texts, NamedTexts)
    assert [(t.id, t.source, t.unit) for t in texts][1:3] == [
        ("bpb.facts", "bpb", "bits-per-byte"),
        ("ce.web", "ce", "nats"),
    ]
    assert json.loads((folder / "texts.jsonl").read_text().splitlines()[0]).keys() == {"id", "source", "unit"}


def test_values_are_stored_as_given(folder):
    first = rows()[0]
    np.testing.assert_allclose(Study.open(folder).losses(first[0]).nats, np.array(first[1:], float), rtol=1e-6)


def test_all_token_loss_is_the_plain_mean_of_the_columns(folder):
    dataset = Study.open(folder).dataset()
    _, folds = make_folds(infos(folder), "size")
    fit = METHODS["all-token"].learn(dataset, folds)[0][0]
    np.testing.assert_allclose(fit.capability.of(dataset.nats, dataset.metadata), dataset.nats.mean(axis=1), rtol=1e-6)


def infos(folder: Path) -> list[ModelInfo]:
    opened = Study.open(folder)
    return opened.infos(opened.dataset().models)


@pytest.mark.parametrize("method", ["label-token", "source-token"])
def test_own_columns_of_a_task_are_its_answers(folder, method):
    dataset = Study.open(folder).dataset()
    _, (fold, *_) = make_folds(infos(folder), "size")
    for fit, column in zip(METHODS[method].learn(dataset, [fold])[0], (0, 1), strict=True):
        assert np.flatnonzero(fit.capability.weights[0]).tolist() == [column]


def test_salience_can_rest_on_the_answers_alone(folder):
    """The synthetic scores depend on the answers' column only."""
    for task, column in (("sums", 0), ("facts", 1)):
        weight = benchcast.fit(Study.open(folder), task).salience
        assert int(np.argmax(weight)) == column


def test_answers_of_many_columns_are_one_group_of_salience(folder):
    """One weight for all of them, as for the answers of a source: items are too many for a free weight each."""
    dataset = Study.open(folder).dataset()
    tasks = (replace(dataset.tasks[0], answers=COLUMNS[:3]), dataset.tasks[1])
    groups = group_tokens(replace(dataset, tasks=tasks), StackSettings())
    answer_groups = (groups.grouping == "answer") & (groups.size > 0)
    assert groups.task[answer_groups].tolist() == ["sums", "facts"]
    assert groups.size[answer_groups].tolist() == [3, 1]


def test_a_row_of_perplexities_among_losses_is_named(tmp_path, cli):
    columns = tuple(f"c{i}" for i in range(10))
    table = [[f"m{m}", *(f"{2 + 0.1 * m + 0.05 * i:.3f}" for i in range(10))] for m in range(12)]
    table[4][1:] = [f"{np.exp(float(x)):.3f}" for x in table[4][1:]]
    ran = cli("init", tmp_path / "study", "--table", write_table(tmp_path / "t.csv", table, columns))
    assert ran.code == 0
    assert re.findall(r"losses of model (\S+) look wrong", ran.err) == ["m4"]


def test_a_missing_cell_is_a_missing_loss(study, tmp_path, cli):
    table = write_table(tmp_path / "more.csv", [["new", "1", "1", "", "1", "1"]])
    assert cli("import", "losses", study.root, table).code == 0
    assert np.isnan(study.losses("new").nats).tolist() == [False, False, True, False, False]
    assert cli("fit", study.root, "--task", "sums").code == 0
    ran = cli("predict", study.root, "--model", "new")
    assert ran.code == 1
    assert "no loss on 20.0% of the tokens" in ran.err


def test_a_column_that_a_table_lacks_is_missing_too(study, tmp_path):
    table = write_table(tmp_path / "more.csv", [["new", "1", "1"]], COLUMNS[:2])
    from benchcast.study.loss_files import read_losses

    (losses,) = read_losses(table, study.texts)
    assert np.isnan(losses.nats).tolist() == [False, False, True, True, True]


def test_more_models_in_another_unit_are_refused(study, tmp_path, cli):
    table = write_table(tmp_path / "more.csv", [["new", *"11111"]])
    ran = cli("import", "losses", study.root, table, "--unit", "nats")
    assert ran.code == 1
    assert ran.err.strip().endswith("--unit nats, but column 'bpb.sums' of the study is in bits-per-byte")


def test_status_names_units_answers_and_the_next_command(folder, cli):
    ran = cli("status", folder)
    assert ran.code == 0
    assert "bits-per-byte" in ran.out
    assert "next: benchcast compare" in ran.out
    said = json.loads(cli("status", folder, "--json").out)["sources"][0]
    assert (said["mean_bytes"], said["unit"], said["answers"]) == (None, "bits-per-byte", 2)


def test_compare_fit_predict_and_report_work(study, cli):
    compared = json.loads(cli("compare", study.root, "--json").out)
    assert compared["tasks"]["sums"]["label-token"]["mse"] < compared["tasks"]["sums"]["constant"]["mse"] / 10
    assert cli("fit", study.root).code == 0
    forecasts = json.loads(cli("predict", study.root, "--model", "f0-3", "--json").out)
    assert [f["task"] for f in forecasts] == ["sums", "facts"]
    assert cli("report", study.root).code == 0
    page = (study.root / "report.html").read_text(encoding="utf-8")
    assert 'id="heat"' not in page
    assert "<strong>bpb.sums</strong>" in page.split('id="columns"')[1]


def test_explain_lists_the_columns_by_weight(study, cli):
    said = json.loads(cli("explain", study.root, "--task", "sums", "--json").out)
    first = said["columns"][0]
    assert (first["column"], first["answers"], first["unit"]) == ("bpb.sums", True, "bits-per-byte")
    assert sum(c["share"] for c in said["columns"]) == pytest.approx(1)
    shown = cli("explain", study.root, "--task", "sums").out
    assert "bpb.sums (answers)" in shown
    assert sum(said["shares"].values()) > 0.5
    assert list(said["shares"].values()) == sorted(said["shares"].values(), reverse=True)
    table = shown.split("the forecast averages losses of")[1]
    assert all(name in table for name in said["shares"])
    assert (
        repr(benchcast.explain(study, "sums")) == f"<ColumnWeights of 'sums' by stack: {len(said['columns'])} columns>"
    )


def test_a_method_that_averages_nothing_has_no_shares(study, cli):
    assert cli("fit", study.root, "--task", "sums", "--method", "ridge").code == 1, "a table has no features"
    assert cli("fit", study.root, "--task", "sums", "--method", "all-token").code == 0
    assert json.loads(cli("explain", study.root, "--task", "sums", "--json").out)["shares"] == {}
    assert "candidates" not in cli("explain", study.root, "--task", "sums").out


def test_explain_names_columns_that_some_model_lacks(tmp_path, study, cli):
    table = rows()
    table[3][4] = ""  # one model of twenty has no loss on ce.books
    shutil.rmtree(study.root / "losses")
    assert cli("import", "losses", study.root, write_table(tmp_path / "gaps.csv", table)).code == 0
    said = json.loads(cli("explain", study.root, "--task", "sums", "--json").out)
    assert (said["columns"][-1]["column"], said["columns"][-1]["salience"]) == ("ce.books", None)
    shown = cli("explain", study.root, "--task", "sums")
    assert shown.code == 0
    assert "columns that are not used, because some model has no loss there: 1" in shown.out


@pytest.mark.parametrize(
    "command",
    [
        ("collect", "--model", "hf", "--model_args", "pretrained=x"),
        ("features", "--scorer", "x"),
        ("contamination", "elsewhere"),
        ("explain", "--task", "sums", "--html", "x.html"),
        ("explain", "--task", "sums", "--text", "ce.web"),
        ("watch", "--checkpoints", "."),
    ],
)
def test_commands_that_need_text_say_so_in_one_line(folder, cli, command):
    ran = cli(command[0], folder, *command[1:])
    assert ran.code == 1
    assert "needs the texts themselves; this study is a table of losses" in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_a_saved_fit_keeps_names_units_and_answers(folder, tmp_path):
    study = Study.open(folder)
    fit = benchcast.fit(study, "sums")
    fit.save_pretrained(tmp_path / "fit")
    again = Fit.from_pretrained(tmp_path / "fit")
    assert again.texts == study.texts
    assert again.task_fit.task.answers == ("bpb.sums",)
    losses = study.losses("f1-2")
    assert again.predict(losses) == fit.predict(losses)


def test_a_row_of_a_table_is_forecast_by_a_saved_fit(study, tmp_path, cli):
    assert cli("fit", study.root).code == 0
    row = next(r for r in rows() if r[0] == "f1-2")
    table = write_table(tmp_path / "new.csv", [["new", *row[1:]]])
    by_file = cli("predict", "--fit", study.fit_folder("sums"), "--losses", table, "--json")
    assert by_file.code == 0, by_file.err
    (said,) = json.loads(by_file.out)
    known = json.loads(cli("predict", study.root, "--model", "f1-2", "--task", "sums", "--json").out)[0]
    assert (said["model"], said["accuracy"]) == ("new", known["accuracy"])


def test_select_keeps_columns_and_tasks_that_fit_them(study, tmp_path, cli):
    assert cli("select", study.root, "--budget", "2", "--no-check", "-o", tmp_path / "small").code == 0
    small = Study.open(tmp_path / "small")
    assert len(small.texts) == 2
    ran = cli("predict", small.root, "--model", "f0-3")
    assert (ran.code, ran.err) == (0, "")


def test_answers_that_name_no_column_are_refused_by_name(study):
    path = study.root / "study.toml"
    path.write_text(path.read_text().replace('"bpb.sums"', '"bpb.sum"'))
    with pytest.raises(
        NotEnoughDataError, match=r"task sums: answers name 'bpb.sum', not a text.*did you mean 'bpb.sums'"
    ):
        Study.open(study.root).dataset()


def test_answers_survive_a_round_trip_through_study_toml(tmp_path):
    texts = create_table_study(tmp_path / "a", write_table(tmp_path / "t.csv", rows())).texts
    assert Study.create(tmp_path / "b", texts, tasks=TASKS).tasks == TASKS


def test_a_sketch_of_a_task_names_a_column(tmp_path):
    root = create_table_study(tmp_path / "a", write_table(tmp_path / "t.csv", rows())).root
    sketch = (root / "study.toml").read_text().replace("# [", "[").replace("# c", "c").replace("# a", "a")
    (root / "study.toml").write_text(sketch.replace("# s", "s"))
    assert Study.open(root).tasks == (Task("benchmark", 0.25, (), ("bpb.sums",)),)


@pytest.mark.parametrize(
    ("table", "units", "said"),
    [
        ("a,b\n1,2\n", (), "has the columns model, then one for each loss; found a, b"),
        ("model\nx\n", (), "has the columns model, then one for each loss; found model"),
        ("model,a\n", (), "found no rows"),
        ("model,a,a\nx,1,2\n", (), "column a occurs twice"),
        ("model,\nx,1\n", (), "column 2: a name is needed"),
        ("model,a\nx,one\n", (), "model 'x', text 'a': 'one' is not a number"),
        ("model,a\ny,1\nx,-1\n", (), "model 'x': text 'a' has negative nats"),
        ("model,a,b\nx,1,\ny,2, \n", (), "no model has a loss in column b; leave it out of the table"),
        ("model;a\nx;1,5\n", (), "cells are separated by semicolons; needed are commas, and decimal points"),
        ("model\ta\nx\t1\n", (), "cells are separated by tabs"),
        ("model,a\nx,1\nx,2\n", (), "'x' occurs twice"),
        ("model,a\nx,1\n", ("watts",), "the unit must be nats or bits-per-byte"),
        ("model,a\nx,1\n", ("b*=nats",), "no column matches 'b*'; columns: a"),
    ],
)
def test_a_wrong_table_is_one_clear_error_and_leaves_no_study(tmp_path, table, units, said):
    (tmp_path / "t.csv").write_text(table)
    with pytest.raises(InputError) as error:
        create_table_study(tmp_path / "study", tmp_path / "t.csv", units=units)
    assert said in str(error.value)
    assert not (tmp_path / "study").exists()


def test_texts_and_names_do_not_mix(study):
    path = study.root / "texts.jsonl"
    path.write_text(path.read_text() + '{"id": "x", "source": "y", "text": "words"}\n')
    with pytest.raises(InputError, match="all must be of one kind"):
        _ = Study.open(study.root).texts
