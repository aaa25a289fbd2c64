"""Which metric tells training runs apart, on public models and on the zoo, beside what others printed.

    python -m lab metrics

For each study and each metric that `benchcast proxies` compares, the mean over tasks and stages: signal ÷ noise, the
share of pairs of runs that the metric orders as the score does at the last stage, and the error of that score when it
is forecast from the metric. Stages are sizes of models, or lengths of training. The public studies are read where their
files are here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import numpy as np

from benchcast import datasets
from benchcast.decisions.proxies import MetricAtStage, proxies
from benchcast.errors import NotEnoughDataError
from benchcast.study.study import Study
from lab.reproduce.context import StudyContext
from lab.reproduce.outcome import Outcome, Table, cell

PUBLIC = ("olmo-ladder-choice", "dclm", "llm-line")
PRINTED = (  # of other models and runs; see docs/proxies.md
    "AI2 printed, for other models: signal ÷ noise of ARC-Easy 21 by its score and 65 by bits per byte of the answers "
    "(Signal and Noise); right decisions between data recipes at 150M 93% on ARC-Easy, 89% on MMLU, 48% on BoolQ and "
    "46% on GSM8K (the same)",
    "DataDecide: at most small scales the probability of the right answer per character is at least as good as any "
    "other metric; scores and option-normalised metrics are ahead within a factor of ten of the target's compute",
)


def metrics(context: StudyContext) -> Outcome:
    """Every metric on the public studies at hand and on the context's study."""
    rows: list[dict[str, object]] = []
    cells: list[tuple[str, ...]] = []
    for name, study in _studies(context):
        context.on_step(name)
        try:
            found = proxies(study, forecast=False)
        except NotEnoughDataError:
            continue  # too few runs
        rows += [{"study": name, **asdict(row)} for row in found.rows]
        cells += [
            (name, f"by {found.by}", metric, *_means([row for row in found.rows if row.metric == metric]))
            for metric in dict.fromkeys(row.metric for row in found.rows)
        ]
    header = ("study", "stages", "metric", "signal ÷ noise", "right decisions", "error, points")
    return Outcome("metrics", {"rows": rows}, (Table(header, tuple(cells)),), remarks=PRINTED)


def _studies(context: StudyContext) -> Iterator[tuple[str, Study]]:
    for name in PUBLIC:
        if datasets.find(name).cached:
            yield name, datasets.fetch(name)
    yield context.study.root.name, context.study


def _means(rows: Sequence[MetricAtStage]) -> tuple[str, str, str]:
    """Means over tasks and stages; unknown values take no part."""

    def mean(values: Sequence[float]) -> float:
        known = [v for v in values if np.isfinite(v)]
        return float(np.mean(known)) if known else float("nan")

    ratio, decisions = mean([r.ratio for r in rows]), mean([r.decisions for r in rows if r.later != r.stage])
    return cell(ratio, ".1f"), cell(decisions, ".0%"), cell(100 * mean([r.error for r in rows]), ".1f")
