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


@torch.inference_mode()
def token_losses(weights: Weights, shape: Shape, ids: list[list[int]], *, rows: int = ROWS) -> list[np.ndarray]:
    """Nats of every token of every text; padding follows the text, so it cannot be seen from inside it."""
    wide = {name: weight.float() for name, weight in weights.items()}
    device = str(head_weight(wide).device)
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    found: list[np.ndarray] = [np.empty(0)] * len(ids)
    for start in range(0, len(order), rows):
        chosen = order[start : start + rows]
        batch = pad_rows([[vocab.BOS, *ids[i]] for i in chosen], device)
        logits = F.linear(last_hidden(wide, shape, batch[:, :-1], dtype=torch.float32), head_weight(wide))
        nats = F.cross_entropy(logits.transpose(1, 2), batch[:, 1:], reduction="none").cpu().numpy()
        for row, i in enumerate(chosen):
            found[i] = nats[row, : len(ids[i])]
    return found


@torch.inference_mode()
def hidden_states(weights: Weights, shape: Shape, ids: list[list[int]], *, rows: int = ROWS) -> np.ndarray:
    """The state that has read each token, float16, all texts one after the other: (tokens, width)."""
    wide = {name: weight.float() for name, weight in weights.items()}
    device = str(head_weight(wide).device)
    found = []
    for start in range(0, len(ids), rows):
        chosen = ids[start : start + rows]
        states = last_hidden(wide, shape, pad_rows([[vocab.BOS, *i] for i in chosen], device), dtype=torch.float32)
        found.extend(states[row, 1 : len(i) + 1].half().cpu().numpy() for row, i in enumerate(chosen))
    return np.concatenate(found)
