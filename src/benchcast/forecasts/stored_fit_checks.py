"""Checks of a fit that was read from files: consistent shapes, finite numbers, known names.

Hashes detect damage; these checks detect invalid files with valid hashes. Each failure is a ValueError.
Axes: N reference tokens.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.choices import REGROUP_UNITS, check_choice
from benchcast.methods import METHODS
from benchcast.methods.capability import BlendedLosses, Capability, ScalingLadder, WeightedLoss
from benchcast.methods.disagreement import Disagreement
from benchcast.methods.law import KNOTS, MonotoneCalibration, SigmoidLaw
from benchcast.methods.profile import LossProfile
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import CHOICE_COLUMN, CHOICE_LOSSES, Ints, Task, TextOutlines, TextSet

LARGEST_PROFILE = 1e50  # squares of products of such values are still numbers
LOWEST_FLOOR = -2.0  # twice the lowest centred score: of no right answer where chance is 0.5
LADDER = 5  # columns of the weights of a ladder
ABOUT: dict[str, type | tuple[type, ...]] = {
    "benchcast": str,
    "texts": str,
    "annotated_texts": str,
    "scorer": str,
    "split": str,
    "level": (int, float),
    "seed": int,
    "n_train": dict,
    "mean_accuracy": (int, float, type(None)),
    "train": list,
    "validation": list,
}


def need(condition: object, what: str) -> None:
    """Raise ValueError unless the condition holds."""
    if not condition:
        raise ValueError(what)


def is_number(value: object) -> bool:
    """Whether a value is a finite number and not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def check_task_fit(fit: TaskFit, tokens: int, texts: int) -> None:
    """Raise a ValueError unless this is a valid fit on so many reference tokens and texts."""
    _check_task(fit.task)
    _check_law(fit.law)
    check_choice("method", fit.method, METHODS)
    need(isinstance(fit.notes, dict), "notes are not a table")
    known = all(map(is_number, fit.range)) and fit.range[0] <= fit.range[1]
    need(known or all(isinstance(x, float) and math.isnan(x) for x in fit.range), f"range {fit.range} is not a range")
    _check_errors("honest_errors", fit.out_of_fold)
    _check_errors("stronger_errors", fit.stronger)
    if fit.profile is not None:
        _check_profile(fit.profile, tokens)
    _check_capability(fit.capability, tokens, texts)
    if isinstance(fit.capability, BlendedLosses):
        floors = fit.capability.parts[0].law.chance, fit.law.chance
        need(floors[0] == floors[1], f"the floor of member 0 is {floors[0]}, that of the law {floors[1]}")
    _check_interval(fit, tokens)


def check_tokens(edges: Ints, texts: TextSet, *, salience: npt.NDArray[Any], supported: npt.NDArray[Any]) -> None:
    """Raise a ValueError unless these are edges, salience and mask of reference tokens of the texts."""
    need(edges.ndim == 1 and edges.dtype.kind in "iu" and len(edges) > 1, f"edges have shape {edges.shape}")
    need((np.diff(edges.astype(np.int64)) >= 0).all(), "edges decrease")
    need(edges[0] == 0 and edges[-1] == texts.starts[-1], f"edges end at {edges[-1]}, the texts at {texts.starts[-1]}")
    need(np.isin(texts.starts, edges).all(), "a reference token spans two texts")
    _check_array("salience", salience, (len(edges) - 1,), "f")
    _check_array("supported", supported, (len(edges) - 1,), "u")
    need(supported.dtype == np.uint8 and (supported <= 1).all(), "supported has values other than 0 and 1")


def check_about(about: object) -> None:
    """Raise a ValueError unless this is a table whose known entries have their types."""
    need(isinstance(about, dict), "about is not a table")
    assert isinstance(about, dict)
    for key, kind in ABOUT.items():
        need(key not in about or isinstance(about[key], kind), f"about: {key} is {about.get(key)!r}")
    need(about.get("unit", "byte") in REGROUP_UNITS, f"about: unit {about.get('unit')!r}")
    models = [*about.get("train", ()), *about.get("validation", ())]
    need(all(isinstance(m, str) for m in models), "about: models are not names")
    need(all(map(is_number, about.get("n_train", {}).values())), "about: n_train are not numbers")


def check_texts(texts: TextSet, about: dict[str, Any]) -> None:
    """Raise a ValueError unless these are the texts that `about` names."""
    for t in texts:
        need(
            all(isinstance(x, str) for x in (t.id, t.source, t.text)), f"text {t.id!r}: id, source or text is no string"
        )
        need(t.answer_start is None or type(t.answer_start) is int, f"text {t.id!r}: answer_start {t.answer_start!r}")
        need(all(isinstance(x, str) for x in t.options), f"text {t.id!r}: an option is no string")
    if isinstance(texts, TextOutlines):
        need(len(texts.index) == len(texts), "two texts have the same id")
        need(all(type(n) is int and n >= 0 for n in texts.lengths), "lengths of texts are not whole numbers of bytes")
    else:
        need(about.get("texts", texts.digest) == texts.digest, "the texts do not match their digest")


def _check_array(name: str, values: npt.NDArray[Any], shape: tuple[int, ...], kinds: str) -> None:
    need(values.shape == shape, f"{name} has shape {values.shape}, needed is {shape}")
    need(values.dtype.kind in kinds, f"{name} holds {values.dtype}")
    need(np.isfinite(values).all(), f"{name} holds NaN or infinity")


def _check_task(task: Task) -> None:
    need(isinstance(task.name, str) and task.name.strip(), f"task name {task.name!r}")
    need(is_number(task.chance) and 0 <= task.chance < 1, f"chance {task.chance!r} is not from 0 to below 1")
    need(all(isinstance(s, str) for s in task.sources), "sources are not names")
    need(all(isinstance(m, str) for m in task.members), "members are not names")
    need(isinstance(task.centred, bool) and isinstance(task.metric, str), "centred or metric of the task is invalid")


def _check_law(law: SigmoidLaw) -> None:
    need(isinstance(law.failure, str), "law: failure is not text")
    numbers = (law.chance, law.ceiling) if law.failure else (law.chance, law.ceiling, law.slope, law.offset)
    need(all(map(is_number, numbers)), f"law: {numbers} are not all finite numbers")
    need(
        LOWEST_FLOOR <= law.chance <= law.ceiling <= 1,
        f"law: chance {law.chance} and ceiling {law.ceiling} are not in {LOWEST_FLOOR:g}..1",
    )
    if law.calibration is not None:
        _check_calibration(law.calibration)


def _check_calibration(calibration: MonotoneCalibration) -> None:
    numbers = (calibration.shift, calibration.low, calibration.high, *calibration.slopes)
    need(all(map(is_number, numbers)), "law: the calibration has values that are not finite numbers")
    need(
        len(calibration.slopes) == len(KNOTS) + 1,
        f"law: a calibration has {len(KNOTS) + 1} slopes, found {len(calibration.slopes)}",
    )
    need(calibration.low <= calibration.high, f"law: calibration range {calibration.low}..{calibration.high}")
    need(max(map(abs, calibration.slopes)) < 100, "law: a slope of the calibration is beyond e^100")


def _check_errors(name: str, out_of_fold: OutOfFoldErrors) -> None:
    count = len(out_of_fold.errors)
    need(isinstance(out_of_fold.kind, str), f"{name}: kind is not text")
    _check_array(name, out_of_fold.errors, (len(out_of_fold.families),), "f")
    need((np.abs(out_of_fold.errors) <= 1).all(), f"{name} are outside −1..1")
    need(len(out_of_fold.models) in (0, count), f"{len(out_of_fold.models)} names for {count} errors")
    need(all(isinstance(m, str) for m in out_of_fold.models), f"{name}: models are not names")
    for key, kinds in (("hidden_set", "iu"), ("observed", "f"), ("distance", "f"), ("disagreement", "f")):
        values = getattr(out_of_fold, key)
        _check_array(f"{name}.{key}", values, (count if len(values) else 0,), kinds)
    need(((out_of_fold.observed >= 0) & (out_of_fold.observed <= 1)).all(), f"{name}: accuracies are outside 0..1")
    need((out_of_fold.distance >= 0).all(), f"{name}: a distance is negative")
    need((out_of_fold.disagreement >= 0).all(), f"{name}: a disagreement is negative")


def _check_profile(profile: LossProfile, tokens: int) -> None:
    groups = profile.mean.size
    _check_array("profile.group", profile.group, (tokens,), "iu")
    _check_array("profile.mean", profile.mean, (groups,), "f")
    _check_array("profile.whiten", profile.whiten, (groups, groups), "f")
    need((np.unique(profile.group[profile.group >= 0]) == np.arange(groups)).all(), "profile: groups have gaps")
    size = max(np.abs(profile.mean).max(initial=0), np.abs(profile.whiten).max(initial=0))
    need(size < LARGEST_PROFILE, f"profile: a value of {size:g}")
    numbers = (profile.typical, profile.usual, profile.strongest)
    need(all(map(is_number, numbers)) and profile.typical > 0, f"profile: {numbers} are not all usable numbers")


def _check_interval(fit: TaskFit, tokens: int) -> None:
    if fit.width is not None:
        shares = (fit.width.steepness, fit.width.disagreement, fit.width.distance)
        need(all(map(is_number, shares)) and min(shares) >= 0, f"interval: {shares} are not numbers from 0")
        need(sum(shares[:2]) < 1 and shares[2] <= 1, f"interval: {shares} are not shares and a power")
        known = fit.disagreement is not None and len(fit.out_of_fold.disagreement) == len(fit.out_of_fold.errors)
        need(known or not fit.width.disagreement, "interval: the disagreement is not stored")
    if fit.disagreement is not None:
        _check_disagreement(fit.disagreement, fit.capability, tokens)


def _check_disagreement(disagreement: Disagreement, capability: Capability, tokens: int) -> None:
    need(isinstance(capability, WeightedLoss | BlendedLosses), "disagreement: of no weighted loss")
    assert isinstance(capability, WeightedLoss | BlendedLosses)
    loss = capability if isinstance(capability, WeightedLoss) else capability.stand_in
    count, views = len(disagreement.scale), len(loss.views)
    texts = 0 if loss.choices is None else loss.choices.weights.shape[1]
    _check_array("disagreement.weights", disagreement.weights, (count, views, tokens), "f")
    _check_array("disagreement.choices", disagreement.choices, (count, views, texts), "f")
    _check_array("disagreement.scale", disagreement.scale, (count,), "f")
    _check_array("disagreement.offset", disagreement.offset, (count,), "f")


def _check_capability(capability: Capability, tokens: int, texts: int) -> None:
    match capability:
        case BlendedLosses(stand_in=stand_in):
            _check_weighted_loss(stand_in, tokens, texts)
            _check_blend(capability)
        case WeightedLoss():
            _check_weighted_loss(capability, tokens, texts)
        case ScalingLadder(families=families, laws=laws):
            need(families[0] == "", "the first ladder is not that of all families")
            _check_array("weights", laws, (len(families), LADDER), "f")
        case _:
            weights = capability.fields()[1]["weights"]
            _check_array("weights", weights, (len(capability.reads), min(1, len(capability.reads))), "f")


def _check_weighted_loss(loss: WeightedLoss, tokens: int, texts: int) -> None:
    need(is_number(loss.unit) and loss.unit > 0, f"unit {loss.unit!r} is not a positive number")
    _check_array("weights", loss.weights, (len(loss.views), tokens), "f")
    if loss.choices is not None:
        need(loss.choices.name in (*CHOICE_LOSSES, CHOICE_COLUMN), f"choices are {loss.choices.name!r}")
        need(loss.choices.weights.ndim == 2, f"choices have shape {loss.choices.weights.shape}")
        _check_array("choices", loss.choices.weights, (len(loss.views), texts), "f")


def _check_blend(blend: BlendedLosses) -> None:
    ramp, parts = blend.ramp, blend.parts
    need(parts, "an average without members")
    need(is_number(ramp.strongest) and is_number(ramp.usual), f"fade {ramp} is not two numbers")
    need(ramp.strongest <= ramp.usual, f"fade {ramp.strongest}..{ramp.usual}")
    shares = [(part.share, part.share_of_stronger) for part in parts]
    need(all(is_number(x) and 0 <= x <= 1 for row in shares for x in row), f"shares {shares} are not in 0..1")
    need(all(abs(sum(column) - 1) < 1e-6 for column in zip(*shares, strict=True)), f"shares {shares} do not sum to 1")
    for k, part in enumerate(parts):
        _check_law(part.law)
        need(not part.law.failure, f"the law of member {k} failed")
        _check_array(f"member.{k}", part.weights, blend.stand_in.weights.shape, "f")
        if part.choices is not None and blend.stand_in.choices is not None:
            _check_array(f"member.{k}.choices", part.choices.weights, blend.stand_in.choices.weights.shape, "f")
