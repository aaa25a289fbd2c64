"""Backends for servers that score prompts: vLLM, SGLang, and OpenAI-compatible servers with `echo`.

Requests contain token ids, and the ids in replies are checked, so that the server's tokenizer is not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from benchcast.collection.backends.sources import source_name
from benchcast.collection.backends.vocabulary import VocabularySource
from benchcast.collection.tokenizers import Tokenizer
from benchcast.errors import InputError

DEFAULT_CONTEXT = 2048
Reply = dict[str, Any]
PROBES = ("The capital of France is", "1, 2, 3, 4, 5, 6,", "Once upon a time, there was a little")
LIMIT = 0.5  # nats; numerical noise of bfloat16 stays below it, wrong logits exceed it


@dataclass(frozen=True, slots=True)
class Dialect:
    """Requests and replies of one kind of server."""

    route: str
    ask: Callable[[str, Sequence[int]], Reply]
    read: Callable[[Reply, Sequence[int], Tokenizer], Nats]
    version: Callable[[Client], str]
    context: Callable[[Client], int]


class ServerBackend:
    """A model that a server holds."""

    def __init__(
        self, name: str, dialect: Dialect, settings: ModelSettings, *, device: str = "", batch_size: int = 0
    ) -> None:
        self.name, self._dialect = name, dialect
        self._client, self.asked = Client(settings), settings.line
        self._served = settings.text("model") or settings.text("pretrained")
        if not self._served and not settings.text("tokenizer"):
            raise InputError(
                f"{settings.where}: no model; add model=NAME, and tokenizer=… where that is no hub id or path"
            )
        self._max_length = settings.whole("max_length", 0)
        self._dtype = settings.text("dtype", "unknown")
        self._verify, self._verified = settings.flag("verify_echo", True), False
        self._tokens = VocabularySource.of(settings, self._served)
        self.model = source_name(self._served or settings.text("tokenizer"))
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
        return (self._max_length or self._dialect.context(self._client) or DEFAULT_CONTEXT) - 1

    def about(self) -> dict[str, str]:
        """Backend, version and dtype; the dtype is unknown unless the settings give it."""
        version = self._dialect.version(self._client) or "unknown"
        return {"backend": self.name, "backend_version": version, "dtype": self._dtype}

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Nats]:
        """−log p of every id given the ids before it; sends several requests concurrently."""
        if self.name == "completions" and self._verify and not self._verified:
            self._verified = verify_echo(self._echo, self.vocabulary)
        dialect, tokenizer = self._dialect, self.vocabulary.tokenizer
        replies = self._client.post_all(dialect.route, [dialect.ask(self._served, ids) for ids in sequences])
        return read_each(lambda reply, ids: dialect.read(reply, ids, tokenizer), replies, sequences)

    def _echo(self, ids: Sequence[int]) -> Reply:
        return first_choice(self._client.post(self._dialect.route, self._dialect.ask(self._served, ids)))


def first_choice(reply: Reply) -> Reply:
    """The only choice of a completion."""
    choices = reply.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise InputError("the server's reply has no single choice; is this a completions server?")
    return dict(choices[0])


def _ask_vllm(model: str, ids: Sequence[int]) -> Reply:
    return {"model": model, "prompt": list(ids), "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}


def _read_vllm(reply: Reply, ids: Sequence[int], tokenizer: Tokenizer) -> Nats:
    entries = first_choice(reply).get("prompt_logprobs")
    if not isinstance(entries, list):
        raise InputError("the server gave no prompt_logprobs; is it vLLM? (else use --model completions)")
    scored = enumerate(zip(entries, ids, strict=False))
    values = [None if entry is None else _vllm_logprob(entry, token, at) for at, (entry, token) in scored]
    return from_logprobs([*values, *entries[len(values) :]], ids, "the server")


def _vllm_logprob(entry: Any, token: int, position: int) -> Any:
    """The log-probability in an entry {"token id": {"logprob": …}}."""
    scored = entry.get(str(token)) if isinstance(entry, dict) else None
    if scored is None:
        scored_id = next(iter(entry), "none") if isinstance(entry, dict) else entry
        raise InputError(f"the server scored token id {shown(scored_id)} at position {position}, {token} was sent")
    return scored.get("logprob") if isinstance(scored, dict) else scored


def _vllm_context(client: Client) -> int:
    served = client.get("/v1/models").get("data") or [{}]
    first = served[0] if isinstance(served, list) else served
    return _length("max_model_len", first.get("max_model_len") if isinstance(first, dict) else first)


def _length(name: str, value: Any) -> int:
    """A context length from a server's reply; 0 if it has none."""
    if not value:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or value < 2:
        raise InputError(
            f"the server's {name} is {shown(value)}, a whole number from 2 is needed; add max_length=… to --model_args"
        )
    return value


def _version(info: Reply) -> str:
    """A version from a server's reply; empty if it has none that is printable."""
    version = info.get("version")
    return version[:100] if isinstance(version, str) and version.isprintable() else ""


def _ask_sglang(model: str, ids: Sequence[int]) -> Reply:
    sampling = {"max_new_tokens": 1, "temperature": 0}
    return {"input_ids": list(ids), "sampling_params": sampling, "return_logprob": True, "logprob_start_len": 0}


def _read_sglang(reply: Reply, ids: Sequence[int], tokenizer: Tokenizer) -> Nats:
    meta = reply.get("meta_info")
    entries = meta.get("input_token_logprobs") if isinstance(meta, dict) else None
    if not isinstance(entries, list) or not entries:
        raise InputError("the server gave no input_token_logprobs; is it SGLang's /generate?")
    for position, entry in enumerate(entries):
        if not isinstance(entry, list) or len(entry) < 2:
            raise InputError(f"the server gave {shown(entry)} for token {position}; [logprob, id, text] is needed")
        if position < len(ids) and entry[1] != ids[position]:
            token = ids[position]
            raise InputError(f"the server scored token id {shown(entry[1])} at position {position}, {token} was sent")
    return from_logprobs([entry[0] for entry in entries], ids, "the server")


def _sglang_info(client: Client) -> Reply:
    return client.get("/get_server_info") or client.get("/server_info")


def _sglang_context(client: Client) -> int:
    """The context length set at the server's start, else its longest input."""
    info = _sglang_info(client)
    name = "context_length" if info.get("context_length") else "max_req_input_len"
    return _length(name, info.get(name))


def _ask_echo(model: str, ids: Sequence[int]) -> Reply:
    return {"model": model, "prompt": list(ids), "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True}


def _read_echo(reply: Reply, ids: Sequence[int], tokenizer: Tokenizer) -> Nats:
    tokens, values = _logprobs(first_choice(reply))
    if not tokens or len(values) < len(ids):
        raise InputError(
            f"the server gave {len(values)} log-probabilities for {len(ids)} prompt tokens; it does not echo the "
            "prompt and cannot score it (llama.cpp's servers cannot: use --model llamacpp with the file)"
        )
    if len(values) != len(tokens):
        raise InputError(f"the server gave {len(tokens)} tokens and {len(values)} log-probabilities")
    if len(values) > len(ids) + 1:
        raise InputError(f"the server scored {len(values)} tokens, {len(ids)} were sent; does it add a BOS of its own?")
    sent = zip(tokens[1:], ids[1:], tokenizer.pieces(ids[1:]), strict=False)
    for position, (word, token, piece) in enumerate(sent, start=1):
        if not isinstance(word, str) or _differs(word, token, piece):
            raise InputError(f"the server scored {shown(word)} at position {position}, {piece!r} was sent")
    return from_logprobs([None, *values[1 : len(ids)]], ids, "the server")


def _differs(word: str, token: int, piece: bytes) -> bool:
    """Whether the server's spelling of a token is certainly another token; most spellings cannot be compared."""
    if word.startswith("token_id:"):
        return word != f"token_id:{token}"
    sent = piece.decode(errors="replace").strip()
    if not re.fullmatch(r"[A-Za-z0-9]+", sent):
        return False
    bare = re.sub(r"^[Ġ▁\s]+", "", word).strip()
    return bool(re.fullmatch(r"[A-Za-z0-9]+", bare)) and bare != sent


DIALECTS = {
    "vllm-server": Dialect(
        "/v1/completions", _ask_vllm, _read_vllm, lambda c: _version(c.get("/version")), _vllm_context
    ),
    "sglang": Dialect("/generate", _ask_sglang, _read_sglang, lambda c: _version(_sglang_info(c)), _sglang_context),
    "completions": Dialect("/v1/completions", _ask_echo, _read_echo, lambda c: "", _vllm_context),
}


def verify_echo(echo: Callable[[Sequence[int]], dict[str, Any]], vocabulary: Vocabulary) -> bool:
    """True if the server's echo agrees with its generation; InputError if it does not.

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
    return True


def _last(choice: dict[str, Any], sent: int) -> tuple[str, float]:
    """The generated token and its log-probability."""
    tokens, values = _logprobs(choice)
    usual = len(tokens) == len(values) == sent + 1
    if not usual or not is_number(values[-1]) or not isinstance(tokens[-1], str):
        raise InputError(
            f"the server gave {len(values)} log-probabilities for {sent} prompt tokens and 1 generated; "
            "it does not echo the prompt and cannot score it "
            "(llama.cpp's servers cannot: use --model llamacpp with the file)"
        )
    return tokens[-1], float(values[-1])


def _logprobs(choice: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """The tokens of a choice and their log-probabilities; empty lists if it has none."""
    logprobs = choice.get("logprobs")
    lists = [logprobs.get(key) if isinstance(logprobs, dict) else None for key in ("tokens", "token_logprobs")]
    tokens, values = (value if isinstance(value, list) else [] for value in lists)
    return tokens, values
