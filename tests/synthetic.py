"""Synthetic studies: families, tokenizers and a known salience, for tests.

Each reference token is of one kind, and a model's loss on it falls with the model's ability for that
kind: a general ability that grows with compute, plus what its family's mixture taught. A task rests on
a few kinds. Everything follows from the seed.
Axes: M models, N reference tokens, K kinds, T tasks, D features.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchcast.records import Floats, Ints, ModelInfo, Score, Task, Text, TextSet, TokenLosses
from benchcast.study.study import Study

SYLLABLES = (
    "ka",
    "lo",
    "mi",
    "ter",
    "vun",
    "sha",
    "pre",
    "dor",
    "él",
    "中",
    "文",
    "数",
    "学",
    "wi",
    "zo",
    "ран",
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What kind of world to make."""

    seed: int = 0
    families: int = 6
    sizes: int = 5
    checkpoints: int = 3
    tasks: int = 3
    texts_per_source: int = 30
    kinds: int = 12
    dims: int = 24
    n_items: int = 2000  # score noise is binomial
    truth: str = "kinds"  # what accuracy rests on: "kinds" of tokens, or the "label" tokens
    odd_family: bool = False  # one family scores off the common law
    mixture: float = 0.35  # how far families' mixtures pull their abilities apart
    clusters: int = 0  # families but the last come in this many clusters of relatives; 0: all are independent
    floor: float | None = None  # what models score that know nothing; None: nominal chance
    kinship: float = 0.9  # share of the variance of a mixture that relatives have in common


@dataclass(frozen=True, slots=True)
class World:
    """A study's worth of records with the truth beside them."""

    texts: TextSet
    models: tuple[ModelInfo, ...]
    losses: tuple[TokenLosses, ...]
    scores: tuple[Score, ...]
    tasks: tuple[Task, ...]
    features: npt.NDArray[np.float32]  # N × D
    edges: Ints  # of the reference tokens (N + 1)
    salience: Floats  # T × N, the weights that accuracy truly rests on


def make_world(plan: Plan) -> World:
    """Make the world of a plan."""
    rng = np.random.default_rng(plan.seed)
    texts, edges, answer = _texts(plan, rng)
    n = len(edges) - 1
    kind = rng.integers(plan.kinds, size=n)
    centres = rng.normal(size=(plan.kinds, plan.dims))
    features = (centres[kind] + 0.3 * rng.normal(size=(n, plan.dims))).astype(np.float32)
    salience = _salience(plan, rng, kind, texts, edges, answer)
    models, ability = _models(plan, rng)
    difficulty = rng.gamma(4.0, 0.6, size=n)
    nats = difficulty * np.exp(-ability[:, kind] + 0.05 * rng.normal(size=(len(models), n)))
    tasks = tuple(Task(f"task{t}", (0.25, 0.0)[t % 2], (f"source{t}",)) for t in range(plan.tasks))
    scores = _scores(plan, rng, nats, salience, models, tasks)
    losses = tuple(
        _as_tokens(m.model, row, edges, texts, np.random.default_rng([plan.seed, _family_number(m)]))
        for m, row in zip(models, nats, strict=True)
    )
    return World(texts, models, losses, scores, tasks, features, edges, salience)


def write_study(world: World, root: Path) -> Study:
    """The world as a study on disk."""
    study = Study.create(root, world.texts, tasks=world.tasks)
    study.add_models(world.models)
    study.add_losses(world.losses)
    study.add_scores(world.scores)
    study.add_features("synthetic", world.features, world.edges)
    return study


def _texts(plan: Plan, rng: np.random.Generator) -> tuple[TextSet, Ints, npt.NDArray[np.bool_]]:
    """Texts of made-up words, one reference token a word; the last word is the answer."""
    texts, ends, answer = [], [0], []
    for source in range(plan.tasks + 1):
        for i in range(plan.texts_per_source):
            words = [
                (" " if w else "") + "".join(rng.choice(SYLLABLES, rng.integers(1, 4)))
                for w in range(int(rng.integers(10, 30)))
            ]
            ends += list(ends[-1] + np.cumsum([len(w.encode()) for w in words]))
            answer += [False] * (len(words) - 1) + [True]
            start = len("".join(words[:-1]).encode())
            texts.append(Text(f"source{source}-{i}", f"source{source}", "".join(words), start))
    return TextSet.of(texts), np.array(ends, np.int64), np.array(answer)


def _salience(
    plan: Plan,
    rng: np.random.Generator,
    kind: Ints,
    texts: TextSet,
    edges: Ints,
    answer: npt.NDArray[np.bool_],
) -> Floats:
    source = np.array([t.source for t in texts])[np.searchsorted(texts.starts[1:], edges[:-1], side="right")]
    rows = []
    for t in range(plan.tasks):
        if plan.truth == "label":
            rows.append(((source == f"source{t}") & answer).astype(float))
        else:
            chosen = rng.choice(plan.kinds, max(1, plan.kinds // 4), replace=False)
            weight = np.zeros(plan.kinds)
            weight[chosen] = rng.uniform(0.5, 1.5, len(chosen))
            rows.append(weight[kind])
    return np.stack(rows)


def _models(plan: Plan, rng: np.random.Generator) -> tuple[tuple[ModelInfo, ...], Floats]:
    """Families × sizes × checkpoints, and each model's ability for every kind (M × K)."""
    models, ability = [], []
    shared = np.random.default_rng([plan.seed, 1]).normal(size=(max(1, plan.clusters), plan.kinds))
    for f in range(plan.families):
        taste = plan.mixture * rng.normal(size=plan.kinds)
        if plan.clusters and f < plan.families - 1:
            common = plan.mixture * shared[f % plan.clusters]
            taste = np.sqrt(1 - plan.kinship) * taste + np.sqrt(plan.kinship) * common
        taste -= taste.mean()
        for size in range(plan.sizes):
            for c in range(plan.checkpoints):
                params, tokens = 1e6 * 4**size, 2e9 * 3**c * 2**size
                general = 0.14 * np.log(params * tokens / 2e15)
                models.append(ModelInfo(f"family{f}-{params / 1e6:g}M@{tokens / 1e9:g}B", f"family{f}", params, tokens))
                ability.append(general + taste * min(1.0, 0.4 + general / 2) + 0.04 * rng.normal(size=plan.kinds))
    return tuple(models), np.array(ability)


def _scores(
    plan: Plan,
    rng: np.random.Generator,
    nats: Floats,
    salience: Floats,
    models: tuple[ModelInfo, ...],
    tasks: tuple[Task, ...],
) -> tuple[Score, ...]:
    """Accuracy through a law whose range the world's models span, with binomial noise."""
    scores = []
    for task, weights in zip(tasks, salience, strict=True):
        capability = nats @ weights / weights.sum()
        z = (capability - np.quantile(capability, 0.4)) / capability.std()
        if plan.odd_family:
            z = z + 1.0 * np.array([m.family == "family1" for m in models])
        floor = task.chance if plan.floor is None else plan.floor
        right = floor + (1 - floor) / (1 + np.exp(2.0 * z))
        drawn = rng.binomial(plan.n_items, right) / plan.n_items
        scores += [Score(m.model, task.name, float(a), plan.n_items) for m, a in zip(models, drawn, strict=True)]
    return tuple(scores)


def _family_number(model: ModelInfo) -> int:
    return int(model.family.removeprefix("family"))


def _as_tokens(model: str, nats: Floats, edges: Ints, texts: TextSet, rng: np.random.Generator) -> TokenLosses:
    """Losses under a tokenizer of the family's own: reference tokens, some merged and some cut."""
    rate = rng.uniform(0.05, 0.25)
    keep = rng.random(len(edges)) > rate
    extra = rng.choice(int(edges[-1]), int(rate * len(edges)), replace=False)
    model_edges = np.union1d(np.union1d(edges[keep], extra), texts.starts)
    rise = np.interp(model_edges, edges, np.concatenate([[0.0], np.cumsum(nats)]))
    counts = np.diff(np.searchsorted(model_edges, texts.starts))
    about = {"tokenizer": "synthetic", "texts": texts.digest}
    return TokenLosses(model, counts.astype(np.int64), model_edges, np.diff(rise), about)
