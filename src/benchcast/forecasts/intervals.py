"""Compute prediction intervals from out-of-fold errors. There are two cases (`Position.stronger`).

The first case is a model of an unseen family. Errors within a family are correlated, so F families give F independent
observations, whatever their number of checkpoints. The scale is therefore the root of the mean over families of their
mean squared error, and the interval is Student's t with F − 1 degrees of freedom. Each error comes from a fit with one
family fewer than the final fit, and errors of methods that learn weights decrease about as 1 / √F, so their scale is
multiplied by √(1 − 1/F). Within a task, the width follows the slope of the law, the disagreement of the candidates and
the distance of the losses from those of the training models, as far as left-out families say that errors do
(`methods.interval_width`). For a model unlike all training models it is never below the width by distance alone,
because a law that is flat at its forecast says little about it. With a single training family, the errors of other
families are unknown. For a model of another family, the errors of the training family's models are doubled and a usual
error of families is added.

The second case is a model stronger than every training model. The hidden sets of stronger models count as further
families, and the scale is never smaller than that of families. Near chance the upper end is higher, because training
models at chance do not show when scores begin to rise.

There the width follows the distance alone: errors of hidden models are divided by their distance, and the interval is
multiplied by that of the model. So it is in both cases for methods without candidates, and for fits made before the
width followed anything else. The interval also grows with the distance from the range of capability. Errors are
differences of arcsin √accuracy, whose noise does not depend on the accuracy, so that intervals stay within 0 and 1 and
are asymmetric near the ends.

What is covered is the score that will be observed on about as many items as the scores of the study, with their noise.
Coverage is tested on synthetic studies (`lab/log/coverage.py`, lab/LOG.md).
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from benchcast.choices import DEFAULT_LEVEL
from benchcast.families import families_of
from benchcast.methods import METHODS
from benchcast.methods.capability import SAME
from benchcast.methods.interval_width import (
    AS_BEFORE,
    angle,
    errors_as_angles,
    forecast_of,
    from_angle,
    relative_width,
    width_of_rows,
)
from benchcast.methods.law import share_above_chance
from benchcast.methods.task_fit import IntervalWidth, OutOfFoldErrors, TaskFit
from benchcast.records import Bools, Floats, ModelMetadata

UNLIKE = 2.0  # distance relative to a usual left-out family from which on a model is unlike any training model
SMALLEST = 1e-30  # square of an error
NEAR_CHANCE = 0.1  # as a share of the range from chance to 1
# Rise of a task at chance at twice the usual distance of an unseen family, as an angle: 0.25 is the step from 25% to
# 47%. Chosen on DCLM's 7B models and the largest models of mlfoundations/scaling (lab/LOG.md).
RISE_FROM_CHANCE = 0.25
# For training models of a single family: ratio of the errors on other families to those on left-out models of this one,
# and the least error as an angle. Chosen on single families of the zoo, DCLM and mlfoundations/scaling.
OF_OTHER_FAMILIES = 2.0
USUAL_FAMILY_ERROR = 0.1


@dataclass(frozen=True, slots=True)
class Position:
    """Where models lie relative to the training models of a fit."""

    distance: Floats  # squared, in units of left-out families; at least 1
    stronger: Bools  # stronger than every training model
    other_family: Bools  # of another family than all training models, which are of a single one
    disagreement: Floats | None = None  # variance of the candidates' log-odds; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreDistribution:
    """Predictive distributions of the scores that will be observed of M models on one task.

    Each is a Student's t around the forecast, as an angle, with a scale for each side, cut off at scores of
    0 and 1. Every interval and every probability of a forecast is one of these distributions'. A distribution is NaN
    where no errors are known.

    >>> scale = np.array([0.1])
    >>> scores = ScoreDistribution(centre=angle([0.5]), below=scale, above=scale, freedom=np.array([5.0]))
    >>> [end.round(3).tolist() for end in scores.interval(0.9)], scores.probability_above(0.5).tolist()
    ([[0.304], [0.696]], [0.5])
    """

    centre: Floats  # the forecasts, as angles
    below: Floats  # scale towards lower scores; infinite at infinite distance
    above: Floats  # scale towards higher scores
    freedom: Floats  # degrees of freedom
    rise: Floats | float = 0.0  # by which the side above the forecast is moved up, for a model that may leave chance

    def interval(self, level: float) -> tuple[Floats, Floats]:
        """Lower and upper end of the central interval that holds the observed score with probability `level`."""
        reach = stdtrit(self.freedom, 0.5 + level / 2)
        return from_angle(self.centre - reach * self.below), from_angle(self.centre + reach * self.above + self.rise)

    def probability_above(self, score: npt.ArrayLike) -> Floats:
        """Probability that the observed score of each model is at least `score` (0..1)."""
        wanted = np.asarray(score, np.float64)
        short = angle(wanted) - self.centre
        beyond = np.where(short > 0, np.maximum(short - self.rise, 0.0), short)
        scale = np.where(short > 0, self.above, self.below)
        steps = np.divide(beyond, scale, out=np.zeros_like(beyond * scale), where=beyond != 0)
        probability = np.where(np.isnan(scale), np.nan, stdtr(self.freedom, -steps))
        return np.where(wanted <= 0, 1.0, np.where(wanted > 1, 0.0, probability))

    def moved(self, shift: float, factor: float) -> ScoreDistribution:
        """The distributions with their centres moved by an angle, and as many times as wide as `factor` says."""
        return ScoreDistribution(
            centre=self.centre + shift,
            below=self.below * factor,
            above=self.above * factor,
            freedom=self.freedom,
            rise=self.rise * factor,
        )

    def where(self, mask: Bools, other: ScoreDistribution) -> ScoreDistribution:
        """These distributions for the models of the mask (M), and others for the rest."""
        return ScoreDistribution(
            **{f.name: np.where(mask, getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        )


def between(accuracy: Floats, low: Floats, high: Floats, *, level: float, freedom: float) -> ScoreDistribution:
    """The distributions around these forecasts whose intervals of this level have these ends.

    An end below 0 or above 1 is that of a distribution that is cut off there.
    """
    centre, reach = angle(accuracy), float(stdtrit(freedom, 0.5 + level / 2))
    cut = np.clip([low, high], 0.0, 1.0)
    beyond = np.array([low, high]) - cut
    bottom, top = angle(cut) + np.copysign(angle(np.abs(beyond)), beyond)
    return ScoreDistribution(
        centre=centre,
        below=(centre - bottom) / reach,
        above=(top - centre) / reach,
        freedom=np.full_like(centre, freedom),
    )


@dataclass(frozen=True, slots=True)
class Predictions:
    """Forecasts of models by one fit, with the ends of their prediction intervals."""

    capability: Floats
    accuracy: Floats
    low: Floats
    high: Floats
    position: Position
    distribution: ScoreDistribution  # of the scores that will be observed; the interval is from it


@dataclass(frozen=True, slots=True)
class Spread:
    """Size of the forecast error on unseen families, in accuracy (0..1)."""

    scale: float  # root mean squared error on an unseen family; NaN without errors
    families: int
    half_width: float  # half the mean width of the intervals of the held-out models; NaN with fewer than two groups


def predict(
    fit: TaskFit, nats: npt.NDArray[np.floating], metadata: ModelMetadata, *, level: float = DEFAULT_LEVEL
) -> Predictions:
    """Forecast models from their losses on the reference tokens (M × N) and their metadata, with intervals."""
    capability = fit.capability.of(nats, metadata)
    accuracy = fit.law.accuracy(capability)
    position = locate(fit, capability, nats, metadata)
    distribution = score_distribution(fit, accuracy, position)
    low, high = distribution.interval(level)
    return Predictions(
        capability=capability, accuracy=accuracy, low=low, high=high, position=position, distribution=distribution
    )


def locate(
    fit: TaskFit,
    capability: npt.ArrayLike,
    nats: npt.NDArray[np.floating] | None = None,
    metadata: ModelMetadata | None = None,
) -> Position:
    """Position of models by their capability, by their losses if `nats` (M × N) is given, and by family.

    Without `metadata`, models count as members of the family where all training models are of one.
    """
    c = np.asarray(capability, np.float64)
    low, high = fit.range
    beyond = c < low if fit.law.slope < 0 else c > high
    squared, stronger = (1 + distance(fit, c)) ** 2, np.asarray(beyond & (distance(fit, c) > 0))
    trained = np.unique(fit.out_of_fold.families)
    other = np.zeros(c.shape, bool)
    if metadata is not None and len(trained) == 1:
        other = ~np.isin(metadata.families, (trained[0], *families_of(str(trained[0]))))
    if fit.profile is None or nats is None:
        return Position(squared, stronger, other)
    return Position(
        distance=np.maximum(squared, fit.profile.distance(nats)),
        stronger=stronger | fit.profile.stronger(nats),
        other_family=other,
        disagreement=fit.disagreement_about(nats, metadata),
    )


def score_distribution(fit: TaskFit, accuracy: npt.ArrayLike, position: Position) -> ScoreDistribution:
    """Distribution of the score that will be observed, around each forecast accuracy (of any shape).

    It is NaN if no errors are known.
    """
    a = np.asarray(accuracy, np.float64)
    width = fit.width or AS_BEFORE
    squares, plain = (group_squares(relative_errors(fit, w), fit.out_of_fold.families) for w in (width, AS_BEFORE))
    groups = len(squares)
    if groups < 2:
        nothing = np.full_like(a, np.nan)
        return ScoreDistribution(centre=angle(a), below=nothing, above=nothing, freedom=nothing)
    of_stronger = max(float(plain.mean()), float(np.concatenate([plain, _hidden_set_squares(fit)]).mean()))
    square = np.where(position.stronger, of_stronger, float(squares.mean()))
    scale = np.sqrt(np.where(position.other_family, OF_OTHER_FAMILIES**2 * square + USUAL_FAMILY_ERROR**2, square))
    infinite = np.isinf(position.distance)
    known = np.where(infinite, 1.0, position.distance)
    far = np.sqrt(known)
    wide = relative_width(fit, width, a, distance=known, disagreement=position.disagreement)
    unlike = known > (np.inf if fit.profile is None else max(fit.profile.usual, UNLIKE**2))
    by_distance = far * np.sqrt(float(plain.mean()) / max(float(squares.mean()), SMALLEST))
    relative = np.where(position.stronger, far, np.where(unlike, np.maximum(wide, by_distance), wide))
    scale = np.where(infinite, np.inf, fewer_families(fit, groups) * scale * relative)
    return ScoreDistribution(
        centre=angle(a),
        below=scale,
        above=scale,
        freedom=np.full_like(a, groups - 1),
        rise=np.where(position.stronger, RISE_FROM_CHANCE * nearness_to_chance(fit, a) * (far - 1), 0.0),
    )


def spread_of(fit: TaskFit, level: float = DEFAULT_LEVEL) -> Spread:
    """Estimate the spread from out-of-fold errors; the half width is that of intervals of this level.

    It is the mean over the held-out models, as if each were at the distance of a usual unseen family.
    """
    errors = fit.out_of_fold
    count = len(np.unique(errors.families))
    if not count:
        return Spread(np.nan, 0, np.nan)
    ones = np.ones(len(errors.errors))
    disagreement = errors.disagreement if len(errors.disagreement) else None
    usual = Position(ones, ones < 0, ones < 0, disagreement)
    low, high = score_distribution(fit, forecast_of(errors), usual).interval(level)
    return Spread(root_mean_square(errors), count, float(np.mean(high - low)) / 2)


def root_mean_square(errors: OutOfFoldErrors) -> float:
    """Root of the mean over families of their mean squared error."""
    return float(np.sqrt(_mean_squares(errors.errors, errors.families).mean())) if len(errors.errors) else np.nan


def out_of_fold_coverage(fit: TaskFit) -> float:
    """Share of out-of-fold errors inside the interval from the other families' errors; NaN below three families."""
    families = fit.out_of_fold.families
    errors = relative_errors(fit, fit.width or AS_BEFORE)
    inside: list[bool] = []
    for family in np.unique(families):
        held_out = families == family
        others = _mean_squares(errors[~held_out], families[~held_out])
        if len(others) >= 2:
            reach = float(stdtrit(len(others) - 1, 0.5 + DEFAULT_LEVEL / 2)) * fewer_families(fit, len(others))
            inside += [*(np.abs(errors[held_out]) <= np.sqrt(others.mean()) * reach)]
    return float(np.mean(inside)) if inside else float("nan")


def unit_scale(fit: TaskFit) -> float:
    """Scale of the distribution for a model of an unseen family where the relative width is 1; NaN without errors."""
    squares = group_squares(relative_errors(fit, fit.width or AS_BEFORE), fit.out_of_fold.families)
    return fewer_families(fit, len(squares)) * float(np.sqrt(squares.mean())) if len(squares) > 1 else np.nan


def fewer_families(fit: TaskFit, groups: int) -> float:
    """Error of a fit on all groups over that of a fit with one group fewer.

    Fits of older versions have it for all methods.
    """
    learns = fit.width is None or METHODS[fit.method].learns_weights
    return float(np.sqrt(1 - 1 / groups)) if learns else 1.0


def relative_errors(fit: TaskFit, width: IntervalWidth) -> Floats:
    """Out-of-fold errors as angles, over the relative width of each (R)."""
    return np.asarray(errors_as_angles(fit.out_of_fold) / width_of_rows(fit, width))


def group_squares(errors: Floats, families: npt.NDArray[np.str_]) -> Floats:
    """Mean squared error of each family; with a single family, models take the place of families."""
    squares = _mean_squares(errors, families)
    return squares if len(squares) != 1 else errors**2


def _hidden_set_squares(fit: TaskFit) -> Floats:
    """Mean squared error of each hidden set of stronger models, at the distance of a usual unseen family."""
    errors = fit.stronger
    far = np.sqrt(np.maximum(errors.distance, 1)) if len(errors.distance) else 1.0
    return _mean_squares(errors_as_angles(errors) / far, errors.hidden_set)


def _mean_squares(errors: Floats, groups: npt.NDArray[np.generic]) -> Floats:
    _, index = np.unique(groups, return_inverse=True)
    return np.bincount(index, weights=errors**2) / np.bincount(index)


def distance(fit: TaskFit, capability: npt.ArrayLike) -> Floats:
    """Distance of a capability from the range of the training models, in units of that range; 0 inside.

    If all training models have the same capability, the distance of any other is infinite.
    """
    c = np.asarray(capability, np.float64)
    low, high = fit.range
    outside = np.maximum(np.maximum(low - c, c - high), 0)
    if fit.has_range:
        return outside / (high - low)
    return np.where(outside > SAME * max(abs(low), abs(high)), np.inf, 0.0)


def nearness_to_chance(fit: TaskFit, accuracy: npt.ArrayLike) -> Floats:
    """1 for a forecast at chance, decreasing linearly to 0 at `NEAR_CHANCE` above it."""
    above = share_above_chance(np.asarray(accuracy, np.float64), fit.law.chance)
    return np.clip(1 - above / NEAR_CHANCE, 0.0, 1.0)
