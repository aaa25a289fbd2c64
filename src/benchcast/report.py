"""A study and its comparison → one self-contained HTML file that opens from disk without network."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

import benchcast
from benchcast.evaluate import Comparison
from benchcast.files import write_text
from benchcast.methods import BASELINES
from benchcast.store import Study

SHOWN = ("salience", "paper", "label-token", "all-token")


def write_report(path: Path, study: Study, found: Comparison) -> None:
    """Write the report; the file appears whole or not at all."""
    import vl_convert
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    from benchcast.plots import forecast_figure, law_figure

    environment = Environment(
        loader=PackageLoader("benchcast"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
    )
    shown = tuple(m for m in SHOWN if m in found.methods) or found.methods[:1]
    figures = {}
    for i, task in enumerate(found.tasks):
        figures[f"law-{i}"] = law_figure(found, task, found.methods[0])
        figures[f"forecast-{i}"] = forecast_figure(found, task, shown)
    page = environment.get_template("report.html").render(
        name=study.root.resolve().name,
        found=found,
        verdicts=[verdict(found, task) for task in found.tasks],
        table=[_row(found, task) for task in found.tasks],
        figures=figures,
        script=vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"),
        provenance=provenance(study, found),
    )
    write_text(path, page)


def verdict(found: Comparison, task: str) -> str:
    """One sentence: how good the first method is, against which baseline, and where not to trust it."""
    first = found.methods[0]
    mine = found.measures(task, first)
    others = {m: found.measures(task, m)["mse"] for m in found.methods if m in BASELINES}
    others = {m: e for m, e in others.items() if math.isfinite(e)}
    if not math.isfinite(mine["mse"]):
        return f"{task}: no forecast."
    off = f"{task}: held-out models are forecast to within {100 * mine['mae']:.1f} points on average"
    if not others:
        return off + "."
    rival = min(others, key=lambda m: others[m])
    gain = others[rival] / mine["mse"] if mine["mse"] > 0 else math.inf
    if 0.95 < gain < 1.05:
        against = f"with the squared error of {rival}"
    elif gain >= 1:
        against = f"{gain:.1f} times less squared error than {rival}"
    else:
        against = f"{1 / gain:.1f} times more squared error than {rival}"
    trust = f"; the 90% interval covered {mine['coverage']:.0%} of them" if math.isfinite(mine["coverage"]) else ""
    return f"{off}, {against}, the best baseline{trust}."


def _row(found: Comparison, task: str) -> dict[str, Any]:
    cells = {m: found.measures(task, m) for m in found.methods}
    least = min((c["mse"] for c in cells.values() if math.isfinite(c["mse"])), default=math.nan)
    return {"task": task, "cells": cells, "least": least, "noise": found.noise[task]}


def provenance(study: Study, found: Comparison) -> dict[str, str]:
    """Where the numbers come from."""
    evidence = found.evidence
    n = len(evidence.tokens.supported)
    return {
        "benchcast": benchcast.__version__,
        "texts": f"{len(study.texts)} (hash {study.texts.digest})",
        "scorer": evidence.features.scorer if evidence.features else "none",
        "reference tokens": f"{n}, of which {int(evidence.tokens.supported.sum())} have a loss from every model",
        "models": f"{len(evidence.models)} of {len(np.unique(evidence.families))} families",
        "split": f"{found.split}; {len(found.folds)} fold{'s' if len(found.folds) > 1 else ''}",
        "seed": str(study.seed),
        "left out": "; ".join(f"{m} ({why})" for m, why in found.left_out.items()) or "nothing",
    }
