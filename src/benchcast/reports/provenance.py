"""Where a report's numbers come from, and what was left out of them."""

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
from benchcast.store import Study

LIBRARIES = ("numpy", "scipy", "pyarrow", "altair")
WAYS = ("backend", "backend_version", "dtype", "bos")  # what makes losses of models differ
TABLES = ("study.toml", "texts.jsonl", "models.csv", "scores.csv")
SPLITS = {
    "column": "as the column `split` of models.csv says",
    "size": "per family by parameters: the largest size tests, the second largest validates, the rest train",
    "family": "each family in turn is held out; nothing of it is seen before",
}


def provenance(study: Study, found: Comparison, shown: ReportModels) -> dict[str, Any]:
    """Facts in the order they are shown, files with their hashes, and what was left out with the reason."""
    dataset, tokens = found.dataset, found.dataset.reference_tokens
    roles = {r: shown.role.count(r) for r in ("train", "validation", "test", "new") if shown.role.count(r)}
    folds = f"; {len(found.folds)} folds" if len(found.folds) > 1 else ""
    unit = "columns" if isinstance(study.texts, NamedTexts) else "words"
    facts = {
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
        "split": f"{found.split}: {SPLITS[found.split]}{folds}",
        "seed": str(study.seed),
        "losses by": "; ".join(f"{how} ({n} models)" for how, n in _backends(study, dataset.models)) or "unknown",
    }
    return {
        "facts": facts,
        "files": {
            **{name: _hash([study.root / name]) for name in TABLES if (study.root / name).is_file()},
            f"losses of {len(dataset.models)} models": _hash([study.losses_path(m) for m in dataset.models]),
        },
        "left_out": {**found.left_out, **shown.left_out, **_without_losses(study)},
    }


def _hash(paths: Sequence[Path]) -> str:
    """Hash of the files' contents, one after the other."""
    whole = hashlib.sha256()
    for path in paths:
        whole.update(path.read_bytes())
    return whole.hexdigest()[:16]


def _without_losses(study: Study) -> dict[str, str]:
    there = set(study.models_with_losses())
    return {m.model: "no losses" for m in study.models() if m.model not in there}


def _backends(study: Study, models: Sequence[str]) -> list[tuple[str, int]]:
    """The ways in which losses were made, each with how many models' were; the commonest first."""
    about = (study.losses(m).about for m in models)
    ways = Counter(", ".join(f"{k} {a[k]}" for k in WAYS if a.get(k)) for a in about)
    return [(how, n) for how, n in ways.most_common() if how]
