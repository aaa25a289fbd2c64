"""Tasks that are the mean of others: their scores, their forecasts, and the presets that have one."""

from __future__ import annotations

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import benchcast as bc
from benchcast.datasets import dclm
from benchcast.datasets.download import data_folder
from benchcast.errors import InputError
from benchcast.forecasts.intervals import out_of_fold_coverage, predict
from benchcast.forecasts.mean_tasks import aggregate_fits, with_aggregates
from benchcast.importers.presets import PRESETS, find_preset, logged_tasks, preset_tasks
from benchcast.records import Score, Task, Text, TextSet
from benchcast.study.mean_scores import aggregate_accuracy, derived_scores
from benchcast.study.study_toml import read_settings

BOTH = Task("both", members=("task0", "task1"))
MEMBERS = 'members = ["task0", "task1"]\n'
AGGREGATES = f"\n[tasks.both]\n{MEMBERS}\n[tasks.centred]\n{MEMBERS}centred = true\n"


@pytest.fixture
def aggregated(study):
    """The synthetic study with two aggregates of its two tasks."""
    path = study.root / "study.toml"
    path.write_text(path.read_text(encoding="utf-8") + AGGREGATES, encoding="utf-8")
    return bc.Study.open(study.root)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=2), st.floats(0, 0.9))
def test_centred_means_take_chance_out_of_every_member(accuracies, chance):
    plain = aggregate_accuracy(BOTH, accuracies, {})
    assert plain == pytest.approx(np.mean(accuracies))
    centred = aggregate_accuracy(replace(BOTH, centred=True), accuracies, {"task0": chance, "task1": 0.0})
    expected = np.mean([(accuracies[0] - chance) / (1 - chance), accuracies[1]])
    assert centred == pytest.approx(max(expected, 0), abs=1e-9)


def test_only_models_with_all_members_have_a_derived_score():
    tasks = [Task("task0", 0.25), Task("task1"), BOTH]
    scores = [
        Score("a", "task0", 0.5, n_items=100),
        Score("a", "task1", 0.7, n_items=50, stderr=0.1),
        Score("b", "task0", 0.5),
        Score("c", "task0", 0.5),
        Score("c", "task1", 0.5),
        Score("c", "both", 0.9),
    ]
    (derived,) = derived_scores(scores, tasks)
    assert (derived.model, derived.task, derived.accuracy, derived.n_items) == ("a", "both", pytest.approx(0.6), 150)
    assert derived.stderr == pytest.approx(math.sqrt(0.05**2 + 0.1**2) / 2)


def test_a_study_reads_its_aggregates_and_never_stores_their_scores(aggregated, cli):
    tasks = {t.name: t for t in aggregated.tasks}
    assert tasks["both"].chance == pytest.approx((tasks["task0"].chance + tasks["task1"].chance) / 2)
    assert tasks["centred"].chance == 0
    assert tasks["both"].sources == (*tasks["task0"].sources, *tasks["task1"].sources)
    stored, known = aggregated.stored_scores(), aggregated.scores()
    assert len(known) == 2 * len(stored)
    model = stored[0].model
    aggregated.add_scores([Score("new", "task0", 0.5)])
    assert bc.rename_model(aggregated, model, "other").scores == 2
    assert "both" not in (aggregated.root / "scores.csv").read_text()
    assert {s.task for s in aggregated.losses("other").scores} == {"task0", "task1", "both", "centred"}


def test_a_file_may_bring_the_score_of_an_aggregate_itself(aggregated, tmp_path):
    model = aggregated.stored_scores()[0].model
    (tmp_path / "scores.csv").write_text(f"model,task,accuracy\n{model},both,0.875\n")
    bc.import_scores(aggregated, tmp_path / "scores.csv")
    accuracies = [s.accuracy for s in aggregated.scores() if (s.model, s.task) == (model, "both")]
    assert accuracies == [0.875]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('members = ["task0"]', "members must be a list of at least two tasks"),
        ('members = ["task0", "task9"]', "member 'task9' is not a task of this file that has no members itself"),
        ('members = ["task0", "task0"]', "member 'task0' occurs twice"),
        ('members = ["task0", "more"]', "member 'more' is not a task of this file that has no members itself"),
        ('members = ["task0", "task1"]\ncentred = "yes"', "centred = 'yes'; it must be a bool"),
        ("centred = true", "centred is for a task with members"),
        ("metric = 3", "metric = 3; it must be a str"),
    ],
)
def test_a_bad_aggregate_is_one_line(cli, study, lines, said):
    path = study.root / "study.toml"
    path.write_text(path.read_text(encoding="utf-8") + f"\n[tasks.more]\n{lines}\n", encoding="utf-8")
    ran = cli("status", study.root)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert said in ran.err


def test_the_way_with_the_lower_error_is_used(aggregated):
    bc.fit_tasks(aggregated, method="label-token", store=True)
    fits = [bc.load(aggregated.fit_folder(t.name)) for t in aggregated.tasks]
    assert [fit.task_fit.task for fit in fits] == [*aggregated.tasks]
    aggregates = {aggregate.task.name: aggregate for aggregate in aggregate_fits(aggregated, fits)}
    assert aggregates.keys() == {"both", "centred"}
    errors = {f.task: f.task_fit.out_of_fold for f in fits[:2]}
    members = {task: dict(zip(e.models, e.errors, strict=True)) for task, e in errors.items()}
    for aggregate in aggregates.values():
        chance = [t.chance if aggregate.task.centred else 0.0 for t in aggregated.tasks[:2]]
        model = aggregate.joint.models[0]
        expected = np.mean([members[t][model] / (1 - c) for t, c in zip(("task0", "task1"), chance, strict=True)])
        assert aggregate.joint.errors[0] == pytest.approx(expected)
        assert aggregate.by_members == (aggregate.mean_error < aggregate.own_error)
    model = aggregated.models_with_losses()[0]
    rows = {f.task: f for f in bc.predict(aggregated, [model])}
    forced = replace(aggregates["both"], mean_error=0.0)
    alone = {fit.task: fit.predict(aggregated.losses(model)) for fit in fits}
    mean = with_aggregates([forced], alone)["both"]
    assert mean.accuracy == pytest.approx(np.mean([alone["task0"].accuracy, alone["task1"].accuracy]))
    assert mean.low < mean.accuracy < mean.high
    unchanged = with_aggregates([replace(forced, mean_error=1.0)], alone)["both"]
    assert unchanged == alone["both"]
    assert rows["both"] == (mean if aggregates["both"].by_members else unchanged)


def test_an_aggregate_alone_is_forecast_from_the_stored_fits_of_its_members(aggregated, cli):
    ran = cli("fit", aggregated.root, "--method", "label-token")
    assert "both: forecast by " in ran.out
    model = aggregated.models_with_losses()[0]
    every = {f.task: f for f in bc.predict(aggregated, [model])}
    (one,) = bc.predict(aggregated, [model], tasks=["centred"])
    assert one == every["centred"]


def mean_errs_less(fits):
    """Whether the mean of the members' errors is the lower one, every family with the same weight."""
    aggregate, *members = (fits[name].out_of_fold for name in ("both", *BOTH.members))
    assert all(of_member.models == aggregate.models for of_member in members)
    mean = np.mean([of_member.errors for of_member in members], axis=0)
    squares = [
        [np.mean(e[aggregate.families == f] ** 2) for f in np.unique(aggregate.families)]
        for e in (mean, aggregate.errors)
    ]
    return np.mean(squares[0]) < np.mean(squares[1])


@pytest.mark.parametrize("method", ["salience", "all-token"])
def test_compare_shows_an_aggregate_as_predict_would_forecast_it(aggregated, method):
    comparison = bc.compare(aggregated, split="family", methods=[method])
    held = {task: comparison.held_out[task, method] for task in comparison.tasks}
    ways = set()
    for i, fold in enumerate(comparison.folds):
        fits = {task: comparison.fits[task, method][i] for task in comparison.tasks}
        tested = np.isin(held["both"].models, np.array(comparison.dataset.models)[fold.test])
        direct = predict(fits["both"], comparison.dataset.nats[fold.test], comparison.dataset.metadata.take(fold.test))
        mean = np.mean([held[task].forecast[tested] for task in BOTH.members], axis=0)
        by_members = mean_errs_less(fits)
        assert held["both"].forecast[tested] == pytest.approx(mean if by_members else direct.accuracy)
        ways.add(bool(by_members))
    assert ways == {True, False}
    assert (held["both"].low < held["both"].forecast).all()
    assert (held["both"].forecast < held["both"].high).all()


def test_explain_says_when_an_aggregate_is_forecast_by_its_members(aggregated, cli):
    derived = [s for s in aggregated.scores() if s.task == "centred"]
    aggregated.add_scores([replace(s, accuracy=0.2 + 0.6 * (i % 2)) for i, s in enumerate(derived)])
    assert cli("fit", aggregated.root, "--method", "all-token").code == 0
    line = "centred: `predict` uses the mean of the forecasts of task0, task1; this shows its own fit\n"
    assert {t: cli("explain", aggregated.root, "--task", t).err for t in ("task0", "both", "centred")} == {
        "task0": "",
        "both": "",
        "centred": line,
    }


def test_joint_intervals_hold_their_share_of_held_out_scores(aggregated):
    bc.fit_tasks(aggregated, method="label-token", store=True)
    aggregate = {m.task.name: m for m in aggregate_fits(aggregated, [bc.load(aggregated.fit_folder("both"))])}["both"]
    assert out_of_fold_coverage(replace(aggregate.members[0], out_of_fold=aggregate.joint)) > 0.7


def test_presets_have_the_tasks_and_chances_of_their_suites():
    assert {name: len(p.tasks) for name, p in PRESETS.items()} == {"core": 22, "olmes": 10, "open-llm-leaderboard": 6}
    for preset in PRESETS.values():
        assert preset.aggregate.members == tuple(t.name for t in preset.tasks)
        assert all(0 <= t.chance < 1 for t in preset.tasks)
    with pytest.raises(InputError, match=r"unknown preset 'cores'; known: core, olmes, .*; did you mean 'core'\?"):
        find_preset("cores")


@pytest.mark.skipif(not (data_folder(None) / dclm.FILE).is_file(), reason="the files of dclm are not here")
def test_core_is_the_core_of_dclm():
    """Its table has rows of an earlier definition, too, with other baselines of four tasks."""
    preset = PRESETS["core"]
    now = {t.name: t.chance for t in preset.tasks}
    before = now | {
        "boolq": 0.5,
        "commonsense_qa": 0.25,
        "agi_eval_lsat_ar": 0.25,
        "bigbench_language_identification": 0.25,
    }
    hits = {"now": 0, "before": 0, "neither": 0}
    with (data_folder(None) / dclm.FILE).open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["Core"] and all(row[t] for t in now):
                values = [float(row[t]) for t in now]
                ours = [aggregate_accuracy(preset.aggregate, values, chance) for chance in (now, before)]
                close = [abs(x - float(row["Core"])) < 2e-4 for x in ours]
                hits["now" if close[0] else "before" if close[1] else "neither"] += 1
    assert hits["now"] > 100
    assert hits["neither"] == 0


def test_a_preset_takes_the_texts_that_are_named_like_its_tasks():
    texts = TextSet.of([Text("a", "ARC-Easy", "x"), Text("b", "hellaswag", "y"), Text("c", "prose", "z")])
    tasks = {t.name: t for t in preset_tasks("core", texts)}
    assert tasks["arc_easy"].sources == ("ARC-Easy",)
    assert tasks["hellaswag"].sources == ("hellaswag",)
    assert tasks["squad"].sources == ()
    assert tasks["core"].sources == ("ARC-Easy", "hellaswag")


def test_a_preset_picks_its_tasks_from_logs():
    names = ("leaderboard_ifeval", "leaderboard_bbh", "leaderboard_math_hard", "leaderboard_gpqa", "leaderboard_musr")
    logged = [Task(name, 0.1, (f"{name}_part",)) for name in (*names, "leaderboard_mmlu_pro", "other")]
    tasks, notes = logged_tasks("open-llm-leaderboard", logged)
    assert [t.name for t in tasks[-2:]] == ["mmlu_pro", "open-llm-leaderboard"]
    assert (tasks[3].name, tasks[3].chance, tasks[3].sources) == ("gpqa", 0.25, ("leaderboard_gpqa_part",))
    assert notes == []
    tasks, notes = logged_tasks("open-llm-leaderboard", logged[:3])
    assert [t.name for t in tasks] == ["ifeval", "bbh", "math_lvl_5"]
    assert notes == ["open-llm-leaderboard: not added, since the logs lack gpqa, musr, mmlu_pro"]
    with pytest.raises(InputError, match="preset core: none of its tasks is in the logs, which hold other"):
        logged_tasks("core", logged[-1:])


def test_init_writes_the_tasks_of_a_preset(cli, tmp_path):
    (tmp_path / "texts.jsonl").write_text('{"text": "a b", "source": "arc_easy"}\n{"text": "c", "source": "piqa"}\n')
    ran = cli("init", tmp_path / "s", "--texts", tmp_path / "texts.jsonl", "--preset", "olmes")
    assert "tasks: 10 of olmes, and their mean olmes" in ran.out
    tasks = {t.name: t for t in read_settings(tmp_path / "s" / "study.toml").tasks}
    assert (tasks["piqa"].chance, tasks["piqa"].metric, tasks["piqa"].sources) == (0.5, "acc_norm", ("piqa",))
    assert tasks["olmes"].sources == ("arc_easy", "piqa")
    (tmp_path / "losses.csv").write_text("model,ppl.hellaswag,ppl.squad\nm,1.0,2.0\nn,0.9,1.5\n")
    ran = cli("init", tmp_path / "t", "--table", tmp_path / "losses.csv", "--preset", "core")
    assert ran.code == 0, ran.err
    tasks = {t.name: t for t in read_settings(tmp_path / "t" / "study.toml").tasks}
    assert tasks["squad"].answers == ("ppl.squad",)
    assert tasks["core"].answers == ("ppl.hellaswag", "ppl.squad")
    for words in (("--preset", "cores", "--texts", tmp_path / "texts.jsonl"), ("--preset", "core", "--mix", "mmlu=1")):
        ran = cli("init", tmp_path / "u", *words)
        assert (ran.code, ran.err.count("\n")) == (1, 1)
        assert not (tmp_path / "u").exists()
