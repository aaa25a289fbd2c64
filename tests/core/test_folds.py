"""Splits into training, validation and test models, and folds of cross-validation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchcast.choices import SPLITS
from benchcast.errors import InputError, NotEnoughDataError
from benchcast.records import ModelInfo, family_names
from benchcast.splits import (
    FEWEST_MODELS,
    LEFT_OUT,
    MANY_MODELS,
    MOST_INNER_FOLDS,
    choose_split,
    family_balanced,
    inner_folds,
    left_out,
    make_folds,
    split_by_size,
    training_fold,
)


def models(*rows: tuple) -> list[ModelInfo]:
    return [ModelInfo(f"m{i}", family, params) for i, (family, params) in enumerate(rows)]


def test_the_largest_size_tests_the_second_largest_validates_the_rest_train():
    role = split_by_size(models(("a", 4), ("a", 1), ("a", 3), ("a", 2)))
    assert role.tolist() == ["test", "train", "validation", "train"]


def test_checkpoints_of_one_size_stay_together():
    role = split_by_size(models(("a", 1), ("a", 3), ("a", 2), ("a", 3), ("a", 2), ("a", 3)))
    assert role.tolist() == ["train", "test", "validation", "test", "validation", "test"]


def test_a_family_with_fewer_than_three_sizes_only_trains():
    role = split_by_size(models(("a", 1), ("a", 2), ("a", 2), ("b", 9), ("c", 1), ("c", 2), ("c", 3)))
    assert role.tolist() == ["train"] * 4 + ["train", "validation", "test"]


def test_models_of_unknown_size_train_and_are_no_size():
    nan = float("nan")
    role = split_by_size(models(("a", 1), ("a", 2), ("a", nan), ("b", 1), ("b", 2), ("b", 3), ("b", nan)))
    assert role.tolist() == ["train"] * 3 + ["train", "validation", "test", "train"]


def test_each_family_is_held_out_once_and_nothing_of_it_is_seen():
    infos = models(("a", 1), ("b", 1), ("a", 2), ("", 1), ("", 1))
    name, folds = make_folds(infos, "family")
    assert name == "family"
    assert len(folds) == 4, "models without a family are families of their own"
    tested = np.sum([f.test for f in folds], axis=0)
    assert tested.tolist() == [1] * 5
    families = family_names(infos)
    for fold in folds:
        assert not set(families[fold.test]) & set(families[fold.seen])


def test_the_split_column_is_taken_at_its_word():
    infos = [ModelInfo(f"m{i}", "f", split=s) for i, s in enumerate(["train", "test", "", "validation"])]
    name, (fold,) = make_folds(infos, "auto")
    assert name == "column"
    assert (fold.train.tolist(), fold.validation.tolist(), fold.test.tolist()) == (
        [True, False, False, False],
        [False, False, False, True],
        [False, True, False, False],
    )


def test_without_a_split_column_the_split_is_by_size():
    assert make_folds(models(("a", 1), ("a", 2), ("a", 3)), "auto")[0] == "size"


def test_a_split_is_by_size_where_a_family_has_three_sizes_or_stands_alone_and_else_by_family():
    assert choose_split(models(("a", 1), ("a", 2), ("c", 1), ("b", 1), ("b", 2), ("b", 3))) == "size"
    assert choose_split(models(("a", 1), ("a", 2))) == "size", "no other family could be held out"
    assert choose_split(models(("a", 1), ("a", 2), ("b", 1))) == "family"
    assert choose_split(models(*((f, size) for f in "abcd" for size in (1, 2)))) == "family", "no family of three sizes"
    assert choose_split([*models(("a", 1), ("b", 1)), ModelInfo("m", "a", split="test")]) == "column"


@pytest.mark.parametrize("count", range(1, 8))
def test_no_split_is_by_size_where_fewer_models_would_train_than_a_fit_needs(count):
    infos = models(("b", 1), ("b", 2), ("b", 3), *(("a", 1) for _ in range(count - 1)), ("c", 1))
    name, folds = make_folds(infos, "auto")
    assert name == ("size" if count + 1 >= FEWEST_MODELS else "family")
    assert name == "family" or folds[0].train.sum() >= FEWEST_MODELS


@pytest.mark.parametrize("split", ["column", "family"])
def test_a_stored_fit_is_trained_on_everything_where_nothing_is_set_aside(split):
    name, fold = training_fold(models(("a", 1), ("a", 2), ("a", 3), ("b", 1)), split)
    assert name == "everything"
    assert (fold.train.all(), fold.validation.any(), fold.test.any()) == (True, False, False)


@pytest.mark.parametrize("split", ["auto", "column"])
def test_a_stored_fit_never_sees_the_test_models_of_the_split_column(split):
    infos = [ModelInfo(f"m{i}", "f", split=s) for i, s in enumerate(["train", "test", "", "validation"])]
    name, fold = training_fold(infos, split)
    assert (name, fold.test.tolist()) == ("column", [False, True, False, False])
    assert fold.seen.tolist() == [True, False, False, True]
    name, fold = training_fold(infos, "family")
    assert (name, fold.train.all()) == ("everything", True)


def test_a_stored_fit_by_size_never_sees_the_largest():
    name, fold = training_fold(models(("a", 1), ("a", 3), ("a", 2)), "size")
    assert (name, fold.test.tolist(), fold.validation.tolist()) == ("size", [False, True, False], [False, False, True])


def test_families_weigh_the_same_however_many_models_they_have():
    assert family_balanced(np.array(["a", "b", "a", "a", "c"])).tolist() == pytest.approx(
        [1 / 9, 1 / 3, 1 / 9, 1 / 9, 1 / 3]
    )


def test_what_is_left_out_in_turn_is_said():
    families = np.array(["a", "a", "b"])
    assert left_out(families, np.array([True, True, True])) == LEFT_OUT
    assert left_out(families, np.array([True, True, False])) == "training models left out in turn, of one family"


def test_a_split_that_cannot_be_made_says_why():
    with pytest.raises(NotEnoughDataError, match="needs at least 2 families, found 1: a"):
        make_folds(models(("a", 1), ("a", 2)), "family")


def test_with_an_empty_split_column_every_model_trains():
    name, (fold,) = make_folds(models(("a", 1), ("a", 2), ("b", 3)), "column")
    assert (name, fold.train.all(), fold.test.any()) == ("column", True, False)


@pytest.mark.parametrize("split", SPLITS)
def test_a_fit_leaves_out_the_models_that_a_comparison_of_the_same_split_tests(split):
    by_size = models(("a", 1), ("a", 3), ("a", 2), ("b", 1), ("b", 2))
    marked = [ModelInfo(f"m{i}", "ab"[i % 2], split=s) for i, s in enumerate(["train", "test", "", "validation"])]
    for infos in (by_size, marked):
        compared, folds = make_folds(infos, split)
        fitted, fold = training_fold(infos, split)
        assert compared != "auto"
        if compared == "family":  # each model is tested by one fold: none can be left out of a fit for all
            assert (fitted, fold.train.all()) == ("everything", True)
        else:
            assert fold.test.tolist() == folds[0].test.tolist()
            assert fold.train.tolist() == folds[0].train.tolist()


@given(
    families=st.lists(st.sampled_from("abcdefghijklmnopq"), min_size=4, max_size=40),
    data=st.data(),
)
def test_inner_folds_hide_every_seen_model_once_and_keep_families_whole(families, data):
    names = np.array(families)
    seen = np.array(data.draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names))))
    seen[:2] = True
    sets = inner_folds(names, seen)
    assert 2 <= len(sets) <= MOST_INNER_FOLDS
    assert np.sum(sets, axis=0).tolist() == seen.astype(int).tolist()
    if len(set(names[seen])) >= 2:
        for hidden in sets:
            assert not set(names[hidden]) & set(names[seen & ~hidden])


def test_inner_folds_of_many_families_are_of_like_size():
    names = np.repeat([f"f{i:02}" for i in range(30)], np.r_[9, 8, 7, np.ones(27, int)])
    sizes = [s.sum() for s in inner_folds(names, np.ones(len(names), bool))]
    assert len(sizes) == MOST_INNER_FOLDS == 10
    assert max(sizes) == 9
    assert min(sizes) >= 3


def test_an_unknown_split_is_refused_with_a_suggestion():
    known = ", ".join(SPLITS)
    for make in (make_folds, training_fold):
        with pytest.raises(InputError, match=rf"unknown split 'colunm'; known: {known}; did you mean 'column'"):
            make([ModelInfo("a")], "colunm")
        with pytest.raises(InputError, match=rf"unknown split None; known: {known}$"):
            make([ModelInfo("a")], None)


@pytest.mark.parametrize(("models", "folds"), [(MANY_MODELS, MOST_INNER_FOLDS), (MANY_MODELS + 1, 5)])
def test_more_than_a_thousand_models_are_left_out_in_five_folds(models, folds):
    families = np.array([f"family{i % 20}" for i in range(models)])
    assert len(inner_folds(families, np.ones(models, bool))) == folds
