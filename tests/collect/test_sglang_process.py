"""SGLang's native API, served by a process of its own with a real small model behind it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchcast.collection.backends import open_backend
from benchcast.collection.backends.base import ModelSettings
from benchcast.collection.backends.hf import HfBackend
from benchcast.collection.collect import collect
from benchcast.collection.jobs import CollectOptions
from benchcast.errors import InputError
from benchcast.records import Text, TextSet
from benchcast.study.study import Study

pytestmark = pytest.mark.slow

MODEL = Path(__file__).parents[1] / "zoo" / "shipped" / "ash-0.5M"
LONG = "tom has a red ball. " * 40
TEXTS = ["tom has a red ball.", "the sum of 3 and 4 is 7.", "今天", LONG]


@pytest.fixture(scope="module")
def processes() -> Iterator[dict[int, str]]:
    """Addresses of two servers by the ids of their processes; the last may be killed by a test."""
    script = Path(__file__).with_name("sglang_like.py")
    process = subprocess.Popen([sys.executable, script, MODEL], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline().split() for _ in range(2)]
    served = {int(pid): url for pid, url in sorted(lines, key=lambda line: int(line[0]) != process.pid)}
    try:
        yield served
    finally:
        for pid in reversed(served):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def url(processes: dict[int, str]) -> str:
    first = next(iter(processes.values()))
    lay(first, "")
    return first


def lay(url: str, trap: str) -> None:
    with urlopen(Request(f"{url}/trap/{trap}", method="PUT")):
        pass


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study.create(tmp_path / "s", TextSet.of(Text(f"t{i}", "s", t) for i, t in enumerate(TEXTS)))


def settings(url: str, **more: str) -> ModelSettings:
    return ModelSettings({"base_url": url, "model": "ash", "tokenizer": str(MODEL), "dtype": "float32", **more})


def test_losses_of_the_process_are_those_of_its_model(study: Study, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchcast.collection.backends.http.FIRST_PAUSE", 0.01)
    reference = HfBackend(ModelSettings({"pretrained": str(MODEL), "max_length": "249"}), device="cpu")
    collect(study, reference, name="hf")
    lay(url, "overloaded")
    backend = open_backend("sglang", settings(url))
    assert backend.context == 249, "context_length is null, so the longest input counts"
    done = collect(study, backend, name="sglang", options=CollectOptions(reference=reference))
    assert done is not None
    assert done.agreement is not None
    assert done.agreement.most_nats < 1e-4
    np.testing.assert_allclose(study.losses("sglang").nats, study.losses("hf").nats, atol=1e-4)
    assert study.losses("sglang").about["backend_version"] == "0.5.9"


def test_a_server_scores_each_option(tmp_path: Path, url: str) -> None:
    text = Text("t", "s", "Two and two are four", 15, options=(" five", " many more than that"))
    study = Study.create(tmp_path / "s", TextSet.of([text]))
    collect(study, HfBackend(ModelSettings({"pretrained": str(MODEL)}), device="cpu"), name="hf")
    collect(study, open_backend("sglang", settings(url)), name="sglang")
    hf, sglang = study.losses("hf"), study.losses("sglang")
    assert hf.choice is not None
    assert hf.choice_norm is not None
    assert np.isfinite(hf.choice).all()
    np.testing.assert_allclose(sglang.choice, hf.choice, atol=2e-4)
    np.testing.assert_allclose(sglang.choice_norm, hf.choice_norm, atol=2e-4)


@pytest.mark.parametrize(
    ("trap", "said"),
    [
        ("short", "log-probabilities for"),
        ("ids", "scored token id 99 at position 2"),
        ("start", r"gave no input_token_logprobs; is it SGLang's /generate\?"),
        ("hole", "gave no log-probability for token 2"),
        ("infinity", "gave -9999 for token 2: probability 0"),
        ("zeros", "it does not score prompts"),
        ("long", r"status 400: .*exceeds the maximum allowed length"),
    ],
)
def test_every_trap_is_an_error_that_names_text_model_and_backend(
    trap: str, said: str, url: str, tmp_path: Path
) -> None:
    study = Study.create(tmp_path / "one", TextSet.of([Text("t0", "s", TEXTS[0])]))
    lay(url, trap)
    with pytest.raises(InputError, match=rf"model 'ash', backend sglang, text 't0': .*{said}"):
        collect(study, open_backend("sglang", settings(url)))
    assert not study.models_with_losses()


def test_its_openai_route_is_refused(study: Study, url: str) -> None:
    with pytest.raises(InputError, match="it does not echo the prompt and cannot score it"):
        collect(study, open_backend("completions", settings(url)))


def test_a_process_that_is_killed_leaves_an_error_and_what_was_scored(
    study: Study, url: str, processes: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchcast.collection.backends.http.FIRST_PAUSE", 0.01)
    monkeypatch.setattr("benchcast.collection.shards.SHARD_SECONDS", 0.0)
    pid, other = list(processes.items())[1]
    backend = open_backend("sglang", settings(other, max_retries="2"), batch_size=1)
    assert backend.context == 249

    def stop_after_one(texts: int, tokens: int) -> None:
        if texts:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(study, backend, report=stop_after_one)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(InputError, match=r"no whole reply in 2 tries, last: .*is the server up\?"):
        collect(study, backend)  # must not take the silence for another version and forget what was scored
    done = collect(study, open_backend("sglang", settings(url), batch_size=1))
    assert done is not None
    assert done.resumed >= 1
