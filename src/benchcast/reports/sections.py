"""Sections of the page that are tables or have controls: candidates, columns, convergence (figure 6), provenance."""

from __future__ import annotations

import hashlib
import math
import platform
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import benchcast
from benchcast.evaluation.comparison import Comparison
from benchcast.methods import METHODS
from benchcast.methods.law import SigmoidLaw
from benchcast.records import NamedTexts, TextSet
from benchcast.reports.data import ReportModels, rounded
from benchcast.reports.explain import largest_shares, weigh_columns
from benchcast.splits import RULES
from benchcast.study.parquet import read_metadata
from benchcast.study.study import Study

MOST_COLUMNS = 6  # columns listed for each task
MOST_MEMBERS = 4  # averaged candidates listed for each task
LEAST_SHARE = 0.005  # smallest share of a listed column
CURVE = 32  # points of a law in the figure of convergence
LIBRARIES = ("numpy", "scipy", "pyarrow", "altair")
WAYS = ("backend", "backend_version", "dtype", "bos")  # metadata of losses that may make models differ
TABLES = ("study.toml", "texts.jsonl", "models.csv", "scores.csv")


def member_data(comparison: Comparison, shown: ReportModels) -> dict[str, Any] | None:
    """What the used method reads most of every task, in plain words; None if it averages nothing."""
    method = comparison.used
    rows = []
    for task in comparison.tasks:
        notes = shown.new_fits[task, method].task_fit.notes
        if "shares" in notes:
            inside = _largest(notes["shares"], task)
            stronger = _largest(notes.get("shares_of_stronger", {}), task) or inside
            rows.append({"task": task, "inside": inside, "stronger": stronger})
    return {"method": method, "tasks": rows} if rows else None


def _largest(shares: dict[str, float], task: str) -> str:
    return "; ".join(f"{name}, {share:.0%}" for name, share in largest_shares(shares, MOST_MEMBERS, task).items())


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
                    for w in weigh_columns(fit, shown.metadata)[:MOST_COLUMNS]
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
    scored = np.isfinite(observed)
    test, curves, errors = scored & fold.test, [], []
    for slope, offset, capability in zip(history["slope"], history["offset"], history["capability"], strict=True):
        law = SigmoidLaw(float(slope), float(offset), fit.task.chance)
        low, high = float(capability[scored].min()), float(capability[scored].max())
        x = np.geomspace(low, high, CURVE) if low > 0 else np.linspace(low, high, CURVE)
        curves.append({"capability": rounded(x), "accuracy": rounded(law.accuracy(x))})
        errors.append(np.mean((law.accuracy(capability[test]) - observed[test]) ** 2) if test.any() else math.nan)
    return {
        "step": [int(s) for s in history["step"]],
        "chosen": int(fit.notes["best_step"]),
        "capability": [rounded(c) for c in history["capability"]],
        "curves": curves,
        "train": rounded(history["train_mse"]),
        "validation": rounded(history["validation_mse"]),
        "test": rounded(errors),
    }


def provenance(study: Study, comparison: Comparison, shown: ReportModels) -> dict[str, Any]:
    """Details in display order, files with their hashes, and the models that were left out, with reasons."""
    models, with_losses = comparison.dataset.models, set(study.models_with_losses())
    without_losses = {m.model: "no losses" for m in study.models() if m.model not in with_losses}
    return {
        "details": _details(study, comparison, shown),
        "files": {
            **{name: _hash([study.root / name]) for name in TABLES if (study.root / name).is_file()},
            f"losses of {len(models)} models": _hash([study.losses_path(m) for m in models]),
        },
        "left_out": {**comparison.left_out, **shown.left_out, **without_losses},
    }


def _details(study: Study, comparison: Comparison, shown: ReportModels) -> dict[str, str]:
    """Versions, texts, models, split and seed; how losses were made comes last, the most common way first."""
    dataset, tokens = comparison.dataset, comparison.dataset.reference_tokens
    roles = {r: shown.role.count(r) for r in ("train", "validation", "test", "new") if shown.role.count(r)}
    folds = f"; {len(comparison.folds)} folds" if len(comparison.folds) > 1 else ""
    unit = "columns" if isinstance(study.texts, NamedTexts) else "words"
    about = [read_metadata(study.losses_path(m)) for m in dataset.models]
    ways = Counter(", ".join(f"{k} {a[k]}" for k in WAYS if a.get(k)) for a in about)
    return {
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
        "losses by": "; ".join(f"{how} ({n} models)" for how, n in ways.most_common() if how) or "unknown",
    }


def _hash(paths: Sequence[Path]) -> str:
    content_hash = hashlib.sha256()
    for path in paths:
        content_hash.update(path.read_bytes())
    return content_hash.hexdigest()[:16]
