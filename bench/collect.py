"""Tokens per second and memory of `collect`, against the loops one would write by hand.

    python bench/collect.py                  SmolLM2-135M and Gemma-3-270M on CPU; models come through tests/collect
    python bench/collect.py --device cuda    random models of 100M and 1B parameters; numpy, torch and transformers do
    python bench/collect.py --tiny           random models of no size, to see that it runs; needs no more than cuda
    python bench/collect.py --host           only what collect does besides forward passes, on texts of the GPU table

Every row of a table scores the same tokens, in one run; the loops take turns, and the best of their rounds counts. The
second table scores items with and without their options, which share a prompt.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "collect"))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch

import loops
from benchcast.collection.backends.base import ModelSettings
from benchcast.collection.backends.forward import padded
from benchcast.collection.backends.hf import BUSY, HfBackend
from benchcast.collection.tokenizers import bounds_of
from benchcast.collection.windows import Portion, encode_texts, score
from benchcast.records import Text, TextSet

SENTENCE = "The committee met on Tuesday, and after a long debate it chose the second of the three plans. "
CHINESE = "委员会星期二开会，经过长时间的讨论，选择了三个方案中的第二个。"
CODE = "def mean(values):\n    total = sum(values)\n    return total / len(values)\n\n"
SHIPPED = Path(__file__).resolve().parents[1] / "tests" / "zoo" / "shipped" / "ash-0.5M"
BARE = 605_397  # tokens/s of the bare loop with 100M parameters in bfloat16 on an H200 (lab/LOG.md)
OPTIONS = "| model | items | what | ms | times the texts alone |"
HEADER = "| model | texts | what | tokens/s | collect is … times as fast | GFLOP/s | peak GiB above the model |"


@dataclass(frozen=True, slots=True)
class Size:
    """A random model of the llama kind."""

    name: str
    width: int
    layers: int
    inner: int
    words: int


SIZES = (Size("random 100M", 768, 12, 2048, 32_000), Size("random 1B", 2048, 16, 5632, 128_256))
TINY = (Size("random, tiny", 64, 2, 128, 2_000),)


@dataclass(frozen=True, slots=True)
class Way:
    """How to measure."""

    ours: Callable[..., object]  # what is compared with the bare loops
    rounds: int
    clock: str


def texts(count: int, most: int) -> list[str]:
    """English, Chinese and code; the longest has `most` sentences."""
    rng = np.random.default_rng(0)
    kinds = (SENTENCE, CHINESE, CODE)
    return [f"{i}. {kinds[i % 3] * int(rng.integers(1, most + 1))}" for i in range(count)]


@contextmanager
def random_model(size: Size, dtype: str, device: str) -> Iterator[Path]:
    """A folder with a random model and a real tokenizer, whose few words are among the model's many."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=size.words,
        hidden_size=size.width,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=max(1, size.width // 64),
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.05,  # losses that differ from token to token
    )
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        with torch.device(device):
            LlamaForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(name)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (Path(name) / file).write_bytes((SHIPPED / file).read_bytes())
        yield Path(name)


def open_model(folder: Path, device: str, dtype: str = "float32", batch_size: int = 0) -> HfBackend:
    backend = HfBackend(
        ModelSettings({"pretrained": str(folder), "dtype": dtype}), device=device, batch_size=batch_size
    )
    backend.score([[1, 2, 3]])  # loads the model, so that no row pays for it
    return backend


def encode(backend: HfBackend, chosen: list[str]) -> Portion:
    return encode_texts(backend.vocabulary.tokenizer, named(chosen)).portion("bench", range(len(chosen)))


def named(chosen: list[str]) -> TextSet:
    return TextSet.of(Text(str(i), "bench", text) for i, text in enumerate(chosen))


def through_portions(backend: HfBackend, chosen: list[str]) -> dict[int, Any]:
    """What collect does, from texts to checked numbers; nothing is stored."""
    return scored(backend, encode(backend, chosen))


def scored(backend: HfBackend, portion: Portion) -> dict[int, Any]:
    return {i: rows for part in score(backend, portion) for i, rows in part.rows.items()}


def items(count: int) -> dict[str, TextSet]:
    """Questions with four answers: letters, as in MMLU, and endings, as in HellaSwag."""
    kinds: dict[str, list[Text]] = {"letters of 1 token": [], "endings of a sentence": []}
    for i, prompt in enumerate(texts(count, 3)):
        endings = [f" {SENTENCE[: 40 + 6 * j]} {j}" for j in range(4)]
        for kind, (answer, *options) in zip(kinds, ((" A", " B", " C", " D"), endings), strict=True):
            start = len(prompt.encode())
            kinds[kind].append(Text(str(i), kind, prompt + answer, start, options=tuple(options)))
    return {kind: TextSet.of(of_kind) for kind, of_kind in kinds.items()}


def options_rows(name: str, backend: HfBackend, count: int, way: Way) -> list[str]:
    """Rows of the table of options: the texts alone, with a shared prompt, and with every option by itself."""
    lines = []
    for kind, chosen in items(count).items():
        longest = backend.shared_context
        portions = [
            encode_texts(backend.vocabulary.tokenizer, chosen, options=options).portion("bench", range(count))
            for options in (False, True)
        ]

        def run(portion: Portion, limit: int) -> dict[int, Any]:
            backend._forward.__dict__["shared_context"] = limit
            return scored(backend, portion)

        rows = {
            "texts alone": partial(run, portions[0], 0),
            "with options, prompt shared": partial(run, portions[1], longest),
            "with options, each by itself": partial(run, portions[1], 0),
        }
        best = loops.in_turn(rows, way.rounds, backend._loaded.device, way.clock)
        shared, alone = run(portions[1], longest), run(portions[1], 0)
        backend._forward.__dict__["shared_context"] = longest
        apart = max(np.nanmax(np.abs(shared[i] - alone[i])) for i in shared)
        for row, (seconds, _) in best.items():
            ratio = seconds / best["texts alone"][0]
            differs = f" ({apart:.1e} nats at most from the row below)" if row.endswith("shared") else ""
            lines.append(f"| {name} | {count}, {kind} | {row}{differs} | {1e3 * seconds:,.0f} | {ratio:.2f} |")
    return lines


def to_study(backend: HfBackend, chosen: list[str]) -> None:
    """All of collect, to a file of losses."""
    from benchcast.collection.collect import collect
    from benchcast.study.study import Study

    with tempfile.TemporaryDirectory() as folder:
        study = Study.create(Path(folder) / "study", named(chosen))
        collect(study, backend)


def compare(name: str, backend: HfBackend, chosen: list[str], way: Way) -> None:
    """Print the rows of one model on some texts."""
    model, prefix = backend._loaded, backend.vocabulary.prefix
    sequences = [[*prefix, *ids] for ids in encode(backend, chosen).ids.values()]
    batches = loops.batched(sequences, backend.batch_size, backend.batch_tokens)
    rows: dict[str, Callable[[], object]] = {
        "collect": partial(way.ours, backend, chosen),
        "bare loop, same batches": partial(loops.bare, model, batches),
        "bare loop, one text at a time": partial(loops.bare, model, [[s] for s in sequences]),
    }
    best = loops.in_turn(rows, way.rounds, backend._loaded.device, way.clock)
    tokens, flops = sum(map(len, sequences)), loops.flops_per_token(model)
    about = f"{len(chosen)} of {min(map(len, sequences))}–{max(map(len, sequences))} tokens"
    for row, (seconds, gib) in best.items():
        ratio, speed = seconds / best["collect"][0], tokens / seconds
        print(f"| {name} | {about} | {row} | {speed:,.0f} | {ratio:.2f} | {flops * speed / 1e9:,.0f} | {gib:.2f} |")


def check(name: str, folder: Path, device: str, chosen: list[str]) -> None:
    """Print how far float32 losses are from the plainest loop, and from those of other batches."""
    backend = open_model(folder, device)
    auto = through_portions(backend, chosen)
    few = sorted(auto, key=lambda i: len(auto[i]))[:6]
    ids = encode(backend, chosen).ids
    naive = {i: loops.token_by_token(backend._loaded, [*backend.vocabulary.prefix, *ids[i]]) for i in few}
    apart = max(np.nanmax(np.abs(auto[i][-len(naive[i]) :] - naive[i])) for i in few)
    spread = np.nanstd(np.concatenate(list(auto.values())))
    print(f"{name}, float32: {apart:.1e} nats at most from one forward pass a token ({len(few)} texts);", end=" ")
    print(f"losses spread by {spread:.2f}")
    for size in (1, 7):
        backend.batch_size, backend._fixed_batch = size, True
        other = through_portions(backend, chosen)
        apart = max(np.nanmax(np.abs(auto[i] - other[i])) for i in auto)
        print(f"{name}, float32: {apart:.1e} nats at most from batches of {size}")


def on_random_models(device: str, sizes: tuple[Size, ...], count: int, given: argparse.Namespace) -> None:
    way, of_options = Way(through_portions, given.rounds, given.clock), []
    for size in sizes:
        for dtype in ("float32", "bfloat16"):
            with random_model(size, dtype, device) as folder:
                backend = open_model(folder, device, dtype)
                compare(f"{size.name}, {dtype}", backend, texts(count, 4), way)
                of_options += options_rows(f"{size.name}, {dtype}", backend, count, way)
                del backend
    print_table(OPTIONS, of_options)
    for size in sizes:
        with random_model(size, "float32", device) as folder:
            check(size.name, folder, device, texts(max(12, count // 8), 4))


def on_real_models(given: argparse.Namespace) -> None:
    import convert

    way, of_options = Way(to_study, given.rounds, given.clock), []
    for name, folder in (("SmolLM2-135M", convert.smollm2()), ("Gemma-3-270M", convert.gemma())):
        backend = open_model(folder, "cpu")
        compare(name, backend, texts(9, 8), way)
        compare(name, backend, texts(24, 1), way)
        compare(name, backend, [f"{i} plus {i} is {2 * i}." for i in range(32)], way)
        of_options += options_rows(name, backend, 12, way)
        del backend
    print_table(OPTIONS, of_options)


def print_table(header: str, lines: Sequence[str]) -> None:
    print("\n".join(["", header, "|---" * (header.count("|") - 1) + "|", *lines, ""]))


class Instant:
    """A backend that takes no time: what is left is the work of collect itself."""

    name, model, asked, batch_size, batch_tokens, context = "instant", "bench", "", 64, BUSY["cuda"], 2048

    def __init__(self) -> None:
        self.vocabulary = HfBackend(ModelSettings({"pretrained": str(SHIPPED)}), device="cpu").vocabulary

    def score(self, sequences: Sequence[Sequence[int]]) -> list[Any]:
        return [np.ones(len(s), np.float32) for s in sequences]

    def about(self) -> dict[str, str]:
        return {}


def host(rounds: int, clock: str) -> None:
    """Print the time of each step from texts to checked numbers in which a GPU would wait, and their share."""
    backend = Instant()
    tokenizer, chosen = backend.vocabulary.tokenizer, named(texts(256, 4))
    plain, portion = [text.text for text in chosen], encode_texts(tokenizer, chosen).portion("bench", range(256))
    ids, batches = list(portion.ids.values()), [[w.ids for (w,) in batch] for batch in portion.batches(backend)]
    tokens = sum(map(len, ids))
    steps: dict[str, Callable[[], object]] = {
        "tokens, one text at a time (not used)": lambda: [tokenizer.encode(text) for text in plain],
        "tokens, all texts at once": lambda: tokenizer.encode_all(plain),
        "bounds": lambda: [bounds_of(tokenizer, text, of_text) for text, of_text in zip(plain, ids, strict=True)],
        "batches, checks, rows of texts": lambda: list(score(backend, portion)),
        "padding": lambda: [padded(batch) for batch in batches],
        "padding of the bare loop": lambda: [loops.padded(batch) for batch in batches],
    }
    best = {step: seconds for step, (seconds, _) in loops.in_turn(steps, rounds, "cpu", clock).items()}
    bare = tokens / BARE
    print(f"{tokens:,} tokens, {os.cpu_count()} cores, {clock} clock, best of {rounds}\n\n| step | ms |\n|---|---:|")
    for step, seconds in best.items():
        print(f"| {step} | {1e3 * seconds:.1f} |")
    *ours, theirs = list(best.values())[1:]
    print(f"\nbeside a bare loop of {1e3 * bare:.0f} ms: {bare / (bare - theirs + sum(ours)):.2f} of its speed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--tiny", action="store_true", help="random models of no size, to see that it runs")
    parser.add_argument("--rounds", type=int, default=2, help="how often the loops take their turns")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: on a machine that others use")
    parser.add_argument("--host", action="store_true", help="only what collect does besides forward passes")
    given = parser.parse_args()
    if given.host:
        host(given.rounds, given.clock)
        return
    torch.set_float32_matmul_precision("highest")  # no TF32
    place = torch.cuda.get_device_name() if given.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    print(f"{place}, {given.clock} clock, torch {torch.__version__};", end=" ")
    print(f"a large product of matrices reaches {loops.peak(given.device, given.clock)}\n")
    print(HEADER + "\n" + "|---" * (HEADER.count("|") - 1) + "|")
    if given.tiny:
        on_random_models(given.device, TINY, 12, given)
    elif given.device == "cpu":
        on_real_models(given)
    else:
        on_random_models(given.device, SIZES, 256, given)


if __name__ == "__main__":
    main()
