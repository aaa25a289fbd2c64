"""Looking forward: which power law, and does the mean drift of known checkpoints foretell that of hidden ones?

python -m lab.log.forward
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchcast.datasets import load_zoo
from benchcast.extrapolation.backtest import StudyModels, read_study_models
from benchcast.extrapolation.family_law import FORMS, HOLDOUT_KINDS, HOLDOUT_RULES, HoldoutErrors, holdout_errors
from benchcast.records import Bools, Floats, Ints


def main() -> None:
    known = read_study_models(load_zoo())
    families = np.unique(known.families)
    fits = known.fits(np.ones(len(known.models), bool))
    capability = {fit.task.name: known.log_capability(fit) for fit in fits}
    print("root mean squared log error of capability on hidden models, over families; mean of tasks")
    for form in FORMS:
        for kind in HOLDOUT_KINDS:
            errors = [
                np.sqrt(np.mean([np.mean(m.error**2) for m in hidden(known, c, form, kind)]))
                for c in capability.values()
            ]
            print(f"  law of {form}, {kind} hidden: {np.mean(errors):.2f}")
    print("mean error per unit of log training beyond the known, inside the training data and on the last checkpoint")
    for task, c in capability.items():
        last = np.concatenate(
            [whose(known, f)[HOLDOUT_RULES["latest"](known.points.take(known.families == f))] for f in families]
        )
        seen = ~np.isin(np.arange(len(c)), last)
        inner, outer = (drift(known, c, on) for on in (seen, np.ones(len(c), bool)))
        print(f"  {task}: {inner:+.2f} {outer:+.2f}")


def whose(known: StudyModels, family: str) -> Ints:
    return np.flatnonzero(known.families == family)


def hidden(
    known: StudyModels, capability: Floats, form: str, kind: str, seen: Bools | None = None
) -> Iterator[HoldoutErrors]:
    for family in np.unique(known.families):
        in_family = known.families == family
        if seen is not None:
            in_family = in_family & seen
        points = known.points.take(in_family)
        errors = holdout_errors(points, capability[in_family], form, HOLDOUT_RULES[kind](points))
        if errors is not None:
            yield errors


def drift(known: StudyModels, capability: Floats, seen: Bools) -> float:
    holdouts = hidden(known, capability, FORMS[0], "latest", seen)
    return float(np.mean([np.mean(m.error / np.maximum(m.distance[:, 1], 0.05)) for m in holdouts]))


if __name__ == "__main__":
    main()
