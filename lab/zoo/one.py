"""One training run from tokens to results: train, and at each checkpoint collect losses and scores."""

import hashlib
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from lab.zoo.data import load_tokenizer, load_tokens, validation
from lab.zoo.losses import encode_texts, hidden_states, token_signals
from lab.zoo.model import Weights, init_weights, parameter_counts, shape_of, training_flops
from lab.zoo.recipes import EMBEDDED, Recipe
from lab.zoo.results import run_path, save_arrays, save_checkpoint
from lab.zoo.score import Exam
from lab.zoo.train import Plan, train

CURVE_POINTS = 200
SCORER_FILES = 2


@dataclass(frozen=True, slots=True)
class Settings:
    """What all runs of one command share."""

    work: Path
    device: str
    recipe: Recipe = EMBEDDED
    items: int | None = None  # scored items of each skill; None: as the recipe says
    tiny_steps: int | None = None  # a dry run: this many steps of two rows
    compiled: bool = True
    graphed: bool = True


def plan_for(size: str, settings: Settings) -> Plan:
    recipe = settings.recipe
    chosen = recipe.sizes[size]
    on_gpu = settings.device != "cpu"
    plan = Plan(
        chosen.tokens // (chosen.rows * recipe.context),
        chosen.rows,
        chosen.rate,
        settings.compiled and on_gpu,
        settings.graphed and on_gpu,
        recipe.context,
        recipe.checkpoints,
    )
    return replace(plan, steps=settings.tiny_steps, rows=2) if settings.tiny_steps else plan


def run_flops(recipe: Recipe, name: str, size: str) -> float:
    """What training this run costs."""
    shape = shape_of(recipe.family(name), size)
    weights = init_weights(shape, seed=0, device="meta")
    return training_flops(weights, shape, recipe.sizes[size].tokens, recipe.context)


class Recorder:
    """Collects what every checkpoint of a run is asked for."""

    def __init__(self, name: str, size: str, settings: Settings) -> None:
        self.recipe, self.size, self.settings = settings.recipe, size, settings
        self.family, self.items = self.recipe.family(name), settings.items or self.recipe.items
        self.shape = shape_of(self.family, size)
        tokenizer = load_tokenizer(self.family.tokenizer, settings.work)
        self.texts = encode_texts(tokenizer, [str(row["text"]) for row in validation(self.recipe)])
        self.exam = Exam(tokenizer, self.items, settings.device, self.recipe.skills)
        self.tokens: list[int] = []
        self.measured: dict[str, list[np.ndarray]] = {}
        self.marks: list[np.ndarray] = []
        self.seconds = {"losses": 0.0, "scores": 0.0}
        self.weights: Weights = {}

    def __call__(self, tokens: int, weights: Weights) -> None:
        self.weights = weights
        start = time.perf_counter()
        measured = token_signals(weights, self.shape, self.texts.ids)
        middle = time.perf_counter()
        marks = self.exam.mark(weights, self.shape)
        self.seconds["losses"] += middle - start
        self.seconds["scores"] += time.perf_counter() - middle
        self.tokens.append(tokens)
        for signal, values in measured.items():
            if signal == "nats" or self.recipe.signals:
                self.measured.setdefault(signal, []).append(values)
        self.marks.append(np.stack([marks[skill] for skill in self.recipe.skills]))

    def arrays(self, curve: np.ndarray, facts: dict) -> dict[str, np.ndarray]:
        """The result file: axes C checkpoints, S skills, tokens of all texts one after the other."""
        marks = np.stack(self.marks)
        total, dense = parameter_counts(self.weights)
        every = max(1, len(curve) // CURVE_POINTS)
        about = {"family": self.family.name, "size": self.size, "params": total, "params_without_tables": dense,
                 "skills": list(self.recipe.skills), "items": self.items, "curve_every": every, **facts}  # fmt: skip
        return {
            "about": np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
            "tokens": np.array(self.tokens),
            "flops": np.array([training_flops(self.weights, self.shape, t, self.recipe.context) for t in self.tokens]),
            **{signal: np.stack(values) for signal, values in self.measured.items()},
            "counts": np.array([len(ids) for ids in self.texts.ids]),
            "bounds": np.concatenate([np.array(b, dtype=np.int32) for b in self.texts.bounds]),
            "right": marks.sum(2),
            "right_even": marks[:, :, ::2].sum(2),
            "curve": curve[: len(curve) // every * every].reshape(-1, every).mean(1).astype(np.float32),
        }


def text_set_hash(recipe: Recipe) -> str:
    return hashlib.sha256(json.dumps(validation(recipe), ensure_ascii=False).encode()).hexdigest()


def train_one(name: str, size: str, settings: Settings) -> dict:
    """Train, measure and store one run; returns a summary for the log."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch._dynamo.reset()
    start = time.perf_counter()
    recorder = Recorder(name, size, settings)
    plan, family = plan_for(size, settings), recorder.family
    tokens = load_tokens(family, settings.work, plan.steps * plan.rows * plan.context + 1)
    curve = train(recorder.shape, plan, tokens, device=settings.device, on_checkpoint=recorder)
    tokenizer = settings.work / "tokenizers" / f"{family.tokenizer}.json"
    seconds = time.perf_counter() - start
    training = seconds - sum(recorder.seconds.values())
    teraflops = training_flops(recorder.weights, recorder.shape, recorder.tokens[-1], plan.context) / training / 1e12
    facts = {
        "tokenizer": family.tokenizer, "tokenizer_sha256": hashlib.sha256(tokenizer.read_bytes()).hexdigest(),
        "texts_sha256": text_set_hash(settings.recipe), "torch": torch.__version__, "seconds": round(seconds, 1),
        "seconds_losses": round(recorder.seconds["losses"], 1), "seconds_scores": round(recorder.seconds["scores"], 1),
        "teraflops": round(teraflops, 1), "compiled": plan.compiled, "graphed": plan.graphed,
    }  # fmt: skip
    if name == settings.recipe.scorer.name:
        save_features(recorder)
    elif name in settings.recipe.shipped and size == next(iter(settings.recipe.sizes)):
        save_checkpoint(settings.work / "shipped" / f"{name}-{size}", recorder.weights, recorder.shape, tokenizer)
    save_arrays(run_path(settings.work, name, size), recorder.arrays(curve, facts))
    right = [[round(float(share), 3) for share in marks.mean(1)] for marks in recorder.marks]
    loss = round(float(curve[-50:].mean()), 3)
    return {"run": f"{name}-{size}", **facts, "tokens": recorder.tokens, "right": right, "loss": loss}


def save_features(recorder: Recorder) -> None:
    """The scorer's hidden states, in several files because one would be too large to travel."""
    states = hidden_states(recorder.weights, recorder.shape, recorder.texts.ids)
    counts = np.array([len(ids) for ids in recorder.texts.ids])
    bounds = np.concatenate([np.array(b, dtype=np.int32) for b in recorder.texts.bounds])
    for i, part in enumerate(np.array_split(states, SCORER_FILES)):
        save_arrays(recorder.settings.work / f"scorer-{i}.npz", {"features": part, "counts": counts, "bounds": bounds})
