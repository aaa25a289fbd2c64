"""Losses and features collected on a real cluster have the bytes of a run without Ray."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from ray_nodes import Nodes
from studies import MODELS, ZOO, Tree, collect, make

from benchcast.study.study import Study

pytestmark = pytest.mark.slow


def messages(stderr: str) -> list[str]:
    """Lines other than those of progress, which a busy machine prints every 30 s."""
    return [line for line in stderr.splitlines() if not line.endswith((" so far", " left"))]


def test_collect_and_features_give_the_same_bytes(
    nodes: Nodes, locally: Callable[..., None], tmp_path: Path, tree: Tree
) -> None:
    roots = tmp_path / "here", tmp_path / "there"
    scorer = ["--scorer", ZOO / "oak-a-0.5M", "--dims", 8, "--dtype", "float32"]
    (here, there) = ([collect(make(root, 60).root, *MODELS), ["features", root, *scorer]] for root in roots)
    locally(*here)
    for command in there:
        ran = nodes.benchcast(*command)
        assert (ran.returncode, messages(ran.stderr)) == (0, [])
    assert tree(roots[1]) == tree(roots[0])
    study = Study.open(roots[1])
    assert sorted(study.models_with_losses()) == sorted(MODELS)
    with_options = [bool(text.options) for text in study.texts]
    for name in MODELS:
        choice = study.losses(name).choice
        assert choice is not None
        assert np.isfinite(choice).tolist() == with_options


def test_a_model_that_cannot_be_loaded_is_named_and_the_others_are_stored(nodes: Nodes, tmp_path: Path) -> None:
    study = make(tmp_path / "study", 20)
    shutil.copytree(ZOO / MODELS[1], tmp_path / "broken")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"no weights")
    rows = [
        f'[[models]]\nmodel = "hf"\nmodel_args = "pretrained={p}"\n' for p in (tmp_path / "broken", ZOO / MODELS[0])
    ]
    (tmp_path / "models.toml").write_text("".join(rows))
    ran = nodes.benchcast("collect", study.root, "--models", tmp_path / "models.toml")
    assert ran.returncode == 1
    why, summary = messages(ran.stderr)
    assert "broken: the model cannot be loaded" in why
    assert summary == "error: 1 of 2 models failed: broken; the others are done"
    assert study.models_with_losses() == [MODELS[0]]
