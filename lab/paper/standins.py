"""Tiny models under the names of the paper's 59, to rehearse its reproduction on a CPU.

Each is a Llama of one layer that attends to nothing: it forecasts the kind of the next byte from the kind of the
last one, and does so the better, the better its namesake scores. So losses fall with the printed scores by
construction: a rehearsal shows that every step works, and nothing about the real models.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.study.atomic import write_folder
from lab.paper.models import hub_ids
from lab.paper.tables import scores

WIDTH = 64
CONTEXT = 8192
PAIRS = (b"th", b"he", b"in", b"er", b"an", b"re", b"on", b"at", b"en", b"or")  # tokens of two bytes, where merged
PIECES = (*(bytes([b]) for b in range(256)), *PAIRS)
BOS = len(PIECES)
VOCABULARY = BOS + 1
MERGING = ("Qwen", "01-ai")  # publishers whose stand-ins merge pairs: two tokenizers are regrouped onto one
SKILLS = {"words": ("mmlu", "bbh", "hellaswag"), "sums": ("gsm8k",), "chinese": ("ceval", "cmmlu")}
SUMS = b"0123456789+-*/=<>$"
FLAGS = ("single_word", "lstrip", "rstrip", "normalized")  # of a special token, all off
NOISE = 0.05  # of the head; models of one quality differ by it

Weights = npt.NDArray[np.float32]


def write_stand_ins(folder: Path) -> int:
    """One checkpoint for each model, in a folder named like its hub id; says how many."""
    printed = scores()
    for number, (model, name) in enumerate(sorted(hub_ids().items())):
        quality = {kind: float(np.mean([printed[model][t] for t in tasks])) for kind, tasks in SKILLS.items()}
        write_stand_in(folder / name, quality, seed=number, merging=name.startswith(MERGING))
    return len(printed)


def write_stand_in(folder: Path, quality: Mapping[str, float], *, seed: int, merging: bool) -> None:
    """A checkpoint as transformers and vLLM read it; `quality`, from 0 to 1, is that of each kind of byte."""
    from safetensors.numpy import save

    blob = save(weights(quality, np.random.default_rng(seed)), metadata={"format": "pt"})
    texts = {
        "config.json": config(),
        "tokenizer.json": tokenizer(merging=merging),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "add_bos_token": True,
            "clean_up_tokenization_spaces": False,
        },
    }

    def fill(place: Path) -> None:
        (place / "model.safetensors").write_bytes(blob)
        for name, content in texts.items():
            (place / name).write_text(json.dumps(content, indent=1), encoding="utf-8")

    write_folder(folder, fill)


def weights(quality: Mapping[str, float], rng: np.random.Generator) -> dict[str, Weights]:
    """Embeddings of one length that begin with the byte's kind, and a head that reads the kind off them."""
    kinds = [*map(kind_of, PIECES), "words"]  # BOS is followed by what follows words
    embedding = rng.normal(size=(VOCABULARY, WIDTH))
    embedding[:, : len(SKILLS)] = 0
    embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    head = rng.normal(scale=NOISE, size=(VOCABULARY, WIDTH))
    for axis, (kind, q) in enumerate((kind, quality[kind]) for kind in SKILLS):
        embedding[[k == kind for k in kinds], axis] = 1
        likely = np.array([*(follows(kind, piece) for piece in PIECES), False])
        read = np.sqrt(WIDTH / 2)  # what the last normalisation makes of that 1
        head[:, axis] = np.log(q * likely / likely.sum() + (1 - q) / VOCABULARY) / read
    square, nothing, one = rng.normal(scale=0.02, size=(WIDTH, WIDTH)), np.zeros((WIDTH, WIDTH)), np.ones(WIDTH)
    inside = {
        **dict.fromkeys(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj"), square),
        **dict.fromkeys(("self_attn.o_proj", "mlp.up_proj", "mlp.down_proj"), nothing),
        **dict.fromkeys(("input_layernorm", "post_attention_layernorm"), one),
    }
    arrays = {"model.embed_tokens.weight": embedding, "lm_head.weight": head, "model.norm.weight": one}
    arrays |= {f"model.layers.0.{name}.weight": x for name, x in inside.items()}
    return {name: np.array(x, np.float32) for name, x in arrays.items()}


def kind_of(piece: bytes) -> str:
    """What a byte belongs to: Chinese (or anything else beyond ASCII), sums, or words."""
    last = piece[-1]
    return "chinese" if last >= 0x80 else "sums" if last in SUMS else "words"


def follows(kind: str, piece: bytes) -> bool:
    """Whether a piece is likely after a byte of some kind: more of the same script."""
    return (piece[0] >= 0x80) if kind == "chinese" else (piece[0] == 0x0A or 0x20 <= piece[0] < 0x7F)


def config() -> dict[str, Any]:
    """config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "intermediate_size": WIDTH,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "max_position_embeddings": CONTEXT,
        "bos_token_id": BOS,
        "eos_token_id": None,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
    }


def tokenizer(*, merging: bool) -> dict[str, Any]:
    """tokenizer.json: bytes under the letters that GPT-2 gives them, with or without merged pairs."""
    shown = letters()
    named = ["".join(shown[b] for b in piece) for piece in PIECES]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    first = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    return {
        "version": "1.0",
        "added_tokens": [{"id": BOS, "content": "<s>", "special": True, **dict.fromkeys(FLAGS, False)}],
        "normalizer": None,
        "pre_tokenizer": level,
        "decoder": level,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [first, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}},
        },
        "model": {
            "type": "BPE",
            "vocab": {name: i for i, name in enumerate(named)},
            "merges": [list(map(chr, pair)) for pair in PAIRS] if merging else [],
        },
    }


def letters() -> list[str]:
    """The letter that stands for each byte in a byte-level vocabulary: itself where it can be seen."""
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return [chr(b) if b in seen else chr(next(spare)) for b in range(256)]
