"""What the paper's score tables tell without any loss, as columns beside its Table 1."""

from __future__ import annotations

from lab.paper.models import paper_models, paper_scores, paper_tasks
from lab.paper.observational import baselines
from lab.reproduce.outcome import cell

NOTE = (
    "The columns on the right need no losses, only scores (`python -m lab baselines`): the mean of the models "
    "seen, and the observational law from the other five benchmarks. On all tasks but HellaSwag the paper's all-token "
    "loss errs about as much as the constant does. C-Eval and CMMLU are nearly read off each other; the last column "
    "leaves the other out."
)


def scores_alone() -> tuple[dict[str, tuple[str, ...]], tuple[str, ...]]:
    """Test errors of the baselines that need scores only, by task, and what the columns are called."""
    _, rows = baselines(paper_models(), paper_scores(), paper_tasks(), split="column")
    methods = tuple(dict.fromkeys(row.method for row in rows))
    errors = {(row.task, row.method): cell(row.measures["mse"]) for row in rows}
    return {task: tuple(errors.get((task, m), "–") for m in methods) for task, _ in errors}, methods
