"""Check that a server's `echo` returns correct log-probabilities.

Some servers score token i with the logits computed after reading it, which gives plausible but meaningless numbers.
The check: a token that the server generates must have the same log-probability when it is echoed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchcast.backends.base import Vocabulary, is_number
from benchcast.errors import InputError

PROBES = ("The capital of France is", "1, 2, 3, 4, 5, 6,", "Once upon a time, there was a little")
LIMIT = 0.5  # nats; numerical noise of bfloat16 stays below it, wrong logits exceed it


def verify_echo(echo: Callable[[Sequence[int]], dict[str, Any]], vocabulary: Vocabulary) -> bool:
    """True if the server's echo agrees with its generation; InputError if it does not."""
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
