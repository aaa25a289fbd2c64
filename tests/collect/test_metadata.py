"""`collect` fills blank cells of models.csv from the model and from the user's list, and leaves the others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake import FakeBackend

from benchcast.collection.collect import collect
from benchcast.collection.model_list import read_models_list
from benchcast.errors import InputError
from benchcast.records import ModelInfo, Text, TextSet
from benchcast.study.study import Study

ZOO = Path(__file__).parents[1] / "zoo" / "shipped"
ASH = 2 * 320 * 96 + 4 * (4 * 96**2 + 3 * 96 * 256 + 2 * 96) + 96  # embeddings and output, four layers, the last norm


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study.create(tmp_path / "study", TextSet.of([Text("a", "s", "one two three")]))


def ash(tmp_path: Path, **config: object) -> Path:
    """A copy of a shipped model whose configuration says more."""
    folder = Path(shutil.copytree(ZOO / "ash-0.5M", tmp_path / "ash"))
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(said | config))
    return folder


def collected(cli: Callable[..., Any], study: Study, *arguments: object) -> ModelInfo:
    ran = cli("collect", study.root, *arguments)
    assert ran.code == 0, ran.err
    return study.infos(["ash"])[0]


def test_parameters_are_counted_in_the_loaded_model(study: Study, tmp_path: Path, cli: Callable[..., Any]) -> None:
    pytest.importorskip("torch")
    info = collected(cli, study, "--model", "hf", "--model_args", f"pretrained={ash(tmp_path)}")
    assert (study.root / "models.csv").read_text().splitlines()[1].startswith(f"ash,,{int(info.params)},")
    assert info.params == ASH
    assert (info.family, info.tokens == info.tokens) == ("", False), "model_type is no family"


def test_tokens_and_family_are_read_where_the_configuration_states_them(
    study: Study, tmp_path: Path, cli: Callable[..., Any]
) -> None:
    pytest.importorskip("torch")
    folder = ash(tmp_path, training_tokens=2_000_000, model_family="ash")
    info = collected(cli, study, "--model", "hf", "--model_args", f"pretrained={folder}")
    assert (info.family, info.tokens) == ("ash", 2e6)


@pytest.mark.parametrize(
    "said", [{"training_tokens": "many", "family": 3}, {"training_tokens": -1, "family": ""}, {"tokens_seen": True}]
)
def test_what_a_configuration_states_in_another_way_is_left(
    said: dict[str, object], study: Study, tmp_path: Path, cli: Callable[..., Any]
) -> None:
    pytest.importorskip("torch")
    info = collected(cli, study, "--model", "hf", "--model_args", f"pretrained={ash(tmp_path, **said)}")
    assert (info.family, info.tokens == info.tokens) == ("", False)


def test_what_the_user_wrote_is_never_overwritten(study: Study, tmp_path: Path, cli: Callable[..., Any]) -> None:
    pytest.importorskip("torch")
    (study.root / "models.csv").write_text("model,family,params,tokens\nash,mine,1e6,\n")
    folder = ash(tmp_path, training_tokens=5, model_family="theirs")
    arguments = ["--model", "hf", "--model_args", f"pretrained={folder}", "--family", "other"]
    ran = cli("collect", study.root, *arguments)
    assert ran.code == 0
    assert "models.csv has family 'mine', which is kept; 'other' was given" in ran.out
    info = study.infos(["ash"])[0]
    assert (info.family, info.params, info.tokens) == ("mine", 1e6, 5.0)
    assert collected(cli, study, *arguments, "--force") == info


def test_a_list_of_models_says_all_columns(study: Study, tmp_path: Path, cli: Callable[..., Any]) -> None:
    pytest.importorskip("torch")
    row = f'[[models]]\nmodel = "hf"\nname = "ash"\nmodel_args = "pretrained={ash(tmp_path, training_tokens=7)}"\n'
    (tmp_path / "models.toml").write_text(row)
    first = collected(cli, study, "--models", tmp_path / "models.toml")
    assert (first.params, first.tokens) == (ASH, 7.0)
    (tmp_path / "models.toml").write_text(row + 'params = 1\nflops = "3e15"\nfamily = "f"\nsplit = "test"\n')
    second = collected(cli, study, "--models", tmp_path / "models.toml")
    assert repr(second) == repr(ModelInfo("ash", "f", float(ASH), 7.0, 3e15, "test")), "NaN included"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("params = -1", "params is negative"),
        ('params = "big"', "params 'big' is not a number"),
        ("tokens = true", "tokens True is not a number"),
        ("flops = [1]", r"flops \[1\] is not a number"),
        ("flops = nan", "flops is nan, not a finite number"),
        ('split = "tset"', "split 'tset' is not train, validation or test; did you mean 'test'"),
        ("param = 1", "unknown key 'param'; did you mean 'params'"),
    ],
)
def test_a_list_with_a_wrong_cell_is_one_line(line: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(f'[[models]]\nmodel = "hf"\n{line}\n')
    with pytest.raises(InputError, match=f"m.toml: model 1: {said}"):
        read_models_list(tmp_path / "m.toml")


def test_numbers_of_a_list_may_have_suffixes(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text('[[models]]\nmodel = "hf"\nparams = "7B"\ntokens = "1.5T"\nflops = 3e22\n')
    metadata = read_models_list(tmp_path / "m.toml")[0].metadata
    assert repr(metadata) == repr(ModelInfo("", "", 7e9, 1.5e12, 3e22)), "NaN included"


def test_a_model_that_says_nothing_of_itself_gets_a_row(study: Study) -> None:
    collect(study, FakeBackend())
    assert (study.root / "models.csv").read_text().splitlines()[1].strip(",") == "fake-1"


def test_a_configuration_alone_has_the_parameters_of_its_model() -> None:
    pytest.importorskip("torch")
    from benchcast.collection.backends.loaded import stated_by_config

    assert stated_by_config(str(ZOO / "ash-0.5M")) == {"model_params": str(ASH)}
    assert stated_by_config(str(ZOO / "absent")) == {}
