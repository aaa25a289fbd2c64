"""Regrouping losses between tokenizations, against a loop over bytes and the properties it must have."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from benchcast.losses.regroup import (
    align_models,
    characters_per_token,
    common_support,
    in_characters,
    regroup,
    settle_zero_width,
)
from benchcast.records import Text, TextSet, TokenLosses

LENGTH = 24
cuts = st.lists(st.integers(0, LENGTH), max_size=12).map(lambda inner: np.array([0, *sorted(inner), LENGTH]))
wide_cuts = st.sets(st.integers(1, LENGTH - 1)).map(lambda inner: np.array([0, *sorted(inner), LENGTH]))
loss = st.floats(0, 1e4, allow_subnormal=False)


@st.composite
def tokenized(draw: st.DrawFn, *, edges: st.SearchStrategy = cuts, missing: bool = False) -> tuple:
    source = draw(edges)
    values = st.one_of(loss, st.just(np.nan)) if missing else loss
    nats = draw(st.lists(values, min_size=len(source) - 1, max_size=len(source) - 1))
    return np.array(nats, float), source


def naive(nats: np.ndarray, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Byte by byte; tokens without width first hand their loss on, where they have one."""
    nats, width = nats.copy(), np.diff(source)
    for i in range(len(nats)):
        if width[i] == 0:
            heirs = [j for j in range(i + 1, len(nats)) if width[j]] or [j for j in range(i) if width[j]][-1:]
            nats[heirs[0]] += np.nan_to_num(nats[i])
    per_byte = np.zeros(source[-1])
    for value, (start, stop) in zip(nats, pairwise(source), strict=True):
        for byte in range(start, stop):
            per_byte[byte] = value / (stop - start)
    return np.array([per_byte[a:b].sum() for a, b in pairwise(target)])


@given(tokenized(), cuts)
def test_regrouping_preserves_total_loss(tokens, target):
    nats, source = tokens
    assert_allclose(regroup(nats, source, target).sum(), nats.sum(), rtol=1e-6, atol=1e-9)


@given(tokenized(), cuts)
def test_regrouping_agrees_with_a_loop_over_bytes(tokens, target):
    nats, source = tokens
    assert_allclose(regroup(nats, source, target), naive(nats, source, target), rtol=1e-9, atol=1e-8)


@given(tokenized(missing=True), cuts)
def test_missing_losses_spread_to_tokens_that_touch_them_and_no_further(tokens, target):
    nats, source = tokens
    assert_allclose(regroup(nats, source, target), naive(nats, source, target), rtol=1e-9, atol=1e-8)


@given(tokenized(edges=wide_cuts, missing=True))
def test_regrouping_onto_the_same_tokens_changes_nothing(tokens):
    nats, source = tokens
    assert_allclose(regroup(nats, source, source), nats, rtol=1e-9, atol=1e-8)


@given(tokenized(), wide_cuts, cuts)
def test_going_through_a_finer_tokenization_changes_nothing(tokens, between, target):
    nats, source = tokens
    finer = np.union1d(between, np.union1d(source, target))
    assert_allclose(
        regroup(regroup(nats, source, finer), finer, target), regroup(nats, source, target), rtol=1e-9, atol=1e-8
    )


def test_token_split_in_two_shares_its_loss_by_length():
    assert regroup([6.0], [0, 6], [0, 2, 6]).tolist() == [2.0, 4.0]


def test_large_totals_are_conserved_to_one_part_in_a_million():
    rng = np.random.default_rng(0)
    source = np.concatenate([[0], np.sort(rng.choice(4_000_000, 900_000, replace=False)) + 1, [4_000_001]])
    target = np.concatenate([[0], np.sort(rng.choice(4_000_000, 1_200_000, replace=False)) + 1, [4_000_001]])
    nats = rng.gamma(0.3, 8.0, len(source) - 1)
    moved = regroup(nats, source, target)
    assert abs(moved.sum() / nats.sum() - 1) < 1e-6
    third = len(target) // 3  # not only in sum: any stretch of tokens holds what lies under it
    stretch = regroup(nats, source, [0, target[third], target[-1]])
    assert abs(moved[:third].sum() / stretch[0] - 1) < 1e-6


def test_zero_width_tokens_give_their_loss_to_the_next_token_with_width():
    assert regroup([1.0, 2.0, 4.0, 8.0], [0, 3, 3, 3, 5], [0, 3, 5]).tolist() == [1.0, 14.0]


def test_the_last_zero_width_token_gives_its_loss_to_the_previous_one():
    assert regroup([1.0, 2.0, 4.0, 8.0], [0, 3, 5, 5, 5], [0, 3, 5]).tolist() == [1.0, 14.0]


def test_zero_width_tokens_never_hand_their_loss_to_another_text():
    # text one: 0..3 with a token of no width at its end; text two: 3..5 with one at its start
    nats, source = [1.0, 2.0, 4.0, 8.0], [0, 3, 3, 3, 5]
    assert regroup(nats, source, [0, 3, 5], counts=[2, 2]).tolist() == [3.0, 12.0]


def test_a_text_without_bytes_keeps_its_loss_from_its_neighbours():
    nats, source = [1.0, 99.0, 2.0], [0, 3, 3, 5]
    assert regroup(nats, source, [0, 3, 5], counts=[1, 1, 1]).tolist() == [1.0, 2.0]
    assert regroup([5.0], [0, 0], [0, 0]).tolist() == [0.0]


@given(st.lists(tokenized(missing=True), min_size=2, max_size=4))
def test_texts_laid_end_to_end_are_regrouped_as_each_alone(texts):
    counts = [len(nats) for nats, _ in texts]
    source = np.concatenate([[0], *(edges[1:] + LENGTH * i for i, (_, edges) in enumerate(texts))])
    nats = np.concatenate([nats for nats, _ in texts])
    target = np.arange(0, LENGTH * len(texts) + 1, 3)
    alone = [regroup(nats, edges, np.arange(0, LENGTH + 1, 3)) for nats, edges in texts]
    together = regroup(nats, source, target, counts=counts)
    assert_allclose(together, np.concatenate(alone), rtol=1e-9, atol=1e-7)


def test_a_zero_width_token_without_loss_takes_none_from_its_neighbours():
    # a BOS that was scored along with the text: it has no loss, and covers nothing
    assert regroup([np.nan, 1.0, 2.0], [0, 0, 3, 5], [0, 3, 5]).tolist() == [1.0, 2.0]
    assert regroup([1.0, np.nan, 2.0, np.nan], [0, 3, 3, 5, 5], [0, 3, 5]).tolist() == [1.0, 2.0]


def test_a_first_token_with_width_and_no_loss_stays_missing_behind_a_bos():
    moved = regroup([np.nan, np.nan, 2.0], [0, 0, 3, 5], [0, 3, 5])
    assert np.isnan(moved[0])
    assert moved[1] == 2.0


@given(tokenized())
def test_settling_moves_loss_and_loses_none(tokens):
    nats, source = tokens
    assume((np.diff(source) > 0).any())
    settled = settle_zero_width(nats, np.diff(source), np.array([len(nats)]))
    assert_allclose(settled.sum(), nats.sum(), rtol=1e-9)
    assert (settled[np.diff(source) == 0] == 0).all()


# ---- characters: "né中😀x" has characters of 1, 2, 3, 4 and 1 bytes

MIXED = np.frombuffer("né中😀x".encode(), np.uint8)


def test_byte_edges_become_positions_in_characters():
    assert in_characters([0, 1, 3, 6, 10, 11], MIXED).tolist() == [0, 1, 2, 3, 4, 5]


def test_an_edge_inside_a_character_is_a_fraction_of_it():
    assert_allclose(in_characters([2, 4, 8], MIXED), [1.5, 2 + 1 / 3, 3.5])
    assert_allclose(characters_per_token(np.array([0, 8, 11]), MIXED), [3.5, 1.5])


def test_two_tokens_that_split_one_character_share_it():
    moved = regroup([4.0, 2.0], [0, 1, 3], [0, 3])  # "中" cut after its first byte
    assert moved.tolist() == [6.0]
    texts = TextSet.of([Text("a", "s", "中")])
    split = TokenLosses("m", np.array([2]), np.array([0, 1, 3]), np.array([4.0, 2.0]))
    for unit in ("byte", "char"):
        assert align_models([split], np.array([0, 3]), texts, unit=unit)[0].tolist() == [6.0]


def algorithm_1(nats: list[float], source: list[str], target: list[str]) -> list[float]:
    """As printed: each character gets its token's loss over the token's length; targets sum their characters."""
    per_character = [value / len(token) for value, token in zip(nats, source, strict=True) for _ in token]
    out, at = [], 0
    for token in target:
        out.append(sum(per_character[at : at + len(token)]))
        at += len(token)
    return out


def test_the_character_unit_is_algorithm_1_to_the_letter():
    nats, source, target = [3.0, 4.0, 10.0], ["né", "中😀", "x y z"], ["n", "é中", "😀x", " y z"]
    assert algorithm_1(nats, source, target) == [1.5, 3.5, 4.0, 8.0]
    texts = TextSet.of([Text("a", "s", "".join(source))])

    def edges(tokens: list[str]) -> np.ndarray:
        return np.cumsum([0] + [len(t.encode()) for t in tokens])

    losses = TokenLosses("m", np.array([3]), edges(source), np.array(nats))
    by_character = align_models([losses], edges(target), texts, unit="char")[0]
    by_byte = align_models([losses], edges(target), texts)[0]
    assert_allclose(by_character, [1.5, 3.5, 4.0, 8.0], rtol=1e-6)
    assert_allclose(by_byte, [1.0, 2 + 4 * 3 / 7, 4 * 4 / 7 + 2, 8.0], rtol=1e-6)


@given(st.text(alphabet="añ中😀 ", min_size=1, max_size=12), st.data())
def test_the_character_unit_agrees_with_algorithm_1_on_any_text(text, data):
    def cut() -> list[str]:
        places = sorted(data.draw(st.sets(st.integers(1, len(text) - 1)) if len(text) > 1 else st.just(set())))
        return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]

    source, target = cut(), cut()
    nats = data.draw(st.lists(loss, min_size=len(source), max_size=len(source)))
    texts = TextSet.of([Text("a", "s", text)])
    edges = [np.cumsum([0] + [len(t.encode()) for t in tokens]) for tokens in (source, target)]
    moved = regroup(nats, in_characters(edges[0], texts.utf8), in_characters(edges[1], texts.utf8))
    assert_allclose(moved, algorithm_1(nats, source, target), rtol=1e-7, atol=1e-7)


def test_the_common_support_is_where_every_model_has_a_loss():
    nats = np.array([[1.0, np.nan, 3.0, 4.0], [1.0, 2.0, 3.0, np.nan]])
    assert common_support(nats).tolist() == [True, False, True, False]


def test_models_of_different_tokenizers_share_a_support():
    texts = TextSet.of([Text("a", "s", "abcdef"), Text("b", "s", "ghi")])
    one = TokenLosses("one", np.array([2, 1]), np.array([0, 2, 6, 9]), np.array([np.nan, 4.0, 3.0]))
    two = TokenLosses("two", np.array([3, 1]), np.array([0, 1, 5, 6, 9]), np.array([1.0, 4.0, 1.0, np.nan]))
    nats = align_models([one, two], np.array([0, 1, 3, 6, 9]), texts)
    assert np.isnan(nats).tolist() == [[True, True, False, False], [False, False, False, True]]
    assert common_support(nats).tolist() == [False, False, True, False]
    assert_allclose(nats[:, 2], [3.0, 3.0])


@pytest.mark.parametrize("edges", [[0, 5, 9], [0, 3, 3, 5, 9]])
def test_bounds_of_each_text_count_from_its_own_first_byte(edges):
    counts = np.array([len(edges) - 2, 1])
    losses = TokenLosses("m", counts, np.array(edges), np.ones(len(edges) - 1))
    bounds = losses.text_bounds(np.array([0, 5, 9]))
    assert [b.tolist() for b in bounds] == [edges[:-1], [0, 4]]
