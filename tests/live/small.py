"""Small things to train: a tokenizer of bytes, a Llama with dropout, rows of tokens; importable by other processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TOKENIZER = Path(__file__).parents[1] / "zoo" / "shipped" / "ash-0.5M" / "tokenizer.json"


def tokenizer_with_bos(path: Path) -> Any:
    """A tokenizer that puts <bos> before every text."""
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.post_processor = TemplateProcessing(
        single="<bos> $A", special_tokens=[("<bos>", tokenizer.token_to_id("<bos>"))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>")


def small_model(seed: int = 0, dropout: float = 0.2) -> Any:
    """Two layers of width 32 with dropout in attention."""
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=320,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=128,
            attention_dropout=dropout,
            tie_word_embeddings=True,
        )
    )


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """Random tokens to train on."""

    def __init__(self, count: int = 64, length: int = 16) -> None:
        source = torch.Generator().manual_seed(7)
        self.ids = torch.randint(3, 320, (count, length), generator=source)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


def leave() -> NoReturn:
    """End a rank at once, as the last line of its `main`, while everything that used gloo is still alive.

    The destructor of a process group waits for gloo's threads with the GIL held, and these need the GIL to release
    their last tensors: one run of ten never ended. In an interpreter that shuts down the same threads abort.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
