"""`compare --runs`: order training runs by their forecasts at equal compute, and compare their scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchcast.cli.output import number, print_json, print_table, progress, say

if TYPE_CHECKING:
    from benchcast.choices import MethodName
    from benchcast.extrapolation.run_comparison import RunComparison, RunRanking
    from benchcast.extrapolation.score_comparison import ScoreComparison, ScoreDifference
    from benchcast.store import Study

MOST = 1e6  # more items, checkpoints or seeds are no advice
SURE_TEXT = "95%"


def show_runs(
    study: Study, runs: str, tasks: tuple[str, ...], method: MethodName, *, device: str, as_json: bool
) -> None:
    """Compare the named runs and print the result: their forecasts, and their scores where they have some."""
    from benchcast.errors import NotEnoughDataError
    from benchcast.extrapolation.run_comparison import compare_runs
    from benchcast.extrapolation.score_comparison import compare_scores

    names = [name.strip() for name in runs.split(",") if name.strip()]
    try:
        scores = compare_scores(study, names, tasks=tasks)
    except NotEnoughDataError:
        scores = None  # forecasts need no scores of these runs
    try:
        with progress("reading the study") as advance:
            comparison = compare_runs(study, names, tasks=tasks, method=method, device=device, tell=advance)
    except NotEnoughDataError as error:
        if scores is None:
            raise
        comparison = None
        say(f"no forecasts: {error}", err=True)
    if as_json:
        print_json(
            (comparison.to_dict() if comparison else {"runs": names}) | {"scores": scores.to_dict() if scores else None}
        )
        return
    if comparison is not None:
        _print_runs(comparison)
    if scores is not None:
        print_scores(scores)


def print_scores(comparison: ScoreComparison) -> None:
    """Print the differences of observed scores, their noise, and what would settle them."""
    first = comparison.differences[0]
    compared = "; ".join(", ".join(models) for models in comparison.models.values())
    say(f"\nscores of {compared}; noise is the standard deviation of the difference")
    rows = [
        (
            d.task,
            *([f"{d.first}, {d.second}"] if len(comparison.models) > 2 else []),
            *(number(x, ".3f") for x in (d.first_score, d.second_score, d.items, d.checkpoints, d.seeds)),
            _percent(d.higher),
            _settling(d),
        )
        for d in comparison.differences
    ]
    pair = len(comparison.models) > 2
    names = ("runs", "first", "second") if pair else (first.first, first.second)
    above = "second higher" if pair else f"{first.second} higher"
    header = ("task", *names, "items", "checkpoints", "seeds", above, f"to be {SURE_TEXT} sure")
    print_table(header, rows, left=(0, 1, len(header) - 1) if pair else (0, len(header) - 1))
    for note in comparison.notes:
        say(note)


def _settling(d: ScoreDifference) -> str:
    """What would settle a difference, in words."""
    if d.settled:
        return "it is"
    needed = {"items": d.items_needed, "checkpoints": d.checkpoints_needed, "seeds": d.seeds_needed}
    possible = [f"{count:,.0f} {what}" for what, count in needed.items() if count < MOST]
    return " or ".join(possible) or "–"


def _print_runs(comparison: RunComparison) -> None:
    first = comparison.rankings[0]
    rows = []
    for t, task in enumerate(comparison.tasks):
        order = [comparison.runs[i] for i in first.order[t]]
        cells = [number(x, ".3f") for x in first.forecast[t]]
        rows.append((task, *cells, " > ".join(order), _percent(first.likely[t]), _scores_agree(first, t)))
    say(f"forecasts at {first.params:.3g} params and {first.flops:.3g} FLOPs; scores of these runs are not used\n")
    header = ("task", *comparison.runs, "order", "likely", "by their scores")
    print_table(header, rows, left=(0, header.index("order")))
    if len(comparison.rankings) > 1:
        say()
        others = []
        for ranking in comparison.rankings:
            order = [comparison.runs[i] for i in ranking.order[-1]]
            size, flops = f"{ranking.params:.3g}", f"{ranking.flops:.3g}"
            others.append((size, flops, " > ".join(order), _percent(ranking.likely[-1]), _scores_agree(ranking, -1)))
        header = ("params", "FLOPs", "order by the mean of tasks", "likely", "by their scores")
        print_table(header, others, title="at every size that they share", left=(2,))
    if not (first.likely == first.likely).all():
        say("too few other families to estimate the probability of an order")


def _percent(value: float) -> str:
    return number(value, ".0%")


def _scores_agree(ranking: RunRanking, t: int) -> str:
    """Whether the observed scores have the same order."""
    observed = ranking.observed[t]
    if not (observed == observed).all():
        return "–"
    return "the same" if [*(-observed).argsort(kind="stable")] == [*ranking.order[t]] else "another"
