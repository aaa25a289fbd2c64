"""The output head of `collect` against torch's `linear_cross_entropy`: hidden states to one loss per token.

    python bench/heads.py                    CPU; widths and vocabularies of SmolLM2-135M, Gemma-3-270M and Llama-3.2-1B
    python bench/heads.py --device cuda      the same in bfloat16 on a GPU

Every row works on the same states; the ways take turns, and the best of their rounds counts. On a CPU it is CPU time,
which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from torch.nn import LinearCrossEntropyOptions
from torch.nn.functional import cross_entropy, linear, linear_cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from benchcast.collection.backends.forward import Forward

HEADS = {"SmolLM2-135M": (576, 49_152), "Gemma-3-270M": (640, 262_144), "Llama-3.2-1B": (2048, 128_256)}


def head_of(weight: torch.Tensor) -> Forward:
    """The head of `collect`, in a model without layers."""
    words, width = weight.shape
    config = LlamaConfig(
        vocab_size=words,
        hidden_size=width,
        intermediate_size=width,
        num_hidden_layers=0,
        num_attention_heads=1,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).to(weight.device, weight.dtype)
    model.lm_head.weight.data = weight
    forward = Forward(model)
    assert forward.plain_head  # it runs the model once, which is not to be timed
    return forward


def ways(rows: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor) -> dict[str, Callable[[], Any]]:
    ours = head_of(weight)
    chunked = LinearCrossEntropyOptions()
    return {
        "collect": lambda: ours._nats(rows, targets),
        "full logits": lambda: cross_entropy(linear(rows, weight).float(), targets, reduction="none"),
        "linear_cross_entropy": lambda: linear_cross_entropy(rows, weight, targets, reduction="none"),
        "the same, chunked": lambda: linear_cross_entropy(rows, weight, targets, reduction="none", options=chunked),
    }


def seconds(work: Callable[[], Any], device: str) -> float:
    clock = time.perf_counter if device != "cpu" else time.process_time
    if device != "cpu":
        torch.cuda.synchronize()
    start = clock()
    work()
    if device != "cpu":
        torch.cuda.synchronize()
    return clock() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    dtype = torch.float32 if given.device == "cpu" else torch.bfloat16
    torch.manual_seed(0)
    print("| head | way | ms | relative to collect | largest difference, nats |\n|---|---|---:|---:|---:|")
    for name, (width, words) in HEADS.items():
        weight = (torch.randn(words, width) / width**0.5).to(given.device, dtype)
        rows = torch.randn(given.tokens, width).to(given.device, dtype)
        targets = torch.randint(words, (given.tokens,), device=given.device)
        best: dict[str, float] = {}
        tried = ways(rows, weight, targets)
        with torch.inference_mode():
            truth = tried["full logits"]()
            gaps = {way: float((work() - truth).abs().max()) for way, work in tried.items()}
            for _ in range(given.rounds):
                for way, work in tried.items():
                    best[way] = min(best.get(way, float("inf")), seconds(work, given.device))
        for way, took in best.items():
            print(
                f"| {name} | {way} | {1000 * took:.0f} | {took / best['collect']:.2f} | {gaps[way]:.1e} |", flush=True
            )


if __name__ == "__main__":
    main()
