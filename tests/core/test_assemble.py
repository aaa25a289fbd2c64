"""Records become dataset: reference tokens, their features, the common support."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from benchcast.errors import NotEnoughDataError
from benchcast.losses.assemble import AssemblyOptions, assemble, reference_tokens, word_edges
from benchcast.losses.dataset import Features
from benchcast.records import ModelInfo, Score, Task, Text, TextSet, TokenLosses
from worlds import make_dataset

WORLD = st.lists(st.text(max_size=30), min_size=1, max_size=4)


@given(WORLD)
def test_words_cover_every_text_and_never_cross_into_the_next(bodies):
    texts = TextSet.of([Text(str(i), "s", body) for i, body in enumerate(bodies)])
    edges = word_edges(texts)
    assert edges[0] == 0
    assert edges[-1] == texts.starts[-1]
    assert (np.diff(edges) > 0).all()
    assert np.isin(texts.starts, edges).all()


def test_words_take_the_space_before_them_and_chinese_goes_by_character():
    texts = TextSet.of([Text("a", "s", "one two, 中文 x")])
    edges = word_edges(texts)
    pieces = [texts.utf8[a:b].tobytes().decode() for a, b in pairwise(edges)]
    assert pieces == ["one", " two", ",", " 中", "文", " x"]


@given(WORLD, st.data())
def test_a_token_is_cut_where_the_answer_starts(bodies, data):
    texts = TextSet.of([Text(str(i), "s", b, data.draw(st.integers(0, len(b.encode())))) for i, b in enumerate(bodies)])
    coarse = texts.starts  # one token a text
    tokens, part_of = reference_tokens(texts, coarse)
    for i, text in enumerate(texts):
        of_text = tokens.text == i
        answer = np.diff(tokens.edges)[of_text & tokens.answer].sum()
        assert answer == len(text.text.encode()) - text.answer_start
    assert (part_of == tokens.text).all()


def one_model(texts: TextSet, edges: np.ndarray, features: np.ndarray | None, feature_edges: np.ndarray | None):
    counts = np.diff(np.searchsorted(edges, texts.starts))
    losses = TokenLosses("m", counts, edges, np.ones(len(edges) - 1))
    options = AssemblyOptions(None if features is None else Features(features, feature_edges, "scorer"))
    return assemble(
        texts,
        [losses],
        [ModelInfo("m")],
        scores=[Score("m", "t", 0.5)],
        tasks=[Task("t", 0.0, ("s",))],
        options=options,
    )


def rows_of(dataset) -> list[float]:
    return [float(x) for _, block in dataset.features.blocks() for x in block[:, 0]]


def test_both_halves_of_a_token_cut_by_an_answer_share_its_features():
    texts = TextSet.of([Text("a", "s", "abcdef", answer_start=4)])
    dataset = one_model(texts, np.array([0, 6]), np.array([[1.0], [2.0]], np.float32), np.array([0, 2, 6]))
    assert dataset.reference_tokens.edges.tolist() == [0, 2, 4, 6]
    assert rows_of(dataset) == [1.0, 2.0, 2.0]


def test_zero_width_scorer_tokens_do_not_shift_the_features_of_others():
    texts = TextSet.of([Text("a", "s", "abcdef", answer_start=4)])
    features = np.array([[9.0], [1.0], [2.0]], np.float32)  # the first token has no width
    dataset = one_model(texts, np.array([0, 6]), features, np.array([0, 0, 2, 6]))
    assert dataset.reference_tokens.edges.tolist() == [0, 2, 4, 6]
    assert rows_of(dataset) == [1.0, 2.0, 2.0]


def test_positions_that_one_model_lacks_count_for_none(world):
    losses = list(world.losses)
    nats = losses[2].nats.copy()
    nats[:5] = np.nan
    losses[2] = replace(losses[2], nats=nats)
    features = Features(world.features, world.edges, "synthetic")
    dataset = assemble(
        world.texts, losses, world.models, scores=world.scores, tasks=world.tasks, options=AssemblyOptions(features)
    )
    whole = make_dataset(world)
    lost = ~dataset.reference_tokens.supported
    assert 0 < lost.sum() < 20
    touched = world.edges[:-1] < losses[2].edges[5]
    assert (lost == touched).all()
    assert not dataset.nats[:, lost].any()
    assert_allclose(dataset.nats[:, ~lost], whole.nats[:, ~lost])
    assert dataset.characters < whole.characters


def test_no_common_position_is_an_error_that_says_what_to_look_at(world):
    blank = [replace(x, nats=np.full_like(x.nats, np.nan)) for x in world.losses[:1]]
    with pytest.raises(NotEnoughDataError, match="no token has a loss from every model"):
        assemble(world.texts, blank, world.models[:1], scores=world.scores, tasks=world.tasks)


def test_characters_are_those_of_the_common_support(world):
    dataset = assemble(world.texts, world.losses, world.models, scores=world.scores, tasks=world.tasks)
    assert dataset.characters == pytest.approx(sum(len(t.text) for t in world.texts))


def test_scores_are_lined_up_by_name(world):
    dataset = assemble(world.texts, world.losses, world.models, scores=world.scores[::-1], tasks=world.tasks)
    for score in world.scores:
        t = [task.name for task in dataset.tasks].index(score.task)
        assert dataset.accuracy[t, dataset.models.index(score.model)] == score.accuracy
