"""`rbridge` against a direct computation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchcast.methods import METHODS
from benchcast.methods.law import fit_law
from benchcast.splits import make_folds
from synthetic import World
from worlds import make_dataset


@pytest.fixture(scope="module")
def dataset(world: World):
    return make_dataset(world)


@pytest.fixture(scope="module")
def fold(world: World):
    return make_folds(world.models, "size")[1][0]


def answers(dataset, t: int) -> list[int]:
    """Indices of the tokens of a task's answers, one by one."""
    tokens, task = dataset.reference_tokens, dataset.tasks[t]
    names = [tokens.sources[i] for i in tokens.source]
    return [i for i in range(len(names)) if names[i] in task.sources and tokens.answer[i] and tokens.supported[i]]


@pytest.mark.parametrize("t", [0, 1])
def test_rbridge_weights_losses_by_the_strongest_models_scaled_probabilities(dataset, fold, t):
    at, seen = answers(dataset, t), np.flatnonzero(fold.seen)
    strongest = min(seen, key=lambda m: sum(dataset.nats[m, i] for i in at))
    p = [float(np.exp(-dataset.nats[strongest, i])) for i in at]
    weights = [(x - min(p)) / (max(p) - min(p)) for x in p]
    score = np.array(
        [
            np.mean([w * dataset.nats[m, i] for w, i in zip(weights, at, strict=True)])
            for m in range(len(dataset.models))
        ]
    )
    law = fit_law(score[seen], dataset.accuracy[t, seen], dataset.tasks[t].chance)
    fit = METHODS["rbridge"].learn(dataset, [fold])[0][t]
    np.testing.assert_allclose(fit.capability.of(dataset.nats, dataset.metadata), score, rtol=1e-4)
    np.testing.assert_allclose(fit.forecast(dataset.nats, dataset.metadata), law.accuracy(score), atol=1e-4)


def test_a_task_without_answers_says_so(dataset, fold):
    tokens = replace(dataset.reference_tokens, answer=np.zeros_like(dataset.reference_tokens.answer))
    fit = METHODS["rbridge"].learn(replace(dataset, reference_tokens=tokens), [fold])[0][0]
    assert fit.law.failure == "the study has no answers for this task"
