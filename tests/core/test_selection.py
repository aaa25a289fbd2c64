"""Texts that carry the forecast: chosen from seen models alone, and worth more than as many at random."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchcast import load
from benchcast.evaluation.select import choose, cut_losses, some_texts, write_smaller
from benchcast.evaluation.selection_cost import (
    CHOSEN,
    RANDOM,
    SPREAD,
    TaskObjective,
    choose_texts,
    cost,
    cut_fit,
    depends_on_losses,
    parts_of_texts,
    pick,
    prepare,
    task_objectives,
)
from benchcast.losses.assemble import assemble
from benchcast.splits import Fold, make_folds
from benchcast.study.study import Study
from synthetic import Plan, make_world, write_study


def goal(parts: np.ndarray, target: np.ndarray) -> TaskObjective:
    centred = parts - parts.mean(axis=0)
    total = target - target.mean()
    return TaskObjective(centred, total, total, np.full(len(parts), 1 / len(parts)), 1e-4)


def test_texts_that_alone_make_up_the_capability_are_chosen():
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(60, 40))
    carriers = [3, 11, 25, 30]
    chosen = choose_texts([goal(parts, parts[:, carriers].sum(axis=1))], 4)
    assert sorted(chosen) == carriers


def test_every_task_gets_texts():
    rng = np.random.default_rng(1)
    parts = [np.where(np.arange(40) % 2 == parity, rng.normal(size=(60, 40)), 0.0) for parity in (0, 1)]
    chosen = choose_texts([goal(p, p.sum(axis=1)) for p in parts], 12)
    assert 4 <= (chosen % 2).sum() <= 8


def test_an_exchange_repairs_what_a_greedy_choice_did():
    """The first text looks best alone; the pair that is exact together does not contain it."""
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(2, 200))
    parts = np.column_stack([a + b + 0.3 * rng.normal(size=200), a, b])
    assert sorted(choose_texts([goal(parts, a + b)], 2)) == [1, 2]


@pytest.fixture(scope="module")
def full_fits(dataset, world):
    return prepare(dataset, make_folds(world.models, "size")[1])


def test_parts_of_texts_add_up_to_capability(full_fits, dataset):
    for fit in full_fits.fits[0]:
        assert_allclose(
            parts_of_texts(dataset, fit).sum(axis=1), fit.capability.of(dataset.nats, dataset.metadata), rtol=1e-4
        )


def test_the_choice_does_not_look_at_models_held_out(full_fits, dataset, world):
    fold = full_fits.folds[0]
    rng = np.random.default_rng(0)
    nats = np.where(fold.test[:, None], rng.random(dataset.nats.shape, np.float32), dataset.nats)
    accuracy = np.where(fold.test, rng.random(dataset.accuracy.shape), dataset.accuracy)
    other = replace(dataset, nats=nats, accuracy=accuracy)
    again = choose_texts(task_objectives(other, fold, full_fits.fits[0]), 6)
    assert again.tolist() == choose_texts(full_fits.objectives[0], 6).tolist()


def test_all_texts_cost_nothing_and_cut_nothing(full_fits, dataset):
    everything = np.arange(full_fits.texts)
    assert choose_texts(full_fits.objectives[0], 10_000).tolist() == everything.tolist()
    fit = full_fits.fits[0][0]
    assert cut_fit(dataset, full_fits.folds[0], 0, fit, everything).law == fit.law
    full = cost(full_fits, CHOSEN, full_fits.texts)
    assert full.ratio(full) == pytest.approx(1.0)
    forecast = fit.forecast(dataset.nats, dataset.metadata)[full_fits.folds[0].test]
    assert full.mse["task0"] == pytest.approx(np.mean((forecast - dataset.accuracy[0, full_fits.folds[0].test]) ** 2))


def test_random_texts_of_each_source_are_as_many_of_each(full_fits, dataset):
    drawn = pick(dataset, full_fits.objectives[0], SPREAD, texts=9, rng=np.random.default_rng(0))
    source = np.array([dataset.reference_tokens.source[dataset.reference_tokens.text == i][0] for i in drawn])
    assert np.bincount(source).tolist() == [3, 3, 3]
    assert len(set(pick(dataset, full_fits.objectives[0], RANDOM, texts=9, rng=np.random.default_rng(0)))) == 9


def test_chosen_texts_err_less_than_as_many_at_random_on_families_never_seen():
    ratios = {CHOSEN: [], RANDOM: []}
    for seed in range(2):
        world = make_world(Plan(seed=seed, families=6, sizes=3, checkpoints=2, tasks=2, texts_per_source=25))
        dataset = assemble(world.texts, world.losses, world.models, scores=world.scores, tasks=world.tasks)
        full_fits = prepare(dataset, make_folds(world.models, "family")[1])
        full = cost(full_fits, CHOSEN, full_fits.texts)
        for way, measured in ratios.items():
            measured += [cost(full_fits, way, 10, draw=d).ratio(full) for d in range(1 if way == CHOSEN else 3)]
    assert np.mean(np.log(ratios[CHOSEN])) < np.mean(np.log(ratios[RANDOM]))


def test_a_dataset_of_some_texts_is_that_of_a_study_of_those_texts(study, world):
    wanted = np.array([1, 4, 9, 16, 20])
    choice = replace(choose(study, 5), indices=wanted)
    small = write_smaller(choice, study.root.parent / "small")
    assert [t.id for t in small.texts] == [study.texts.texts[i].id for i in wanted]
    cut, of_small_study = study.dataset().for_texts(wanted), small.dataset()
    assert_allclose(cut.nats, of_small_study.nats, rtol=1e-5)
    for name in ("edges", "text", "answer", "supported"):
        assert (getattr(cut.reference_tokens, name) == getattr(of_small_study.reference_tokens, name)).all(), name
    sources = [[e.reference_tokens.sources[i] for i in e.reference_tokens.source] for e in (cut, of_small_study)]
    assert sources[0] == sources[1]
    assert cut.characters == pytest.approx(of_small_study.characters, rel=0.2)
    rows = [
        e.features.values if e.features.rows is None else e.features.values[e.features.rows]
        for e in (cut, of_small_study)
    ]
    assert (rows[0] == rows[1]).all()


def test_a_smaller_study_forecasts_models_that_have_losses_on_its_texts_only(study, world, cli, tmp_path):
    ran = cli("select", study.root, "--budget", "8", "--no-check", "-o", tmp_path / "small")
    assert ran.code == 0, ran.err
    small = Study.open(tmp_path / "small")
    assert len(small.texts) == 8
    new = replace(world.losses[0], model="new")
    order = np.array([study.texts.index[t.id] for t in small.texts])
    small.add_losses([cut_losses(new, study.texts, order)])
    forecasts = json.loads(cli("predict", small.root, "--model", "new", "--json").out)
    known = json.loads(cli("predict", small.root, "--model", world.losses[0].model, "--json").out)
    assert [f["task"] for f in forecasts] == ["task0", "task1"]
    assert [f["accuracy"] for f in forecasts] == pytest.approx([f["accuracy"] for f in known])
    fit = load(small.fit_folder("task0"))
    assert fit.about["chosen_from"] == study.texts.digest
    assert cli("compare", small.root, "--method", "label-token").code == 0
    assert cli("fit", small.root).code == 0, "it is a study like any other"


def test_select_says_what_fewer_texts_cost_and_writes_texts_that_init_takes(study, cli, tmp_path):
    out, figure = tmp_path / "texts.jsonl", tmp_path / "budget.svg"
    ran = cli("select", study.root, "--budget", "6", "--task", "task1", "-o", out, "--figure", figure, "--json")
    assert ran.code == 0, ran.err
    printed = json.loads(ran.out)
    assert (printed["budget"], printed["texts"], len(printed["chosen"])) == (6, 24, 6)
    assert sum(printed["sources"].values()) == 6
    assert [(r["texts"], r["way"]) for r in printed["costs"] if r["draw"] == 0][:3] == [
        (3, w) for w in (CHOSEN, SPREAD, RANDOM)
    ]
    assert all(r["ratio"] > 0 and set(r["tasks"]) == {"task1"} for r in printed["costs"])
    assert figure.read_text().startswith("<svg")
    assert cli("init", tmp_path / "new", "--texts", out).code == 0
    assert [t.id for t in Study.open(tmp_path / "new").texts] == printed["chosen"]
    shown = cli("select", study.root, "--budget", "6", "--task", "task1", "--no-check").out
    assert "chosen: 6 of 24 texts" in shown
    assert all(i in shown for i in printed["chosen"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--figure", "x.gif"], "the name must end in .png, .svg or .html"),
        (["--figure", "x.png", "--no-check"], "--figure shows the cost that --check measures"),
        (["--task", "tsk0"], "unknown task 'tsk0'"),
        (["-o", "texts.csv"], "texts are written as .jsonl"),
        (["--budget", "0"], "0 is not in the range x>=1"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(arguments, says, study, cli, tmp_path):
    ran = cli("select", study.root, "-o", tmp_path / "out", *arguments)
    assert ran.code != 0
    assert says in ran.err
    assert not (tmp_path / "out").exists()


def test_nothing_that_exists_is_written_over(study, cli, tmp_path, tree):
    before = tree(study.root)
    ran = cli("select", study.root, "--no-check", "-o", study.root)
    assert (ran.code, "give a new name" in ran.err) == (1, True)
    assert tree(study.root) == before


def test_a_budget_larger_than_the_study_keeps_all_its_texts(study, cli):
    selection = json.loads(cli("select", study.root, "--budget", "1000", "--json").out)
    assert len(selection["chosen"]) == 24
    assert selection["costs"] == []


def test_a_study_of_one_family_is_measured_by_size_or_says_why_not(study, cli):
    lone = [replace(m, family="only") for m in study.models()]
    study.add_models(lone)
    selection = json.loads(cli("select", study.root, "--budget", "6", "--json").out)
    assert selection["split"] == "size"
    study.add_models([replace(m, params=1.0) for m in lone])
    selection = json.loads(cli("select", study.root, "--budget", "6", "--json").out)
    assert (selection["split"], selection["costs"]) == (None, [])
    assert selection["remark"] == "cost not measured: no model can be held out"


def test_some_texts_keep_their_order(world):
    assert [t.id for t in some_texts(world.texts, np.array([5, 2]))] == [world.texts.texts[i].id for i in (5, 2)]


@pytest.fixture
def one_level(tmp_path):
    """A study with one task whose scores are all below chance, and one that is as it was made."""
    world = make_world(Plan(seed=2, families=4, sizes=4, checkpoints=1, tasks=2, texts_per_source=8))
    level = world.tasks[0]
    scores = [replace(s, accuracy=level.chance - 0.01 if s.task == level.name else s.accuracy) for s in world.scores]
    return write_study(replace(world, scores=scores), tmp_path / "study"), level.name


@pytest.mark.filterwarnings("error")
def test_a_task_that_is_level_has_no_say_and_spoils_nothing(one_level):
    study, level = one_level
    dataset = study.dataset()
    everyone = np.ones(len(dataset.models), bool)
    full_fits = prepare(dataset, [Fold(everyone, ~everyone, ~everyone)])
    alone = prepare(dataset.for_tasks([t.name for t in dataset.tasks if t.name != level]), full_fits.folds)
    assert [depends_on_losses(dataset, fit) for fit in full_fits.fits[0]] == [False, True]
    assert len(full_fits.objectives[0]) == 1
    assert_allclose(choose_texts(full_fits.objectives[0], 5), choose_texts(alone.objectives[0], 5))


def test_select_names_the_task_that_had_no_say(one_level, cli):
    study, level = one_level
    ran = cli("select", study.root, "--budget", "5", "--no-check")
    assert ran.code == 0
    assert level in ran.out


def test_what_was_refused_is_said_of_the_kept_texts_alone(world):
    whole = replace(world.losses[0], about={"refused": json.dumps([t.id for t in list(world.texts)[:3]])})
    cut = cut_losses(whole, world.texts, np.array([1, 5]))
    assert json.loads(cut.about["refused"]) == [world.texts.texts[1].id]
    assert "refused" not in cut_losses(whole, world.texts, np.array([5, 6])).about


@pytest.mark.parametrize("name", ["small", "small.jsonl"])
def test_a_select_that_was_killed_leaves_nothing_that_stops_its_rerun(name, study, cli, tmp_path, tree):
    """Killed while it fills the folder, or after the folder is in place."""
    half = tmp_path / "out" / f".{name}.999999999-0a1b2c3d.tmp"
    half.mkdir(parents=True)
    (half / "texts.jsonl").write_text("half")
    command = ("select", study.root, "--budget", "8", "--no-check", "-o", tmp_path / "out" / name)
    first = cli(*command)
    assert first.code == 0
    written = tree(tmp_path / "out")
    assert cli(*command) == first
    assert tree(tmp_path / "out") == written
    assert name == "small.jsonl" or not half.exists()
    other = cli("select", study.root, "--budget", "4", "--no-check", "-o", tmp_path / "out" / name)
    assert (other.code, "exists with other content" in other.err) == (1, True)
