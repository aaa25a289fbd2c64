"""Fewer families, and no scorer: does `salience` hold up where there is less to learn from?

    python -m lab.log.subsets [DRAWS]

Random sets of four and six of the nine embedded families, with hidden states of the scorer and without.
"""

import sys
from dataclasses import replace

import numpy as np

from benchcast.datasets import load_zoo
from benchcast.folds import make_folds
from lab.log.worlds import RIVALS, errors

FAMILIES = (4, 6)


def main(draws: int) -> None:
    study = load_zoo()
    whole = study.dataset()
    names, rng = np.unique(whole.families), np.random.default_rng(5)
    print("| families | features | split | gain over all-token | error ÷ best baseline | worst | within 10% |")
    print("|---|---|---|---|---|---|---|")
    for count in FAMILIES:
        drawn = [np.isin(whole.families, rng.choice(names, count, replace=False)) for _ in range(draws)]
        for features in ("scorer", "none"):
            for split in ("size", "family"):
                gains, ratios = [], []
                for keep in drawn:
                    dataset = whole.of_models(keep)
                    dataset = dataset if features == "scorer" else replace(dataset, features=None)
                    folds = make_folds(study.infos(dataset.models), split)[1]
                    rivals = {rival: errors(dataset, folds, rival) for rival in RIVALS}
                    salience_errors = errors(dataset, folds, "salience")
                    gains += [*(rivals["all-token"] / salience_errors)]
                    ratios += [*(salience_errors / np.min([*rivals.values()], axis=0))]
                gain, ratio = (np.exp(np.log(x).mean()) for x in (gains, ratios))
                good = np.mean(np.array(ratios) <= 1.1)
                cells = f"{gain:.2f} | {ratio:.2f} | {max(ratios):.2f} | {good:.0%} of {len(ratios)}"
                print(f"| {count} | {features} | {split} | {cells} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
