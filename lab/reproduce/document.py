"""Write docs/results.md: all tables and figures of the embedded study beside the paper's (`python -m lab results`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchcast.choices import level_text
from benchcast.datasets import load_zoo
from benchcast.errors import InputError
from benchcast.messages import did_you_mean
from benchcast.study.atomic import write_text
from lab.paper.tables import TABLE_1
from lab.quality import quality
from lab.reproduce.ablation import ablation
from lab.reproduce.against import AGAINST_PAPER, paper_gain
from lab.reproduce.alone import NOTE, scores_alone
from lab.reproduce.context import StudyContext
from lab.reproduce.convergence import fig6
from lab.reproduce.decisions import decisions
from lab.reproduce.diversity import fig8
from lab.reproduce.extrapolation import extrapolate
from lab.reproduce.laws import fig4, fig7
from lab.reproduce.learning import learning
from lab.reproduce.live import live
from lab.reproduce.metrics import metrics
from lab.reproduce.opening import opening
from lab.reproduce.order import order
from lab.reproduce.outcome import Outcome, Table, cell, geometric_mean, plain, write_figure
from lab.reproduce.scaling import fig1, fig2
from lab.reproduce.select import select
from lab.reproduce.series import fig5
from lab.reproduce.table import table1
from lab.reproduce.uncertainty import uncertainty
from lab.reproduce.weights import fig9

Work = Callable[[StudyContext], Outcome]
PARTS: tuple[tuple[str, str, Work], ...] = (
    ("quality", "Every method on real models and on the zoo", quality),
    ("table1", "Table 1: error of every method", table1),
    ("uncertainty", "How sure that table is", uncertainty),
    ("fig1", "Figure 1: compute does not tell accuracy", fig1),
    ("fig2", "Figure 2: nor does the loss on the task's texts", fig2),
    ("fig4", "Figure 4: capability against accuracy", fig4),
    ("fig5", "Figure 5: a training run on a new mixture", fig5),
    ("fig6", "Figure 6: convergence of Algorithm 2", fig6),
    ("fig7", "Figure 7: forecast against observed", fig7),
    ("fig8", "Figure 8: texts of several sources", fig8),
    ("fig9", "Figure 9: which tokens count", fig9),
    ("ablation", "Ablation: what matters", ablation),
    ("live", "A run on a new mixture, live", live),
    ("extrapolate", "Larger models and later checkpoints", extrapolate),
    ("order", "Which of two training runs is better", order),
    ("learning", "How many models and families it takes", learning),
    ("decisions", "Which of two mixtures is better", decisions),
    ("metrics", "Which metric to watch", metrics),
    ("select", "How many texts it takes", select),
)
QUALITY = (
    "Held-out models only. *Gain*: squared error of all-token loss over that of the method, geometric mean over tasks; "
    "*by family*, *median* and *sum*: with families weighing equally, the geometric mean, the median over tasks, and "
    "the ratio of summed errors. Where these three disagree about which of two methods errs less, none is better. "
    "*Regret*: squared error over that of the best single method that reads losses only (`stack` and the averages are "
    "not among them; `salience` is as it was before floors were learned), geometric mean over tasks. *Worst*: the "
    "largest ratio of a task to the best single method on this task; *behind*: share of tasks where it is above 1.25. "
    "*Coverage* of 90% intervals, with a 90% bootstrap interval over families; *lowest*: of the task with the least. "
    "*Width* and interval *score* (Winkler) in points; *s*: seconds on two cores. `stack, with scores` and "
    "`observational` also read the scores of the held-out models on the other tasks."
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
    "ablation": "Gain of each variant.",
    "live": "The largest run of each mixture. Line and band: the forecast from each checkpoint; dots: its score.",
    "extrapolate": f"Hidden models; bars: {level_text()} intervals; the dashed line is a perfect forecast.",
    "learning": f"Each dot is one draw, the line their mean; below, the {level_text()} interval of the first method.",
    "select": "Dots: draws; lines: their mean; the dashed rule is the error with all texts.",
    "decisions": "Small checkpoints decide which family's largest model scores higher; "
    f"bars: {level_text()} over families.",
}


def write_results(folder: Path, named: Sequence[str] = (), *, on_step: Callable[[str], None]) -> None:
    """Make everything, or the named parts, anew and write the page."""
    known = [name for name, _, _ in PARTS]
    for name in named:
        if name not in known:
            raise InputError(f"unknown part {name!r}; known: {', '.join(known)}{did_you_mean(name, known)}")
    context = StudyContext(load_zoo(), on_step=on_step)
    for name, _, work in PARTS:
        if not named or name in named:
            on_step(f"{name}:")
            write_part(work(context), folder)
    write_page(context, folder)


def write_part(outcome: Outcome, folder: Path) -> None:
    """The figures of one part, and a JSON file with all that the page says of it."""
    for ending, figure in outcome.figures.items():
        write_figure(figure, folder / "figures" / f"{outcome.name}{ending}", kinds=("png",))
    part = {
        "tables": [asdict(t) for t in outcome.tables],
        "remarks": outcome.remarks,
        "figures": list(outcome.figures),
        "numbers": {k: v for k, v in outcome.numbers.items() if k not in BULKY},
    }
    text = json.dumps(plain(part), indent=1, ensure_ascii=False, allow_nan=False)
    write_text(folder / "figures" / f"{outcome.name}.json", text + "\n")


def write_page(context: StudyContext, folder: Path) -> None:
    """results.md from the parts that are there."""
    files = {file.stem: file for file in (folder / "figures").glob("*.json")}
    stored = {name: json.loads(files[name].read_text(encoding="utf-8")) for name, _, _ in PARTS if name in files}
    short = opening(stored["quality"]["numbers"]) if "quality" in stored else ""
    parts = [head(context, short)]
    parts += [section(name, title, stored[name]) for name, title, _ in PARTS if name in stored]
    write_text(folder / "results.md", "\n\n".join(parts).rstrip() + "\n")


def head(context: StudyContext, short: str) -> str:
    """The answer in short, what was done, and what was not."""
    about = context.about()
    return (
        f"# How good it is\n\n{short}"
        "Made by `python -m lab results docs` in a checkout (`make results`): every number and picture below comes "
        "from the commands shown. The first two tables are about real public models and the zoo. All that follows is "
        f"on the zoo, the study that ships in the package ({about['models']} models of "
        f"{about['families']} families, {len(context.study.texts)} texts, {len(context.study.tasks)} tasks, scorer "
        f"{about['scorer'] or 'none'}). Its models are small and trained for this purpose, its tasks synthetic. The "
        "JSON beside each figure holds its numbers; the commands write the points as well.\n\n"
        "**Not reproduced here:** the paper's own Table 1. It needs the token losses of its 59 open models "
        "(up to 72B parameters); `python -m lab plan` writes the commands that collect them. Its figures are "
        "quoted below beside ours, on other models and tasks."
    )


def section(name: str, title: str, part: dict[str, Any]) -> str:
    """One table or figure: commands, tables, pictures, remarks, and how it compares to the paper."""
    lines = [f"## {title}", f"```bash\npython -m lab {name}\n```", *([QUALITY] if name == "quality" else [])]
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
    mean = ("geometric mean", "", "", "", cell(paper_gain(), ".1f"), *("" for _ in without_losses))
    table = Table(
        header, (*rows, mean), "the paper's Table 1 as printed; right of it, forecasts from its Tables 2 to 4"
    )
    gain = f"Over the better of the two baselines its geometric mean gain is {best:.1f}."
    return f"{as_markdown(table)}\n\n{gain} {NOTE}"
