"""What matters and what does not: the head and its activation, the unit of spreading, how many models and families.

Every variant is told by the geometric mean over tasks of its test error, as a gain over all-token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchcast.errors import EvidenceError
from benchcast.evidence import Evidence, Fold
from benchcast.methods import METHODS
from benchcast.methods.descent import DescentSettings
from benchcast.methods.paper import paper
from benchcast.records import Floats
from benchcast.reproduce.desk import Desk, held_out_errors
from benchcast.reproduce.figures import count_figure, variants_figure
from benchcast.reproduce.outcome import Outcome, Table, cell, geometric_mean

HEADS = {
    "linear, sigmoid (default)": DescentSettings(),
    "linear, softplus": DescentSettings(activation="softplus"),
    "linear, relu": DescentSettings(activation="relu"),
    "linear, identity": DescentSettings(activation="identity"),
    "hidden layer of 8, sigmoid": DescentSettings(hidden=8),
    "linear, SGD at 1e-3 as printed": DescentSettings(optimizer="sgd", rates=(1e-3,)),
}
MODELS = (10, 20, 40, 80)  # training models tried, beside all of them
FAMILIES = (2, 4, 6)
DRAWS = 2
COUNTED = ("salience", "label-token", "all-token")


@dataclass(frozen=True, slots=True)
class Variant:
    """Test error of one way to fit."""

    group: str
    name: str
    mse: dict[str, float]  # by task
    gain: float  # over all-token, geometric mean over tasks


def ablation(desk: Desk) -> Outcome:
    """All variants, and test error by number of training models and families."""
    if not desk.fold.test.any():
        raise EvidenceError("ablation needs test models; mark some in models.csv, or give families three sizes")
    units = unit_variants(desk)
    variants = [_salience(desk), *head_variants(desk), *units, *scorer_variants(desk)]
    counts = [*model_counts(desk), *family_counts(desk)]
    shown = [{"group": v.group, "variant": v.name, "gain": v.gain} for v in variants if math.isfinite(v.gain)]
    numbers = {
        **desk.about(),
        "variants": [
            {"group": v.group, "variant": v.name, "gain_over_all_token": v.gain, "mse": v.mse} for v in variants
        ],
        "counts": counts,
        "count_means": count_means(counts),
    }
    groups = list(dict.fromkeys(c["of"] for c in counts))
    figures = {"": variants_figure(shown)}
    if counts:
        figures["-counts"] = count_figure(
            [c for c in counts if math.isfinite(c["mse"])], groups, by="of", count="count", title="how many"
        )
    same = () if units else ("spreading a token's loss over characters instead of bytes changes no loss of this study",)
    return Outcome("ablation", numbers, _tables(desk, variants, counts), figures, same)


def _salience(desk: Desk) -> Variant:
    """What the variants are to be held against."""
    desk.tell("salience")
    base = _errors(desk.evidence, desk.fold, "all-token")
    return _variant("salience", "salience", desk, _errors(desk.evidence, desk.fold, "salience"), base)


def _variant(group: str, name: str, desk: Desk, errors: Floats, base: Floats) -> Variant:
    names = [t.name for t in desk.evidence.tasks]
    gain = geometric_mean((base / np.where(errors > 0, errors, np.nan)).tolist())
    return Variant(group, name, dict(zip(names, errors.tolist(), strict=True)), gain)


def _errors(evidence: Evidence, fold: Fold, method: str) -> Floats:
    return held_out_errors(evidence, fold, METHODS[method](evidence, [fold])[0])


def head_variants(desk: Desk) -> list[Variant]:
    """Heads, activations and optimisers of Algorithm 2."""
    if desk.evidence.features is None:
        return []
    base = _errors(desk.evidence, desk.fold, "all-token")
    out = []
    for name, settings in HEADS.items():
        desk.tell(f"paper: {name}")
        fits = paper(desk.evidence, [desk.fold], settings=settings)[0]
        out.append(_variant("head of paper", name, desk, held_out_errors(desk.evidence, desk.fold, fits), base))
    return out


def unit_variants(desk: Desk) -> list[Variant]:
    """A token's loss spread over bytes, or over characters as in Algorithm 1."""
    by_byte, by_char = desk.evidence, desk.study.evidence(unit="char")
    if np.array_equal(by_byte.nats, by_char.nats):
        return []  # no token that is cut mixes characters of different length
    named = {"spread over bytes (default)": by_byte, "spread over characters": by_char}
    return _variants_on(desk, "unit of spreading", named, ("salience", "label-token"))


def _variants_on(desk: Desk, kind: str, named: dict[str, Evidence], methods: Sequence[str]) -> list[Variant]:
    """Some methods on several forms of the same evidence."""
    out = []
    for name, evidence in named.items():
        base = _errors(evidence, desk.fold, "all-token")
        for method in methods:
            desk.tell(f"{method}, {name}")
            errors = _errors(evidence, desk.fold, method)
            out.append(_variant(kind, f"{method}, {name}", desk, errors, base))
    return out


def scorer_variants(desk: Desk) -> list[Variant]:
    """Other scorers whose features the study has."""
    names = desk.study.scorers()
    if len(names) < 2:
        return []
    named = {scorer: replace(desk.study, scorer=scorer).evidence() for scorer in names}
    return _variants_on(desk, "scorer", named, ("salience", "paper"))


def model_counts(desk: Desk) -> list[dict[str, Any]]:
    """Test error with some of the training models, drawn at random; larger draws hold the smaller ones."""
    evidence, fold = desk.evidence, desk.fold
    seen = np.flatnonzero(fold.seen)
    rows = []
    for draw in range(DRAWS):
        order = np.random.default_rng([desk.study.seed, draw]).permutation(seen)
        for count in (*(n for n in MODELS if n < len(seen)), *([len(seen)] if draw == 0 else [])):
            picked = np.zeros(len(evidence.models), bool)
            picked[order[:count]] = True
            rows += _count_rows(desk, "training models", count, Fold(picked, ~(picked | True), fold.test))
    return rows


def family_counts(desk: Desk) -> list[dict[str, Any]]:
    """Test error on a family never seen, with all models of some other families."""
    families = desk.evidence.families
    names = np.unique(families)
    rows = []
    for draw in range(min(DRAWS, len(names))):
        rng = np.random.default_rng([desk.study.seed, 1, draw])
        tested, *others = [names[draw * len(names) // DRAWS], *rng.permutation(names)]
        order = [n for n in others if n != tested]
        for count in (*(n for n in FAMILIES if n < len(order)), len(order)):
            if count >= 2:
                picked = np.isin(families, order[:count])
                fold = Fold(picked, np.zeros_like(picked), families == tested)
                rows += _count_rows(desk, "training families", count, fold)
    return rows


def _count_rows(desk: Desk, of: str, count: int, fold: Fold) -> list[dict[str, Any]]:
    keep = fold.train | fold.test
    evidence = desk.evidence.of_models(keep)
    own = Fold(fold.train[keep], fold.validation[keep], fold.test[keep])
    usable = all(np.ptp(a[own.train & np.isfinite(a)]) > 0 for a in evidence.accuracy)
    if not usable:
        return []
    rows = []
    for method in COUNTED:
        desk.tell(f"{method}, {count} {of}")
        errors = _errors(evidence, own, method)
        rows.append({"of": of, "count": count, "method": method, "mse": geometric_mean(errors.tolist())})
    return rows


def count_means(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean over the draws that gave a forecast for every task."""
    drawn: dict[tuple[str, int, str], list[float]] = {}
    for row in sorted(rows, key=lambda r: (r["of"], r["count"])):
        values = drawn.setdefault((row["of"], row["count"], row["method"]), [])
        if math.isfinite(row["mse"]):
            values.append(row["mse"])
    return [
        {"of": of, "count": n, "method": method, "draws": len(v), "mse": float(np.mean(v)) if v else math.nan}
        for (of, n, method), v in drawn.items()
    ]


def _tables(desk: Desk, variants: Sequence[Variant], counts: Sequence[dict[str, Any]]) -> tuple[Table, ...]:
    names = [t.name for t in desk.evidence.tasks]
    first = Table(
        ("test MSE", *names, "gain over all-token"),
        tuple((v.name, *(cell(v.mse[n]) for n in names), cell(v.gain, ".2f")) for v in variants),
        "variants",
    )
    found = {(m["of"], m["count"], m["method"]): m for m in count_means(counts)}
    lines = tuple(
        (
            f"{count} {of}",
            str(found[of, count, COUNTED[0]]["draws"]),
            *(cell(found[of, count, m]["mse"]) for m in COUNTED),
        )
        for of, count in dict.fromkeys((of, count) for of, count, _ in found)
    )
    second = Table(("test MSE, geometric mean of tasks", "draws", *COUNTED), lines, "how many does it take")
    return first, second
