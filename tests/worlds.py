"""Synthetic worlds as methods see them."""

from benchcast.losses.assemble import AssemblyOptions, assemble
from benchcast.losses.dataset import Dataset, Features
from synthetic import World


def make_dataset(world: World, *, features: bool = True) -> Dataset:
    given = Features(world.features, world.edges, "synthetic") if features else None
    return assemble(
        world.texts, world.losses, world.models, scores=world.scores, tasks=world.tasks, options=AssemblyOptions(given)
    )
