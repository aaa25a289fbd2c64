"""Recipes: worked solutions are right, the small one trains and packs on a CPU, and what it measures is consistent."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from lab.zoo import background, data, results
from lab.zoo.one import Settings, train_one
from lab.zoo.pack import model_name, pack, read_runs
from lab.zoo.recipes import EMBEDDED, RECIPES, SIGNALS, SMALL
from lab.zoo.skills.common import Dice
from lab.zoo.skills.worked import draw, trace

MEASURES = ("nats", "rank", "hit", "margin", "entropy")


def test_a_trace_tells_every_new_value_in_order():
    assert trace("a = 3\nb = a * 2\na = b\nprint(a)") == ["a = 3", "b = 6", "a = 6"]
    assert trace("n = 1\nfor i in range(2):\n    n += 5\nprint(n)") == ["n = 1", "i = 0", "n = 6", "i = 1", "n = 11"]
    assert trace("def f(x):\n    return x + 1\nprint(f(4))") == ["x = 4"]


def test_worked_programs_are_those_of_the_plain_skill():
    from lab.zoo.skills import code

    for seed in map(str, range(200)):
        worked, plain = draw(Dice(seed)), code.draw(Dice(seed))
        assert worked._replace(steps="") == plain


@pytest.mark.parametrize("recipe", [SIGNALS, SMALL], ids=lambda r: r.name)
def test_worked_texts_have_their_whole_solution_as_the_answer(recipe):
    rows = data.validation(recipe)
    counts = Counter(row["source"] for row in rows)
    assert all(counts[name] == 100 for name in recipe.skills)
    assert all(counts[f"{name}-cot"] == 50 for name in ("arithmetic", "tracking", "code"))
    assert len({row["text"] for row in rows}) == len(rows)
    for row in rows:
        answer = str(row["text"]).encode()[row["answer_start"] :].decode()
        worked = str(row["source"]).endswith("-cot")
        assert answer.startswith(("\nSteps:", "\n# steps:")) == worked


def test_the_recipe_for_a_gpu_has_the_models_of_the_embedded_study():
    assert (SIGNALS.families, SIGNALS.sizes) == (EMBEDDED.families, EMBEDDED.sizes)
    plain = [row for row in data.validation(SIGNALS) if not str(row["source"]).endswith("-cot")]
    assert plain == [row for row in data.validation(EMBEDDED) if not str(row["source"]).endswith("-cot")]


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=list(RECIPES))
def test_a_recipe_survives_the_way_to_another_process(recipe):
    assert pickle.loads(pickle.dumps(recipe)) is recipe
    assert all(sum(family.percents) == 100 for family in (*recipe.families.values(), recipe.scorer))


def test_the_small_recipe_trains_on_a_cpu_and_packs_into_a_study(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "SHARD_BYTES", 30_000)
    monkeypatch.setattr(data, "TOKENIZER_TEXTS", 300)
    first_modules = list(islice(background.sources(), 50))
    monkeypatch.setattr(background, "sources", lambda: first_modules)
    work = tmp_path / "work"
    families = [SMALL.families["alder"], SMALL.scorer]
    data.prepare(families, work, processes=1, tokens=4_000, recipe=SMALL)
    settings = Settings(work, "cpu", SMALL, items=8, tiny_steps=5)
    for family, size in (("alder", "0.2M"), ("scorer", "0.5M")):
        train_one(family, size, settings)
    results.export(work, tmp_path / "out")
    study = pack(tmp_path / "out", tmp_path / "study", SMALL)
    assert len(study.models_with_losses()) == len(SMALL.checkpoints)
    ((about, arrays),) = read_runs(tmp_path / "out")
    for i, tokens in enumerate(arrays["tokens"].tolist()):
        nats, rank, hit, margin, entropy = (arrays[k][i] for k in MEASURES)
        stored = study.losses(model_name(about, tokens)).nats
        np.testing.assert_allclose(stored, nats, rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(hit, rank == 1)
        np.testing.assert_array_equal(hit, margin == 0)
        assert (margin <= nats * 1.002 + 1e-3).all()
        assert (nats - margin <= entropy + 0.01).all(), "the likeliest word costs at most the mean loss"
        assert 0 < entropy.mean() <= np.log(1024) + 0.01
    assert {s.task for s in study.scores()} == set(SMALL.skills)
    assert study.features().shape[0] > 0
