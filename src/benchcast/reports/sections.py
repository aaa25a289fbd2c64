"""Parts of the page: columns of a table study, convergence of Algorithm 2 (figure 6), sources of texts (figure 8)."""

from __future__ import annotations

import hashlib
import math
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import benchcast
from benchcast.evaluation.comparison import Comparison
from benchcast.losses.dataset import Dataset
from benchcast.losses.regroup import characters_per_token
from benchcast.methods import METHODS
from benchcast.methods.law import SigmoidLaw
from benchcast.methods.task_fit import TaskFit
from benchcast.records import Bools, Floats, NamedTexts, TextSet
from benchcast.reports.data import ReportModels, rounded
from benchcast.reports.explain import largest_shares, weigh_columns
from benchcast.splits import RULES, Fold
from benchcast.study.study import Study

MOST_COLUMNS = 6  # columns listed for each task
MOST_MEMBERS = 4  # averaged candidates listed for each task
LEAST_SHARE = 0.005  # smallest share of a listed column
CURVE = 32
DRAWS = 4  # sets of sources for each number of sources
LARGEST = 1_000_000_000  # size of the features (tokens × dimensions) above which weights are not refitted
LIBRARIES = ("numpy", "scipy", "pyarrow", "altair")
WAYS = ("backend", "backend_version", "dtype", "bos")  # metadata of losses that may make models differ
TABLES = ("study.toml", "texts.jsonl", "models.csv", "scores.csv")
LISTED = 10_000  # enumerate all subsets up to this number, else draw at random
MOST_NUMBERS = 8  # most numbers of sources to compare


def member_data(comparison: Comparison, shown: ReportModels) -> dict[str, Any] | None:
    """The candidates with the largest shares of every task; None if the first method averages none."""
    method = comparison.methods[0]
    rows = []
    for task in comparison.tasks:
        notes = shown.new_fits[task, method].task_fit.notes
        if "shares" in notes:
            inside = _largest(notes["shares"])
            rows.append(
                {"task": task, "inside": inside, "stronger": _largest(notes.get("shares_of_stronger", {})) or inside}
            )
    return {"method": method, "tasks": rows} if rows else None


def _largest(shares: dict[str, float]) -> str:
    """The largest shares in words."""
    largest = largest_shares(shares, MOST_MEMBERS)
    return ", ".join(f"{name} {share:.0%}" for name, share in largest.items())


def column_data(comparison: Comparison, shown: ReportModels, texts: TextSet) -> dict[str, Any] | None:
    """The columns with the largest weights of every task; None if the study has texts."""
    if not isinstance(texts, NamedTexts):
        return None
    method = comparison.methods[0]
    fits = [shown.new_fits[task, method] for task in comparison.tasks]
    return {
        "method": method,
        "tasks": [
            {
                "task": fit.task,
                "columns": [
                    {"name": w.column, "answers": w.answers, "share": rounded([math.copysign(w.share, w.salience)])[0]}
                    for w in weigh_columns(fit)[:MOST_COLUMNS]
                    if w.share > LEAST_SHARE
                ],
            }
            for fit in fits
            if fit.task_fit.reads_losses
        ],
    }


def convergence(comparison: Comparison, task: str) -> dict[str, Any] | None:
    """Values for each position of the slider; None if no method with a history was compared."""
    method = next((m for m in comparison.methods if METHODS[m].shown_by_step), None)
    if method is None:
        return None
    fit, fold, t = comparison.fits[task, method][0], comparison.folds[0], comparison.tasks.index(task)
    history, observed = fit.history, comparison.dataset.accuracy[t]
    laws = [
        SigmoidLaw(float(a), float(b), fit.task.chance)
        for a, b in zip(history["slope"], history["offset"], strict=True)
    ]
    scored = np.isfinite(observed)
    return {
        "step": [int(s) for s in history["step"]],
        "chosen": int(fit.notes["best_step"]),
        "capability": [rounded(c) for c in history["capability"]],
        "curves": [_curve(law, c[scored]) for law, c in zip(laws, history["capability"], strict=True)],
        "train": rounded(history["train_mse"]),
        "validation": rounded(history["validation_mse"]),
        "test": rounded(
            [
                _error(law, c[scored & fold.test], observed[scored & fold.test])
                for law, c in zip(laws, history["capability"], strict=True)
            ]
        ),
    }


def _error(law: SigmoidLaw, capability: Floats, observed: Floats) -> float:
    return float(np.mean((law.accuracy(capability) - observed) ** 2)) if len(observed) else float("nan")


def _curve(law: SigmoidLaw, capability: Floats) -> dict[str, Any]:
    low, high = float(capability.min()), float(capability.max())
    x = np.geomspace(low, high, CURVE) if low > 0 else np.linspace(low, high, CURVE)
    return {"capability": rounded(x), "accuracy": rounded(law.accuracy(x))}


def effect_of_sources(comparison: Comparison, texts: TextSet, seed: int) -> list[dict[str, Any]]:
    """Test error of every task from texts of some sources only, in the first fold; no rows for a single source.

    The quick methods are fitted: `ridge`, which learns weights in closed form, and `all-token`, which gives every token
    the same weight. If more sources improve the first but not the second, more texts help because their weights are
    learned.
    """
    names, features = comparison.dataset.reference_tokens.sources, comparison.dataset.features
    slow = features is not None and features.shape[0] * features.shape[1] > LARGEST
    quick = [m for m in METHODS.values() if m.quick and not (slow and m.needs_features)]
    methods = [m.name for m in quick if m.name in comparison.methods]
    if len(names) < 2:
        return []
    sets = [chosen for n in numbers_of_sources(len(names)) for chosen in subsets(names, n, DRAWS, seed)]
    return [row for chosen in sets for method in methods for row in _rows(comparison, texts, method, chosen)]


def _rows(comparison: Comparison, texts: TextSet, method: str, chosen: Sequence[str]) -> list[dict[str, Any]]:
    """A row for each task; none where the error is unknown or 0, which a log axis cannot show."""
    errors = source_errors(comparison.dataset, comparison.folds[0], texts, method, chosen)
    if errors is None:
        return []
    base = {"method": method, "sources": len(chosen), "texts_of": ", ".join(chosen)}
    pairs = zip(comparison.tasks, rounded(errors), strict=True)
    return [{"task": task, **base, "mse": mse} for task, mse in pairs if mse]


def provenance(study: Study, comparison: Comparison, shown: ReportModels) -> dict[str, Any]:
    """Details in display order, files with their hashes, and the models that were left out, with reasons."""
    dataset, tokens = comparison.dataset, comparison.dataset.reference_tokens
    roles = {r: shown.role.count(r) for r in ("train", "validation", "test", "new") if shown.role.count(r)}
    folds = f"; {len(comparison.folds)} folds" if len(comparison.folds) > 1 else ""
    unit = "columns" if isinstance(study.texts, NamedTexts) else "words"
    details = {
        "benchcast": benchcast.__version__,
        "Python and libraries": ", ".join(
            [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in LIBRARIES)]
        ),
        "texts": f"{len(study.texts)} of {len(study.texts.sources)} sources, hash {study.texts.digest}",
        "scorer": dataset.features.scorer if dataset.features else f"none: {unit} are the reference tokens",
        "reference tokens": f"{len(tokens.supported)}, of which {int(tokens.supported.sum())} have a loss "
        "from every model and count",
        "models": f"{len(dataset.models)} of {len(np.unique(dataset.families))} families; "
        + ", ".join(f"{n} {role}" for role, n in roles.items()),
        "split": f"{comparison.split}: {RULES[comparison.split].about}{folds}",
        "seed": str(study.seed),
        "losses by": "; ".join(f"{how} ({n} models)" for how, n in _backends(study, dataset.models)) or "unknown",
    }
    return {
        "details": details,
        "files": {
            **{name: _hash([study.root / name]) for name in TABLES if (study.root / name).is_file()},
            f"losses of {len(dataset.models)} models": _hash([study.losses_path(m) for m in dataset.models]),
        },
        "left_out": {**comparison.left_out, **shown.left_out, **_without_losses(study)},
    }


def _hash(paths: Sequence[Path]) -> str:
    """Hash of the files' concatenated contents."""
    content_hash = hashlib.sha256()
    for path in paths:
        content_hash.update(path.read_bytes())
    return content_hash.hexdigest()[:16]


def _without_losses(study: Study) -> dict[str, str]:
    with_losses = set(study.models_with_losses())
    return {m.model: "no losses" for m in study.models() if m.model not in with_losses}


def _backends(study: Study, models: Sequence[str]) -> list[tuple[str, int]]:
    """The backends that made the losses, with the number of models of each; the most common first."""
    about = (study.losses(m).about for m in models)
    ways = Counter(", ".join(f"{k} {a[k]}" for k in WAYS if a.get(k)) for a in about)
    return [(how, n) for how, n in ways.most_common() if how]


def numbers_of_sources(count: int) -> list[int]:
    """Numbers of sources to compare: evenly spaced from one to `count`, at most `MOST_NUMBERS`."""
    return sorted({round(float(x)) for x in np.linspace(1, count, min(count, MOST_NUMBERS))})


def subsets(sources: Sequence[str], size: int, most: int, seed: int) -> list[tuple[str, ...]]:
    """Draw at most `most` different subsets of `size` sources."""
    rng = np.random.default_rng([seed, size])
    if math.comb(len(sources), size) <= LISTED:
        every = list(combinations(sources, size))
        return [every[i] for i in sorted(rng.permutation(len(every))[:most])]
    drawn: set[tuple[int, ...]] = set()
    while len(drawn) < most:  # with more than `LISTED` subsets, duplicates are rare
        drawn.add(tuple(sorted(rng.choice(len(sources), size, replace=False).tolist())))
    return [tuple(sources[i] for i in numbers) for numbers in sorted(drawn)]


def source_errors(dataset: Dataset, fold: Fold, texts: TextSet, method: str, chosen: Sequence[str]) -> Floats | None:
    """Mean squared test error of each task with texts of the chosen sources only.

    Parameters
    ----------
    dataset, fold : the data, and its training and test models
    texts : texts of the dataset
    method : name of the method
    chosen : names of the sources

    Returns
    -------
    One error per task; None if no token of these sources is in the common support.
    """
    of_sources = dataset.reference_tokens.of_sources(chosen)
    if not (of_sources & dataset.reference_tokens.supported).any():
        return None
    some = restrict(dataset, of_sources, texts)
    return held_out_errors(some, fold, METHODS[method].learn(some, [fold])[0])


def restrict(dataset: Dataset, keep: Bools, texts: TextSet) -> Dataset:
    """The dataset with the common support restricted to the tokens in `keep`."""
    supported = dataset.reference_tokens.supported & keep
    characters = characters_per_token(dataset.reference_tokens.edges, texts.utf8)
    return replace(
        dataset,
        nats=np.where(supported, dataset.nats, np.float32(0)),
        characters=float(characters[supported].sum()),
        reference_tokens=replace(dataset.reference_tokens, supported=supported),
    )


def held_out_errors(dataset: Dataset, fold: Fold, fits: Sequence[TaskFit]) -> Floats:
    """Mean squared error of each task on the test models; NaN without scores."""
    errors = []
    for fit, observed in zip(fits, dataset.accuracy, strict=True):
        rows = fold.test & np.isfinite(observed)
        forecast = fit.forecast(dataset.nats[rows], dataset.metadata.take(rows))
        errors.append(float(np.mean((forecast - observed[rows]) ** 2)) if rows.any() else np.nan)
    return np.array(errors)
