"""Train the ten tiny language models whose evaluation logs lie in `fixtures/`, and write the items of their tasks.

    python tests/logs/make_models.py FOLDER

Needs torch and transformers; takes about a minute on one core. Items and models are invented here: sums of two
digits, and names of frogs that are facts only in the training text.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

NAMES = ("Ada", "Bo", "Cleo", "Dot", "Eve", "Fay", "Gus", "Hal", "Ivo", "Jo", "Kit", "Lu")
COLOURS = ("green", "brown", "red", "grey")
# name → hidden size, layers, training steps, whether tokens are words
MODELS = {
    "reed-a": (16, 1, 20, False),
    "reed-b": (32, 1, 80, False),
    "reed-c": (32, 2, 200, False),
    "reed-d": (48, 2, 500, False),
    "rush-a": (16, 1, 10, True),
    "rush-b": (24, 1, 40, True),
    "rush-c": (32, 2, 120, True),
    "sedge-a": (32, 1, 40, False),
    "sedge-b": (48, 2, 120, False),
    "sedge-c": (64, 2, 350, False),
}


def sums() -> list[dict[str, Any]]:
    """Sixteen sums with three options."""
    rng = random.Random(0)
    items = []
    for i in range(16):
        a, b = rng.randrange(10), rng.randrange(10)
        wrong = rng.sample([n for n in range(19) if n != a + b], 2)
        options = [str(n) for n in (*wrong[: i % 3], a + b, *wrong[i % 3 :])]
        items.append({"a": a, "b": b, "choices": options, "answer": i % 3})
    return items


def frogs() -> list[dict[str, Any]]:
    """Twelve questions with two options."""
    items = []
    for i, name in enumerate(NAMES):
        options = [COLOURS[i % 4], COLOURS[(i + 1 + i // 4) % 4]]
        right = i * 7 % 5 % 2
        items.append({"question": f"Frog {name} is", "choices": options[::-1] if right else options, "answer": right})
    return items


def last() -> list[dict[str, Any]]:
    """Six sentences whose last word is asked for."""
    return [{"start": f"Frog {name} lives in pond", "word": str(i)} for i, name in enumerate(NAMES[:6], start=1)]


def write() -> list[dict[str, Any]]:
    """Six sums to be written out."""
    return [{"question": f"{a} plus {2 * a % 7} is", "answer": str(a + 2 * a % 7)} for a in range(1, 7)]


def prose() -> list[dict[str, Any]]:
    """Three texts without a question."""
    lines = ("Frog Ada is green. Frog Ada lives in pond 1.", "Frog Bo is red. 2 plus 2 is 4.")
    return [{"text": text} for text in (*lines, "Café frogs ☕ count 3 plus 4 is 7.")]


def corpus() -> list[str]:
    """Every true sentence."""
    lines = [f"{a} plus {b} is {a + b}." for a in range(10) for b in range(10)]
    lines += [f"{x['question']} {x['choices'][x['answer']]}." for x in frogs()] * 4
    return lines + [f"{x['start']} {x['word']}." for x in last()] * 4


def tokenizer(words: bool) -> Any:
    """A tokenizer whose tokens are characters, or words and digits with the space before them."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pattern = r"\s?\w+|[^\w]" if words else r"[\s\S]"
    pieces = sorted({p for line in corpus() for p in _pieces(line, words)} | {chr(i) for i in range(32, 127)} | {"\n"})
    vocabulary = {piece: i for i, piece in enumerate(["<s>", "<unk>", *pieces])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="<s>", unk_token="<unk>", pad_token="<s>"
    )


def _pieces(line: str, words: bool) -> list[str]:
    import re

    return re.findall(r"\s?\w+|[^\w]" if words else r"[\s\S]", line)


def train(name: str, folder: Path) -> None:
    """Train one model and save it with its tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    width, layers, steps, words = MODELS[name]
    torch.manual_seed(sum(map(ord, name)))
    encode = tokenizer(words)
    config = LlamaConfig(
        vocab_size=len(encode),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=2,
        max_position_embeddings=256,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    rows = [[0, *encode(line).input_ids, 0] for line in corpus()]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    labels = torch.tensor([row + [-100] * (longest - len(row)) for row in rows])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        batch = torch.randperm(len(rows))[:64]
        loss = model(ids[batch], labels=labels[batch]).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder / name)
    encode.save_pretrained(folder / name)
    settings = folder / name / "tokenizer_config.json"  # the class has another name before transformers 5
    known = json.loads(settings.read_text(encoding="utf-8")) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    settings.write_text(json.dumps(known), encoding="utf-8")


def main() -> None:
    """Write `models/` and `tasks/*.jsonl` below a folder."""
    root = Path(sys.argv[1])
    (root / "tasks").mkdir(parents=True, exist_ok=True)
    for make_items in (sums, frogs, last, write, prose):
        lines = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in make_items())
        (root / "tasks" / f"{make_items.__name__}.jsonl").write_text(lines, encoding="utf-8")
    for name in MODELS:
        train(name, root / "models")


if __name__ == "__main__":
    main()
