"""Which metric tells training runs apart, on public models and on the zoo, beside what others printed.

    python -m lab metrics

For each study and each metric that `benchcast proxies` compares, the mean over tasks and stages: signal ÷ noise, the
share of pairs of runs that the metric orders as the score does at the last stage, and the error of that score when it
is forecast from the metric. Stages are sizes of models, or lengths of training. The public studies are read where their
files are here. A second table has the benchmarks for which AI2 printed such figures, and ours beside them: signal ÷
noise as the mean over stages, right decisions of the smallest models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from benchcast import datasets
from benchcast.decisions.proxies import MetricAtStage, proxies
from benchcast.errors import NotEnoughDataError
from benchcast.study.study import Study
from lab.reproduce.context import StudyContext
from lab.reproduce.outcome import Outcome, Table, cell

PUBLIC = ("olmo-ladder-choice", "dclm", "llm-line")
RATIO, DECISIONS = "signal ÷ noise", "right decisions"


@dataclass(frozen=True, slots=True)
class PrintedFigure:
    """A figure of AI2's Signal and Noise, and where ours for the same benchmark is."""

    benchmark: str
    measure: str
    score: str
    bits: str  # by bits per byte of the answers
    study: str = ""  # empty: no study here has the benchmark
    task: str = ""


PRINTED = (
    PrintedFigure("ARC-Easy", RATIO, "21", "65", "olmo-ladder-choice", "arc_easy_test"),
    PrintedFigure("ARC-Easy", DECISIONS, "93%", "–", "dclm", "arc_easy"),
    PrintedFigure("MMLU", DECISIONS, "89%", "–", "dclm", "mmlu_fewshot"),
    PrintedFigure("BoolQ", DECISIONS, "48%", "–", "dclm", "boolq"),
    PrintedFigure("GSM8K", DECISIONS, "46%", "–"),
)
REMARKS = (
    "AI2's figures are those of *Signal and Noise*, on other models: 25 recipes of data, of which those of 150M decide "
    "between those of 1B. Ours are five sizes of the ladder of OLMo 2, which differ more, and six runs of 412M that "
    "decide between those of 1.4B, fifteen pairs",
    "DataDecide: at most small scales the probability of the right answer per character is at least as good as any "
    "other metric; scores and option-normalised metrics are ahead within a factor of ten of the target's compute",
)


def metrics(context: StudyContext) -> Outcome:
    """Every metric on the public studies at hand and on the context's study."""
    rows: list[dict[str, object]] = []
    cells: list[tuple[str, ...]] = []
    found_in: dict[str, Sequence[MetricAtStage]] = {}
    for name, study in _studies(context):
        context.on_step(name)
        try:
            found = proxies(study, forecast=False)
        except NotEnoughDataError:
            continue  # too few runs
        found_in[name] = found.rows
        rows += [{"study": name, **asdict(row)} for row in found.rows]
        cells += [
            (name, f"by {found.by}", metric, *_means([row for row in found.rows if row.metric == metric]))
            for metric in dict.fromkeys(row.metric for row in found.rows)
        ]
    header = ("study", "stages", "metric", RATIO, DECISIONS, "error, points")
    tables = (Table(header, tuple(cells)), _beside_printed(found_in))
    return Outcome("metrics", {"rows": rows}, tables, remarks=REMARKS)


def _beside_printed(found_in: Mapping[str, Sequence[MetricAtStage]]) -> Table:
    """Our figures for the benchmarks for which AI2 printed some."""
    cells = []
    for printed in PRINTED:
        of_task = [row for row in found_in.get(printed.study, ()) if row.task == printed.task]
        ours = [_figure(of_task, metric, printed.measure) for metric in ("score", "loss of answers")]
        cells.append((printed.benchmark, printed.measure, printed.score, printed.bits, *ours, printed.study or "–"))
    theirs, here = ("AI2: score", "AI2: bits per byte"), ("here: score", "here: loss of answers", "here, on")
    header = ("benchmark", "measure", *theirs, *here)
    return Table(header, tuple(cells), title="beside what AI2 printed for the same benchmarks")


def _figure(rows: Sequence[MetricAtStage], metric: str, measure: str) -> str:
    """A cell of one metric of one task."""
    of_metric = [row for row in rows if row.metric == metric]
    if measure == RATIO:
        return _means(of_metric)[0]
    return cell(of_metric[0].decisions if of_metric else float("nan"), ".0%")


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
