"""How the cost of a fit grows with tokens, models, tasks and features: measured one at a time, with a figure."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchcast.methods.features import prepare_inputs
from benchcast.methods.paper import DescentSettings, descend
from benchcast.methods.ridge import ridge
from benchcast.methods.stack import salience
from world import make_dataset, problems_of

MIDDLE = {"tokens": 32_000, "features": 512, "models": 60, "tasks": 6}
FACTORS = (0.25, 0.5, 1, 2, 4)
FIGURE = Path(__file__).resolve().parents[1] / "docs" / "figures" / "growth.png"


def measure_at(at: dict[str, int]) -> dict[str, float]:
    """CPU seconds of each method at these sizes; least of two runs, salience of one."""
    values = np.random.default_rng(0).standard_normal((at["tokens"], at["features"]), dtype=np.float32)
    dataset, fold = make_dataset(values, models=at["models"], tasks=at["tasks"])
    inputs = prepare_inputs(dataset, standardise=True)
    problems = problems_of(dataset, fold, 1)
    works: dict[str, Callable[[], Any]] = {
        "paper, 10 steps": lambda: descend(inputs, problems, DescentSettings(steps=10)),
        "ridge": lambda: ridge(dataset, [fold]),
        "salience": lambda: salience(dataset, [fold]),
    }
    return {name: min(seconds(work) for _ in range(1 if name == "salience" else 2)) for name, work in works.items()}


def seconds(work: Callable[[], Any]) -> float:
    """CPU seconds, all cores added up: others on the machine disturb them least."""
    start = time.process_time()
    work()
    return time.process_time() - start


def grow(*, small: bool) -> None:
    """Print the table and, at full size, draw the figure."""
    middle = {name: size // 8 if small and name in ("tokens", "features") else size for name, size in MIDDLE.items()}
    rows: list[dict[str, Any]] = []
    for axis, size in middle.items():
        for factor in FACTORS[1:4] if small else FACTORS:
            at = {**middle, axis: max(1, round(size * factor))}
            rows += [{"axis": axis, "size": at[axis], "method": m, "seconds": s} for m, s in measure_at(at).items()]
    around = ", ".join(f"{size} {name}" for name, size in middle.items())
    print(f"\ngrowth around {around}: CPU seconds at each size, and the power of the size between the last two\n")
    print("| method | grows with | sizes | CPU seconds | power |\n|---|---|---|---|---|")
    for method in dict.fromkeys(r["method"] for r in rows):
        for axis in middle:
            mine = [r for r in rows if r["method"] == method and r["axis"] == axis]
            (a, s), (b, t) = ((r["size"], r["seconds"]) for r in mine[-2:])
            cells = ", ".join(str(r["size"]) for r in mine), ", ".join(f"{r['seconds']:.2f}" for r in mine)
            print(f"| {method} | {axis} | {cells[0]} | {cells[1]} | {np.log(t / s) / np.log(b / a):.1f} |")
    if not small:
        draw(rows)


def draw(rows: list[dict[str, Any]]) -> None:
    import altair as alt

    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_line(point=True)
        .encode(
            x=alt.X("size:Q", scale=alt.Scale(type="log"), title=None),
            y=alt.Y("seconds:Q", scale=alt.Scale(type="log"), title="CPU seconds"),
            color=alt.Color("method:N", scale=alt.Scale(range=["#0072B2", "#D55E00", "#009E73"])),
        )
        .properties(width=180, height=180)
        .facet(column=alt.Column("axis:N", sort=list(MIDDLE), title=None))
        .resolve_scale(x="independent")
    )
    FIGURE.parent.mkdir(parents=True, exist_ok=True)
    chart.save(str(FIGURE), scale_factor=2)
