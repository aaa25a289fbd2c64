"""The origin of a report's numbers: versions, inputs with hashes, and models that were left out."""

from __future__ import annotations

import hashlib
import platform
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import benchcast
from benchcast.evaluate import Comparison
from benchcast.records import NamedTexts
from benchcast.reports.data import ReportModels
from benchcast.splits import RULES
from benchcast.store import Study

LIBRARIES = ("numpy", "scipy", "pyarrow", "altair")
WAYS = ("backend", "backend_version", "dtype", "bos")  # metadata of losses that may make models differ
TABLES = ("study.toml", "texts.jsonl", "models.csv", "scores.csv")


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
