"""Will a model reach the scores that it needs? The probability for each, and a verdict: reached, missed or open.

The probability is that of the distribution whose interval `predict` prints: of the score that will be observed on about
as many items as the study's. An observed score is shown and not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from benchcast.errors import InputError, NotEnoughDataError
from benchcast.forecasts.fit import stored_fits
from benchcast.forecasts.needs import check_needs
from benchcast.forecasts.predict import forecast_models
from benchcast.forecasts.stored_fit import Fit
from benchcast.messages import counted, did_you_mean, plain
from benchcast.methods import CAPABILITY_METHOD
from benchcast.methods.capability import BlendedLosses
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Ints
from benchcast.scaling.extrapolate import StudyModels, Target, family_laws, read_study_models
from benchcast.scaling.family_law import FORMS, ScalePoints, estimate_drift, extrapolate_task
from benchcast.study.study import Study, StudyLike

Verdict = Literal["reached", "missed", "open"]
SURE = 0.9  # probability at which a need counts as reached; at 1 minus it, as missed


@dataclass(frozen=True, slots=True)
class NeedForecast:
    """One needed score, the forecast beside it, and the probability that it is reached."""

    task: str
    needed: float  # from 0 to 1
    probability: float  # NaN if no errors of forecasts are known
    forecast: float
    low: float  # ends of the interval
    high: float
    observed: float  # score of the model in the study, not used; NaN if unknown
    verdict: Verdict
    remark: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Gate:
    """The needs of one model, each with its probability."""

    model: str
    flops: float  # training compute of the forecast; NaN: the model as it is
    sure: float
    needs: tuple[NeedForecast, ...]
    methods: tuple[str, ...]  # by which the forecasts are made

    def __repr__(self) -> str:
        return f"<Gate of {self.model!r}: {self.verdict} ({counted(len(self.needs), 'need')})>"

    @property
    def verdict(self) -> Verdict:
        """Reached if every need is, missed if one is, else open."""
        verdicts = {need.verdict for need in self.needs}
        return "missed" if "missed" in verdicts else "open" if "open" in verdicts else "reached"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `benchcast gate --json` prints them; unknown numbers are None."""
        needs = [asdict(need) for need in self.needs]
        about = {"model": self.model, "flops": self.flops, "sure": self.sure, "methods": self.methods}
        return dict(plain(about | {"verdict": self.verdict, "needs": needs}))


def gate(
    study: StudyLike,
    model: str,
    needs: Mapping[str, float],
    *,
    at: float = math.nan,
    sure: float = SURE,
    tell: Callable[[str], None] = lambda line: None,
) -> Gate:
    """The probability that a model reaches the scores that it needs.

    Parameters
    ----------
    study : an opened study or its folder, with fits of these tasks
    model : a model with losses
    needs : task → score from 0 to 1
    at : training compute in FLOPs at which its run is to reach them; NaN: the model as it is. The run's checkpoints
        (models of one name before the @) need params, and tokens or flops, in models.csv
    sure : probability at which a need counts as reached, above 0.5 and below 1
    tell : called with a line at each step

    Returns
    -------
    for each need the probability, the forecast and a verdict; `.verdict` is that of all together

    >>> import benchcast as bc
    >>> bc.gate("study", "oak-64M@16B", {"code": 0.3})
    <Gate of 'oak-64M@16B': reached (1 need)>
    """
    if not 0.5 < sure < 1:
        raise InputError(f"sure = {sure:g}; a probability above 0.5 and below 1 is needed, such as 0.9")
    opened = Study.of(study)
    if not needs:
        raise InputError("no score is needed; give at least one, such as --need mmlu=0.62")
    fits = [fit for fit in stored_fits(opened) if fit.task in needs or not needs.keys() <= set(opened.fitted_tasks())]
    check_needs(needs, [fit.task for fit in fits])
    if math.isnan(at):
        return _as_it_is(opened, model, needs, sure=sure, fits=fits)
    return _at_compute(opened, model, needs, at=at, sure=sure, fits=fits, tell=tell)


def _as_it_is(study: Study, model: str, needs: Mapping[str, float], *, sure: float, fits: Sequence[Fit]) -> Gate:
    """The gate of a model by its stored fits."""
    known = study.models_with_losses()
    if model not in known:
        raise InputError(f"{study.root}: no losses of model {model!r}{did_you_mean(model, known)}")
    found = forecast_models(study, [model], tasks=list(needs)).forecasts
    if model in found.failed:
        raise NotEnoughDataError(found.failed[model])
    rows = []
    for forecast in found:
        probability = forecast.probability_above(needs[forecast.task])
        rows.append(
            NeedForecast(
                task=forecast.task,
                needed=needs[forecast.task],
                probability=probability,
                forecast=forecast.accuracy,
                low=forecast.low,
                high=forecast.high,
                observed=forecast.observed,
                verdict=_verdict(probability, sure),
                remark=forecast.remark,
            )
        )
    order = {task: i for i, task in enumerate(needs)}
    rows.sort(key=lambda row: order[row.task])
    methods = tuple(dict.fromkeys(fit.task_fit.method for fit in fits))
    return Gate(model=model, flops=math.nan, sure=sure, needs=tuple(rows), methods=methods)


def _verdict(probability: float, sure: float) -> Verdict:
    """A probability that is unknown decides nothing."""
    return "reached" if probability >= sure else "missed" if probability <= 1 - sure else "open"


def _at_compute(
    study: Study,
    model: str,
    needs: Mapping[str, float],
    *,
    at: float,
    sure: float,
    fits: Sequence[Fit],
    tell: Callable[[str], None],
) -> Gate:
    """The gate of a model's run at a compute, with fits by the same methods whose capability is extrapolated."""
    if not 0 < at < math.inf:
        raise InputError(f"--at {at:g}: training compute in FLOPs is needed, such as 3e22")
    methods = {fit.task: _extrapolated_by(fit) for fit in fits}
    rows: dict[str, NeedForecast] = {}
    for method in dict.fromkeys(methods.values()):
        tell(f"fitting by {method}")
        models = read_study_models(study, [t for t in needs if methods[t] == method], method=method)
        run = run_of(models, model)
        for fit in models.fits(np.ones(len(models.models), bool)):
            rows[fit.task.name] = _extrapolated(models, fit, run, needs[fit.task.name], at=at, sure=sure)
    return Gate(
        model=model,
        flops=at,
        sure=sure,
        needs=tuple(rows[task] for task in needs),
        methods=tuple(dict.fromkeys(methods.values())),
    )


def _extrapolated_by(fit: Fit) -> str:
    """The method of the fit; the usual one of `extrapolate` where a fit has no single capability to extrapolate."""
    name = fit.task_fit.method
    single = fit.task_fit.reads_losses and not isinstance(fit.task_fit.capability, BlendedLosses)
    return name if single else CAPABILITY_METHOD


@dataclass(frozen=True, slots=True)
class Run:
    """The checkpoints of a model's run."""

    model: str
    row: int  # of the model itself
    rows: Ints  # of all its checkpoints


def run_of(models: StudyModels, model: str) -> Run:
    """The run of a model: all models of its name before the @."""
    if model not in models.models:
        raise InputError(f"no losses of model {model!r}{did_you_mean(model, list(models.models))}")
    stems = np.array([name.partition("@")[0] for name in models.models])
    row = list(models.models).index(model)
    return Run(model, row, np.flatnonzero(stems == stems[row]))


def _extrapolated(
    models: StudyModels, fit: TaskFit, run: Run, needed: float, *, at: float, sure: float
) -> NeedForecast:
    """One need of a run at a compute, by the law of its family."""
    family, points = str(models.families[run.row]), models.points
    params = float(points.params[run.row])
    known = ScalePoints(points.params[run.rows], points.tokens[run.rows], points.flops[run.rows])
    if not np.isfinite(known.flops).any():
        raise NotEnoughDataError(
            f"{run.model}: models.csv has no params and tokens, and no flops, of its run; --at needs them"
        )
    if at < np.nanmax(known.flops[np.isfinite(known.flops)]):
        most = float(np.nanmax(known.flops))
        raise InputError(
            f"--at {at:g}: the run of {run.model} has already {most:.3g} FLOPs; give more, or leave --at out"
        )
    ratio = float(np.nanmedian(known.flops / (6 * known.params * known.tokens)))
    tokens = at / (6 * params * ratio)
    target = Target(params=params, tokens=tokens, flops=at) if np.isfinite(tokens) else Target(flops=at)
    point = target.as_points(points.take(models.families == family))
    allowed = FORMS if np.isfinite(tokens) else FORMS[1:]
    laws = family_laws(models, models.log_capability(fit), np.ones(len(models.models), bool), allowed=allowed)
    if family not in laws:
        raise NotEnoughDataError(
            f"{run.model}: its family {family!r} has too few models of known compute for a power law of "
            f"{fit.task.name}; four checkpoints of three values of compute are needed (see models.csv)"
        )
    found = extrapolate_task(fit, laws[family], estimate_drift([*laws.values()]), target=point)
    probability = float(found.probability_above(needed)[0])
    at_target = found.at_target(0)
    t = [f.name for f in models.dataset.tasks].index(fit.task.name)
    return NeedForecast(
        task=fit.task.name,
        needed=needed,
        probability=probability,
        forecast=at_target["accuracy"],
        low=at_target["low"],
        high=at_target["high"],
        observed=float(models.observed[t][run.row]),
        verdict=_verdict(probability, sure),
        remark=f"at {at / float(np.nanmax(known.flops)):.3g} times the compute of the run's last checkpoint",
    )
