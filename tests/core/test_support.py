"""A model that lacks texts does not remove them for all models in silence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import benchcast as bc
from benchcast.losses.support import MOST_LOST, Support, costly_models
from benchcast.records import ModelInfo, Score, TextSet, TokenLosses
from benchcast.study.study import Study
from synthetic import Plan, World, make_world


def without(losses: TokenLosses, texts: Sequence[int], name: str = "") -> TokenLosses:
    """The same losses, none on some texts."""
    text = np.repeat(np.arange(len(losses.counts)), losses.counts)
    return replace(losses, model=name or losses.model, nats=np.where(np.isin(text, texts), np.nan, losses.nats))


def texts_of(study: Study, source: str) -> list[int]:
    return [i for i, t in enumerate(study.texts) if t.source == source]


@pytest.fixture
def refused(study: Study, world: World) -> Study:
    """The synthetic study with one more scored model, whose tokenizer refused all of one task's own texts."""
    source = study.task("task0").sources[0]
    study.add_losses([without(world.losses[0], texts_of(study, source), "refuser")], family="other")
    study.add_models([replace(world.models[0], model="refuser", family="other")])
    study.add_scores([Score("refuser", "task0", 0.5), Score("refuser", "task1", 0.5)])
    return Study.open(study.root)


def test_a_model_that_refused_32_of_60_texts_is_excluded_and_label_token_keeps_its_texts(tmp_path, cli):
    """The 32 texts are all that one of the tasks has."""
    new_world = make_world(Plan(seed=4, families=6, sizes=3, checkpoints=1, tasks=2, texts_per_source=20))
    sources = ["task0"] * 32 + ["task1"] * 28
    texts = TextSet.of(replace(t, source=s) for t, s in zip(new_world.texts.texts[:60], sources, strict=True))
    tasks = [replace(t, sources=(t.name,)) for t in new_world.tasks]
    study = Study.create(tmp_path / "s", texts, tasks=tasks)
    end = int(texts.starts[-1])
    cut = []
    for losses in new_world.losses:
        tokens = int(losses.counts[:60].sum())
        about = {**losses.about, "texts": texts.digest}
        cut.append(
            TokenLosses(losses.model, losses.counts[:60], losses.edges[: tokens + 1], losses.nats[:tokens], about)
        )
        assert cut[-1].edges[-1] == end
    study.add_losses([*cut, without(cut[0], range(32), "refuser")])
    study.add_models([*new_world.models, ModelInfo("refuser", "other", 1e6)])
    study.add_scores([*new_world.scores, Score("refuser", "task0", 0.4), Score("refuser", "task1", 0.4)])
    ran = cli("compare", study.root, "--split", "family", "--method", "label-token", "--json")
    printed = json.loads(ran.out)
    assert printed["tasks"]["task0"]["label-token"]["mse"] is not None
    assert printed["left_out"] == {"model refuser": "lacks 100% of the text of task task0"}
    kept = cli("compare", study.root, "--split", "family", "--method", "label-token", "--json", "--keep-all")
    assert "text that all models have: task0 0%" in kept.err
    assert "refuser 100% of task0" in kept.err
    assert json.loads(kept.out)["tasks"]["task0"]["label-token"]["mse"] is None


def test_fit_names_the_excluded_model_and_stores_it(refused, cli):
    ran = cli("fit", refused.root, "--method", "all-token")
    assert ran.code == 0
    assert "left out: model refuser lacks 100% of the text of task task0 (--keep-all keeps it)" in ran.out
    assert ran.err == ""  # all text remains for the others
    fit = bc.load(refused.fit_folder("task0"))
    assert "refuser" not in fit.about["train"]
    assert fit.about["excluded_models"] == {"refuser": ["task0", 1.0]}


def test_a_flag_keeps_the_model_and_says_what_it_costs(refused, cli):
    ran = cli("fit", refused.root, "--method", "all-token", "--keep-all")
    assert ran.code == 0
    source = refused.task("task0").sources[0]
    assert f"note: text that all models have: {source} 0%" in ran.err
    assert f"note: models that lack text: refuser 100% of {source}" in ran.err
    assert "refuser" in bc.load(refused.fit_folder("task0")).about["train"]


def test_in_python_an_argument_keeps_the_model(refused):
    assert "refuser" not in refused.dataset().models
    assert "refuser" in Study.open(refused.root, keep_all=True).dataset().models


def test_excluding_a_model_gives_the_numbers_of_a_study_without_it(refused, synthetic_folder):
    fit = bc.fit(refused, "task1", method="all-token")
    clean = bc.fit(Study.open(synthetic_folder), "task1", method="all-token")
    assert fit.task_fit.law == clean.task_fit.law
    assert (fit.supported == clean.supported).all()


def test_an_unscored_model_that_lacks_text_stays_predictable_on_what_it_has(study, world, cli):
    source = study.task("task0").sources[0]
    study.add_losses([without(world.losses[3], texts_of(study, source), "unscored")])
    assert cli("fit", study.root, "--method", "all-token").code == 0
    plain = cli("predict", study.root, "--model", "unscored")
    assert plain.code == 1
    assert "--restrict` fits again" in plain.err
    restricted = json.loads(cli("predict", study.root, "--model", "unscored", "--restrict", "--json").out)
    assert [f["task"] for f in restricted] == ["task0", "task1"]
    assert all(0 <= f["low"] < f["accuracy"] < f["high"] <= 1 for f in restricted)


def test_a_restricted_fit_leaves_the_excluded_model_unseen(refused, cli):
    assert cli("fit", refused.root, "--method", "all-token").code == 0
    ran = cli("predict", refused.root, "--model", "refuser", "--restrict", "--json")
    assert ran.code == 0
    assert [(f["task"], "seen" in f["remark"]) for f in json.loads(ran.out)] == [("task0", False), ("task1", False)]
    (other,) = json.loads(cli("predict", refused.root, "--model", "family0-1M@2B", "--task", "task0", "--json").out)
    assert "seen" in other["remark"], "said of a model that was trained on"


# ---- the rule itself: ten reference tokens of one byte each, all of one task


def excluded(lacking: dict[str, list[int]], count: int, tokens: int = 10) -> list[str]:
    masks = {m: np.isin(np.arange(tokens), at) for m, at in lacking.items()}
    return list(costly_models(masks, count, {"t": np.ones(tokens, bool)}, widths=np.ones(tokens, np.int64)))


def test_a_tenth_is_kept_and_more_is_not():
    assert excluded({"a": [0]}, 5) == []
    assert excluded({"a": [0, 1]}, 5) == ["a"]


def test_models_that_cost_too_much_together_are_excluded_as_few_as_possible():
    assert excluded({"a": [0], "b": [1], "c": [0]}, 9) == ["b"]
    assert excluded({"a": [0], "b": [1]}, 9) in (["a"], ["b"])


def test_two_models_of_one_tokenizer_that_refuse_the_same_texts_are_both_excluded():
    assert excluded({"a": [0, 1, 2], "b": [0, 1, 2]}, 9) == ["a", "b"]


def test_text_that_most_models_lack_is_nobodys_cost():
    assert excluded({name: [0, 1, 2] for name in "abcdef"}, 9) == []


def test_not_more_than_half_of_the_models_are_excluded():
    """Six of eight models each lack one token of their own: jointly 60%, none of them more than a tenth alone."""
    each = {name: [i] for i, name in enumerate("abcdef")}
    assert excluded(each, 8) == []
    assert excluded({**each, "g": [7, 8]}, 8) == ["g"]


@given(st.dictionaries(st.sampled_from("abcdef"), st.sets(st.integers(0, 19), min_size=1), max_size=6), st.randoms())
def test_the_outcome_does_not_depend_on_the_order_and_no_costly_model_stays(lacking, random):
    shuffled = list(lacking.items())
    random.shuffle(shuffled)
    first = excluded({m: sorted(x) for m, x in lacking.items()}, 14, 20)
    assert excluded({m: sorted(x) for m, x in shuffled}, 14, 20) == first
    lost = set().union(*[x for m, x in lacking.items() if m not in first])
    assert len(lost) <= MOST_LOST * 20


def test_what_is_lost_is_said_in_few_lines():
    support = Support(
        {"facts": 0.4, "code": 0.999, "words": 0.97}, {f"m{i}": ("facts", 0.05 * i) for i in range(1, 7)}, {}
    )
    assert support.lines() == [
        "text that all models have: facts 40%, words 97%",
        "models that lack text: m6 30% of facts, m5 25% of facts, m4 20% of facts, m3 15% of facts and 2 more",
    ]
    assert Support({"facts": 1.0}).lines() == []
    assert Support.of(json.loads(json.dumps(support.as_json()))).lines() == support.lines()


def test_a_fit_that_excluded_a_model_is_not_stale(refused, cli):
    assert cli("fit", refused.root, "--method", "all-token").code == 0
    assert "has changed since" not in cli("status", refused.root).out


def test_too_few_models_for_a_fit_names_the_excluded_one(study, world, cli):
    source = study.task("task0").sources[0]
    name = world.models[3].model
    study.add_losses([without(world.losses[3], texts_of(study, source))], force=True)
    bc.remove_models(study, [m.model for m in world.models[4:]])
    ran = cli("fit", study.root, "--method", "all-token")
    assert ran.code == 1
    assert "3 training models have both losses and accuracy" in ran.err
    assert f"model {name} is left out: it lacks 100% of the text of task task0 (--keep-all keeps it)" in ran.err
    assert cli("fit", study.root, "--method", "all-token", "--keep-all").code == 0
