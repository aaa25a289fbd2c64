"""Write recorded.json: what other packages make of the data that test_peers.py feeds to ours.

python -m venv /some/env && /some/env/bin/pip install perplexity-correlations==0.1.2 scikit-learn
/some/env/bin/python tests/peers/record.py
(perplexity-correlations installs a package called `tests`, so it stays out of the environment of our own.)
"""

from __future__ import annotations

import json
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np


def data(seed: int, models: int, texts: int) -> tuple[np.ndarray, np.ndarray]:
    """Bits per byte that fall with a hidden skill, and the error that goes with it."""
    rng = np.random.default_rng(seed)
    skill = rng.normal(size=models)
    weight = rng.normal(size=texts)
    losses = 1.5 + 0.2 * rng.random(texts) - 0.1 * np.outer(skill, weight) + 0.05 * rng.normal(size=(models, texts))
    return losses, 1 / (1 + np.exp(skill + 0.3 * rng.normal(size=models)))


SHAPES = [(0, 12, 7), (1, 30, 90), (2, 5, 4)]


def main() -> None:
    """Ask the packages, write what they say."""
    from perplexity_correlations.estimation import sign, sign_cdf, spearmanr
    from sklearn.cross_decomposition import PLSRegression

    recorded = {"packages": {p: version(p) for p in ("perplexity-correlations", "scikit-learn")}, "cases": []}
    for seed, models, texts in SHAPES:
        x, error = data(seed, models, texts)
        case = {"seed": seed, "models": models, "texts": texts, "pls": {}}
        for name, estimate in (("sign", sign), ("sign of ranks", sign_cdf), ("rank", spearmanr)):
            case[name] = estimate(x, error).tolist()
        for k in range(1, 4):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = PLSRegression(n_components=k).fit(x, error)
            case["pls"][k] = {"weights": fitted.coef_[0].tolist(), "forecast": fitted.predict(x).ravel().tolist()}
        recorded["cases"].append(case)
    Path(__file__).with_name("recorded.json").write_text(json.dumps(recorded) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
