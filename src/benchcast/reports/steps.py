"""The convergence of Algorithm 2 for the page: capabilities, laws and errors by step (figure 6)."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchcast.evaluate import Comparison
from benchcast.law import SigmoidLaw
from benchcast.records import Floats
from benchcast.reports.data import rounded

METHOD = "paper"
CURVE = 32


def convergence(comparison: Comparison, task: str) -> dict[str, Any] | None:
    """Values for each position of the slider; None if the method was not compared."""
    if (task, METHOD) not in comparison.fits:
        return None
    fit, fold, t = comparison.fits[task, METHOD][0], comparison.folds[0], comparison.tasks.index(task)
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
