"""Train one model: compiled layers, one CUDA graph per step, rounded weights handed out at each checkpoint.

Weights are float32, every product is in bfloat16. A step is recorded once and replayed, so small models do not wait
for Python. On a CPU the same steps run uncompiled.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lab.zoo.families import CHECKPOINTS, CONTEXT
from lab.zoo.model import Shape, Weights, causal_layer, head_loss, head_weight, init_weights, layer_of, rotation

WARM_UP = 0.04
FLOOR = 0.05  # the last learning rate as a share of the peak
BETAS = (0.9, 0.95)
DECAY = 0.1
CLIP = 1.0
EAGER_STEPS = 3  # steps before the graph is recorded: they compile, load kernels and create the optimizer's state


@dataclass(frozen=True, slots=True)
class Plan:
    """How one run is trained."""

    steps: int
    rows: int
    rate: float
    compiled: bool
    graphed: bool
    context: int = CONTEXT  # tokens of a row
    checkpoints: tuple[float, ...] = CHECKPOINTS  # shares of the steps


def checkpoint_steps(steps: int, shares: tuple[float, ...] = CHECKPOINTS) -> list[int]:
    """Steps after which a checkpoint is taken, the last one included; at least one step apart."""
    steps_kept: list[int] = []
    for share in shares:
        steps_kept.append(max(round(share * steps), steps_kept[-1] + 1 if steps_kept else 1))
    return steps_kept


def rate_at(step: int, plan: Plan) -> float:
    """Linear warm-up, then a half cosine down to FLOOR."""
    warm = max(1, round(WARM_UP * plan.steps))
    if step < warm:
        return plan.rate * (step + 1) / warm
    progress = (step - warm) / max(1, plan.steps - warm)
    return plan.rate * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * progress)))


def embed(ids: Tensor, table: Tensor) -> Tensor:
    return F.embedding(ids, table).to(torch.bfloat16)


class Trainer:
    """Weights, optimizer and one recorded training step."""

    def __init__(self, shape: Shape, plan: Plan, device: str) -> None:
        self.shape, self.plan, self.device = shape, plan, device
        self.weights = init_weights(shape, seed=0, device=device)
        for weight in self.weights.values():
            weight.requires_grad_()
        self.rate = torch.tensor(0.0, device=device)
        self.optimizer = self._optimizer()
        self.batch = torch.zeros(plan.rows, plan.context + 1, dtype=torch.long, device=device)
        self.rotation = rotation(shape, torch.arange(plan.context, device=device))
        self.loss = torch.zeros((), device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        functions = (embed, causal_layer, head_loss)
        if plan.compiled:
            functions = tuple(torch.compile(f, fullgraph=True, dynamic=False) for f in functions)
        self.embed, self.layer, self.head_loss = functions

    def _optimizer(self) -> torch.optim.Optimizer:
        matrices = [w for w in self.weights.values() if w.ndim > 1]
        vectors = [w for w in self.weights.values() if w.ndim == 1]
        groups = [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=self.rate, betas=BETAS, fused=True, capturable=self.device != "cpu")

    def _step(self) -> None:
        x = self.embed(self.batch[:, :-1], self.weights["model.embed_tokens.weight"])
        for i in range(self.shape.layers):
            x = self.layer(x, layer_of(self.weights, i), self.shape.heads, *self.rotation)
        loss = self.head_loss(x, self.weights["model.norm.weight"], head_weight(self.weights), self.batch[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.weights.values()), CLIP)
        self.optimizer.step()
        self.loss.copy_(loss.detach())

    def record(self) -> None:
        """Record a step without running it; gradients live in the graph's own memory from then on."""
        self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream()):
            self._step()

    def advance(self, rows: Tensor, rate: float) -> Tensor:
        """One step on these rows of tokens; returns the loss without waiting for it."""
        self.batch.copy_(rows)
        self.rate.fill_(rate)
        if self.graph is not None:
            self.graph.replay()
        else:
            self._step()
            self.optimizer.zero_grad(set_to_none=True)
        return self.loss

    def rounded(self) -> Weights:
        """The weights in bfloat16: what is scored, measured and shipped."""
        return {name: weight.detach().bfloat16() for name, weight in self.weights.items()}


def train(
    shape: Shape, plan: Plan, tokens: np.ndarray, *, device: str, on_checkpoint: Callable[[int, Weights], None]
) -> np.ndarray:
    """Train for plan.steps; calls `on_checkpoint(tokens seen, weights)` and returns the loss of every step."""
    trainer = Trainer(shape, plan, device)
    windows = torch.from_numpy(tokens).to(device).unfold(0, plan.context + 1, plan.context)
    curve = torch.zeros(plan.steps, device=device)
    due = set(checkpoint_steps(plan.steps, plan.checkpoints))
    with _own_stream(device):
        for step in range(plan.steps):
            if plan.graphed and step == EAGER_STEPS:
                trainer.record()
            rows = windows[step * plan.rows : (step + 1) * plan.rows]
            curve[step] = trainer.advance(rows, rate_at(step, plan))
            if step + 1 in due:
                on_checkpoint((step + 1) * plan.rows * plan.context, trainer.rounded())
    return curve.cpu().numpy()


@contextmanager
def _own_stream(device: str) -> Iterator[None]:
    """A stream that is not the default one: steps can only be recorded there, and warm-up must share it."""
    if device == "cpu":
        yield
        return
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        yield
        torch.cuda.synchronize()
