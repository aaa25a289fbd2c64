"""What the results say beside the paper's, in sentences: one function a table or figure, from its stored numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.paper.tables import TABLE_1
from lab.reproduce.outcome import cell, geometric_mean


def _table1(numbers: dict[str, Any]) -> str:
    split, first = next(iter(numbers["splits"].items()))
    gains, best = first["gain_over_all_token"], first["gain_over_best_baseline"]
    label = gains["label-token"]
    worst = max(first["mse"], key=lambda t: first["mse"][t]["salience"])
    lines = [
        f"Split by {split}: against all-token loss `salience` gains {gains['salience']:.1f}, `paper` (Algorithm 2) "
        f"{or_dash(gains.get('paper'))}, where the paper's CSV gains {paper_gain():.1f}; against each task's best "
        f"baseline {best['salience']:.2f} and {or_dash(best.get('paper'), '.2f')}. The task with the largest error of "
        f"`salience` is {worst} ({first['mse'][worst]['salience']:.1e}).",
        f"Label-token loss, which the paper finds worse than all-token, gains {or_dash(label)} over it here. The "
        "paper reads it on each test set's answers; we read it on answers of the study's texts, which have the form "
        "of the scored items.",
    ]
    if "family" in numbers["splits"]:
        unseen = numbers["splits"]["family"]
        gains, best = unseen["gain_over_all_token"], unseen["gain_over_best_baseline"]
        lines.append(
            "The split by family is not in the paper: nothing of the tested family is seen. There `salience` gains "
            f"{gains['salience']:.1f} over all-token and {best['salience']:.2f} over the best baseline, `paper` "
            f"{or_dash(gains.get('paper'))} and {or_dash(best.get('paper'), '.2f')}."
        )
    return "\n\n".join(lines)


def paper_gain() -> float:
    """What the paper's method gains over all-token loss in its Table 1, geometric mean over tasks."""
    return geometric_mean([r.all_token / r.salience for r in TABLE_1.values()])


def or_dash(value: float | None, form: str = ".1f") -> str:
    """A number from JSON, or a dash where there is none."""
    return "–" if value is None else cell(value, form)


def _fig1(numbers: dict[str, Any]) -> str:
    gaps = numbers["gaps"]
    most = max(gaps, key=lambda t: gaps[t]["largest"])
    return (
        f"As in the paper: at equal size and compute the two mixtures differ by up to {gaps[most]['largest']:.2f} "
        f"({most}), so no function of compute alone can be right for both."
    )


def _fig2(numbers: dict[str, Any]) -> str:
    tasks = numbers["tasks"]
    low, high = (f(tasks, key=lambda t: tasks[t]["r2"]) for f in (min, max))
    return (
        f"The paper's point holds for some tasks and not for others: on {low} one law of the mean loss explains "
        f"{max(0.0, tasks[low]['r2']):.0%} of the variance, and models with the same loss lie up to "
        f"{tasks[low]['largest_gap']:.2f} apart; on {high} it explains {tasks[high]['r2']:.0%}."
    )


def _fig5(numbers: dict[str, Any]) -> str:
    means = {run: row["salience"] for run, row in numbers["geometric_mean"].items()}
    floors = {run: geometric_mean([*row.values()]) for run, row in numbers["noise_floor"].items()}
    said = " and ".join(f"{means[run]:.1e} on {run} (noise floor {floors[run]:.1e})" for run in means)
    tested = len(next(iter(numbers["models"].values()))["test"])
    return (
        f"The paper reports an MSE of 1e-4. `salience`, geometric mean over tasks: {said}. What differs: here each "
        f"test is of {tested} later checkpoints, of all sizes at once."
    )


def _fig6(numbers: dict[str, Any]) -> str:
    ends = numbers["tasks"]
    gain = geometric_mean([e["first"] / e["chosen"] for e in ends.values()])
    last = sum(e["step"] >= 299 for e in ends.values())
    return (
        f"As in the paper the families line up step by step: test error falls {gain:.1f} times (geometric mean). "
        f"The paper says that most tasks converge within 300 steps; here {last} of {len(ends)} are still best at the "
        "last one. SGD at 1e-3 as printed hardly moves (see the ablation), so `paper` uses Adam on "
        "standardised features."
    )


def _fig8(numbers: dict[str, Any]) -> str:
    rows = [m for m in numbers["mean"] if m["task"].startswith("geometric")]
    said, helped = [], []
    for method in dict.fromkeys(m["method"] for m in rows):
        by_count = sorted((m for m in rows if m["method"] == method), key=lambda m: m["sources"])
        helped.append(by_count[-1]["mse"] < by_count[0]["mse"])
        said.append(
            f"`{method}` goes from {by_count[0]['mse']:.1e} with one source to {by_count[-1]['mse']:.1e} with all"
        )
    verdict = (
        "As in the paper, more sources help" if all(helped) else "Unlike in the paper, more sources do not always help"
    )
    own_texts = [
        (m["mse_with_own_texts"], m["mse_without"])
        for m in numbers["mean"]
        if m["method"] == "salience" and m["mse_with_own_texts"] and m["mse_without"]
    ]
    ratio = geometric_mean([without / among for among, without in own_texts])
    return (
        f"{verdict}: {'; '.join(said)} (geometric mean over tasks). Sets are few, and whether the task's own texts are "
        f"among them counts most: without them `salience` errs {ratio:.1f} times more at the same number of sources."
    )


def _fig9(numbers: dict[str, Any]) -> str:
    by_source = numbers["by_source"]
    most = max(by_source, key=lambda s: by_source[s]["all"] or 0.0)
    return (
        "The paper sees tokens that take reasoning stand out on BBH. Here a weight is the slope of capability by a "
        "token's nats, averaged over the training models; where losses are read saturated it is steepest for tokens "
        f"that models get nearly right, so such tokens can stand out as well. Texts of {most} weigh most for "
        f"{numbers['task']}."
    )


def _ablation(numbers: dict[str, Any]) -> str:
    gain = {v["variant"]: v["gain_over_all_token"] for v in numbers["variants"]}
    lines = [
        "The paper finds that a more complex head changes little; here a hidden layer of 8 gains "
        f"{or_dash(gain.get('hidden layer of 8, sigmoid'))} over all-token, the linear head "
        f"{or_dash(gain.get('linear, sigmoid (default)'))}, and SGD as printed "
        f"{or_dash(gain.get('linear, SGD at 1e-3 as printed'))}."
    ]
    if any(g is None for g in gain.values()):
        lines.append(
            "A dash: no law could be fitted. Heads that start at zero weight for all tokens have none to begin with."
        )
    return " ".join(lines)


AGAINST_PAPER: dict[str, Callable[[dict[str, Any]], str]] = {
    "table1": _table1,
    "fig1": _fig1,
    "fig2": _fig2,
    "fig5": _fig5,
    "fig6": _fig6,
    "fig8": _fig8,
    "fig9": _fig9,
    "ablation": _ablation,
}
