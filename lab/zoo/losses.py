"""Token losses of a checkpoint on the validation texts, in float32, each text behind one <bos>."""

from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn import functional as F

from lab.zoo import vocab
from lab.zoo.model import Shape, Weights, head_weight, last_hidden

ROWS = 50


@dataclass(frozen=True, slots=True)
class EncodedTexts:
    """Texts as token ids, with the byte bounds of each text's tokens."""

    ids: list[list[int]]  # without <bos>
    bounds: list[list[int]]


def encode_texts(tokenizer: Tokenizer, texts: list[str]) -> EncodedTexts:
    pieces = vocab.token_bytes(tokenizer)
    ids = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
    return EncodedTexts(ids, [vocab.bounds(i, pieces, text) for i, text in zip(ids, texts, strict=True)])


def pad_rows(rows: list[list[int]], device: str) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [vocab.PAD] * (longest - len(row)) for row in rows], device=device)


def token_losses(weights: Weights, shape: Shape, ids: list[list[int]], *, rows: int = ROWS) -> list[np.ndarray]:
    """Nats of every token of every text."""
    nats = token_signals(weights, shape, ids, rows=rows)["nats"]
    return np.split(nats, np.cumsum([len(i) for i in ids])[:-1])


@torch.inference_mode()
def token_signals(weights: Weights, shape: Shape, ids: list[list[int]], *, rows: int = ROWS) -> dict[str, np.ndarray]:
    """Nats, rank, entropy, hit and margin of every token, all texts one after the other.

    Padding follows the text, so it cannot be seen from inside it.
    """
    wide = {name: weight.float() for name, weight in weights.items()}
    device = str(head_weight(wide).device)
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    signals_of_text: dict[int, dict[str, np.ndarray]] = {}
    for start in range(0, len(order), rows):
        chosen = order[start : start + rows]
        batch = pad_rows([[vocab.BOS, *ids[i]] for i in chosen], device)
        logits = F.linear(last_hidden(wide, shape, batch[:, :-1], dtype=torch.float32), head_weight(wide))
        signals = {name: values.cpu().numpy() for name, values in signals_of(logits, batch[:, 1:]).items()}
        for row, i in enumerate(chosen):
            signals_of_text[i] = {name: values[row, : len(ids[i])] for name, values in signals.items()}
    return {name: np.concatenate([signals_of_text[i][name] for i in range(len(ids))]) for name in signals_of_text[0]}


def signals_of(logits: torch.Tensor, targets: torch.Tensor) -> dict[str, torch.Tensor]:
    """Each signal of the targets, from logits with one more axis."""
    logp = logits.log_softmax(-1)
    target_logp = logp.gather(-1, targets[..., None])
    rank = 1 + (logp > target_logp).sum(-1)
    return {
        "nats": -target_logp[..., 0],
        "rank": rank.to(torch.int32),
        "entropy": -(logp.exp() * logp).sum(-1),
        "hit": rank == 1,
        "margin": (logp.amax(-1, keepdim=True) - target_logp)[..., 0],
    }


@torch.inference_mode()
def hidden_states(weights: Weights, shape: Shape, ids: list[list[int]], *, rows: int = ROWS) -> np.ndarray:
    """The state that has read each token, float16, all texts one after the other: (tokens, width)."""
    wide = {name: weight.float() for name, weight in weights.items()}
    device = str(head_weight(wide).device)
    states_of_texts = []
    for start in range(0, len(ids), rows):
        chosen = ids[start : start + rows]
        states = last_hidden(wide, shape, pad_rows([[vocab.BOS, *i] for i in chosen], device), dtype=torch.float32)
        states_of_texts.extend(states[row, 1 : len(i) + 1].half().cpu().numpy() for row, i in enumerate(chosen))
    return np.concatenate(states_of_texts)
