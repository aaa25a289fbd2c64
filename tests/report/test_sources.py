"""Errors by the sources of the texts: fits read the chosen sources and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchcast.methods import METHODS
from benchcast.reports.charts import held_out_errors, numbers_of_sources, restrict, source_errors, subsets
from benchcast.splits import make_folds


@pytest.fixture(scope="module")
def fold(world):
    _, (fold,) = make_folds(world.models, "size")
    return fold


def test_all_sources_give_the_plain_fit(dataset, world, fold):
    tokens = dataset.reference_tokens
    plain = held_out_errors(dataset, fold, METHODS["paper"].learn(dataset, [fold])[0])
    errors = source_errors(dataset, fold, world.texts, method="paper", chosen=tokens.sources)
    assert errors == pytest.approx(plain, rel=1e-6)


def test_a_source_that_some_model_lacks_is_passed_over(dataset, world, fold):
    tokens = dataset.reference_tokens
    lacking = replace(tokens, supported=tokens.supported & ~tokens.of_sources(["source1"]))
    some = replace(dataset, reference_tokens=lacking)
    assert source_errors(some, fold, world.texts, method="all-token", chosen=["source1"]) is None
    assert source_errors(some, fold, world.texts, method="all-token", chosen=["source0", "source1"]) is not None


def test_no_token_of_other_sources_is_read(dataset, world):
    of_source = dataset.reference_tokens.of_sources(["source1"])
    kept = restrict(dataset, of_source, world.texts)
    assert not kept.nats[:, ~of_source].any()
    assert kept.characters == sum(len(t.text) for t in world.texts if t.source == "source1")


def test_subsets_are_distinct_and_of_the_wanted_size():
    drawn = subsets("abcdef", 3, 7, seed=0)
    assert len(set(drawn)) == 7
    assert all(len(set(s)) == 3 for s in drawn)
    assert subsets("abc", 3, 7, seed=0) == [("a", "b", "c")]


def test_many_sources_are_sampled_not_listed():
    """57 subjects have more sets than could ever be listed."""
    subjects = [f"subject{i:02}" for i in range(57)]
    assert numbers_of_sources(57) == [1, 9, 17, 25, 33, 41, 49, 57]
    assert numbers_of_sources(3) == [1, 2, 3]
    drawn = subsets(subjects, 28, 4, seed=0)
    assert len(drawn) == len(set(drawn)) == 4
    assert all(len(set(one)) == 28 for one in drawn)
    assert drawn == subsets(subjects, 28, 4, seed=0)
    assert subsets(subjects, 57, 4, seed=0) == [tuple(subjects)]


def test_leaving_models_out_keeps_rows_together(dataset):
    small = dataset.of_models(dataset.families != "family0")
    for i, model in enumerate(small.models):
        j = dataset.models.index(model)
        assert np.array_equal(small.nats[i], dataset.nats[j])
        assert np.array_equal(small.accuracy[:, i], dataset.accuracy[:, j])
