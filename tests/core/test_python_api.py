"""What the Python functions accept, and that they do what the command line does."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

import benchcast as bc
from benchcast import choices
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.evaluation.compare import compare
from benchcast.forecasts.fit import fit_tasks, refit, store_fits
from benchcast.methods import CAPABILITY_METHOD, DEFAULT_METHOD, METHODS, MethodName, load
from benchcast.methods.paper import DescentSettings
from benchcast.methods.spec import fit_method, stored_settings
from benchcast.scaling.extrapolate import read_study_models
from benchcast.splits import make_folds

SHORT = DescentSettings(steps=3, rates=(1e-2,))


def test_a_path_serves_as_well_as_a_study(synthetic_folder):
    opened = bc.Study.open(synthetic_folder)
    for study in (opened, synthetic_folder, str(synthetic_folder)):
        assert bc.fit(study, "task0", method="all-token").digest == bc.fit(opened, "task0", method="all-token").digest
    asked = {"split": "size", "methods": ["all-token"]}
    assert bc.compare(str(synthetic_folder), **asked).as_json() == bc.compare(opened, **asked).as_json()


def test_one_name_serves_as_well_as_a_list_of_one(synthetic_folder, world):
    model, asked = world.models[3].model, {"method": "all-token", "store": False}
    assert bc.fit_tasks(synthetic_folder, "task1", **asked)[0].task == "task1"
    fit = bc.fit(synthetic_folder, "task0", method="all-token")
    assert fit.predict(bc.Study.open(synthetic_folder), models=model) == fit.predict(synthetic_folder, models=[model])
    comparison = bc.compare(synthetic_folder, "task0", methods="all-token", split="size")
    assert (comparison.tasks, comparison.methods) == (("task0",), ("all-token",))
    assert bc.bits_per_byte(synthetic_folder, model) == bc.bits_per_byte(synthetic_folder, [model])
    with pytest.raises(InputError, match="--runs family0: two or more different runs"):
        bc.compare_runs(synthetic_folder, "family0")


@pytest.mark.parametrize("call", [bc.fit, bc.explain, lambda study, name: bc.compare(study, [name])])
@pytest.mark.parametrize("name", [["task0"], 0])
def test_what_is_no_name_is_one_clear_line(synthetic_folder, call, name):
    """`fit` of a list of tasks raised a TypeError on hashing."""
    with pytest.raises(InputError, match="a name must be text, such as 'mmlu'; found"):
        call(synthetic_folder, name)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda study: bc.predict(study, 5), "a name must be text, such as 'mmlu'; found 5"),
        (lambda study: bc.predict(study, level="0.9"), "level '0.9': a share between 0 and 1"),
        (lambda study: bc.Study.open(study).losses(5), "a name must be text, such as 'mmlu'; found 5"),
        (lambda study: bc.load(study / "fits" / "task0").predict(5), "predict: found int; needed are the losses"),
        (lambda study: bc.fit(5, "task0"), "a study is needed, or the path of its folder; found 5"),
        (lambda study: bc.Study.open(None), "a study is needed, or the path of its folder; found None"),
        (lambda study: bc.load(None), "load: the folder of a fit is needed, found None"),
        (lambda study: bc.rename_model(study, "a", 5), "a name must be text, found 5"),
        (lambda study: bc.remove_models(study, 5), "a name must be text, such as 'mmlu'; found 5"),
    ],
)
def test_an_argument_of_a_wrong_type_is_one_line(call, says, fitted):
    """Most of them ended in a TypeError from inside."""
    with pytest.raises(InputError, match=f"^[^\n]*{says}[^\n]*$"):
        call(fitted.root)


def test_one_task_of_a_study_is_forecast_by_its_name(fitted, world):
    name = world.models[3].model
    assert [row.task for row in bc.predict(fitted, name, tasks="task1")] == ["task1"]
    assert bc.remove_models(fitted, name, dry_run=True).models == (name,)


def test_a_study_has_no_device(synthetic_folder):
    assert not hasattr(bc.Study.open(synthetic_folder), "device")


def test_fit_and_compare_work_on_a_device(synthetic_folder):
    here, there = (bc.fit(synthetic_folder, "task0", method="ridge", device=device) for device in ("", "cpu"))
    assert there.task_fit.capability.weights == pytest.approx(here.task_fit.capability.weights, rel=1e-3, abs=1e-6)
    comparison = bc.compare(synthetic_folder, ["task0"], methods=["ridge"], device="cpu", split="size")
    assert comparison.dataset.device == "cpu"
    with pytest.raises(InputError, match="torch cannot use it here"):
        bc.fit(synthetic_folder, "task0", device="nonsense")


def test_settings_reach_algorithm_2_and_survive_a_refit(synthetic_folder):
    fit = bc.fit(synthetic_folder, "task0", method="paper", settings=SHORT)
    assert len(fit.task_fit.history["train_mse"]) == SHORT.steps + 1
    assert stored_settings(fit.task_fit) == SHORT
    comparison = bc.compare(synthetic_folder, ["task0"], split="size", methods=["paper", "constant"], settings=SHORT)
    assert comparison.fits["task0", "paper"][0].notes["steps"] == SHORT.steps
    again = refit(bc.Study.open(synthetic_folder), [fit])[0]
    assert again.task_fit.notes == fit.task_fit.notes


def test_settings_read_back_from_a_file_are_the_same(synthetic_folder, tmp_path):
    fit = bc.fit(synthetic_folder, "task0", method="paper", settings=SHORT)
    assert stored_settings(bc.load(fit.save(tmp_path / "fit")).task_fit) == SHORT


def test_stored_fits_with_the_former_setting_joint_open(synthetic_folder, tmp_path):
    study, fit = bc.Study.open(synthetic_folder), bc.fit(synthetic_folder, "task0", method="paper", settings=SHORT)
    losses = study.losses(study.models_with_losses()[0])
    for joint in (False, True):
        old = replace(fit, task_fit=replace(fit.task_fit, notes={**fit.task_fit.notes, "joint": joint}))
        opened = bc.load(old.save(tmp_path / f"joint-{joint}"))
        assert opened.predict(losses) == fit.predict(losses)
        if joint:
            with pytest.raises(InputError, match=r"task0: the stored fit has the setting joint=True .* is gone; fit"):
                refit(study, [opened])
        else:
            assert refit(study, [opened])[0].task_fit.notes == fit.task_fit.notes


def test_settings_that_no_method_takes_are_refused(synthetic_folder):
    for run in (
        lambda: bc.fit(synthetic_folder, "task0", method="all-token", settings=SHORT),
        lambda: bc.compare(synthetic_folder, methods=["all-token", "ridge"], settings=SHORT),
    ):
        with pytest.raises(InputError, match="settings of type DescentSettings are for method paper, not for all-tok"):
            run()


def test_an_unknown_method_is_the_same_error_everywhere(study, dataset, cli):
    expected = r"unknown method 'salient'; known: stack, salience, .*; did you mean 'salience'\?"
    for run in (
        lambda: bc.fit(study, "task0", method="salient"),
        lambda: compare(study, methods=("salient",)),
        lambda: read_study_models(study, method="salient"),
        lambda: fit_method("salient", dataset, []),
    ):
        with pytest.raises(InputError, match=expected):
            run()
    assert "did you mean 'salience'?" in cli("fit", study.root, "--method", "salient").err


def test_every_method_is_a_row_and_a_literal():
    assert tuple(METHODS) == get_args(MethodName)
    assert {DEFAULT_METHOD, CAPABILITY_METHOD} <= METHODS.keys()


@pytest.mark.parametrize("method", METHODS.values(), ids=lambda m: m.name)
def test_a_row_names_what_is_there(method):
    targets = [t for t in (method.fit, method.pool_fit, method.settings) if t]
    assert all(callable(load(target)) for target in targets)


def test_without_a_split_the_column_says_what_is_held_out_in_fits_and_comparisons(study):
    rows = (study.root / "models.csv").read_text(encoding="utf-8").splitlines()
    column = rows[0].split(",").index("split")
    marked = [rows[0]]
    for number, row in enumerate(rows[1:]):
        cells = row.split(",")
        cells[column] = "test" if number % 5 == 0 else "train"
        marked.append(",".join(cells))
    (study.root / "models.csv").write_text("\n".join(marked) + "\n", encoding="utf-8")
    fit = fit_tasks(study, ["task0"], method="all-token")[0]
    comparison = bc.compare(study, ["task0"], methods=["all-token"])
    assert fit.about["split"] == comparison.split == "column"
    assert not set(fit.about["train"]) & set(comparison.held_out["task0", "all-token"].models)


@pytest.mark.parametrize("function", [bc.fit, bc.fit_tasks, bc.compare, bc.report])
def test_a_split_is_always_named(function, synthetic_folder):
    assert inspect.signature(function).parameters["split"].default in choices.SPLITS
    task = ["task0"] if function is bc.fit else []
    with pytest.raises(InputError, match="unknown split None; known: auto, column, size, family"):
        function(synthetic_folder, *task, split=None)


def test_a_study_without_a_split_column_hides_no_model_from_a_fit(synthetic_folder: Path):
    fit = bc.fit(synthetic_folder, "task0", method="all-token")
    assert fit.about["split"] == "everything"
    assert bc.fit(synthetic_folder, "task0", method="all-token", split="column").about["train"] == fit.about["train"]
    with pytest.raises(NotEnoughDataError, match=r"split 'column': no test models; mark some in models\.csv"):
        bc.compare(synthetic_folder, ["task0"], methods=["all-token"], split="column")
    assert bc.compare(synthetic_folder, ["task0"], methods=["all-token"]).split == "size"


def test_results_have_short_representations(synthetic_folder):
    fit = bc.fit(synthetic_folder, "task0", method="all-token")
    assert repr(fit) == "<Fit of 'task0' by all-token on 20 models>"
    comparison = bc.compare(synthetic_folder, methods=["all-token", "constant"], split="size")
    assert repr(comparison) == "<Comparison of 2 methods on 2 tasks, 5 models held out by size>"
    assert repr(comparison.held_out["task0", "constant"]) == "<HeldOutForecasts of 5 models>"


def test_what_a_study_gives_has_short_representations(synthetic_folder, world):
    study = bc.Study.open(synthetic_folder)
    dataset, losses = study.dataset(), study.losses(world.models[0].model)
    assert repr(study.texts) == f"<TextSet of {len(study.texts)} texts from {len(study.texts.sources)} sources>"
    assert repr(losses).startswith(f"<TokenLosses of '{losses.model}': {len(losses.nats)} tokens of ")
    assert repr(dataset).startswith(f"<Dataset of {len(dataset.models)} models × {dataset.nats.shape[1]} tokens, ")
    assert repr(study.features()).startswith("<Features of 'synthetic': ")
    fold = make_folds(study.infos(dataset.models), "size")[1][0]
    assert repr(fold).endswith(f" validation, {fold.test.sum()} test models>")


def test_no_public_result_is_long_or_has_nan_in_its_plain_values(fitted, world, tmp_path):
    name = world.models[3].model
    bc.register(fitted, name, tmp_path / "said.json")
    no_score = [bc.Score(m.model, t, 0.4) for m in world.models[:2] for t in ("task0", "task1")]
    fitted.add_scores(no_score, force=True)
    target = bc.Target(params=1e9, tokens=1e9)
    results = [
        bc.status(fitted),
        bc.predict(fitted, [name]),
        bc.predict(fitted, [name])[0],
        *bc.verify(tmp_path / "said.json", fitted),
        bc.remove_models(fitted, ["*"], dry_run=True),
        bc.explain(fitted, "task0"),
        bc.select(fitted, 6, tasks=["task0"], check=True),
        bc.compare(fitted, ["task0"], methods=["all-token", "observational"], split="size"),
        bc.compare_runs(fitted, [m.family for m in world.models[::4]][:2], method="all-token"),
        bc.Study.open(fitted.root),
        target,
    ]
    for result in results:
        assert len(repr(result)) < 200, repr(result)
        assert "\n" not in repr(result)
        to_dict = getattr(result, "to_dict", None) or getattr(result, "as_json", dict)
        json.dumps(to_dict(), allow_nan=False)


@pytest.fixture
def fitted(study):
    store_fits(study, fit_tasks(study, method="all-token"))
    return study


@pytest.mark.slow
def test_public_functions_stay_functions_when_their_modules_are_imported():
    code = (
        "import benchcast as bc, benchcast.collection.collect, benchcast.forecasts.registration\n"
        "import benchcast.reports.explain, benchcast.reports.report\n"
        "assert all(callable(getattr(bc, n)) for n in bc.__all__ if n not in ('datasets', '__version__'))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_model_is_registered_and_verified_in_two_calls(fitted, world, tmp_path):
    name = world.models[3].model
    registered = bc.register(str(fitted.root), name, tmp_path / "said.json", tasks=["task0"], level=0.8)
    assert registered["level"] == 0.8
    (row,) = bc.verify(tmp_path / "said.json", fitted)
    said = bc.load(fitted.fit_folder("task0")).predict(fitted.losses(name), level=0.8)
    assert (row.forecast, row.low) == (said.accuracy, said.low)
    assert row.observed == next(s.accuracy for s in fitted.scores() if (s.model, s.task) == (name, "task0"))
    assert bc.verify(registered, fitted.scores()) == [row]
    with pytest.raises(InputError, match="no losses of model 'nobody'"):
        bc.register(fitted, "nobody", tmp_path / "other.json")


def test_texts_are_selected_and_written_in_one_call(study, tmp_path):
    choice = bc.select(study.root, 6, out=tmp_path / "small")
    assert len(choice.ids) == 6
    assert [t.id for t in bc.Study.open(tmp_path / "small").texts] == choice.ids
    assert bc.select(study, 6, out=tmp_path / "small").ids == choice.ids, "what is written already is left as it is"
    with pytest.raises(InputError, match="exists with other content"):
        bc.select(study, 5, out=tmp_path / "small")


def test_the_cost_of_fewer_texts_is_measured_in_the_same_call(study, cli, tmp_path):
    choice = bc.select(study, 6, tasks=["task1"], check=True)
    said = json.loads(cli("select", study.root, "--budget", "6", "--task", "task1", "--json").out)
    assert choice.to_dict() == {k: v for k, v in said.items() if k != "budget"}
    assert repr(choice) == "<TextSelection of 6 of 24 texts>"
    assert bc.save_figure(choice, tmp_path / "cost.svg").read_text(encoding="utf-8").startswith("<svg")
    with pytest.raises(InputError, match="select with check=True"):
        bc.save_figure(bc.select(study, 6, tasks=["task1"]), tmp_path / "none.svg")


def test_a_fit_forecasts_from_a_file_of_losses(fitted, world, tmp_path):
    name = world.models[3].model
    fit = bc.load(fitted.fit_folder("task0"))
    file = fitted.losses_path(name)
    assert fit.predict(file) == fit.predict(str(file)) == fit.predict(fitted.losses(name))
    document = bc.register(fit, file, tmp_path / "said.json")
    assert document["model"] == name


def test_predict_fits_again_and_stores_the_new_fits(fitted, world):
    old = bc.load(fitted.fit_folder("task0"))
    fitted.add_scores([bc.Score(world.models[0].model, "task0", 0.31)], force=True)
    row = bc.predict(fitted, [world.models[1].model], tasks=["task0"], refit=True)[0]
    assert bc.load(fitted.fit_folder("task0")).digest != old.digest
    assert row == bc.predict(fitted, [world.models[1].model], tasks=["task0"])[0]


def test_fits_are_stored_in_one_call(study):
    fits = bc.fit_tasks(study, method="all-token", store=True)
    assert [bc.load(study.fit_folder(fit.task)).digest for fit in fits] == [fit.digest for fit in fits]


def test_a_registered_forecast_is_verified_with_score_files(fitted, world, tmp_path):
    name = world.models[3].model
    bc.register(fitted, name, tmp_path / "said.json")
    scores = tmp_path / "scores.csv"
    scores.write_text(f"model,task,accuracy\n{name},task0,0.5\n", encoding="utf-8")
    (row,) = bc.verify(tmp_path / "said.json", scores)
    assert (row.task, row.observed) == ("task0", 0.5)
    with pytest.raises(InputError, match="no score of"):
        bc.verify(tmp_path / "said.json", [bc.Score("other", "task0", 0.5)])


def test_a_task_is_explained_by_its_stored_fit(fitted, cli):
    said = json.loads(cli("explain", fitted.root, "--task", "task0", "--json").out)
    explained = bc.explain(fitted.root, "task0")
    assert explained.method == said["method"] == "all-token"
    assert [row["name"] for row in explained.by_source()] == [row["name"] for row in said["by_source"]]
    with pytest.raises(InputError, match="unknown task 'tusk0'"):
        bc.explain(fitted, "tusk0")


def test_a_heat_map_is_written_in_one_call(fitted, tmp_path):
    text = fitted.texts.texts[2].id
    page = bc.heat_map(fitted.root, "task0", tmp_path / "heat.html", text_id=text)
    explained = bc.explain(fitted, "task0")
    again = bc.heat_map(fitted, explained, tmp_path / "again.html", text_id=text)
    assert page.read_bytes() == again.read_bytes()
    assert repr(explained).startswith("<Explanation of 'task0' by all-token: 24 texts, ")


def test_a_run_is_watched_in_one_call(fitted, cli, tmp_path):
    losses = fitted.losses(fitted.models_with_losses()[0])
    ends = losses.edges[np.cumsum([0, *losses.counts])]
    cuts = np.split(losses.edges[1:], np.cumsum(losses.counts)[:-1])
    nats = np.split(losses.nats, np.cumsum(losses.counts)[:-1])
    rows = [
        {"text_id": t.id, "bounds": [0, *map(int, c - ends[i])], "nats": [None if x != x else float(x) for x in n]}
        for i, (t, c, n) in enumerate(zip(fitted.texts, cuts, nats, strict=True))
    ]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine@7.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    (event,) = bc.watch(fitted.root, bc.WatchedRun(losses=tmp_path / "run"), once=True)
    assert repr(event) == "<Event forecast of 'mine@7': 2 tasks>"
    said = json.loads(cli("watch", fitted.root, "--losses", tmp_path / "run", "--once", "--json").out)
    assert said == {**event.to_dict(), "new": False}
    with pytest.raises(InputError, match="give --checkpoints"):
        bc.watch(fitted, bc.WatchedRun())


def test_a_report_is_written_in_one_call(fitted, tmp_path, monkeypatch):
    monkeypatch.setattr("benchcast.evaluation.compare.MAIN_METHODS", ("all-token", "constant"))
    page = bc.report(fitted.root, tmp_path / "page.html", split="size")
    assert page == tmp_path / "page.html"
    written = page.read_text(encoding="utf-8")
    assert "all-token" in written
    assert "rbridge" not in written, "only what was compared"
    assert bc.report(fitted).name == "report.html"


def test_a_model_to_come_is_forecast_from_a_path(synthetic_folder):
    family = bc.Study.open(synthetic_folder).models()[0].family
    with pytest.raises(InputError, match="unknown family"):
        bc.extrapolate(synthetic_folder, f"{family}x", bc.Target(params=1e9, tokens=1e9), method="all-token")


def test_type_checkers_see_every_public_name() -> None:
    """The stub imports what `__init__.py` imports late, from the same modules."""
    stub = ast.parse((Path(bc.__file__).parent / "__init__.pyi").read_text(encoding="utf-8"))
    seen = {alias.asname: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == {**bc._HOME, "datasets": "benchcast"}
