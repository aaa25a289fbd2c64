"""A Llama in plain functions: compiled for training, masked for scoring, cached for generation.

Axes: B rows, T positions, H heads, K head width, D model width, F feed-forward width, V vocabulary. Weights keep
the names of transformers' LlamaForCausalLM, so a state dict is a checkpoint of it; a test compares the logits.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lab.zoo.families import CONTEXT, Family, shape

EPSILON = 1e-5
LAYER = ("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
         "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")  # fmt: skip
Weights = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Shape:
    """The dimensions of one model."""

    vocabulary: int
    layers: int
    width: int
    rope_theta: float
    tied: bool

    @property
    def heads(self) -> int:
        return self.width // (64 if self.width % 64 == 0 and self.width >= 256 else 32)

    @property
    def hidden(self) -> int:
        return -(-self.width * 8 // 3 // 32) * 32

    def config(self) -> dict:
        """Arguments of transformers' LlamaConfig."""
        return {
            "vocab_size": self.vocabulary, "hidden_size": self.width, "intermediate_size": self.hidden,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads, "num_key_value_heads": self.heads,
            "max_position_embeddings": CONTEXT, "rms_norm_eps": EPSILON, "rope_theta": self.rope_theta,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "tie_word_embeddings": self.tied, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
        }  # fmt: skip


def shape_of(family: Family, size: str) -> Shape:
    layers, width = shape(family, size)
    return Shape(family.vocabulary, layers, width, family.rope_theta, family.tied)


def layer_names(index: int) -> list[str]:
    return [f"model.layers.{index}.{part}.weight" for part in LAYER]


def init_weights(shape: Shape, *, seed: int, device: str) -> Weights:
    """Normal weights of scale 0.02, smaller where a layer writes to the residual stream; norms are ones."""
    d, f, generator = shape.width, shape.hidden, torch.Generator().manual_seed(seed)
    sizes = [(d,), (d, d), (d, d), (d, d), (d, d), (d,), (f, d), (f, d), (d, f)]
    weights: Weights = {}

    def add(name: str, size: tuple[int, ...]) -> None:
        scale = 0.02 / (2 * shape.layers) ** 0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02
        drawn = torch.ones(size) if len(size) == 1 else torch.randn(size, generator=generator) * scale
        weights[name] = drawn.to(device)

    add("model.embed_tokens.weight", (shape.vocabulary, d))
    for i in range(shape.layers):
        for name, size in zip(layer_names(i), sizes, strict=True):
            add(name, size)
    add("model.norm.weight", (d,))
    if not shape.tied:
        add("lm_head.weight", (shape.vocabulary, d))
    return weights


def head_weight(weights: Weights) -> Tensor:
    return weights.get("lm_head.weight", weights["model.embed_tokens.weight"])


def rotation(shape: Shape, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary embedding, with an axis for the heads: (…, 1, T, K)."""
    width = shape.width // shape.heads
    exponents = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32) / width
    angles = positions[..., None].float() / shape.rope_theta**exponents
    angles = torch.cat([angles, angles], -1).unsqueeze(-3)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.float().chunk(2, -1)
    return (x.float() * cos + torch.cat([-right, left], -1) * sin).to(x.dtype)


def norm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return (weight.float() * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON))).to(x.dtype)


def queries_keys_values(
    x: Tensor, layer: list[Tensor], heads: int, cos: Tensor, sin: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    b, t, d = x.shape
    inner = norm(x, layer[0])
    q, k, v = (F.linear(inner, w.to(x.dtype)).view(b, t, heads, d // heads).transpose(1, 2) for w in layer[1:4])
    return rotate(q, cos, sin), rotate(k, cos, sin), v


def finish_layer(x: Tensor, mixed: Tensor, layer: list[Tensor]) -> Tensor:
    """Residual after attention, then the feed-forward part."""
    x = x + F.linear(mixed.transpose(1, 2).reshape(x.shape), layer[4].to(x.dtype))
    inner = norm(x, layer[5])
    gate, up, down = (w.to(x.dtype) for w in layer[6:9])
    return x + F.linear(F.silu(F.linear(inner, gate)) * F.linear(inner, up), down)


def causal_layer(x: Tensor, layer: list[Tensor], heads: int, cos: Tensor, sin: Tensor) -> Tensor:
    q, k, v = queries_keys_values(x, layer, heads, cos, sin)
    return finish_layer(x, F.scaled_dot_product_attention(q, k, v, is_causal=True), layer)


def head_loss(x: Tensor, norm_weight: Tensor, head: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy in nats."""
    logits = F.linear(norm(x, norm_weight), head.to(x.dtype)).float()
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def layer_of(weights: Weights, index: int) -> list[Tensor]:
    return [weights[name] for name in layer_names(index)]


def last_hidden(weights: Weights, shape: Shape, ids: Tensor, *, dtype: torch.dtype, positions: Tensor | None = None,
                mask: Tensor | None = None) -> Tensor:  # fmt: skip
    """Normalised hidden states before the output layer.

    Plain causal attention without a mask; else `mask` (B, 1, T, T) is true where a position may look, and
    `positions` (B, T) says where each token sits.
    """
    if positions is None:
        positions = torch.arange(ids.shape[1], device=ids.device)
    cos, sin = rotation(shape, positions)
    x = F.embedding(ids, weights["model.embed_tokens.weight"]).to(dtype)
    for i in range(shape.layers):
        layer = layer_of(weights, i)
        q, k, v = queries_keys_values(x, layer, shape.heads, cos, sin)
        x = finish_layer(x, F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None), layer)
    return norm(x, weights["model.norm.weight"])


def parameter_counts(weights: Weights) -> tuple[int, int]:
    """All parameters, and those without the embedding tables."""
    total = sum(w.numel() for w in weights.values())
    tables = sum(w.numel() for name, w in weights.items() if "embed_tokens" in name or "lm_head" in name)
    return total, total - tables


def training_flops(weights: Weights, shape: Shape, tokens: int, context: int = CONTEXT) -> float:
    """6 × (weights outside the tables + output) + 6 × layers × width × context for causal attention, per token."""
    dense = parameter_counts(weights)[1] + shape.vocabulary * shape.width
    return float(tokens) * (6 * dense + 6 * shape.layers * shape.width * context)
