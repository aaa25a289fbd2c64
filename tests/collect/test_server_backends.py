"""Servers are asked again when they stumble, and believed only where they score what was sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake import FakeBackend
from replies import FakeServer, serving

from benchcast.collection.backends import BACKENDS, open_backend
from benchcast.collection.backends.base import ModelSettings
from benchcast.collection.collect import collect
from benchcast.collection.jobs import CollectOptions
from benchcast.errors import InputError
from benchcast.records import Text, TextSet
from benchcast.study.study import Study

SERVERS = ("vllm-server", "sglang", "completions")
TEXTS = [Text(f"t{i}", "s", s) for i, s in enumerate(["one two three", "vier 五 sechs", "a\r\nb  c", ""])]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    monkeypatch.setattr("benchcast.collection.backends.http.FIRST_PAUSE", 0.01)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("BENCHCAST_API_KEY", raising=False)
    with serving() as running:
        yield running


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study.create(tmp_path / "s", TextSet.of(TEXTS))


def ask(kind: str, server: FakeServer, **settings: str) -> FakeBackend:
    given = ModelSettings({"base_url": server.url, "model": "fake", "timeout": "5", **settings})
    backend = open_backend(kind, given)
    backend.__dict__["vocabulary"] = FakeBackend().vocabulary
    return backend  # type: ignore[return-value]


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_gives_the_losses_of_its_model(kind: str, server: FakeServer, study: Study) -> None:
    collect(study, FakeBackend(), name="direct")
    done = collect(
        study, ask(kind, server, dtype="float32"), name="served", options=CollectOptions(reference=FakeBackend())
    )
    assert done is not None
    assert done.agreement is not None
    assert done.agreement.most_nats < 1e-5
    np.testing.assert_allclose(study.losses("served").nats, study.losses("direct").nats, rtol=1e-6)
    assert study.losses("served").about["backend"] == kind


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("faults", [["429"], ["500", "503"], ["drop", "drop"], ["half"], ["stall"]])
def test_a_server_that_stumbles_is_asked_again(kind: str, faults: list[str], server: FakeServer) -> None:
    backend = ask(kind, server, timeout="0.5", verify_echo="false")
    server.faults = list(faults)
    nats = backend.score([[256, 97, 98, 99]])[0]
    np.testing.assert_allclose(nats, FakeBackend().score([[256, 97, 98, 99]])[0], rtol=1e-6)
    assert len(server.requests) == len(faults) + 1


def test_a_server_that_is_gone_is_an_error_with_a_bound(server: FakeServer, study: Study) -> None:
    backend = ask("vllm-server", server, max_retries="3")
    server.faults = ["503"] * 100
    with pytest.raises(InputError, match=r"no whole reply in 3 tries, last: status 503.*is the server up\?"):
        backend.score([[256, 97]])
    assert len(server.requests) == 3


def test_what_was_scored_before_the_server_died_is_not_asked_again(server: FakeServer, study: Study) -> None:
    backend = ask("vllm-server", server, max_retries="1", num_concurrent="1")
    backend.batch_size = 1
    server.faults = ["", "503"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("benchcast.collection.shards.SHARD_SECONDS", 0.0)
        with pytest.raises(InputError, match="model 'fake', backend vllm-server, text"):
            collect(study, backend)
    before = len(server.requests)
    again = ask("vllm-server", server)
    again.batch_size = 1  # a batch is the least that is asked again
    done = collect(study, again)
    assert done is not None
    assert done.resumed > 0
    assert len(server.requests) - before == 3 - (before - 1)
    collect(study, FakeBackend(), name="direct")
    np.testing.assert_allclose(study.losses("fake").nats, study.losses("direct").nats, rtol=1e-6)


def test_a_refusal_is_not_repeated(server: FakeServer) -> None:
    server.faults = ["400"]
    with pytest.raises(InputError, match="status 400"):
        ask("vllm-server", server).score([[256, 97]])
    assert len(server.requests) == 1


TRAPS = [
    ("vllm-server", "short", "gave 13 log-probabilities for 14 tokens"),
    ("vllm-server", "ids", "scored token id 999 at position 2, 110 was sent"),
    ("vllm-server", "-9999", "gave -9999 for token 2: probability 0"),
    ("vllm-server", "hole", "gave no log-probability for token 2 of 14"),
    ("vllm-server", "zeros", "it does not score prompts"),
    ("vllm-server", "none", "gave no prompt_logprobs; is it vLLM"),
    ("sglang", "none", "gave no input_token_logprobs"),
    ("sglang", "short", "gave 13 log-probabilities for 14 tokens"),
    ("sglang", "ids", "scored token id 999 at position 2, 110 was sent"),
    ("completions", "off by one", "the server's echo is wrong: after .* it generates .* and echoes it with"),
    ("completions", "ignored", "it does not echo the prompt and cannot score it"),
    ("completions", "bos", "for 25 prompt tokens and 1 generated"),
    ("completions", "chat", "it does not echo the prompt and cannot score it"),
]


@pytest.mark.parametrize(("kind", "wrong", "said"), TRAPS)
def test_wrong_answers_are_refused(kind: str, wrong: str, said: str, server: FakeServer, tmp_path: Path) -> None:
    study = Study.create(tmp_path / "one", TextSet.of(TEXTS[:1]))
    server.wrong = wrong
    with pytest.raises(InputError, match=rf"model 'fake', backend {kind}, .*t0.*{said}"):
        collect(study, ask(kind, server))
    assert not study.models_with_losses()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("ignored", "it does not echo the prompt"), ("tokens", "scored 'Q' at position 1, b'o' was sent"),
     ("bos", "does it add a BOS of its own"), ("zeros", "it does not score prompts")],
)  # fmt: skip
def test_wrong_echoes_are_refused_without_the_probe_too(
    wrong: str, said: str, server: FakeServer, tmp_path: Path
) -> None:
    study = Study.create(tmp_path / "one", TextSet.of(TEXTS[:1]))
    server.wrong = wrong
    with pytest.raises(InputError, match=said):
        collect(study, ask("completions", server, verify_echo="false"))


def test_ids_are_sent_with_one_bos_and_no_template(server: FakeServer, study: Study) -> None:
    collect(study, ask("vllm-server", server))
    for request in server.requests:
        assert request["prompt"][0] == 256
        assert request["prompt"].count(256) == 1
        assert request["max_tokens"] == 1
        assert "messages" not in request


def test_the_context_is_what_the_server_says_less_the_generated_token(server: FakeServer) -> None:
    assert ask("vllm-server", server).context == 511
    assert ask("sglang", server).context == 299
    assert ask("sglang", server, max_length="100").context == 99


def test_keys_come_from_the_environment_and_appear_nowhere(
    server: FakeServer, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-s3cret")
    server.faults = ["401"]
    with pytest.raises(InputError, match="status 401") as error:
        collect(study, ask("vllm-server", server))
    assert "s3cret" not in str(error.value)
    collect(study, ask("vllm-server", server))
    assert set(server.keys) == {"Bearer sk-s3cret"}
    assert not any(b"s3cret" in p.read_bytes() for p in study.root.rglob("*") if p.is_file())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"base_url": "http://u:p@host/v1", "model": "m"}, "base_url must hold no key"),
        ({"base_url": "host:80", "model": "m"}, "http://HOST:PORT is needed"),
        ({"model": "m"}, "no base_url; add base_url=http://localhost:8000"),
        ({"base_url": "http://h"}, "no model; add model=NAME"),
        ({"base_url": "http://h", "model": "m", "api_key": "x"}, "api_key must not be a setting"),
        ({"base_url": "http://h", "model": "m", "timeout": "-1"}, "timeout=-1; a number above 0"),
    ],
)
def test_wrong_server_settings_are_named(settings: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        open_backend("vllm-server", ModelSettings(settings))


def test_every_backend_is_in_the_help_and_on_the_page(cli: Callable[..., Any]) -> None:
    listed = re.search(r"--model TEXT\s+(.*?)\.\s+--model_args", cli("collect", "--help").out, re.DOTALL)
    assert set(re.split(r"[\s,]+(?:or\s+)?", listed[1])) == set(BACKENDS)
    page = (Path(__file__).parents[2] / "docs" / "collect.md").read_text(encoding="utf-8")
    table = page.split("| `--model` |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == set(BACKENDS)


def test_an_unknown_backend_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InputError, match=r"unknown backend 'vlm'; known: .*did you mean 'vllm'"):
        open_backend("vlm", ModelSettings({}))
