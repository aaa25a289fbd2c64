"""One training run from tokens to results: train, and at each checkpoint collect losses and scores."""

import hashlib
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from lab.zoo.data import load_tokenizer, load_tokens, validation
from lab.zoo.families import CONTEXT, SCORER, SHIPPED, SIZES, family_named
from lab.zoo.losses import encode_texts, hidden_states, token_losses
from lab.zoo.model import Weights, init_weights, parameter_counts, shape_of, training_flops
from lab.zoo.results import run_path, save_arrays, save_checkpoint
from lab.zoo.score import Exam
from lab.zoo.skills import SKILLS
from lab.zoo.train import Plan, train

CURVE_POINTS = 200
SCORER_FILES = 2


@dataclass(frozen=True, slots=True)
class Settings:
    """What all runs of one command share."""

    work: Path
    device: str
    items: int = 2000
    tiny_steps: int | None = None  # a dry run: this many steps of two rows
    compiled: bool = True
    graphed: bool = True


def plan_for(size: str, settings: Settings) -> Plan:
    chosen = SIZES[size]
    on_gpu = settings.device != "cpu"
    plan = Plan(
        chosen.tokens // (chosen.rows * CONTEXT),
        chosen.rows,
        chosen.rate,
        settings.compiled and on_gpu,
        settings.graphed and on_gpu,
    )
    return replace(plan, steps=settings.tiny_steps, rows=2) if settings.tiny_steps else plan


def run_flops(name: str, size: str) -> float:
    """What training this run costs."""
    family = family_named(name)
    shape = shape_of(family, size)
    return training_flops(init_weights(shape, seed=0, device="meta"), shape, SIZES[size].tokens)


class Recorder:
    """Collects what every checkpoint of a run is asked for."""

    def __init__(self, name: str, size: str, settings: Settings) -> None:
        self.family, self.size, self.settings = family_named(name), size, settings
        self.shape = shape_of(self.family, size)
        tokenizer = load_tokenizer(self.family.tokenizer, settings.work)
        self.texts = encode_texts(tokenizer, [str(row["text"]) for row in validation()])
        self.exam = Exam(tokenizer, settings.items, settings.device)
        self.tokens: list[int] = []
        self.nats: list[np.ndarray] = []
        self.marks: list[np.ndarray] = []
        self.seconds = {"losses": 0.0, "scores": 0.0}
        self.weights: Weights = {}

    def __call__(self, tokens: int, weights: Weights) -> None:
        self.weights = weights
        start = time.perf_counter()
        nats = token_losses(weights, self.shape, self.texts.ids)
        middle = time.perf_counter()
        marks = self.exam.mark(weights, self.shape)
        self.seconds["losses"] += middle - start
        self.seconds["scores"] += time.perf_counter() - middle
        self.tokens.append(tokens)
        self.nats.append(np.concatenate(nats).astype(np.float16))
        self.marks.append(np.stack([marks[skill] for skill in SKILLS]))

    def arrays(self, curve: np.ndarray, facts: dict) -> dict[str, np.ndarray]:
        """The result file: axes C checkpoints, S skills, tokens of all texts one after the other."""
        marks = np.stack(self.marks)
        total, dense = parameter_counts(self.weights)
        every = max(1, len(curve) // CURVE_POINTS)
        about = {"family": self.family.name, "size": self.size, "params": total, "params_without_tables": dense,
                 "skills": list(SKILLS), "items": self.settings.items, "curve_every": every, **facts}  # fmt: skip
        return {
            "about": np.frombuffer(json.dumps(about).encode(), dtype=np.uint8),
            "tokens": np.array(self.tokens),
            "flops": np.array([training_flops(self.weights, self.shape, t) for t in self.tokens]),
            "nats": np.stack(self.nats),
            "counts": np.array([len(ids) for ids in self.texts.ids]),
            "bounds": np.concatenate([np.array(b, dtype=np.int32) for b in self.texts.bounds]),
            "right": marks.sum(2),
            "right_even": marks[:, :, ::2].sum(2),
            "curve": curve[: len(curve) // every * every].reshape(-1, every).mean(1).astype(np.float32),
        }


def text_set_hash() -> str:
    return hashlib.sha256(json.dumps(validation(), ensure_ascii=False).encode()).hexdigest()


def train_one(name: str, size: str, settings: Settings) -> dict:
    """Train, measure and store one run; returns a summary for the log."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch._dynamo.reset()
    start = time.perf_counter()
    recorder = Recorder(name, size, settings)
    plan, family = plan_for(size, settings), recorder.family
    tokens = load_tokens(family, settings.work, plan.steps * plan.rows * CONTEXT + 1)
    curve = train(recorder.shape, plan, tokens, device=settings.device, on_checkpoint=recorder)
    tokenizer = settings.work / "tokenizers" / f"{family.tokenizer}.json"
    seconds = time.perf_counter() - start
    training = seconds - sum(recorder.seconds.values())
    teraflops = training_flops(recorder.weights, recorder.shape, recorder.tokens[-1]) / training / 1e12
    facts = {
        "tokenizer": family.tokenizer, "tokenizer_sha256": hashlib.sha256(tokenizer.read_bytes()).hexdigest(),
        "texts_sha256": text_set_hash(), "torch": torch.__version__, "seconds": round(seconds, 1),
        "seconds_losses": round(recorder.seconds["losses"], 1), "seconds_scores": round(recorder.seconds["scores"], 1),
        "teraflops": round(teraflops, 1), "compiled": plan.compiled, "graphed": plan.graphed,
    }  # fmt: skip
    if name == SCORER.name:
        save_features(recorder)
    elif name in SHIPPED and size == next(iter(SIZES)):
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
