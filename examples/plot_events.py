"""Draw the forecasts in a TensorBoard log: python examples/plot_events.py train-example docs/training.png"""

import sys
from pathlib import Path

import altair as alt
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from benchcast.reports.drawing import colour, finish, write_chart

NAME = "forecast/"


def read(folder: Path) -> list[dict[str, float | str]]:
    """One row a task and step: forecast, low, high; from all event files below a folder."""
    rows: list[dict[str, float | str]] = []
    for run in sorted({p.parent for p in folder.rglob("events.out.tfevents.*")}):
        events = EventAccumulator(str(run))
        events.Reload()
        tags = [t for t in events.Tags()["scalars"] if NAME in t]
        for tag in tags:
            if f"{tag}_low" in tags:
                parts = zip(*(events.Scalars(f"{tag}{end}") for end in ("", "_low", "_high")), strict=True)
                rows += [
                    {"task": tag.split(NAME)[1], "step": a.step, "forecast": a.value, "low": b.value, "high": c.value}
                    for a, b, c in parts
                ]
    return rows


def main(folder: Path, target: Path) -> None:
    rows = read(folder)
    if not rows:
        raise SystemExit(f"{folder}: no event file with forecasts below it")
    tasks = sorted({str(r["task"]) for r in rows})
    base = alt.Chart(alt.Data(values=rows)).encode(x=alt.X("step:Q"), color=colour("task", tasks))
    band = base.mark_area(opacity=0.12).encode(y=alt.Y("low:Q", title="forecast accuracy"), y2="high:Q")
    line = base.mark_line(point=True).encode(y="forecast:Q")
    write_chart(finish(alt.layer(band, line).properties(width=520, height=260)), target)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
