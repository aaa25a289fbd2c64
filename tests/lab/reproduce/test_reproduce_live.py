"""Live curves: nothing of the runs is seen before, and what is said of them follows from their points."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lab.reproduce.live as module
from benchcast.errors import NotEnoughDataError
from benchcast.methods import METHODS
from benchcast.store import Study
from lab.reproduce.context import StudyContext
from lab.reproduce.live import known_early, known_from, live


def run(*intervals: tuple[float, float], final: float = 0.5) -> list[dict[str, Any]]:
    shares = [(i + 1) / len(intervals) for i in range(len(intervals))]
    return [
        {"task": "t", "chance": 0.0, "family": "f", "params": 1.0, "final": final, "share": s, "low": a, "high": b}
        for s, (a, b) in zip(shares, intervals, strict=True)
    ]


def test_the_final_score_is_known_once_it_stays_inside() -> None:
    inside, outside = (0.4, 0.6), (0.1, 0.2)
    assert known_from(run(outside, inside, inside, inside)) == 0.5
    assert known_from(run(inside, outside, inside, inside)) == 0.75, "a lucky early interval does not count"
    assert known_from(run(inside, inside)) == 0.5
    assert math.isinf(known_from(run(inside, outside)))


def test_runs_that_never_learned_a_task_do_not_count_as_known() -> None:
    assert known_early(run((0.0, 0.2), (0.0, 0.2), final=0.05), "t")["learned"] == 0
    early = known_early(run((0.0, 0.2), (0.4, 0.6)), "t")
    assert (early["learned"], early["median"], early["latest"]) == (1, 1.0, 1.0)
    assert early["width"] == pytest.approx(0.2)


def test_nothing_of_the_runs_is_trained_on(context: StudyContext, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def spy(dataset: Any, folds: Any) -> Any:
        seen.extend(dataset.families[folds[0].seen])
        return METHODS["label-token"](dataset, folds)

    monkeypatch.setitem(module.METHODS, "spy", spy)
    outcome = live(context, method="spy")
    assert seen
    assert not {"twin-a", "twin-b"} & {str(f) for f in seen}
    assert {p["family"] for p in outcome.numbers["points"]} == {"twin-a", "twin-b"}


def test_numbers_follow_from_the_points(context: StudyContext) -> None:
    outcome = live(context, method="label-token")
    points = [p for p in outcome.numbers["points"] if (p["task"], p["family"]) == ("task0", "twin-a")]
    scores = {s.model: s.accuracy for s in context.study.scores() if s.task == "task0"}
    assert [p["accuracy"] for p in points] == [scores[p["model"]] for p in points]
    expected = np.mean([(p["forecast"] - scores[p["model"]]) ** 2 for p in points])
    assert outcome.numbers["mse"]["task0"]["twin-a"] == pytest.approx(expected)
    tokens = {m.model: (m.params, m.tokens) for m in context.infos}
    for p in points:
        last = max(t for m, (size, t) in tokens.items() if m.startswith("twin-a") and size == p["params"])
        assert p["share"] == tokens[p["model"]][1] / last
    assert sum(p["share"] == 1 for p in points) == 3, "one end for each of three sizes"
    assert outcome.tables[0].rows[0][-2] == "1e-4"


def test_a_study_without_tokens_is_told_what_is_missing(bare: Path) -> None:
    with pytest.raises(NotEnoughDataError, match=r"live needs params and tokens of twin-a-.* in models\.csv"):
        live(StudyContext(Study.open(bare)), "twina,twinb", "label-token")
