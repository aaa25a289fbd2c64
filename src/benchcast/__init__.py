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
    "study.study": ("Study",),
    "records": ("Task", "ModelInfo", "Score"),
    "study.editing": ("remove_models", "rename_model"),
    "forecasts.status": ("status",),
    "study.bits_per_byte": ("bits_per_byte",),
    "importers.texts": ("create_study", "create_mixture"),
    "importers.logs.from_logs": ("create_from_logs",),
    "importers.logs.add_new": ("add_new_logs",),
    "importers": ("import_losses", "import_scores", "import_models", "import_features"),
    "importers.scores": ("ImportOptions",),
    "importers.contamination": ("create_contamination_study", "check_contamination"),
    "collection.backends": ("open_backend", "open_scorer"),
    "collection.collect": ("collect", "collect_on", "CollectRequest"),
    "collection.jobs": ("CollectOptions", "ModelSpec"),
    "executors": ("open_executor",),
    "collection.hidden_states": ("make_features", "FeatureOptions"),
    # learn, compare, forecast
    "forecasts.fit": ("fit", "fit_tasks"),
    "forecasts.stored_fit": ("load", "Fit"),
    "forecasts.forecast": ("Forecast", "Forecasts"),
    "forecasts.predict": ("predict",),
    "evaluation.compare": ("compare", "Execution"),
    "evaluation.comparison": ("Comparison",),
    "methods.spec": ("MethodSpec",),
    "methods.paper": ("DescentSettings",),
    "forecasts.forecaster": ("Forecaster",),
    # what comes after
    "reports.explain": ("explain",),
    "reports.report": ("heat_map", "report"),
    "evaluation.select": ("select",),
    "reports.drawing": ("save_figure",),
    "scaling.extrapolate": ("extrapolate", "Target"),
    "decisions.compare_runs": ("compare_runs",),
    "decisions.compare_scores": ("compare_scores",),
    "decisions.compare_items": ("compare_items",),
    "decisions.gate": ("gate",),
    "decisions.proxies": ("proxies",),
    "training.watch": ("watch", "WatchedRun"),
    "forecasts.registration": ("register", "verify"),
    # parts of the method
    "losses.regroup": ("regroup",),
    "methods.law": ("fit_law",),
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
    return sorted(__all__)
