"""A BOS that a tokenizer would not put there, or that other models do not have, is said in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from fake import FakeBackend

import benchcast as bc
from benchcast.cli import cli
from benchcast.collection.collect import collect
from benchcast.errors import InputError
from benchcast.forecasts.status import status
from benchcast.records import Text, TextSet, TokenLosses
from benchcast.study.bos_policies import BosPolicy, bos_lines
from benchcast.study.parquet import read_metadata
from benchcast.study.study import Study

ZOO = Path(__file__).parents[1] / "zoo" / "shipped"
TEXTS = TextSet.of(Text(f"t{i}", "s", f"Text {i} has a few words.") for i in range(4))
APART = (
    "1 model was scored with BOS, the other 2 without: fake-1; the first token of a text has no loss without BOS, and "
    "leaves every fit that learns from both (add_bos_token=true or false in --model_args decides)"
)


def run(*args: Any) -> str:
    result = CliRunner().invoke(cli, [str(a) for a in args], env={"COLUMNS": "1000"})
    assert result.exit_code == 0, result.output
    return result.output


def test_a_policy_that_is_not_the_tokenizers_is_said(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    study = Study.create(tmp_path / "s", TEXTS)
    model = f"pretrained={ZOO / 'ash-0.5M'}"
    assert "BOS" not in run("collect", study.root, "--model", "hf", "--model_args", model)
    asked = run("collect", study.root, "--model", "hf", "--model_args", f"{model},add_bos_token=true", "--name", "b")
    said = "model b was scored with <bos> before each text, as asked; its tokenizer puts no BOS there"
    assert f"warning: {said}" in asked
    assert "1 model was scored without BOS, the other 1 with: ash-0.5M" not in asked, "only lines on this model"
    assert said in status(study).problems
    kept = run("collect", study.root, "--model", "hf", "--model_args", f"{model},add_bos_token=false", "--name", "c")
    assert "model c" not in kept, "as asked, and as usual"
    assert read_metadata(study.losses_path("c"))["bos"] == "none, as asked"


def test_a_model_that_differs_from_the_others_is_said(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "s", TEXTS)
    for name in ("a", "b"):
        collect(study, FakeBackend(bos=False), name=name)
    assert not any("BOS" in line for line in status(study).problems)
    collect(study, FakeBackend(), name="fake-1")
    assert APART in status(study).problems


def test_imported_losses_show_by_their_first_tokens_whether_a_bos_stood_there(tmp_path: Path) -> None:
    study = Study.create(tmp_path / "s", TEXTS)
    collect(study, FakeBackend(), name="with-1")
    collect(study, FakeBackend(), name="with-2")
    rows = [{"text_id": t.id, "bounds": [0, 4, len(t.text)], "nats": [None, 9.0]} for t in TEXTS]
    (tmp_path / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = "warning: 1 model was scored without BOS, the other 2 with: new; the first token"
    assert said in run("import", "losses", study.root, tmp_path / "new.jsonl")


def test_nothing_is_said_of_models_whose_policy_is_unknown() -> None:
    known, unknown = BosPolicy(present=True, stated="<s>"), BosPolicy(present=None)
    assert bos_lines({"a": known, "b": unknown}, ["a", "b"]) == []


def test_a_forecast_that_lacks_first_tokens_names_the_bos(synthetic_folder: Path) -> None:
    study = Study.open(synthetic_folder)
    fit = bc.fit(study, "task0", method="all-token")
    losses = study.losses(study.models_with_losses()[0])
    nats, firsts = losses.nats.copy(), (np.cumsum(losses.counts) - losses.counts)[losses.counts > 0]
    nats[firsts] = np.nan
    without = TokenLosses(losses.model, losses.counts, losses.edges, nats)
    with pytest.raises(InputError, match=r"has no loss on .*% of the tokens .* scored without BOS; add_bos_token=true"):
        fit.predict(without)
    nats[firsts[0] + 1] = np.nan
    with pytest.raises(InputError, match=r"has no loss on .*% of the tokens that the fit of 'task0' uses; `predict"):
        fit.predict(without)
