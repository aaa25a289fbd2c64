"""A small synthetic study with pairs of families of one name, shared by all tests here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchcast.evaluation.compare import Execution, compare
from benchcast.evaluation.comparison import Comparison
from benchcast.study.study import Study
from lab.reproduce import context as context_module
from lab.reproduce.context import StudyContext
from synthetic import Plan, World, make_world, write_study

PAIR = {"family0": "twin-a", "family1": "twin-b"}


def rename_pair(world: World) -> World:
    """Rename the first two families to a pair; everything else stays."""

    def name(model: str) -> str:
        family, rest = model.split("-", 1)
        return f"{PAIR.get(family, family)}-{rest}"

    return replace(
        world,
        models=tuple(replace(m, model=name(m.model), family=PAIR.get(m.family, m.family)) for m in world.models),
        losses=tuple(replace(x, model=name(x.model)) for x in world.losses),
        scores=tuple(replace(s, model=name(s.model)) for s in world.scores),
    )


@pytest.fixture(scope="session", autouse=True)
def compare_once() -> Iterator[None]:
    """Commands that compare all methods on the same study by the same split share one comparison."""
    shared: dict[tuple[Path, str | None], Comparison] = {}

    def once(study: Study, *, split: str | None, methods: str, device: Execution) -> Comparison:
        key = (study.root, split)
        if key not in shared:
            shared[key] = compare(study, split=split, methods=methods, device=device)
        return shared[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context_module, "compare", once)
        yield


@pytest.fixture(scope="session")
def world() -> World:
    return rename_pair(make_world(Plan(seed=3, families=4, sizes=3, checkpoints=3, tasks=2, texts_per_source=5)))


@pytest.fixture(scope="session")
def study(world: World, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return write_study(world, tmp_path_factory.mktemp("reproduce") / "study")


@pytest.fixture(scope="session")
def context(study: Study) -> StudyContext:
    return StudyContext(study)


@pytest.fixture(scope="session")
def bare(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study without features, sizes, compute, tokens or a pair of families."""
    root = tmp_path_factory.mktemp("bare") / "study"
    study = Study.create(root, world.texts, tasks=world.tasks)
    study.add_losses(world.losses)
    study.add_models(
        [replace(m, family=m.family.replace("-", ""), params=float("nan"), tokens=float("nan")) for m in world.models]
    )
    study.add_scores(world.scores)
    return root
