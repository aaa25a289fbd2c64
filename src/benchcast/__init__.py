"""Forecast what a language model will score on a benchmark from its token losses.

>>> import benchcast as bc
>>> study = bc.datasets.load_zoo()                       # or bc.Study.open("study"); functions also accept the path
>>> fit = bc.fit(study, task="code", method="label-token", split="size")
>>> forecast = fit.predict(study.losses("oak-a-50M@36.0M"))
>>> forecast.low < forecast.accuracy < forecast.high
True

The names in `__all__` are public; modules and names that are not listed there may change without notice.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Names are imported when they are first used, so that `import benchcast` costs nothing.
_HOME = {
    # a study, and what it holds
    "Study": "benchcast.store",
    "Task": "benchcast.records",
    "ModelInfo": "benchcast.records",
    "Score": "benchcast.records",
    "remove_models": "benchcast.editing",
    "rename_model": "benchcast.editing",
    "status": "benchcast.inspection",
    "bits_per_byte": "benchcast.bits",
    "create_study": "benchcast.creation",
    "create_mixture": "benchcast.creation",
    "create_from_logs": "benchcast.logs.study",
    "import_losses": "benchcast.importing",
    "import_scores": "benchcast.importing",
    "ImportOptions": "benchcast.scores.gather",
    "import_models": "benchcast.importing",
    "import_features": "benchcast.importing",
    "create_contamination_study": "benchcast.texts.contamination",
    "check_contamination": "benchcast.texts.contamination",
    "open_backend": "benchcast.backends",
    "collect": "benchcast.collection",
    "collect_on": "benchcast.collection",
    "CollectRequest": "benchcast.collection",
    "CollectOptions": "benchcast.collection.jobs",
    "ModelSpec": "benchcast.collection.workers",
    "open_executor": "benchcast.executor",
    "open_scorer": "benchcast.backends",
    "make_features": "benchcast.collection.features",
    "FeatureOptions": "benchcast.collection.features",
    # learn, compare, forecast
    "fit": "benchcast.fitting",
    "fit_tasks": "benchcast.fitting",
    "load": "benchcast.fits",
    "Fit": "benchcast.fits",
    "Forecast": "benchcast.fits",
    "Forecasts": "benchcast.fits",
    "predict": "benchcast.forecasting",
    "compare": "benchcast.evaluate",
    "Comparison": "benchcast.comparison",
    "Execution": "benchcast.evaluate",
    "MethodSpec": "benchcast.methods",
    "DescentSettings": "benchcast.methods.algorithm2.descent",
    "Forecaster": "benchcast.forecaster",
    # what comes after
    "explain": "benchcast.explaining",
    "heat_map": "benchcast.reports",
    "report": "benchcast.reports",
    "select": "benchcast.selection.smaller",
    "save_figure": "benchcast.plots",
    "extrapolate": "benchcast.extrapolation.extrapolate",
    "Target": "benchcast.extrapolation.extrapolate",
    "compare_runs": "benchcast.extrapolation.run_comparison",
    "compare_scores": "benchcast.extrapolation.score_comparison",
    "watch": "benchcast.watching.following",
    "WatchedRun": "benchcast.watching",
    "register": "benchcast.registration",
    "verify": "benchcast.registration",
    # parts of the method
    "regroup": "benchcast.align",
    "fit_law": "benchcast.law",
    "BenchcastError": "benchcast.errors",
}
__all__ = [*_HOME, "datasets", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "datasets":
        return import_module("benchcast.datasets")
    if name not in _HOME:
        raise AttributeError(f"module 'benchcast' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
