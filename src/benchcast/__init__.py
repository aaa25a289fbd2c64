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
_NAMES = {
    # a study, and what it holds
    "store": ("Study",),
    "records": ("Task", "ModelInfo", "Score"),
    "editing": ("remove_models", "rename_model"),
    "inspection": ("status",),
    "bits": ("bits_per_byte",),
    "creation": ("create_study", "create_mixture"),
    "logs.study": ("create_from_logs",),
    "importing": ("import_losses", "import_scores", "import_models", "import_features"),
    "scores.gather": ("ImportOptions",),
    "texts.contamination": ("create_contamination_study", "check_contamination"),
    "backends": ("open_backend", "open_scorer"),
    "collection": ("collect", "collect_on", "CollectRequest"),
    "collection.jobs": ("CollectOptions",),
    "collection.workers": ("ModelSpec",),
    "executor": ("open_executor",),
    "collection.features": ("make_features", "FeatureOptions"),
    # learn, compare, forecast
    "fitting": ("fit", "fit_tasks"),
    "fits": ("load", "Fit", "Forecast", "Forecasts"),
    "forecasting": ("predict",),
    "evaluate": ("compare", "Execution"),
    "comparison": ("Comparison",),
    "methods": ("MethodSpec",),
    "methods.paper": ("DescentSettings",),
    "forecaster": ("Forecaster",),
    # what comes after
    "explaining": ("explain",),
    "reports": ("heat_map", "report"),
    "selection.smaller": ("select",),
    "plots": ("save_figure",),
    "extrapolation.extrapolate": ("extrapolate", "Target"),
    "extrapolation.run_comparison": ("compare_runs",),
    "extrapolation.score_comparison": ("compare_scores",),
    "watching": ("watch", "WatchedRun"),
    "registration": ("register", "verify"),
    # parts of the method
    "align": ("regroup",),
    "law": ("fit_law",),
    "errors": ("BenchcastError",),
}
_HOME = {name: f"benchcast.{module}" for module, names in _NAMES.items() for name in names}
__all__ = [*_HOME, "datasets", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "datasets":
        return import_module("benchcast.datasets")
    if name not in _HOME:
        raise AttributeError(f"module 'benchcast' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
