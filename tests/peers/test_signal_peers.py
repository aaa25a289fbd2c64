"""`proxy-metrics` and `rbridge` against a direct computation."""

from __future__ import annotations

import numpy as np
import pytest

from benchcast.folds import make_folds
from benchcast.law import fit_law
from benchcast.methods import METHODS, NEED_SIGNALS
from synthetic import World
from worlds import make_dataset


@pytest.fixture(scope="module")
def with_signals(world: World):
    return make_dataset(world, signals=NEED_SIGNALS["proxy-metrics"])


@pytest.fixture(scope="module")
def fold(world: World):
    return make_folds(world.models, "size")[1][0]


def answers(dataset, t: int) -> list[int]:
    """Indices of the tokens of a task's answers, one by one."""
    tokens, task = dataset.reference_tokens, dataset.tasks[t]
    names = [tokens.sources[i] for i in tokens.source]
    return [i for i in range(len(names)) if names[i] in task.sources and tokens.answer[i] and tokens.supported[i]]


@pytest.mark.parametrize("t", [0, 1])
def test_rbridge_weights_losses_by_the_strongest_models_scaled_probabilities(with_signals, fold, t):
    at, seen = answers(with_signals, t), np.flatnonzero(fold.seen)
    strongest = min(seen, key=lambda m: sum(with_signals.nats[m, i] for i in at))
    p = [float(np.exp(-with_signals.nats[strongest, i])) for i in at]
    weights = [(x - min(p)) / (max(p) - min(p)) for x in p]
    score = np.array(
        [
            np.mean([w * with_signals.nats[m, i] for w, i in zip(weights, at, strict=True)])
            for m in range(len(with_signals.models))
        ]
    )
    law = fit_law(score[seen], with_signals.accuracy[t, seen], with_signals.tasks[t].chance)
    fit = METHODS["rbridge"](with_signals, [fold])[0][t]
    np.testing.assert_allclose(fit.capability(with_signals.nats, with_signals.metadata), score, rtol=1e-4)
    np.testing.assert_allclose(fit.forecast(with_signals.nats, with_signals.metadata), law.accuracy(score), atol=1e-4)


@pytest.mark.parametrize("t", [0, 1])
def test_proxy_metrics_are_means_over_the_answers(with_signals, fold, t):
    at, seen = answers(with_signals, t), np.flatnonzero(fold.seen)
    signals = with_signals.metadata.signals
    means = {name: np.array([np.mean([signals[name][m, i] for i in at]) for m in range(len(with_signals.models))])
             for name in ("rank", "entropy", "hit")}  # fmt: skip
    scaled = {name: x / x[seen].std() for name, x in means.items()}
    expected = {**scaled, "all three": sum(scaled.values())}
    fit = METHODS["proxy-metrics"](with_signals, [fold])[0][t]
    np.testing.assert_allclose(
        fit.capability(with_signals.nats, with_signals.metadata),
        expected[fit.notes["statistic"]],
        rtol=1e-4,
    )


def test_the_statistic_is_selected_on_left_out_families(with_signals, fold):
    """Only the entropy tells the score, so it is selected."""
    from dataclasses import replace

    rng = np.random.default_rng(1)
    noise = {name: rng.uniform(0, 1, with_signals.nats.shape).astype(np.float32) for name in ("rank", "hit")}
    skill = rng.uniform(0, 1, len(with_signals.models))
    entropy = np.repeat((2 - skill)[:, None], with_signals.nats.shape[1], axis=1).astype(np.float32)
    chance = with_signals.chance[:, None]
    accuracy = chance + (1 - chance) / (1 + np.exp(6 * (0.5 - skill)))
    metadata = replace(with_signals.metadata, signals={"rank": noise["rank"], "entropy": entropy, "hit": noise["hit"]})
    changed = replace(with_signals, metadata=metadata, accuracy=accuracy)
    fit = METHODS["proxy-metrics"](changed, [fold])[0][0]
    assert fit.notes["statistic"] == "entropy"
    np.testing.assert_allclose(fit.forecast(changed.nats, metadata), accuracy[0], atol=0.02)


@pytest.mark.parametrize("method", ["rbridge", "proxy-metrics"])
def test_a_task_without_answers_says_so(with_signals, fold, method):
    from dataclasses import replace

    tokens = replace(with_signals.reference_tokens, answer=np.zeros_like(with_signals.reference_tokens.answer))
    fit = METHODS[method](replace(with_signals, reference_tokens=tokens), [fold])[0][0]
    assert fit.law.failure == "the study has no answers for this task"
