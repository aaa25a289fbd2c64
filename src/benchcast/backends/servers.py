"""Servers that score prompts: vLLM, SGLang, and anything with an OpenAI-compatible echo.

Token ids are sent and token ids are checked on the way back, so that no tokenizer but ours has a say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from benchcast.backends.base import Nats, Settings, Vocabulary, from_logprobs, numbered
from benchcast.backends.echo import verify_echo
from benchcast.backends.http import Client
from benchcast.backends.sources import source_name
from benchcast.backends.vocabulary import VocabularySource
from benchcast.bounds import Tokenizer
from benchcast.errors import InputError

DEFAULT_CONTEXT = 2048
Reply = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one kind of server is asked and how it answers."""

    route: str
    ask: Callable[[str, Sequence[int]], Reply]
    read: Callable[[Reply, Sequence[int], Tokenizer], Nats]
    version: Callable[[Client], str]
    context: Callable[[Client], int]


class ServerBackend:
    """A model behind a server."""

    def __init__(
        self, name: str, dialect: Dialect, settings: Settings, *, device: str = "", batch_size: int = 0
    ) -> None:
        self.name, self._dialect = name, dialect
        self._client, self.asked = Client.of(settings), settings.line
        self._served = settings.text("model") or settings.text("pretrained")
        if not self._served and not settings.text("tokenizer"):
            raise InputError(
                f"{settings.where}: no model; add model=NAME, and tokenizer=… where that is no hub id or path"
            )
        self._max_length = settings.whole("max_length", 0)
        self._dtype = settings.text("dtype", "unknown")
        self._workers = settings.whole("num_concurrent", 4)
        self._verify, self._verified = settings.flag("verify_echo", True), False
        self._tokens = VocabularySource.of(settings, self._served)
        self.model = source_name(self._served or settings.text("tokenizer"))
        self.batch_size = batch_size or 4 * self._workers
        self.batch_tokens = 1 << 30

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer, loaded here: servers are sent ids."""
        try:
            return self._tokens.load()
        except InputError as error:
            raise InputError(f"{error}; name a tokenizer that is here with tokenizer=PATH_OR_HUB_ID") from error

    @cached_property
    def context(self) -> int:
        """`max_length`, else what the server says, else a careful guess; one token is left for the reply."""
        return (self._max_length or self._dialect.context(self._client) or DEFAULT_CONTEXT) - 1

    def about(self) -> dict[str, str]:
        """What the losses were made with; a server's dtype is known only if it was said."""
        version = self._dialect.version(self._client) or "unknown"
        return {"backend": self.name, "backend_version": version, "dtype": self._dtype}

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        """−log p of every id given those before it; a few requests are under way at a time."""
        if self.name == "completions" and self._verify and not self._verified:
            self._verified = verify_echo(self._echo, self.vocabulary)
        with ThreadPoolExecutor(self._workers) as pool:
            return list(pool.map(lambda pair: numbered(pair[0], self._one, pair[1]), enumerate(sequences)))

    def _one(self, ids: Sequence[int]) -> Nats:
        reply = self._client.post(self._dialect.route, self._dialect.ask(self._served, ids))
        return self._dialect.read(reply, ids, self.vocabulary.tokenizer)

    def _echo(self, ids: Sequence[int]) -> Reply:
        return first_choice(self._client.post(self._dialect.route, self._dialect.ask(self._served, ids)))


def first_choice(reply: Reply) -> Reply:
    """The one choice of a completion."""
    choices = reply.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise InputError("the server's reply has no single choice; is this a completions server?")
    return dict(choices[0])


# ---- vLLM


def _ask_vllm(model: str, ids: Sequence[int]) -> Reply:
    return {"model": model, "prompt": list(ids), "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}


def _read_vllm(reply: Reply, ids: Sequence[int], tokenizer: Tokenizer) -> Nats:
    entries = first_choice(reply).get("prompt_logprobs")
    if not isinstance(entries, list):
        raise InputError("the server gave no prompt_logprobs; is it vLLM? (else use --model completions)")
    values: list[float | None] = []
    for position, (entry, token) in enumerate(zip(entries, ids, strict=False)):
        if entry is not None and str(token) not in entry:
            found = next(iter(entry), "none")
            raise InputError(f"the server scored token id {found} at position {position}, {token} was sent")
        values.append(None if entry is None else entry[str(token)]["logprob"])
    return from_logprobs(values + [None] * (len(entries) - len(values)), ids, "the server")


def _vllm_context(client: Client) -> int:
    served = client.get("/v1/models").get("data") or [{}]
    return int(served[0].get("max_model_len") or 0)


# ---- SGLang


def _ask_sglang(model: str, ids: Sequence[int]) -> Reply:
    sampling = {"max_new_tokens": 1, "temperature": 0}
    return {"input_ids": list(ids), "sampling_params": sampling, "return_logprob": True, "logprob_start_len": 0}


def _read_sglang(reply: Reply, ids: Sequence[int], tokenizer: Tokenizer) -> Nats:
    entries = (reply.get("meta_info") or {}).get("input_token_logprobs")
    if not entries:
        raise InputError("the server gave no input_token_logprobs; is it SGLang's /generate?")
    for position, (entry, token) in enumerate(zip(entries, ids, strict=False)):
        if entry[1] != token:
            raise InputError(f"the server scored token id {entry[1]} at position {position}, {token} was sent")
    return from_logprobs([entry[0] for entry in entries], ids, "the server")


def _sglang_info(client: Client) -> Reply:
    return client.get("/get_server_info") or client.get("/server_info")


def _sglang_context(client: Client) -> int:
    """The length that was set at its start, else the longest input."""
    info = _sglang_info(client)
    return int(info.get("context_length") or info.get("max_req_input_len") or 0)


# ---- anything that echoes


def _ask_echo(model: str, ids: Sequence[int]) -> Reply:
    return {"model": model, "prompt": list(ids), "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True}


def _read_echo(reply: Reply, ids: Sequence[int], tokenizer: Tokenizer) -> Nats:
    found = first_choice(reply).get("logprobs") or {}
    values, tokens = found.get("token_logprobs"), found.get("tokens")
    if not isinstance(values, list) or not isinstance(tokens, list) or len(values) < len(ids):
        got = len(values) if isinstance(values, list) else 0
        raise InputError(
            f"the server gave {got} log-probabilities for {len(ids)} prompt tokens; it does not echo the prompt "
            "and cannot score it (llama.cpp's servers cannot: use --model llamacpp with the file)"
        )
    if len(values) > len(ids) + 1:
        raise InputError(f"the server scored {len(values)} tokens, {len(ids)} were sent; does it add a BOS of its own?")
    sent = zip(tokens[1:], ids[1:], tokenizer.pieces(ids[1:]), strict=False)
    for position, (shown, token, piece) in enumerate(sent, start=1):
        if _differs(str(shown), token, piece):
            raise InputError(f"the server scored {shown!r} at position {position}, {piece!r} was sent")
    return from_logprobs([None, *values[1 : len(ids)]], ids, "the server")


def _differs(shown: str, token: int, piece: bytes) -> bool:
    """Whether a token as the server writes it is certainly another one; most spellings cannot be compared."""
    if shown.startswith("token_id:"):
        return shown != f"token_id:{token}"
    word = piece.decode(errors="replace").strip()
    if not re.fullmatch(r"[A-Za-z0-9]+", word):
        return False
    bare = re.sub(r"^[Ġ▁\s]+", "", shown).strip()
    return bool(re.fullmatch(r"[A-Za-z0-9]+", bare)) and bare != word


DIALECTS = {
    "vllm-server": Dialect(
        "/v1/completions", _ask_vllm, _read_vllm, lambda c: str(c.get("/version").get("version") or ""), _vllm_context
    ),
    "sglang": Dialect(
        "/generate",
        _ask_sglang,
        _read_sglang,
        lambda c: str(_sglang_info(c).get("version") or ""),
        _sglang_context,
    ),
    "completions": Dialect("/v1/completions", _ask_echo, _read_echo, lambda c: "", _vllm_context),
}
