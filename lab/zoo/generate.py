"""Greedy generation for many prompts at once, with a static key-value cache."""

import torch
from torch import Tensor
from torch.nn import functional as F

from lab.zoo import vocab
from lab.zoo.model import Shape, Weights, finish_layer, head_weight, layer_of, norm, queries_keys_values, rotation

CACHE_BYTES = 4 << 30
LOOK_EVERY = 8  # steps between looks at whether all rows have ended: each look waits for the device


class Cache:
    """Keys and values of all layers: two tensors (layers, B, heads, T, K)."""

    def __init__(self, shape: Shape, rows: int, length: int, *, like: Tensor, dtype: torch.dtype) -> None:
        size = (shape.layers, rows, shape.heads, length, shape.width // shape.heads)
        self.keys, self.values = (torch.zeros(size, device=like.device, dtype=dtype) for _ in range(2))
        self.rows = torch.arange(rows, device=like.device)
        self.places = torch.arange(length, device=like.device)


def read_prompts(weights: Weights, shape: Shape, ids: Tensor, cache: Cache) -> Tensor:
    """Fill the cache with right-padded prompts; returns the hidden states (B, T, D)."""
    cos, sin = rotation(shape, torch.arange(ids.shape[1], device=ids.device))
    x = F.embedding(ids, weights["model.embed_tokens.weight"]).to(cache.keys.dtype)
    for i in range(shape.layers):
        layer = layer_of(weights, i)
        q, k, v = queries_keys_values(x, layer, shape.heads, cos, sin)
        cache.keys[i, :, :, : ids.shape[1]], cache.values[i, :, :, : ids.shape[1]] = k, v
        x = finish_layer(x, F.scaled_dot_product_attention(q, k, v, is_causal=True), layer)
    return x


def read_token(weights: Weights, shape: Shape, ids: Tensor, places: Tensor, cache: Cache) -> Tensor:
    """One more token per row, at that row's own place; what padding left in the cache there is overwritten."""
    cos, sin = rotation(shape, places[:, None])
    mask = (cache.places <= places[:, None])[:, None, None]
    x = F.embedding(ids[:, None], weights["model.embed_tokens.weight"]).to(cache.keys.dtype)
    for i in range(shape.layers):
        layer = layer_of(weights, i)
        q, k, v = queries_keys_values(x, layer, shape.heads, cos, sin)
        cache.keys[i][cache.rows, :, places], cache.values[i][cache.rows, :, places] = k[:, :, 0], v[:, :, 0]
        mixed = F.scaled_dot_product_attention(q, cache.keys[i], cache.values[i], attn_mask=mask)
        x = finish_layer(x, mixed, layer)
    return x[:, 0]


def likeliest(weights: Weights, states: Tensor) -> Tensor:
    return F.linear(norm(states, weights["model.norm.weight"]), head_weight(weights).to(states.dtype)).argmax(-1)


@torch.inference_mode()
def generate_batch(
    weights: Weights, shape: Shape, prompts: list[list[int]], *, longest: int, dtype: torch.dtype
) -> list[list[int]]:
    width, like = max(map(len, prompts)), head_weight(weights)
    ids = torch.tensor([row + [vocab.PAD] * (width - len(row)) for row in prompts], device=like.device)
    places = torch.tensor([len(row) for row in prompts], device=like.device)
    cache = Cache(shape, len(prompts), width + longest, like=like, dtype=dtype)
    states = read_prompts(weights, shape, ids, cache)
    token = likeliest(weights, states[cache.rows, places - 1])
    written, ended = [token], token == vocab.EOS
    for step in range(1, longest):
        if step % LOOK_EVERY == 0 and bool(ended.all()):
            break
        token = likeliest(weights, read_token(weights, shape, token, places, cache))
        places = places + 1
        ended |= token == vocab.EOS
        written.append(token)
    rows = torch.stack(written, 1).tolist()
    return [row[: row.index(vocab.EOS)] if vocab.EOS in row else row for row in rows]


def generate(
    weights: Weights, shape: Shape, prompts: list[list[int]], *, longest: int, dtype: torch.dtype = torch.bfloat16
) -> list[list[int]]:
    """The tokens greedy decoding writes behind each prompt, up to <eos> or `longest` tokens."""
    width = max(map(len, prompts)) + longest
    take = max(1, CACHE_BYTES // (4 * shape.layers * shape.width * width))
    generated: list[list[int]] = []
    for start in range(0, len(prompts), take):
        generated += generate_batch(weights, shape, prompts[start : start + take], longest=longest, dtype=dtype)
    return generated
