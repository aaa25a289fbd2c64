"""Backends for servers that score prompts: vLLM, SGLang, and OpenAI-compatible servers with `echo`.

Requests contain token ids, and the ids in replies are checked, so that the server's tokenizer is not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from benchcast.collection.backends.base import (
    ModelSettings,
    Nats,
    Vocabulary,
    from_logprobs,
    is_number,
    read_each,
    shown,
)
from benchcast.collection.backends.http import Client
from benchcast.collection.backends.sources import model_name
from benchcast.collection.backends.vocabulary import VocabularySource
from benchcast.errors import InputError

DEFAULT_CONTEXT = 2048
Reply = dict[str, Any]
PROBES = ("The capital of France is", "1, 2, 3, 4, 5, 6,", "Once upon a time, there was a little")
LIMIT = 0.5  # nats; numerical noise of bfloat16 stays below it, wrong logits exceed it
NO_ECHO = (
    "it does not echo the prompt and cannot score it (llama.cpp's servers cannot: use --model llamacpp with the file)"
)


class ServerBackend:
    """A model that a server holds; a subclass writes the requests and reads the replies of one kind of server."""

    name: str
    route = "/v1/completions"

    def __init__(self, settings: ModelSettings, *, device: str = "", batch_size: int = 0) -> None:
        self._client, self.asked = Client(settings), settings.line
        self._served = settings.text("model") or settings.text("pretrained")
        if not self._served and not settings.text("tokenizer"):
            raise InputError(
                f"{settings.where}: no model; add model=NAME, and tokenizer=… where that is no hub id or path"
            )
        self._max_length = settings.whole("max_length", 0)
        self._dtype = settings.text("dtype", "unknown")
        self._unverified = bool(settings.flag("verify_echo", True))
        self._tokens = VocabularySource.of(settings, self._served)
        self.model = model_name(self._served or settings.text("tokenizer"))
        self.batch_size = batch_size or 4 * self._client.concurrent
        self.batch_tokens = 1 << 30

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer, loaded in this process because requests contain ids."""
        try:
            return self._tokens.load()
        except InputError as error:
            raise InputError(f"{error}; name a tokenizer that is here with tokenizer=PATH_OR_HUB_ID") from error

    @cached_property
    def context(self) -> int:
        """`max_length`, else the server's limit, else `DEFAULT_CONTEXT`; less one token for the reply."""
        return (self._max_length or self._limit() or DEFAULT_CONTEXT) - 1

    def about(self) -> dict[str, str]:
        """Backend, version and dtype; the dtype is unknown unless the settings give it."""
        return {"backend": self.name, "backend_version": self._version() or "unknown", "dtype": self._dtype}

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        """−log p of every id given the ids before it; sends several requests concurrently."""
        replies = self._client.post_all(self.route, [self._request(ids) for ids in sequences])
        return read_each(self._nats, replies, sequences)

    def _request(self, ids: Sequence[int]) -> dict[str, Any]:
        """The request that scores these ids."""
        raise NotImplementedError

    def _nats(self, reply: Reply, ids: Sequence[int]) -> Nats:
        """The nats in its reply."""
        raise NotImplementedError

    def _version(self) -> str:
        """The server's version; empty if it has none that is printable."""
        return ""

    def _limit(self) -> int:
        """The longest sequence that the server states; 0 if none."""
        served = self._client.get("/v1/models").get("data") or [{}]
        first = served[0] if isinstance(served, list) else served
        return whole_limit("max_model_len", first.get("max_model_len") if isinstance(first, dict) else first)


class VllmServer(ServerBackend):
    """vLLM's completions with its own `prompt_logprobs`."""

    name = "vllm-server"

    def _request(self, ids: Sequence[int]) -> dict[str, Any]:
        sampling = {"max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
        return {"model": self._served, "prompt": list(ids), **sampling}

    def _nats(self, reply: Reply, ids: Sequence[int]) -> Nats:
        entries = first_choice(reply).get("prompt_logprobs")
        if not isinstance(entries, list):
            raise InputError("the server gave no prompt_logprobs; is it vLLM? (else use --model completions)")
        values: list[Any] = []
        for position, (entry, token) in enumerate(zip(entries, ids, strict=False)):  # {"token id": {"logprob": …}}
            scored = entry.get(str(token)) if isinstance(entry, dict) else None
            if entry is not None and scored is None:
                raise _other_token(next(iter(entry), "none") if isinstance(entry, dict) else entry, token, position)
            values.append(scored.get("logprob") if isinstance(scored, dict) else scored)
        return from_logprobs([*values, *entries[len(values) :]], ids, "the server")

    def _version(self) -> str:
        return printable_version(self._client.get("/version"))


class SglangServer(ServerBackend):
    """SGLang's own `/generate`."""

    name, route = "sglang", "/generate"

    def _request(self, ids: Sequence[int]) -> dict[str, Any]:
        sampling = {"max_new_tokens": 1, "temperature": 0}
        return {"input_ids": list(ids), "sampling_params": sampling, "return_logprob": True, "logprob_start_len": 0}

    def _nats(self, reply: Reply, ids: Sequence[int]) -> Nats:
        meta = reply.get("meta_info")
        entries = meta.get("input_token_logprobs") if isinstance(meta, dict) else None
        if not isinstance(entries, list) or not entries:
            raise InputError("the server gave no input_token_logprobs; is it SGLang's /generate?")
        for position, entry in enumerate(entries):
            if not isinstance(entry, list) or len(entry) < 2:
                raise InputError(f"the server gave {shown(entry)} for token {position}; [logprob, id, text] is needed")
            if position < len(ids) and entry[1] != ids[position]:
                raise _other_token(entry[1], ids[position], position)
        return from_logprobs([entry[0] for entry in entries], ids, "the server")

    def _version(self) -> str:
        return printable_version(self._info())

    def _limit(self) -> int:
        """The context length set at the server's start, else its longest input."""
        info = self._info()
        name = "context_length" if info.get("context_length") else "max_req_input_len"
        return whole_limit(name, info.get(name))

    def _info(self) -> Reply:
        return self._client.get("/get_server_info") or self._client.get("/server_info")


class EchoServer(ServerBackend):
    """OpenAI-compatible completions whose `echo` scores the prompt; checked once before it is trusted."""

    name = "completions"

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        """−log p of every id given the ids before it, once the server's echo agrees with its generation."""
        if self._unverified:
            verify_echo(lambda ids: first_choice(self._client.post(self.route, self._request(ids))), self.vocabulary)
            self._unverified = False
        return super().score(sequences)

    def _request(self, ids: Sequence[int]) -> dict[str, Any]:
        sampling = {"max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True}
        return {"model": self._served, "prompt": list(ids), **sampling}

    def _nats(self, reply: Reply, ids: Sequence[int]) -> Nats:
        tokens, values = _logprobs(first_choice(reply))
        if not tokens or len(values) < len(ids):
            raise InputError(f"the server gave {len(values)} log-probabilities for {len(ids)} prompt tokens; {NO_ECHO}")
        if len(values) != len(tokens):
            raise InputError(f"the server gave {len(tokens)} tokens and {len(values)} log-probabilities")
        if len(values) > len(ids) + 1:
            raise InputError(
                f"the server scored {len(values)} tokens, {len(ids)} were sent; does it add a BOS of its own?"
            )
        sent = zip(tokens[1:], ids[1:], self.vocabulary.tokenizer.pieces(ids[1:]), strict=False)
        for position, (word, token, piece) in enumerate(sent, start=1):
            if not isinstance(word, str) or _differs(word, token, piece):
                raise InputError(f"the server scored {shown(word)} at position {position}, {piece!r} was sent")
        return from_logprobs([None, *values[1 : len(ids)]], ids, "the server")


def first_choice(reply: Reply) -> Reply:
    """The only choice of a completion."""
    choices = reply.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise InputError("the server's reply has no single choice; is this a completions server?")
    return dict(choices[0])


def _other_token(scored: Any, sent: int, position: int) -> InputError:
    return InputError(f"the server scored token id {shown(scored)} at position {position}, {sent} was sent")


def whole_limit(name: str, value: Any) -> int:
    """A context length from a server's reply; 0 if it has none."""
    if not value:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 2:
        raise InputError(
            f"the server's {name} is {shown(value)}, a whole number from 2 is needed; add max_length=… to --model_args"
        )
    return value


def printable_version(info: Reply) -> str:
    """A version from a server's reply; empty if it has none that is printable."""
    version = info.get("version")
    return version[:100] if isinstance(version, str) and version.isprintable() else ""


def _differs(word: str, token: int, piece: bytes) -> bool:
    """Whether the server's spelling of a token is certainly another token; most spellings cannot be compared."""
    if word.startswith("token_id:"):
        return word != f"token_id:{token}"
    sent = piece.decode(errors="replace").strip()
    if not re.fullmatch(r"[A-Za-z0-9]+", sent):
        return False
    bare = re.sub(r"^[Ġ▁\s]+", "", word).strip()
    return bool(re.fullmatch(r"[A-Za-z0-9]+", bare)) and bare != sent


def verify_echo(echo: Callable[[Sequence[int]], Reply], vocabulary: Vocabulary) -> None:
    """Raise InputError if the server's echo does not agree with its generation.

    Some servers score token i with the logits computed after reading it, which gives plausible but meaningless numbers.
    The check: a token that the server generates must have the same log-probability when it is echoed.
    """
    compared = 0
    for text in PROBES:
        start = vocabulary.tokenizer.encode(text)
        shown, generated = _last(echo([*vocabulary.prefix, *start]), len(vocabulary.prefix) + len(start))
        longer = vocabulary.tokenizer.encode(text + shown)
        if not shown or longer[:-1] != start:
            continue
        sent = [*vocabulary.prefix, *longer]
        _, values = _logprobs(echo(sent))
        echoed = values[len(sent) - 1] if len(values) >= len(sent) else None
        if not is_number(echoed) or abs(echoed - generated) > LIMIT:
            raise InputError(
                f"the server's echo is wrong: after {text!r} it generates {shown!r} with log-probability "
                f"{generated:.2f} and echoes it with {f'{echoed:.2f}' if is_number(echoed) else 'none'}; "
                "llama.cpp's Python server does this: use --model llamacpp with the file"
            )
        compared += 1
    if not compared:
        raise InputError(
            "the server's echo cannot be checked against its own generation; add verify_echo=false to "
            "--model_args and --check-against hf if you trust it"
        )


def _last(choice: Reply, sent: int) -> tuple[str, float]:
    """The generated token and its log-probability."""
    tokens, values = _logprobs(choice)
    usual = len(tokens) == len(values) == sent + 1
    if not usual or not is_number(values[-1]) or not isinstance(tokens[-1], str):
        raise InputError(
            f"the server gave {len(values)} log-probabilities for {sent} prompt tokens and 1 generated; {NO_ECHO}"
        )
    return tokens[-1], float(values[-1])


def _logprobs(choice: Reply) -> tuple[list[Any], list[Any]]:
    """The tokens of a choice and their log-probabilities; empty lists if it has none."""
    logprobs = choice.get("logprobs")
    lists = [logprobs.get(key) if isinstance(logprobs, dict) else None for key in ("tokens", "token_logprobs")]
    tokens, values = (value if isinstance(value, list) else [] for value in lists)
    return tokens, values
