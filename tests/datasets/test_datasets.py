"""Public studies: read as others read them, for reading only, copied to work on."""

from __future__ import annotations

import csv
import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import benchcast as bc
from benchcast.cli.demo import last_models, target_forecasts
from benchcast.datasets import DATASETS, dclm, download, fetch, public_llms
from benchcast.datasets.dclm import recipe_family
from benchcast.datasets.public_llms import params_of
from benchcast.errors import InputError, StudyError
from benchcast.forecasts import fit
from benchcast.methods import METHODS
from benchcast.records import ModelInfo
from benchcast.study.study import Study

PUBLIC = ("olmo-ladder", "olmo-ladder-choice", "dclm", "public-llms", "llm-line")


@pytest.fixture(scope="module")
def opened(raw) -> dict[str, Study]:
    return {name: fetch(name) for name in PUBLIC}


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_the_zoo_needs_no_files(monkeypatch, tmp_path):
    monkeypatch.setattr(download, "ADDRESS", "http://127.0.0.1:9")
    for name in ("BENCHCAST_DATA", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    study = bc.datasets.load_zoo()
    assert len(study.models_with_losses()) == DATASETS["zoo"].models
    assert np.isfinite(study.losses("oak-a-50M@36.0M").nats).any()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", PUBLIC)
def test_the_catalogue_says_what_is_there(name, opened):
    study, said = opened[name], DATASETS[name]
    assert len(study.models_with_losses()) == said.models
    assert len(study.texts) == said.losses
    assert len(study.tasks) == said.tasks


@pytest.mark.parametrize(("name", "folder"), [("olmo-ladder", "olmo_ladder"), ("dclm", "dclm")])
def test_losses_are_those_of_the_derived_table(name, folder, opened, derived):
    rows = table(derived / folder / "losses.csv")
    study = opened[name]
    assert sorted(r["model"] for r in rows) == study.models_with_losses()
    for row in rows[::7]:
        expected = [float(row[t.id]) for t in study.texts]
        np.testing.assert_allclose(study.losses(row["model"]).nats, expected, atol=1e-5)


@pytest.mark.parametrize(("name", "folder"), [("olmo-ladder", "olmo_ladder"), ("dclm", "dclm")])
def test_models_scores_and_tasks_are_those_of_the_derived_tables(name, folder, opened, derived):
    study = opened[name]
    known = {m.model: m for m in study.models()}
    for row in table(derived / folder / "models.csv"):
        m = known[row["model"]]
        assert (m.family, m.split) == (row["family"], row["split"])
        assert (m.params, m.tokens) == (float(row["params"]), float(row["tokens"]))
        assert m.flops == pytest.approx(float(row["flops"]), rel=1e-3)
    scores = {(s.model, s.task): s.accuracy for s in study.scores()}
    rows = table(derived / folder / "scores.csv")
    expected = {(r["model"], t): float(r[t]) for r in rows for t in r if t != "model" and r[t]}
    assert scores == pytest.approx(expected, abs=1e-5)
    for task, row in zip(study.tasks, table(derived / folder / "tasks.csv"), strict=True):
        assert (task.name, task.answers) == (row["task"], (row["losses"],))
        assert task.chance == pytest.approx(float(row["chance"]), abs=1e-4)


def test_public_llms_are_grouped_by_base_model_and_amber_is_taken_once(opened):
    dataset = opened["public-llms"].dataset()
    group = dict(zip(dataset.models, dataset.groups, strict=True))
    assert group["sail/Sailor-7B"] == group["Qwen/Qwen1.5-0.5B"]
    assert group["scb10x/typhoon-7b"] == group["mistralai/Mistral-7B-v0.1"]
    assert group["codellama/CodeLlama-7b-hf"] == group["meta-llama/Llama-2-7b-hf"]
    assert group["itsliupeng/openllama-7b-base"] == group["openlm-research/open_llama_3b"]
    assert len(set(group.values())) == 32
    assert "LLM360/Amber" in group
    base = {m.model: m.base for m in opened["public-llms"].models() if m.base}
    assert base == public_llms.BASE
    assert set(base) | set(base.values()) <= {*group, "open-llama"}


def test_the_leaderboard_joins_72_models_and_prefers_rows_that_are_not_4_bit(opened):
    scores = {(s.model, s.task): s.accuracy for s in opened["public-llms"].scores()}
    assert sum(task == "mmlu" for _, task in scores) == 72
    assert sum(task == "sciq" for _, task in scores) == 89
    # two rows of one model differ; the first by date counts
    assert scores["AI-Sweden-Models/gpt-sw3-126m", "arc_challenge"] == pytest.approx(0.2218)


def test_perplexities_are_no_scores(opened):
    assert not any("lambada" in s.task for s in opened["public-llms"].scores())
    assert all(0 <= s.accuracy <= 1 for s in opened["public-llms"].scores())


def test_dclm_has_no_model_with_a_tokenizer_of_its_own(opened):
    study = opened["dclm"]
    means = [study.losses(m).nats.mean() for m in study.models_with_losses()]
    assert max(means) < 5


def test_a_second_call_reads_no_files(opened, monkeypatch):
    monkeypatch.setattr(download, "ADDRESS", "http://127.0.0.1:9")
    assert fetch("dclm", data_home="/nowhere").root == opened["dclm"].root


def test_an_altered_file_makes_no_study(raw, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    target = tmp_path / "data" / dclm.FILE
    target.parent.mkdir(parents=True)
    target.write_bytes((raw / dclm.FILE).read_bytes().replace(b"open_lm_1b", b"open_lm_2b", 1))
    with pytest.raises(InputError, match="not the file of mlfoundations/dclm"):
        bc.datasets.fetch_dclm(data_home=tmp_path / "data")
    assert not list((tmp_path / "cache").rglob("study.toml"))


def test_writing_into_a_public_study_names_the_command_that_copies_it(opened, cli, tree):
    study = opened["dclm"]
    before = tree(study.root)
    for write in (
        lambda: study.add_models([ModelInfo("x")]),
        lambda: study.add_losses([study.losses(study.models_with_losses()[0])]),
        lambda: bc.datasets.load_zoo().add_models([ModelInfo("x")]),
    ):
        with pytest.raises(StudyError, match=r"is read-only; `benchcast init STUDY --from (dclm|zoo)` makes a copy"):
            write()
    for command in ("fit", "report"):
        ran = cli(command, study.root)
        assert ran.code == 1
        assert "`benchcast init STUDY --from dclm` makes a copy to work on" in ran.err
    assert tree(study.root) == before


@pytest.mark.parametrize("name", ["zoo", "dclm"])
def test_a_copy_may_be_written_to(name, raw, cli, tmp_path):
    assert cli("init", tmp_path / "mine", "--from", name).code == 0
    mine = Study.open(tmp_path / "mine")
    mine.add_models([ModelInfo("x", "y")])
    assert [m.family for m in Study.open(tmp_path / "mine").models() if m.model == "x"] == ["y"]
    assert len(mine.models_with_losses()) == DATASETS[name].models


def test_a_copy_replaces_nothing(cli, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("mine")
    ran = cli("init", tmp_path / "kept", "--from", "zoo")
    assert (ran.code, (tmp_path / "kept" / "file").read_text()) == (1, "mine")
    assert "exists and is not empty" in ran.err


def test_an_unknown_name_is_one_line(cli, tmp_path):
    ran = cli("init", tmp_path / "mine", "--from", "olmo-lader")
    assert ran.code == 1
    assert "unknown dataset 'olmo-lader'; known: zoo, olmo-ladder" in ran.err
    assert "did you mean 'olmo-ladder'?" in ran.err


def test_datasets_are_listed_with_source_licence_and_whether_they_are_here(cli, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("BENCHCAST_DATA", str(tmp_path))
    rows = {r["name"]: r for r in json.loads(cli("datasets", "--json").out)}
    assert {n: r["cached"] for n, r in rows.items()} == {"zoo": True, **dict.fromkeys(PUBLIC, False)}
    assert (rows["dclm"]["models"], rows["dclm"]["licence"]) == (236, "MIT")
    said = cli("datasets").out
    assert "olmo-ladder" in said
    assert "github.com/allenai/OLMo-ladder" in said


def test_the_demo_suggests_the_study_whose_name_was_begun(cli, tmp_path):
    ran = cli("demo", "olmo", "--out", tmp_path / "out")
    assert (ran.code, (tmp_path / "out").exists()) == (1, False)
    assert ran.err.endswith("did you mean 'olmo-ladder'?\n")


def test_the_demo_of_the_embedded_study_forecasts_models_that_were_held_out():
    comparison = bc.compare(bc.datasets.load_zoo(), methods=["label-token"])
    targets = target_forecasts(DATASETS["zoo"].targets, comparison)
    assert list(targets) == ["ash-50M@36.0M", "elm-50M@36.0M", "oak-b-50M@36.0M"]
    for of_model in targets.values():
        assert tuple(t.task for t in of_model) == comparison.tasks
        assert all(t.low < t.forecast < t.high for t in of_model)


def test_a_study_without_named_targets_shows_the_last_held_out_model_of_a_few_families():
    study = bc.datasets.load_zoo()
    comparison = bc.compare(study, ["code"], methods=["constant"], split="size")
    assert last_models(study, comparison) == ["larch-50M@36.0M", "oak-a-50M@36.0M", "oak-b-50M@36.0M"]


def test_the_demo_prints_forecasts_beside_scores_one_sentence_and_the_paths(raw, cli, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "benchcast.evaluation.compare.MAIN_METHODS", ("label-token", "all-token")
    )  # the others take time
    monkeypatch.setattr(fit, "fit_tasks", partial(fit.fit_tasks, method="label-token"))
    ran = cli("demo", "olmo-ladder", "--out", tmp_path / "demo")
    assert ran.code == 0, ran.err
    table, sentence, paths = ran.out.split("\n\n")[1:]
    assert max(map(len, table.splitlines())) <= 80
    heads = table.splitlines()[1].split()
    assert heads == ["model", "and", "task", "forecast", "90%", "interval", "score", "error,", "points"]
    assert table.count("peteish7@anneal") == table.count("peteish13@596057") == 1
    assert len(table.splitlines()) == 2 + 2 * (1 + DATASETS["olmo-ladder"].tasks)
    assert re.fullmatch(
        r"Over all \d+ held-out models on 13 tasks, forecasts miss by [\d.]+ points on average, and \d+% of the scores "
        r"lie inside the 90% intervals.",
        " ".join(sentence.split()),
    )
    assert [line.split()[0] for line in paths.splitlines()] == ["report:", "figure:", "study:", "next:"]
    assert {m for m in METHODS if m in ran.out.split()} == {"label-token"}, "no method but the one used"
    assert "all-token" in (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "demo" / "forecasts.png").read_bytes().startswith(b"\x89PNG")
    fitted = Study.open(tmp_path / "demo" / "study").fitted_tasks()
    assert len(fitted) == DATASETS["olmo-ladder"].tasks


@pytest.mark.parametrize(
    ("recipe", "family"),
    [
        ("rw_v2_fasttext_openhermes_vs_rw_v2_bigram_0.1", "openhermes"),
        ("cc_v4_resiliparse_rw_v2_bff1shards_shard_3_OH_eli5_vs_rw_v2", "openhermes"),
        ("rw_v2_fasttext_open_orca_vs_rw_0.1", "fasttext-orca"),
        ("rpj_rwv2OH_as_CC", "rpj"),
        ("mix_cc95wiki05", "mix"),
        ("swh_rw_mix_1_subfraction01", "rw"),
        ("lmdata", "other"),
    ],
)
def test_a_recipe_belongs_to_the_family_of_its_data(recipe, family):
    assert recipe_family(recipe) == family


@pytest.mark.parametrize(
    ("model", "params"),
    [
        ("stabilityai/stablelm-2-1_6b", 1.6e9),
        ("cerebras/Cerebras-GPT-111M", 1.11e8),
        ("TinyLlama/TinyLlama-1.1B-step-50K-105b", 1.1e9),
        ("bigscience/bloom-7b1", 7e9),
        ("LLM360/Amber", None),
    ],
)
def test_parameters_are_read_from_a_name_that_states_them(model, params):
    assert params_of(model) == pytest.approx(params) if params else np.isnan(params_of(model))


def test_the_ladder_with_choice_losses_is_the_ladder_and_a_column_for_each_task(opened, raw):
    plain, chosen = opened["olmo-ladder"], opened["olmo-ladder-choice"]
    assert list(map(str, plain.models())) == list(map(str, chosen.models()))
    assert list(map(str, plain.scores())) == list(map(str, chosen.scores()))
    assert [t.id for t in chosen.texts][:31] == [t.id for t in plain.texts]
    assert [t.choices for t in chosen.tasks] == [(f"choice.{t.name}",) for t in plain.tasks]
    run = "OLMo-ladder/src/scripts/paper/data/ladder-runs"
    (row,) = table(raw / run / "peteish7_eval_anneal.csv")
    losses = chosen.losses("peteish7@anneal").nats
    np.testing.assert_array_equal(losses[:31], plain.losses("peteish7@anneal").nats)
    at = [t.id for t in chosen.texts].index("choice.hellaswag_val")
    assert losses[at] == pytest.approx(-float(row["eval/downstream_soft_log/hellaswag_val_rc_5shot_soft_log"]))
    dataset = chosen.dataset()
    assert (int(dataset.reference_tokens.supported.sum()), int(dataset.choices.texts.sum())) == (31, 13)


def test_llm_line_is_the_derived_table(opened, derived):
    study, folder = opened["llm-line"], derived / "llm_line"
    rows = {row["model"]: row for row in table(folder / "losses.csv")}
    assert sorted(rows) == study.models_with_losses()
    for name, row in rows.items():
        np.testing.assert_allclose(study.losses(name).nats, [float(row[t.id]) for t in study.texts], rtol=1e-6)
    assert {m.model: m.family for m in study.models()} == {
        row["model"]: row["family"] for row in table(folder / "models.csv")
    }
    expected = {(row["model"], row["task"]): float(row["accuracy"]) for row in table(folder / "scores.csv")}
    assert {(s.model, s.task): s.accuracy for s in study.scores()} == pytest.approx(expected)
    for task, row in zip(study.tasks, table(folder / "tasks.csv"), strict=True):
        assert (task.name, task.answers) == (row["task"], (row["answer"],))
        assert task.chance == pytest.approx(float(row["chance"]), abs=0.005)
