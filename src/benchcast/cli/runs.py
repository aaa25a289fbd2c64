"""`compare --runs`: order training runs by their forecasts at equal compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchcast.cli.output import number, print_json, print_table, progress, say

if TYPE_CHECKING:
    from benchcast.choices import MethodName
    from benchcast.extrapolation.run_comparison import RunComparison, RunRanking
    from benchcast.store import Study


def show_runs(
    study: Study, runs: str, tasks: tuple[str, ...], method: MethodName, *, device: str, as_json: bool
) -> None:
    """Compare the named runs and print the result."""
    from benchcast.extrapolation.run_comparison import compare_runs

    names = [name.strip() for name in runs.split(",") if name.strip()]
    with progress("reading the study") as advance:
        comparison = compare_runs(
            study, names, tasks=tasks, method=method, device=device, tell=lambda what: advance(what)
        )
    if as_json:
        print_json(comparison.to_dict())
    else:
        _print(comparison)


def _print(comparison: RunComparison) -> None:
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
