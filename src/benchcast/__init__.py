"""Forecast what a language model will score on a benchmark from its token losses.

import benchcast as bc

study = bc.Study.open("study")
fit = bc.fit(study, task="mmlu")
fit.predict(study.losses("my-model"))
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Names are imported when they are first used, so that `import benchcast` costs nothing.
_HOME = {
    "Study": "benchcast.store",
    "fit": "benchcast.fitting",
    "load": "benchcast.fits",
    "Fit": "benchcast.fits",
    "Forecast": "benchcast.fits",
    "Forecasts": "benchcast.fits",
    "Forecaster": "benchcast.forecaster",
    "Task": "benchcast.records",
    "ModelInfo": "benchcast.records",
    "Score": "benchcast.records",
    "compare": "benchcast.evaluate",
    "remove_models": "benchcast.editing",
    "rename_model": "benchcast.editing",
    "compare_runs": "benchcast.extrapolation.run_comparison",
    "regroup": "benchcast.align",
    "fit_law": "benchcast.law",
    "BenchcastError": "benchcast.errors",
}
__all__ = [*_HOME, "__version__"]


def __getattr__(name: str) -> Any:
    if name == "datasets":
        return import_module("benchcast.datasets")
    if name not in _HOME:
        raise AttributeError(f"module 'benchcast' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
