"""Commands on studies with odd numbers: no RuntimeWarning reaches a user, and each mistake is one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import benchcast as bc

MODELS, COLUMNS = 12, 4
COMMANDS = (
    ("status",),
    ("fit",),
    ("predict", "--all"),
    ("compare", "--jobs", "1"),
    ("explain", "--task", "t"),
    ("proxies",),
    ("predict", "--model", "m0", "--use-scores"),
)
ODD = {
    "losses of zero": {"losses": lambda x: 0 * x},
    "a column of zeros": {"losses": lambda x: x * [0, 1, 1, 1]},
    "tiny losses": {"losses": lambda x: 1e-300 * x},
    "the same losses": {"losses": lambda x: 0 * x + 1},
    "copies": {"losses": lambda x: np.repeat(x[::2], 2, axis=0)},
    "every score at chance": {"scores": lambda y: 0 * y + 0.25},
    "scores of 0 and 1": {"scores": lambda y: np.round(y)},
    "scores that fall": {"scores": lambda y: y[::-1]},
    "no parameters and tokens": {"sizes": lambda p: 0 * p},
    "the same size": {"sizes": lambda p: 0 * p + 1e9},
    "three models": {"models": 3},
    "one model": {"models": 1},
}


@pytest.fixture
def odd_study(tmp_path: Path, request: pytest.FixtureRequest) -> bc.Study:
    """A study from a table with one thing that is odd."""
    change = request.param
    skill = np.linspace(0, 1, MODELS)
    losses = np.abs(
        3 - np.outer(skill, [1.5, 1.0, 0.5, 0.2]) + np.random.default_rng(0).normal(0, 0.02, (MODELS, COLUMNS))
    )
    losses = change.get("losses", np.array)(losses)
    scores = change.get("scores", np.array)(0.25 + 0.6 * skill**2)
    sizes = change.get("sizes", np.array)(10 ** (6 + 3 * skill))
    names = [f"m{i}" for i in range(change.get("models", MODELS))]
    rows = [",".join([name, *map(repr, map(float, row))]) for name, row in zip(names, losses, strict=False)]
    (tmp_path / "losses.csv").write_text("\n".join(["model,a,b,c,d", *rows]) + "\n", encoding="utf-8")
    study = bc.datasets.create_table_study(tmp_path / "study", tmp_path / "losses.csv", units=["nats"])
    study = study.add_tasks([bc.Task("t", 0.25, ("losses",)), bc.Task("u", 0.0, (), ("a",))])
    infos = [
        bc.ModelInfo(n, f"f{i % 4}", params=s, tokens=20 * s)
        for i, (n, s) in enumerate(zip(names, sizes, strict=False))
    ]
    study.add_models(infos)
    study.add_scores([bc.Score(n, t, float(y)) for n, y in zip(names, scores, strict=False) for t in ("t", "u")])
    return study


@pytest.mark.slow
@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("odd_study", ODD.values(), ids=ODD.keys(), indirect=True)
def test_odd_numbers_give_no_warning_and_no_traceback(odd_study, cli):
    for command, *options in COMMANDS:
        ran = cli(command, odd_study.root, *options)
        assert "Warning" not in ran.err, command
        assert "Traceback" not in ran.err, command
        if ran.code:
            assert len([line for line in ran.err.splitlines() if line.startswith("error: ")]) == 1, (command, ran.err)
