"""Synthetic worlds as methods see them."""

import numpy as np

from benchcast.losses.assemble import AssemblyOptions, assemble
from benchcast.losses.dataset import Dataset, Features
from benchcast.methods.task_fit import TaskFit
from synthetic import World


def make_dataset(world: World, *, features: bool = True) -> Dataset:
    given = Features(world.features, world.edges, "synthetic") if features else None
    return assemble(
        world.texts, world.losses, world.models, scores=world.scores, tasks=world.tasks, options=AssemblyOptions(given)
    )


def stored_weights(fit: TaskFit) -> np.ndarray:
    """The array "weights" of a stored fit, whatever it reads."""
    return fit.capability.fields()[1]["weights"]
