"""The lines that say which tasks have scores below nominal chance, and which floor was learned."""

from __future__ import annotations

import pytest

import benchcast as bc
from benchcast.forecasts.below_chance import below_chance
from benchcast.records import Score, Task
from synthetic import Plan, make_world, write_study

TASK = Task("openbookqa", 0.25)


def scores(lowest: float, *, n_items: float = float("nan")) -> list[Score]:
    """Ten scores, two of them low."""
    return [Score(f"m{i}", TASK.name, lowest if i < 2 else 0.3 + 0.01 * i, n_items=n_items) for i in range(10)]


def test_scores_clearly_below_chance_are_counted_with_the_lowest() -> None:
    (line,) = below_chance(scores(0.12), [TASK], {})
    assert line == "openbookqa: 2 of 10 scores are below chance 0.25 (lowest 0.12)"


def test_scores_within_three_standard_errors_of_chance_are_not_mentioned() -> None:
    assert below_chance(scores(0.24), [TASK], {}) == []
    assert below_chance(scores(0.2), [TASK], {}) == []  # 500 items: 3 standard errors are 0.058
    assert below_chance(scores(0.2, n_items=5000), [TASK], {}) != []


def test_open_ended_tasks_have_no_scores_below_chance() -> None:
    assert below_chance(scores(0.0), [Task(TASK.name, 0.0)], {}) == []


@pytest.mark.parametrize(
    ("floors", "said"),
    [
        ([0.114], "floor learned at 0.11"),
        ([0.0625, 0.125], "floors learned at 0.062 to 0.12"),
        ([0.25], "chance stays the floor of the fit"),
    ],
)
def test_the_learned_floor_is_named(floors, said) -> None:
    (line,) = below_chance(scores(0.12), [TASK], {TASK.name: floors})
    assert line.endswith(f"; {said}")


@pytest.fixture(scope="module")
def below(tmp_path_factory):
    """A study of one task at chance 0.25, whose models that know nothing score 0.05."""
    world = make_world(Plan(families=6, sizes=4, checkpoints=2, tasks=1, texts_per_source=10, floor=0.05))
    return write_study(world, tmp_path_factory.mktemp("below") / "study")


def test_fit_compare_status_and_predict_say_it(below, cli) -> None:
    said = "scores are below chance 0.25 (lowest 0.0"
    assert said in " ".join(cli("status", below.root).out.split())
    compared = cli("compare", below.root, "--split", "family", "--method", "stack")
    assert compared.code == 0
    assert said in compared.err
    assert "learned at 0" in compared.err
    fitted = cli("fit", below.root)
    assert fitted.code == 0
    assert f"note: task0: {len([s for s in below.scores() if s.accuracy < 0.25])} of 48 {said}" in fitted.err
    assert "floor learned at 0" in fitted.err
    assert "floor learned at 0" in " ".join(cli("status", below.root).out.split())
    weakest = min(below.scores(), key=lambda s: s.accuracy).model
    remarks = {f.model: f.remark for f in bc.predict(below, models=[weakest])}
    assert remarks[weakest].startswith("seen")


def test_a_forecast_below_chance_says_so(below) -> None:
    weakest = min(below.scores(), key=lambda s: s.accuracy).model
    fit = bc.fit(below, "task0", split="family")
    losses = below.losses(weakest)
    unseen = fit.predict(type(losses)(model="new", counts=losses.counts, edges=losses.edges, nats=losses.nats))
    assert unseen.accuracy < 0.25
    assert unseen.remark.endswith(f"below chance 0.25; the floor of the fit is {fit.task_fit.law.chance:.2g}")
