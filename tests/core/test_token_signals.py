"""Signals between tokenizers, in files, in fits and in forecasts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import benchcast as bc
from benchcast.choices import SIGNALS, parse_signals
from benchcast.errors import InputError, NotEnoughDataError, StudyError
from benchcast.folds import make_folds
from benchcast.methods import METHODS
from benchcast.predictors import VIEWS, LossView
from benchcast.records import Text, TextSet, TokenLosses
from benchcast.selection.smaller import select, write_smaller
from benchcast.signals import regroup_signal
from benchcast.storage.loss_files import read_losses, write_parquet
from benchcast.store import Study
from synthetic import World
from worlds import make_dataset, telling

LENGTH = 24
cuts = st.lists(st.integers(0, LENGTH), max_size=12).map(lambda inner: np.array([0, *sorted(inner), LENGTH]))


@given(cuts, cuts, st.data())
def test_amounts_are_conserved_between_tokenizers(source, target, data):
    values = np.array(data.draw(st.lists(st.floats(0, 20), min_size=len(source) - 1, max_size=len(source) - 1)))
    for name in ("rank", "entropy", "margin"):
        assert regroup_signal(name, values, source, target).sum() == pytest.approx(values.sum(), abs=1e-9)


@given(cuts, cuts, st.data())
def test_a_token_is_a_hit_exactly_if_every_token_that_overlaps_it_is(source, target, data):
    wide = np.diff(source) > 0
    hits = np.array(data.draw(st.lists(st.booleans(), min_size=len(wide), max_size=len(wide))), float)
    hits[~wide] = 1.0  # what a zero-width token does is tested below
    missed = regroup_signal("hit", hits, source, target)
    for k, (start, end) in enumerate(pairwise(target)):
        overlaps = (source[:-1] < end) & (source[1:] > start)
        assert missed[k] == float((hits[overlaps] == 0).any() and end > start)


def test_the_same_tokens_keep_their_signals_and_a_hit_is_read_as_no_miss():
    edges = [0, 2, 5, 9]
    np.testing.assert_array_equal(regroup_signal("hit", [1, 0, 1], edges, edges), [0, 1, 0])
    np.testing.assert_allclose(regroup_signal("rank", [0, 3, 1], edges, edges), [0, 3, 1])


def test_a_zero_width_token_that_is_missed_spoils_the_next_one_of_its_text():
    np.testing.assert_array_equal(regroup_signal("hit", [1, 0, 1], [0, 2, 2, 4], [0, 2, 4]), [0, 1])
    missed = regroup_signal("hit", [1, 0, 1], [0, 2, 2, 4], [0, 2, 4], counts=[2, 1])
    np.testing.assert_array_equal(missed, [1, 0])


def test_a_token_that_overlaps_one_without_a_signal_has_none():
    for name in SIGNALS:
        regrouped = regroup_signal(name, [np.nan, 1, 1], [0, 2, 4, 6], [0, 3, 6])
        assert np.isnan(regrouped[0])
        assert np.isfinite(regrouped[1])


def test_names_of_signals_are_checked_and_put_in_order():
    assert parse_signals("margin,rank,rank") == ("rank", "margin")
    with pytest.raises(InputError, match=r"unknown signal 'ranks'.*did you mean 'rank'"):
        parse_signals("ranks")


TEXTS = TextSet.of([Text("a", "web", "abcd"), Text("b", "web", "ef")])


def losses_with(**signals) -> TokenLosses:
    values = {name: np.array(x, float) for name, x in signals.items()}
    return TokenLosses("m", np.array([2, 1]), np.array([0, 1, 4, 6]), np.array([np.nan, 2.0, 0.5]), signals=values)


def test_a_file_keeps_signals_in_small_columns(tmp_path: Path):
    path = tmp_path / "m.parquet"
    nan = np.nan
    written = losses_with(rank=[nan, 2.0, 0.0], entropy=[nan, 1.5, 0.25], hit=[nan, 0, 1], margin=[nan, 1.25, 0])
    write_parquet(path, written, TEXTS)
    schema = pq.read_schema(path)
    kinds = {name: schema.field(name).type.value_type for name in SIGNALS}
    assert kinds == {"rank": pa.uint8(), "entropy": pa.float16(), "hit": pa.bool_(), "margin": pa.float16()}
    (read,) = read_losses(path, TEXTS)
    for name in SIGNALS:
        np.testing.assert_array_equal(read.signals[name], written.signals[name])
    write_parquet(path, losses_with(), TEXTS)
    assert read_losses(path, TEXTS)[0].signals == {}


def test_ranks_up_to_any_vocabulary_are_kept_to_a_sixteenth_of_an_octave(tmp_path: Path):
    ranks = np.log2([3, 262_144, 2**31])
    write_parquet(tmp_path / "m.parquet", losses_with(rank=ranks), TEXTS)
    np.testing.assert_allclose(read_losses(tmp_path / "m.parquet", TEXTS)[0].signals["rank"], ranks, atol=1 / 16)


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ({"entropy": [[-1.0, 1.0], [1.0]]}, "text 'a' has an impossible entropy"),
        ({"hit": [[2, 1], [1]]}, "text 'a' has an impossible hit"),
        ({"margin": [[0.0, 9.0], [0.0]]}, "text 'a' has an impossible margin"),
        ({"margin": [[0.0, 1.0], [0.0, 1.0]]}, "text 'b': 1 nats need as many values of margin, found 2"),
        ({"rank": ["x", "y"]}, "column rank must hold a list of numbers"),
    ],
)
def test_signals_that_cannot_be_are_refused_in_one_line(tmp_path: Path, column, says):
    table = {"text_id": ["a", "b"], "bounds": [[0, 1, 4], [0, 2]], "nats": [[1.0, 2.0], [0.5]], **column}
    pq.write_table(pa.table(table), tmp_path / "m.parquet")
    with pytest.raises(InputError, match=says):
        read_losses(tmp_path / "m.parquet", TEXTS)


@pytest.fixture(scope="module")
def study_with_signals(world: World, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The synthetic world with signals, on disk; not to be written to."""
    study = Study.create(tmp_path_factory.mktemp("told") / "study", world.texts, tasks=world.tasks)
    study.add_models(world.models)
    study.add_losses([telling(x) for x in world.losses])
    study.add_scores(world.scores)
    path = study.root / "study.toml"
    path.write_text(path.read_text().replace("seed = 0\n", 'seed = 0\nsignals = ["hit", "rank"]\n'))
    return Study.open(study.root)


def test_a_study_reads_the_signals_that_its_settings_name(study_with_signals: Study):
    dataset = study_with_signals.dataset()
    assert dataset.views == (*VIEWS, LossView.RANK, LossView.HIT)
    assert replace(study_with_signals, signals=()).dataset().views == VIEWS
    supported = dataset.reference_tokens.supported
    assert set(np.unique(dataset.metadata.signals["hit"][:, supported])) == {0.0, 1.0}


@pytest.mark.parametrize("method", ["salience", "stack"])
def test_a_fit_with_signals_forecasts_the_same_from_its_files_and_needs_them(
    study_with_signals: Study, method, tmp_path, world
):
    fit = bc.fit(study_with_signals, "task0", method=method)
    assert fit.core.signals == (LossView.RANK, LossView.HIT)
    losses = study_with_signals.losses(world.models[3].model)
    loaded = bc.load(fit.save(tmp_path / "fit"))
    assert loaded.predict(losses).accuracy == fit.predict(losses).accuracy
    dataset = study_with_signals.dataset(["task0"])
    row = dataset.models.index(losses.model)
    from_arrays = fit.core.forecast(dataset.nats[[row]], dataset.metadata.take(np.array([row])))
    assert fit.predict(losses).accuracy == pytest.approx(float(from_arrays[0]), abs=1e-6)
    with pytest.raises(InputError, match="have no rank, hit; collect them again"):
        fit.predict(replace(losses, signals={}))


def test_a_fit_is_outdated_once_the_settings_name_other_signals(study_with_signals: Study, tmp_path):
    from benchcast.fits.inputs import changed_inputs

    fit = bc.fit(study_with_signals, "task0", method="salience")
    assert changed_inputs(study_with_signals, fit) == []
    assert changed_inputs(replace(study_with_signals, signals=("hit",)), fit) == ["signals in study.toml changed"]


def test_signals_named_like_nothing_are_refused(tmp_path, study_with_signals: Study):
    path = tmp_path / "study.toml"
    path.write_text((study_with_signals.root / "study.toml").read_text().replace('"hit"', '"hits"'))
    with pytest.raises(StudyError, match=r"signals = \['hits', 'rank'\]; a list of rank, entropy, hit, margin"):
        Study.open(tmp_path)


def test_a_model_without_the_signals_is_named(world: World):
    some = [telling(x) if i else x for i, x in enumerate(world.losses)]
    with pytest.raises(InputError, match=f"losses of model {world.losses[0].model!r} have no hit"):
        make_dataset(replace(world, losses=some), signals=("hit",), convert=False)


@pytest.mark.parametrize("method", ["salience", "stack"])
def test_a_signal_that_alone_tells_the_score_is_found(world: World, method):
    """Scores are a function of one signal that is independent of the losses: the fit has to read it."""
    plain = make_dataset(world)
    rng = np.random.default_rng(0)
    skill = rng.uniform(0, 1, len(plain.models))
    margin = (1 - skill[:, None]) * rng.uniform(0.5, 1.5, plain.nats.shape[1]).astype(np.float32)
    chance = plain.chance[:, None]
    accuracy = chance + (1 - chance) / (1 + np.exp(6 * (0.5 - skill)))
    with_margin = replace(plain, accuracy=accuracy, metadata=replace(plain.metadata, signals={"margin": margin}))
    folds = make_folds(world.models, "family")[1][:1]
    (fit, _), *_ = METHODS[method](with_margin, folds)
    missed = np.abs(fit.forecast(with_margin.nats, with_margin.metadata) - accuracy[0])[folds[0].test]
    (blind, _), *_ = METHODS[method](replace(plain, accuracy=accuracy), folds)
    blind_missed = np.abs(blind.forecast(plain.nats, plain.metadata) - accuracy[0])[folds[0].test]
    assert missed.mean() < 0.3 * blind_missed.mean()


def test_a_study_of_selected_texts_keeps_their_signals(study_with_signals: Study, tmp_path):
    dataset = study_with_signals.dataset(["task0"])
    part = dataset.for_texts(np.arange(6))
    assert part.metadata.signals["hit"].shape == part.nats.shape
    study = write_smaller(select(study_with_signals, 8, tasks=["task0"]), tmp_path / "small")
    assert study.signals == study_with_signals.signals
    name = study.models_with_losses()[0]
    losses = study.losses(name)
    np.testing.assert_array_equal(losses.signals["rank"], 2 * losses.nats)


def test_proxy_metrics_without_signals_say_what_they_need(world: World, study_with_signals: Study):
    plain = replace(study_with_signals, signals=())
    with pytest.raises(NotEnoughDataError, match="method proxy-metrics needs rank, entropy, hit of every token"):
        bc.fit(plain, "task0", method="proxy-metrics")
    assert "proxy-metrics" not in bc.compare(plain, ["task0"], split="size", methods=()).methods


def test_an_unscored_model_without_signals_is_left_out_and_one_with_them_is_not(study_with_signals: Study, tmp_path):
    from shutil import copytree

    from benchcast.all_models import with_unscored

    study = Study.open(copytree(study_with_signals.root, tmp_path / "study"))
    one = telling(study.losses(study.models_with_losses()[0]))
    study.add_losses([replace(one, model="told"), replace(one, model="mute", signals={})])
    all_models = with_unscored(study, study.dataset())
    assert all_models.models[-1] == "told"
    assert all_models.left_out == {"mute": "no rank, hit"}
    assert all_models.metadata.signals["hit"].shape == all_models.nats.shape
