"""Write docs/results.md: all tables and figures of the embedded study beside the paper's.

python -m benchcast.reproduce.document docs                 everything
python -m benchcast.reproduce.document docs table1 fig8     some parts; the others stay as they are
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchcast.demo import open_embedded
from benchcast.files import write_text
from benchcast.paper.tables import TABLE_1
from benchcast.reproduce.ablation import ablation
from benchcast.reproduce.ahead import extrapolate
from benchcast.reproduce.alone import NOTE, scores_alone
from benchcast.reproduce.convergence import fig6
from benchcast.reproduce.desk import Desk
from benchcast.reproduce.diversity import fig8
from benchcast.reproduce.laws import fig4, fig7
from benchcast.reproduce.outcome import Outcome, Table, cell, geometric_mean, plain, write_figure
from benchcast.reproduce.scaling import fig1, fig2
from benchcast.reproduce.series import fig5
from benchcast.reproduce.table import table1
from benchcast.reproduce.weights import fig9

Work = Callable[[Desk], Outcome]
PARTS: tuple[tuple[str, str, Work], ...] = (
    ("table1", "Table 1: error of every method", table1),
    ("fig1", "Figure 1: compute does not tell accuracy", fig1),
    ("fig2", "Figure 2: nor does the loss on the task's texts", fig2),
    ("fig4", "Figure 4: capability against accuracy", fig4),
    ("fig5", "Figure 5: a training run on a new mixture", fig5),
    ("fig6", "Figure 6: convergence of Algorithm 2", fig6),
    ("fig7", "Figure 7: forecast against observed", fig7),
    ("fig8", "Figure 8: texts of several sources", fig8),
    ("fig9", "Figure 9: which tokens count", fig9),
    ("ablation", "Ablation: what matters", ablation),
    ("extrapolate", "Larger models and later checkpoints", extrapolate),
)
BULKY = ("points", "errors", "fits", "tokens")  # left out of the numbers kept beside the page
CAPTIONS = {
    "table1": "Test MSE by method; the dashed rule is the noise floor. First the split by size, then by family.",
    "fig1": "Lines join the checkpoints of one size.",
    "fig2": "Every model of every family.",
    "fig4": "The line is the fitted law.",
    "fig5": "First one series tests, then the other; grey: the other families.",
    "fig6": "Above: one task at several steps. Below: errors by step.",
    "fig7": "All tasks; held-out models only. The dashed line is a perfect forecast.",
    "fig8": "Each dot is one set of sources, the line their mean.",
    "fig9": "Darker tokens weigh more.",
    "ablation": "Above: variants. Below: how many models and families it takes.",
}


def main(arguments: Sequence[str]) -> None:
    """Make everything, or the named parts, anew and write the page."""
    folder, *named = arguments or ["docs"]
    known = [name for name, _, _ in PARTS]
    for name in named:
        if name not in known:
            raise SystemExit(f"unknown part {name!r}; known: {', '.join(known)}")
    desk = Desk(open_embedded(), tell=_say)
    for name, _, work in PARTS:
        if not named or name in named:
            _say(f"{name}:")
            write_part(work(desk), Path(folder))
    write_page(desk, Path(folder))


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")


def write_part(made: Outcome, folder: Path) -> None:
    """The figures of one part, and a JSON file with all that the page says of it."""
    for ending, figure in made.figures.items():
        write_figure(figure, folder / "figures" / f"{made.name}{ending}", kinds=("png",))
    part = {
        "tables": [asdict(t) for t in made.tables],
        "remarks": made.remarks,
        "figures": list(made.figures),
        "numbers": {k: v for k, v in made.numbers.items() if k not in BULKY},
    }
    text = json.dumps(plain(part), indent=1, ensure_ascii=False, allow_nan=False)
    write_text(folder / "figures" / f"{made.name}.json", text + "\n")


def write_page(desk: Desk, folder: Path) -> None:
    """results.md from the parts that are there."""
    parts = [head(desk)]
    for name, title, _ in PARTS:
        file = folder / "figures" / f"{name}.json"
        if file.exists():
            parts.append(section(name, title, json.loads(file.read_text(encoding="utf-8"))))
    write_text(folder / "results.md", "\n\n".join(parts).rstrip() + "\n")


def head(desk: Desk) -> str:
    """What was done, and what was not."""
    about = desk.about()
    return (
        "# Results on the embedded study\n\n"
        "Made by `python -m benchcast.reproduce.document docs`: every number and picture below comes from the "
        f"commands shown, on the study that ships in the package ({about['models']} models of {about['families']} "
        f"families, {len(desk.study.texts)} texts, {len(desk.study.tasks)} tasks, scorer {about['scorer'] or 'none'}). "
        "The models are small and trained for this purpose, the tasks synthetic; read the pages as a test of the "
        "method, not of any known LLM. The JSON beside each figure holds its numbers; the commands write the points "
        "as well.\n\n"
        "**Not reproduced here:** the paper's own Table 1. It needs the token losses of its 59 open models "
        "(up to 72B parameters); `benchcast reproduce plan` writes the commands that collect them. Its figures are "
        "quoted below beside ours, on other models and tasks."
    )


def section(name: str, title: str, part: dict[str, Any]) -> str:
    """One table or figure: command, tables, pictures, remarks, and how it compares to the paper."""
    lines = [f"## {title}", f"```\nbenchcast reproduce {name}\n```"]
    if name == "table1":
        lines.append(paper_table())
    lines += [as_markdown(Table(tuple(t["header"]), tuple(map(tuple, t["rows"])), t["title"])) for t in part["tables"]]
    lines += [f"![{title}](figures/{name}{ending}.png)" for ending in part["figures"]]
    lines += [f"*{CAPTIONS[name]}*"] if name in CAPTIONS else []
    lines += [f"{r[0].upper()}{r[1:]}." for r in part["remarks"]]
    verdict = AGAINST_PAPER.get(name)
    if verdict is not None:
        lines.append(verdict(part["numbers"]))
    return "\n\n".join(lines)


def as_markdown(table: Table) -> str:
    """A table of text cells; the best of a row in bold."""
    rows = ["| " + " | ".join(table.header) + " |", "|" + "---|" + "---:|" * (len(table.header) - 1)]
    for row in table.rows:
        cells = [f"**{c[1:]}**" if c.startswith("*") else c for c in row]
        rows.append("| " + " | ".join(cells) + " |")
    return (f"{table.title[0].upper()}{table.title[1:]}:\n\n" if table.title else "") + "\n".join(rows)


def paper_table() -> str:
    """The paper's Table 1 as printed, the gains that follow from it, and what its other tables tell without losses."""
    alone, without_losses = scores_alone()
    rows = tuple(
        (
            task,
            *map(cell, (r.salience, r.all_token, r.label_token)),
            cell(r.all_token / r.salience, ".1f"),
            *alone[task],
        )
        for task, r in TABLE_1.items()
    )
    best = geometric_mean([min(r.all_token, r.label_token) / r.salience for r in TABLE_1.values()])
    header = ("test MSE", "CSV", "all token", "label token", "gain over all token", *without_losses)
    mean = ("geometric mean", "", "", "", cell(_paper_gain(), ".1f"), *("" for _ in without_losses))
    made = Table(header, (*rows, mean), "the paper's Table 1 as printed; right of it, forecasts from its Tables 2 to 4")
    gain = f"Over the better of the two baselines its geometric mean gain is {best:.1f}."
    return f"{as_markdown(made)}\n\n{gain} {NOTE}"


def _table1(numbers: dict[str, Any]) -> str:
    split, first = next(iter(numbers["splits"].items()))
    gains, best = first["gain_over_all_token"], first["gain_over_best_baseline"]
    label = gains["label-token"]
    worst = max(first["mse"], key=lambda t: first["mse"][t]["salience"])
    lines = [
        f"Split by {split}: against all-token loss `salience` gains {gains['salience']:.1f}, `paper` (Algorithm 2) "
        f"{_or_dash(gains.get('paper'))}, where the paper's CSV gains {_paper_gain():.1f}; against each task's best "
        f"baseline {best['salience']:.2f} and {_or_dash(best.get('paper'), '.2f')}. The task with the largest error of "
        f"`salience` is {worst} ({first['mse'][worst]['salience']:.1e}).",
        f"Label-token loss, which the paper finds worse than all-token, gains {_or_dash(label)} over it here. The "
        "paper reads it on each test set's answers; we read it on answers of the study's texts, which have the form "
        "of the scored items.",
    ]
    if "family" in numbers["splits"]:
        unseen = numbers["splits"]["family"]
        gains, best = unseen["gain_over_all_token"], unseen["gain_over_best_baseline"]
        lines.append(
            "The split by family is not in the paper: nothing of the tested family is seen. There `salience` gains "
            f"{gains['salience']:.1f} over all-token and {best['salience']:.2f} over the best baseline, `paper` "
            f"{_or_dash(gains.get('paper'))} and {_or_dash(best.get('paper'), '.2f')}."
        )
    return "\n\n".join(lines)


def _paper_gain() -> float:
    return geometric_mean([r.all_token / r.salience for r in TABLE_1.values()])


def _or_dash(value: float | None, form: str = ".1f") -> str:
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
        own = sorted((m for m in rows if m["method"] == method), key=lambda m: m["sources"])
        helped.append(own[-1]["mse"] < own[0]["mse"])
        said.append(f"`{method}` goes from {own[0]['mse']:.1e} with one source to {own[-1]['mse']:.1e} with all")
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
        f"{_or_dash(gain.get('hidden layer of 8, sigmoid'))} over all-token, the linear head "
        f"{_or_dash(gain.get('linear, sigmoid (default)'))}, and SGD as printed "
        f"{_or_dash(gain.get('linear, SGD at 1e-3 as printed'))}."
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

if __name__ == "__main__":
    main(sys.argv[1:])
