"""Synthetic worlds as methods see them."""

from dataclasses import replace

import numpy as np

from benchcast.assemble import AssemblyOptions, assemble
from benchcast.dataset import Dataset, Features
from benchcast.records import TokenLosses
from synthetic import World


def make_dataset(
    world: World, *, features: bool = True, signals: tuple[str, ...] = (), convert: bool = True
) -> Dataset:
    given = Features(world.features, world.edges, "synthetic") if features else None
    losses = map(telling, world.losses) if signals and convert else world.losses
    options = AssemblyOptions(given, signals=signals)
    return assemble(world.texts, losses, world.models, world.scores, world.tasks, options)


def telling(losses: TokenLosses) -> TokenLosses:
    """The same losses with signals that a model could have: they rise with the loss, each in its own way."""
    nats = np.round(8 * losses.nats) / 8  # as files keep them
    signals = {
        "rank": 2 * nats,
        "entropy": np.sqrt(nats),
        "hit": (nats < 1) * 1.0,
        "margin": np.maximum(nats - 0.75, 0),
    }
    return replace(losses, nats=nats, signals={k: np.where(np.isnan(nats), np.nan, v) for k, v in signals.items()})
