"""How forecasts of larger and longer-trained models do: on hidden models of a study, and in synthetic studies.

In a synthetic study every family has its own Chinchilla-like law, and the scores of each family deviate a little
from the sigmoid law of the task, so the score of every target is known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchcast.choices import level_text
from benchcast.losses.dataset import LossView
from benchcast.methods.capability import WeightedLoss
from benchcast.methods.interval_width import angle, from_angle
from benchcast.methods.law import SigmoidLaw
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import Floats, Task
from benchcast.reports.drawing import COLOURS
from benchcast.scaling.extrapolate import HiddenModel, backtest, read_study_models
from benchcast.scaling.family_law import HOLDOUT_KINDS, ScalePoints, estimate_drift, extrapolate_task, fit_family
from lab.reproduce.context import StudyContext
from lab.reproduce.outcome import Figure, Outcome, Table, cell

WORLDS = 60
Truth = Callable[[ScalePoints], Floats]


@dataclass(frozen=True, slots=True)
class World:
    """Settings of a synthetic study."""

    seed: int = 0
    families: int = 5
    sizes: int = 4
    checkpoints: int = 4
    noise: float = 0.03  # of losses, as a share
    miss: float = 0.02  # how far a family's scores lie off the law


@dataclass(frozen=True, slots=True)
class SyntheticStudy:
    """Families of one study: points, log losses and the true law; the task's fit with out-of-fold errors."""

    families: tuple[tuple[ScalePoints, Floats, Truth], ...]
    fit: TaskFit
    misses: Floats  # of each family's scores
    noise: float
    rng: np.random.Generator


def make_family(rng: np.random.Generator, world: World) -> tuple[ScalePoints, Floats, Truth]:
    """A family with a law of its own, sizes 4 × apart, checkpoints 3 × apart."""
    floor, size, data = rng.uniform(0.8, 1.6), rng.uniform(0.25, 0.5), rng.uniform(0.2, 0.45)
    at_first = rng.uniform(0.5, 1.5, 2)  # what size and data add to the loss of the smallest, shortest run

    def truth(points: ScalePoints) -> Floats:
        by_size = at_first[0] * (points.params / 1e7) ** -size
        by_data = at_first[1] * (points.tokens / 1e9) ** -data
        return np.log(floor + by_size + by_data)

    params, tokens = (
        x.ravel() for x in np.meshgrid(1e7 * 4.0 ** np.arange(world.sizes), 1e9 * 3.0 ** np.arange(world.checkpoints))
    )
    points = ScalePoints(params, tokens, 6 * params * tokens)
    return points, truth(points) + world.noise * rng.normal(size=len(points)), truth


def make_study(world: World) -> SyntheticStudy:
    """Families, and a fit whose out-of-fold errors are those of other families of the same study."""
    rng = np.random.default_rng([7, world.seed])
    families = tuple(make_family(rng, world) for _ in range(world.families))
    seen = np.exp(np.concatenate([log_loss for _, log_loss, _ in families]))
    slope = -rng.uniform(3.0, 6.0) / seen.std() / 2
    law = SigmoidLaw(slope, -slope * float(np.quantile(seen, 0.4)), 0.25)
    errors = world.miss * rng.normal(size=world.families)
    names = np.array([f"family{i}" for i in range(world.families)])
    out_of_fold = OutOfFoldErrors(errors, names, "synthetic")
    fit = TaskFit(
        task=Task("task", 0.25),
        method="synthetic",
        capability=WeightedLoss(views=(LossView.NATS,), weights=np.ones((1, 1), np.float32), unit=1.0),
        law=law,
        out_of_fold=out_of_fold,
        range=(float(seen.min()), float(seen.max())),
    )
    return SyntheticStudy(families, fit, world.miss * rng.normal(size=world.families), world.noise, rng)


def coverage_of(study: SyntheticStudy) -> list[dict[str, Any]]:
    """For each family, compare the forecast of one model, larger and longer trained than any other, with its score."""
    laws = [fit_family(points, log_loss) for points, log_loss, _ in study.families]
    fitted = [law for law in laws if law is not None]
    drift = estimate_drift(fitted)
    rows = []
    for law, (points, _, truth), miss in zip(fitted, study.families, study.misses, strict=True):
        params, tokens = 4 * points.params.max(), 3 * points.tokens.max()
        target = ScalePoints(np.array([params]), np.array([tokens]), np.array([6 * params * tokens]))
        said = extrapolate_task(study.fit, law, drift, target=target)
        log_loss = truth(target)[0] + study.noise * study.rng.normal()
        score = float(from_angle(angle(study.fit.law.accuracy(np.exp(log_loss))) + miss))
        low, high = float(said.low[0]), float(said.high[0])
        rows.append(
            {
                "inside": low <= score <= high,
                "capability_inside": bool(said.capability_low[0] <= np.exp(log_loss) <= said.capability_high[0]),
                "error": abs(float(said.accuracy[0]) - score),
                "width": high - low,
            }
        )
    return rows


def extrapolate(context: StudyContext, worlds: int = WORLDS) -> Outcome:
    """Hidden models of every family and task, and synthetic studies."""
    known = read_study_models(context.study)
    hidden = [row for kind in HOLDOUT_KINDS for row in backtest(known, kind, on_step=context.on_step)]
    context.on_step("synthetic studies")
    rows = [row for seed in range(worlds) for row in coverage_of(make_study(World(seed=seed)))]
    means = {k: float(np.mean([r[k] for r in rows])) for k in ("inside", "capability_inside", "error", "width")}
    tables = [t for kind in HOLDOUT_KINDS for t in (_by_task(hidden, kind), _by_family(hidden, kind)) if t.rows]
    share = float(np.mean([h.inside for h in hidden])) if hidden else float("nan")
    remarks = (
        f"{level_text()} intervals held {cell(share, '.1%')} of {len(hidden)} hidden scores",
        f"in {worlds} synthetic studies ({len(rows)} targets, a size larger and a checkpoint longer than any) "
        f"they held {means['inside']:.1%}, those of capability {means['capability_inside']:.1%}; mean error "
        f"{means['error']:.3f}, mean width {means['width']:.3f}",
    )
    numbers = {**context.about(), "points": [_row(h) for h in hidden], "synthetic": {"studies": worlds, **means}}
    figures = {"": hidden_figure(hidden)} if hidden else {}
    return Outcome("extrapolate", numbers, tuple(tables), figures, remarks)


def hidden_figure(hidden: list[HiddenModel]) -> Figure:
    """Forecast against score of the hidden models with their intervals, one panel a kind and task."""
    import altair as alt

    rows = [_row(h) for h in hidden]
    across = alt.X("observed:Q", scale=alt.Scale(domain=[0, 1]))
    colour = alt.Color("family:N", scale=alt.Scale(range=COLOURS))
    whole = alt.Chart(alt.Data(values=[{"v": 0}, {"v": 1}])).mark_line(color="#888", strokeDash=[3, 3])
    panel = alt.layer(
        whole.encode(x=alt.X("v:Q", title="scored"), y=alt.Y("v:Q", title="forecast")),
        alt.Chart()
        .mark_rule(opacity=0.3)
        .encode(x=across, y=alt.Y("low:Q", title="forecast"), y2="high:Q", color=colour),
        alt.Chart().mark_point(filled=True, size=30).encode(x=across, y="forecast:Q", color=colour),
        data=alt.Data(values=rows),
    ).properties(width=120, height=120)
    tasks = list(dict.fromkeys(h.task for h in hidden))
    faceted = panel.facet(row="kind:N", column=alt.Column("task:N", sort=tasks))
    return dict(faceted.to_dict())


def _row(h: HiddenModel) -> dict[str, Any]:
    return {name: getattr(h, name) for name in h.__dataclass_fields__} | {"inside": h.inside}


def _measures(rows: list[HiddenModel]) -> tuple[str, ...]:
    error = float(np.mean([abs(h.forecast - h.observed) for h in rows]))
    unchanged = float(np.mean([abs(h.unchanged - h.observed) for h in rows]))
    width = float(np.mean([h.high - h.low for h in rows]))
    inside = float(np.mean([h.inside for h in rows]))
    return cell(error, ".3f"), cell(unchanged, ".3f"), cell(inside, ".2f"), cell(width, ".3f"), str(len(rows))


def _by_task(hidden: list[HiddenModel], kind: str) -> Table:
    of_kind = [h for h in hidden if h.kind == kind]
    rows = [(t, *_measures([h for h in of_kind if h.task == t])) for t in dict.fromkeys(h.task for h in of_kind)]
    rows += [("all", *_measures(of_kind))] if of_kind else []
    what = "the largest models" if kind == "largest" else "the latest checkpoints"
    header = ("task", "mean abs error", "if unchanged", f"{level_text()} interval covers", "its width", "models")
    return Table(header, tuple(rows), f"{what} hidden and forecast")


def _by_family(hidden: list[HiddenModel], kind: str) -> Table:
    of_kind = [h for h in hidden if h.kind == kind]
    tasks = list(dict.fromkeys(h.task for h in of_kind))
    rows = []
    for family in dict.fromkeys(h.family for h in of_kind):
        cells = []
        for task in tasks:
            mine = [h for h in of_kind if (h.family, h.task) == (family, task)]
            error = float(np.mean([abs(h.forecast - h.observed) for h in mine])) if mine else float("nan")
            cells.append(f"{cell(error, '.3f')} ({sum(h.inside for h in mine)}/{len(mine)})")
        rows.append((family, *cells))
    return Table(("family", *tasks), tuple(rows), f"{kind}: mean absolute error (scores inside their interval)")
