"""From a model's name to losses and features, through the command line."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from fake import FakeBackend
from replies import serving

from benchcast.cli import cli
from benchcast.collection.backends import BACKENDS
from benchcast.collection.model_list import read_models_list
from benchcast.errors import BenchcastError, InputError
from benchcast.study.study import Study

ROWS = [
    {"id": "en", "source": "en", "text": "Once upon a time, there was a little girl named Lily."},
    {"id": "zh", "source": "zh", "text": "今天天气很好，我们去公园散步。"},
    {"id": "code", "source": "code", "text": "def add(a, b):\n\treturn a + b\r\n"},
    {"id": "emoji", "source": "odd", "text": "  👩‍👩‍👧‍👦 caf\u00e9 "},
    {"id": "none", "source": "odd", "text": ""},
    {"id": "long", "source": "en", "text": "The girl went to the park and saw a big dog. " * 6},
]


def run(*args: Any) -> str:
    result = CliRunner().invoke(cli, [str(a) for a in args])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def study(tmp_path: Path) -> Path:
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    run("init", tmp_path / "study", "--texts", texts)
    return tmp_path / "study"


@pytest.fixture
def real_models(name: str, scorer: str, request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """A real model and the scorer of its states, fetched before the time limit of the test begins."""
    return request.getfixturevalue(name), request.getfixturevalue(scorer)


@pytest.mark.parametrize(
    ("name", "scorer", "bos"),
    [("smollm2_gguf", "smollm2", "none"), ("gemma", "gemma", "<bos>"), ("stories", "stories", "<s>")],
)
def test_a_real_model_goes_all_the_way(name: str, bos: str, study: Path, real_models: tuple[Path, Path]) -> None:
    """Whether it wants BOS is said by a GGUF file itself; without it the first token has no loss."""
    folder, states = real_models
    said = run(
        "collect", study, "--model", "hf", "--model_args", f"pretrained={folder}", "--name", "m", "--family", "f"
    )
    assert f"m: {len(ROWS)} texts" in said
    losses = Study.open(study).losses("m")
    assert losses.about["bos"] == bos
    assert np.isnan(losses.nats).sum() == (len(ROWS) - 1 if bos == "none" else 0)
    assert 0.2 < np.nanmean(losses.nats) < 12
    if name == "gemma":  # takes long to load once more
        return
    said = run("features", study, "--scorer", states, "--name", "m", "--dims", "8")
    assert "reduced to 8 that keep" in said
    features = Study.open(study).features()
    assert features is not None
    assert features.values.shape == (len(losses.nats), 8)
    np.testing.assert_array_equal(features.edges, losses.edges)
    if name == "stories":  # the others take long to load
        again = run("collect", study, "--model", "hf", "--model_args", f"pretrained={folder}", "--name", "m")
        assert "losses are stored already" in again
        assert "features are stored already" in run("features", study, "--scorer", states, "--name", "m")


def test_batch_size_does_not_change_what_is_stored(study: Path, stories: Path) -> None:
    args = ("collect", study, "--model", "hf", "--model_args", f"pretrained={stories},max_length=64")
    for size in (1, 3, "auto"):
        run(*args, "--name", f"b{size}", "--batch_size", size)
    one, three, auto = (Study.open(study).losses(f"b{size}").nats for size in (1, 3, "auto"))
    np.testing.assert_allclose(three, one, atol=1e-4)
    np.testing.assert_allclose(auto, one, atol=1e-4)


def test_the_default_name_is_the_models_own(study: Path, stories: Path) -> None:
    assert "stories15m: 6 texts" in run("collect", study, "--model", "hf", "--model_args", f"pretrained={stories}")
    assert Study.open(study).models_with_losses() == ["stories15m"]


@pytest.mark.parametrize("ending", ["toml", "yaml"])
def test_a_list_of_models_is_collected_in_one_go(
    ending: str, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BACKENDS, "fake", lambda settings, **_: FakeBackend(bos=bool(settings.flag("bos", True))))
    file = tmp_path / f"models.{ending}"
    if ending == "toml":
        file.write_text(
            '[[models]]\nmodel = "fake"\nname = "a"\nfamily = "f"\n\n'
            '[[models]]\nmodel = "fake"\nname = "b"\nmodel_args = { bos = false }\n'
        )
    else:
        pytest.importorskip("yaml")
        file.write_text("- {model: fake, name: a, family: f}\n- {model: fake, name: b, model_args: bos=false}\n")
    said = run("collect", study, "--models", file)
    assert "a: 6 texts" in said
    assert Study.open(study).losses("b").about["bos"] == "none"
    assert Study.open(study).infos(["a"])[0].family == "f"


def test_one_model_of_a_list_that_fails_does_not_stop_the_others(study: Path, tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text("".join(f'[[models]]\nmodel = "fake"\nname = "{n}"\n' for n in ("a", "b", "c")))
    backends = iter([FakeBackend(), FakeBackend(context=1), FakeBackend()])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKENDS, "fake", lambda settings, **_: next(backends))
        result = CliRunner().invoke(cli, ["collect", str(study), "--models", str(file)])
    assert "a: 6 texts" in result.stdout
    assert "c: 6 texts" in result.stdout
    assert "error: a context of 1 tokens" in result.stderr
    assert isinstance(result.exception, BenchcastError)
    assert "1 of 3 models failed: b; the others are done" in str(result.exception)
    assert Study.open(study).models_with_losses() == ["a", "c"]


def test_a_model_that_failed_is_out_of_memory_before_the_next_is_loaded(study: Path, tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text("".join(f'[[models]]\nmodel = "fake"\nname = "{n}"\n' for n in ("a", "b")))
    opened: list[weakref.ref[FakeBackend]] = []
    alive = []

    class Loading(FakeBackend):
        def about(self) -> dict[str, str]:
            gc.collect()
            alive.append(sum(backend() is not None for backend in opened))
            return super().about()

    def make(settings: object, **_: object) -> FakeBackend:
        backend = Loading(context=1)
        opened.append(weakref.ref(backend))
        return backend

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BACKENDS, "fake", make)
        result = CliRunner().invoke(cli, ["collect", str(study), "--models", str(file)])
    assert "2 of 2 models failed: a, b" in str(result.exception)
    assert set(alive) == {1}


def test_texts_that_a_normaliser_changes_are_refused_or_left_out(study: Path, tmp_path: Path, stories: Path) -> None:
    changed = tmp_path / "nfc"
    changed.mkdir()
    for file in stories.iterdir():
        (changed / file.name).write_bytes(file.read_bytes())
    state = json.loads((changed / "tokenizer.json").read_text())
    state["normalizer"]["normalizers"].insert(0, {"type": "Lowercase"})
    (changed / "tokenizer.json").write_text(json.dumps(state))
    args = ("collect", study, "--model", "hf", "--model_args", f"pretrained={changed}")
    with pytest.raises(InputError, match=r"text 'en': .*normaliser \(Lowercase.*2 of 6 texts are refused; --skip-ref"):
        run(*args)
    assert "nfc: 4 texts" in (said := run(*args, "--skip-refused"))
    assert "2 refused and skipped: en, long" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("x = 1", "a list of models is needed"),
        ("[[models]]\nname = 'a'", "model 1: no backend; add model = 'hf'"),
        ("[[models]]\nmodel = 'hf'\nmodl_args = ''", "unknown key 'modl_args'; did you mean 'model_args'"),
        ("[[models]]\nmodel = 'hf'\nmodel_args = {api_key = 'x'}", "api_key must not be a setting"),
        ("[[models", "not valid TOML"),
    ],
)
def test_a_wrong_list_of_models_is_named(content: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "models.toml"
    file.write_text(content)
    with pytest.raises(InputError, match=said):
        read_models_list(file)


def test_a_check_against_transformers_is_printed(study: Path, stories: Path) -> None:
    said = run(
        "collect",
        study,
        "--model",
        "hf",
        "--model_args",
        f"pretrained={stories},dtype=bfloat16",
        "--check-against",
        "hf",
    )
    assert "nats from hf (float32) on average" in said


def test_a_server_is_collected_through_the_command_line(
    study: Path, stories: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serving() as server:
        args = f"base_url={server.url}/v1/completions,model=fake,tokenizer={stories},dtype=float32"
        assert "fake: 6 texts" in run("collect", study, "--model", "vllm-server", "--model_args", args)
    about = Study.open(study).losses("fake").about
    assert (about["backend"], about["backend_version"], about["bos"]) == ("vllm-server", "0.32.0", "<s>")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--model", "hf"], "no pretrained"),
        (["--model", "hg", "--model_args", "pretrained=x"], "unknown backend 'hg'"),
        (["--model", "hf", "--model_args", "pretrained"], "'pretrained' is not key=value"),
        (["--model", "llamacpp", "--model_args", "pretrained=no.gguf"], "no such file"),
        (["--model", "hf", "--model_args", "pretrained=no.gguf"], "no such file"),
    ],
)
def test_mistakes_are_one_line(args: list[str], said: str, study: Path) -> None:
    with pytest.raises(BenchcastError, match=said) as error:
        run("collect", study, *args)
    assert "\n" not in str(error.value)


def test_commands_say_how_to_use_them() -> None:
    for command in ("collect", "features"):
        said = run(command, "--help")
        assert f"benchcast {command} study --" in said


class LoudBackend(FakeBackend):
    """The fake model, its losses in a unit of its own."""

    def score(self, sequences: Any) -> Any:
        return [8 * nats for nats in super().score(sequences)]


def test_collect_warns_of_losses_that_are_unlike_the_other_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [
        {"id": str(i), "text": f"The {i}th otter swims in the old mill pond and eats {i} fish."} for i in range(12)
    ]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(t) + "\n" for t in texts), encoding="utf-8")
    run("init", tmp_path / "s", "--texts", tmp_path / "texts.jsonl")
    monkeypatch.setitem(BACKENDS, "fake", lambda settings, **_: FakeBackend())
    monkeypatch.setitem(BACKENDS, "loud", lambda settings, **_: LoudBackend())
    for i in range(8):
        assert "look wrong" not in run("collect", tmp_path / "s", "--model", "fake", "--name", f"m{i}")
    said = run("collect", tmp_path / "s", "--model", "loud", "--name", "loud")
    assert "warning: losses of model loud look wrong: they are 8 times the median model's" in said
