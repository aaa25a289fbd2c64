"""Related models are found, grouped in cross-validation, and named in `status`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import benchcast as bc
from benchcast.errors import InputError
from benchcast.families import BASE, COPIES, SIMILAR, find_relatives
from benchcast.losses.dataset import text_losses
from benchcast.records import Floats, ModelInfo, Score, TokenLosses
from benchcast.splits import make_folds
from benchcast.study.study import Study
from benchcast.study.tables import read_models
from synthetic import Plan, make_world, write_study


def families(count: int, size: int = 4) -> list[ModelInfo]:
    return [ModelInfo(f"f{f}-{i}", f"f{f}") for f in range(count) for i in range(size)]


def draw_losses(tastes: Floats, size: int = 4, texts: int = 80, seed: int = 0) -> Floats:
    """Losses of `size` models of each family: log losses fall with skill, and by the family's taste of topics."""
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=(tastes.shape[1], texts)) / np.sqrt(tastes.shape[1])
    skill = np.tile(np.linspace(0, 1, size), len(tastes))
    logs = 1 - skill[:, None] * rng.uniform(0.5, 1.0, texts) + 0.2 * np.repeat(tastes, size, axis=0) @ topics
    return np.exp(logs + 0.02 * rng.normal(size=logs.shape))


def tastes(count: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=(count, 12))


def together(models: Sequence[ModelInfo], losses: Floats) -> set[tuple[tuple[str, ...], tuple[str, ...]]]:
    return {(r.names, r.reasons) for r in find_relatives(models, losses).relations}


def test_independent_families_stay_apart():
    joined = [len(together(families(8), draw_losses(tastes(8, seed), seed=seed))) for seed in range(20)]
    assert np.mean(joined) < 0.2


@pytest.mark.parametrize("noise", [0.0, 0.002])
def test_copies_under_other_names_are_one_group(noise):
    models, losses = families(6), draw_losses(tastes(6))
    copies = [ModelInfo(f"copy of {m.model}", f"copies {i}") for i, m in enumerate(models[:3])]
    noisy = losses[:3] * np.exp(noise * np.random.default_rng(1).normal(size=(3, losses.shape[1])))
    groups = together([*models, *copies], np.concatenate([losses, noisy]))
    assert groups == {(("f0", "copies 0", "copies 1", "copies 2"), (COPIES,))}


def test_exact_copies_are_found_among_few_models_and_texts():
    losses = np.array([[2.0, 3.0], [1.5, 2.0], [2.0, 3.0]])
    groups = together([ModelInfo("a"), ModelInfo("b"), ModelInfo("c")], losses)
    assert groups == {(("model a", "model c"), (COPIES,))}


def test_a_base_joins_its_descendants_whether_it_is_a_model_a_family_or_neither():
    models = families(6)
    models += [ModelInfo("x", "x", base="f0-1"), ModelInfo("y", "y", base="f1")]
    models += [ModelInfo("u", "u", base="elsewhere"), ModelInfo("v", "v", base="elsewhere")]
    losses = draw_losses(tastes(10), size=4)[: len(models)]
    losses[24:] = draw_losses(tastes(4, seed=9), size=1, seed=0)
    named = {names for names, reasons in together(models, losses) if reasons == (BASE,)}
    assert {("f0", "x"), ("f1", "y"), ("u", "v")} <= named


def test_families_in_clusters_of_relatives_are_grouped_by_cluster():
    recovered = []
    for seed in range(5):
        shared, separate = tastes(4, seed=10 + seed), tastes(12, seed=20 + seed)
        related = np.sqrt(0.9) * np.repeat(shared, 3, axis=0) + np.sqrt(0.1) * separate
        clusters = {(tuple(f"f{f}" for f in range(c, c + 3)), (SIMILAR,)) for c in (0, 3, 6, 9)}
        recovered.append(len(together(families(12), draw_losses(related)) & clusters))
    assert np.mean(recovered) > 3


def test_models_without_a_family_are_grouped_as_their_families_would_be():
    losses, expected = draw_losses(tastes(7)), np.repeat(np.arange(7), 4)
    groups = find_relatives([ModelInfo(f"m{i}") for i in range(28)], losses).groups
    same = groups[:, None] == groups[None]
    assert np.mean(same == (expected[:, None] == expected[None])) > 0.95


def test_a_model_without_a_family_joins_the_family_it_resembles():
    models = families(7)
    models[5] = ModelInfo("stray")
    assert together(models, draw_losses(tastes(7))) == {(("f1", "model stray"), (SIMILAR,))}


def test_groups_do_not_depend_on_order_names_or_unit():
    models, losses = families(9), draw_losses(np.repeat(tastes(3), 3, axis=0) + 0.3 * tastes(9, seed=5))
    groups = find_relatives(models, losses).groups
    order = np.random.default_rng(3).permutation(len(models))
    again = find_relatives([models[i] for i in order], 0.7 * losses[order]).groups
    assert np.array_equal(groups[order][:, None] == groups[order][None], again[:, None] == again[None])


def test_the_families_of_the_embedded_study_stay_apart():
    study = bc.datasets.load_zoo()
    dataset = study.dataset()
    assert find_relatives(study.infos(dataset.models), text_losses(dataset)).relations == ()
    assert np.array_equal(dataset.groups, dataset.families)


@pytest.fixture(scope="module")
def related_study(tmp_path_factory) -> Study:
    """Six families; family1 was made from family0, and a model of family2 is here again as a family of its own."""
    world = make_world(Plan(seed=3, families=6, sizes=3, checkpoints=1, tasks=1, texts_per_source=12))
    study = write_study(world, tmp_path_factory.mktemp("related") / "study")
    study.add_models([ModelInfo(m.model, base="family0") for m in world.models if m.family == "family1"])
    original = next(m for m in world.models if m.family == "family2")
    study.add_models([ModelInfo("twin", "twins", original.params)])
    study.add_losses([TokenLosses("twin", *_parts(study, original.model))])
    score = next(s.accuracy for s in study.scores() if s.model == original.model)
    study.add_scores([Score("twin", "task0", score)])
    return study


def _parts(study: Study, model: str):
    losses = study.losses(model)
    return losses.counts, losses.edges, losses.nats, losses.about


def test_split_family_holds_relatives_out_together(related_study):
    dataset = related_study.dataset()
    _, folds = make_folds(related_study.infos(dataset.models), "family", groups=dataset.groups)
    tested = [set(dataset.families[fold.test]) for fold in folds]
    assert {"family0", "family1"} in tested
    assert {"family2", "twins"} in tested
    assert len(folds) == 5


@pytest.mark.parametrize("method", ["salience", "stack", "pls", "all-token"])
def test_out_of_fold_errors_are_those_of_unrelated_models(related_study, method):
    out_of_fold = bc.fit(related_study, task="task0", method=method).task_fit.out_of_fold
    assert set(out_of_fold.families) == {"family0 + family1", "family2 + twins", "family3", "family4", "family5"}


def test_status_names_each_group_and_the_reason(related_study, cli):
    assert bc.status(related_study).relatives == (
        "related, so hidden together and counted once in intervals: family0, family1 (base in models.csv)",
        "related, so hidden together and counted once in intervals: family2, twins (copies)",
    )
    assert "family2, twins (copies)" in " ".join(cli("status", related_study.root).out.split())


def test_the_column_base_is_read_kept_and_optional(tmp_path):
    path = tmp_path / "models.csv"
    path.write_text("model,family\na,f\n")
    assert [(m.family, m.base) for m in read_models(path)] == [("f", "")]
    path.write_text("model,base\na,\nb,a\nc, some model of the web \n")
    assert [m.base for m in read_models(path)] == ["", "a", "some model of the web"]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("a,a", "base: a is made from a; correct one of these rows"),
        ("x,a\na,b\nb,c\nc,a", "base: a is made from b is made from c is made from a; correct one of these rows"),
    ],
)
def test_a_model_that_descends_from_itself_is_refused_in_one_line(tmp_path, rows, said):
    path = tmp_path / "models.csv"
    path.write_text(f"model,base\n{rows}\n")
    with pytest.raises(InputError) as error:
        read_models(path)
    assert str(error.value) == f"{path}: {said}"


def test_a_circle_that_an_import_would_close_leaves_the_study_as_it_was(related_study, tmp_path, cli):
    before = (related_study.root / "models.csv").read_bytes()
    first, second = [m.model for m in related_study.models() if m.family == "family3"][:2]
    (tmp_path / "new.csv").write_text(f"model,base\n{first},{second}\n")
    (tmp_path / "circle.csv").write_text(f"model,base\n{second},{first}\n")
    assert cli("import", "models", related_study.root, tmp_path / "new.csv").code == 0
    kept = (related_study.root / "models.csv").read_bytes()
    refused = cli("import", "models", related_study.root, tmp_path / "circle.csv")
    assert (refused.code, len(refused.err.splitlines())) == (1, 1)
    assert f"{first} is made from {second} is made from {first}" in refused.err
    assert (related_study.root / "models.csv").read_bytes() == kept != before


def test_a_rename_reaches_the_bases_that_name_the_model(tmp_path):
    world = make_world(Plan(seed=4, families=2, sizes=2, checkpoints=1, tasks=1, texts_per_source=2))
    study = write_study(world, tmp_path / "study")
    old, derived = world.models[0].model, world.models[3].model
    study.add_models([ModelInfo(derived, base=old)])
    bc.rename_model(study, old, "new")
    assert next(m.base for m in study.models() if m.model == derived) == "new"


def test_rows_that_occur_three_times_are_grouped_without_a_family():
    losses = np.repeat(draw_losses(tastes(2))[:4], 3, axis=0)
    groups = find_relatives([ModelInfo(f"m{i}") for i in range(12)], losses).groups
    assert len(set(groups)) <= 4
    assert all(len(set(groups[i : i + 3])) == 1 for i in range(0, 12, 3))
