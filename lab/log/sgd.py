"""Does Algorithm 2 move as printed? Plain SGD at 1e-3 against Adam, on the embedded study (size split).

python -m lab.log.sgd
"""

import numpy as np

from benchcast.datasets import load_zoo
from benchcast.folds import make_folds
from benchcast.law import SigmoidLaw
from benchcast.methods.paper import DescentSettings, paper
from benchcast.task_fit import TaskFit

SETTINGS = {
    "SGD 1e-3, raw features": DescentSettings(optimizer="sgd", rates=(1e-3,), standardise=False),
    "SGD 1e-3, standardised": DescentSettings(optimizer="sgd", rates=(1e-3,)),
    "SGD 1e-1, standardised": DescentSettings(optimizer="sgd", rates=(1e-1,)),
    "SGD 10, standardised": DescentSettings(optimizer="sgd", rates=(10.0,)),
    "Adam 1e-3": DescentSettings(rates=(1e-3,)),
    "Adam 1e-2": DescentSettings(rates=(1e-2,)),
}


def first_forecast(fit: TaskFit) -> np.ndarray:
    """What the descent started from: all tokens weighed alike."""
    law = SigmoidLaw(fit.history["slope"][0], fit.history["offset"][0], fit.law.chance)
    return law.accuracy(fit.history["capability"][0])


def main() -> None:
    study = load_zoo()
    dataset = study.dataset()
    _, folds = make_folds(study.infos(dataset.models), "size")
    test = folds[0].test
    print("| setting | largest change of a weight | training error, last ÷ first | test error ÷ all-token |")
    print("|---|---|---|---|")
    for name, settings in SETTINGS.items():
        fits = paper(dataset, folds, settings=settings)[0]
        pairs = list(zip(fits, dataset.accuracy, strict=True))
        moved = max(float(np.abs(f.weights - 0.5).max()) for f in fits)
        fall = [f.history["train_mse"][-1] / f.history["train_mse"][0] for f in fits]
        error = [
            np.mean((f.forecast(dataset.nats[test], dataset.metadata.take(test)) - a[test]) ** 2) for f, a in pairs
        ]
        start = [np.mean((first_forecast(f)[test] - a[test]) ** 2) for f, a in pairs]
        ratio = np.exp(np.mean(np.log(np.array(error) / start)))
        print(f"| {name} | {moved:.1e} | {np.exp(np.mean(np.log(fall))):.3f} | {ratio:.3f} |", flush=True)


if __name__ == "__main__":
    main()
