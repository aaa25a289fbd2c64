"""`init` on logs finds families, steps and sizes, and on the same folder again adds what is new."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from log_files import METRIC, MIDDLE
from test_checkpoint_names import as_model, relabelled

import benchcast as bc

LADDER = {
    "reed-a": "out/olmo-190M/checkpoint-20",
    "reed-b": "out/olmo-190M/checkpoint-100",
    "rush-a": "out/olmo-1B/checkpoint-20",
    "sedge-a": "out/web-190M/checkpoint-20",
}


@pytest.fixture
def ladder(tmp_path):
    return relabelled(tmp_path / "logs", LADDER)


def init(cli, tmp_path, *options):
    return cli("init", tmp_path / "s", "--from-lm-eval", tmp_path / "logs", *METRIC, *options)


def test_families_sizes_and_tokens_are_written_to_models_csv_and_shown(cli, ladder, tmp_path):
    ran = init(cli, tmp_path, "--tokens-per-step", "2M")
    assert ran.code == 0, ran.err
    infos = {m.model: m for m in bc.Study.open(tmp_path / "s").listed_models()}
    assert {m.family for m in infos.values()} == {"olmo", "web"}
    assert infos["olmo-190M@100"].tokens == 2e8
    assert infos["olmo-190M@100"].params == 16608, "as measured, not as in the name"
    lines = ran.out.splitlines()
    assert "found by the names (change it in models.csv)" in lines
    shown = next(line for line in lines if line.startswith("olmo "))
    assert shown.split()[1:3] == ["3", "2"]
    assert "20 – 100" in shown
    assert "40M – 200M" in shown
    assert "next: benchcast compare" in lines[-1]


def test_unknown_tokens_are_said_with_the_option_that_gives_them(cli, ladder, tmp_path):
    ran = init(cli, tmp_path)
    assert np.isnan([m.tokens for m in bc.Study.open(tmp_path / "s").listed_models()]).all()
    assert "tokens are unknown; --tokens-per-step N gives them" in ran.out
    assert init(cli, tmp_path, "--tokens-per-step", "many").code == 1


def test_init_again_says_which_renames_change_nothing(cli, ladder, tmp_path):
    assert init(cli, tmp_path, "--rename", "web-190M@*=net@*").code == 0
    assert init(cli, tmp_path, "--rename", "web-190M@*=net@*").err == ""
    ran = init(cli, tmp_path, "--rename", "nobody=somebody", "--rename", "olmo-1B@*=olmo-big@*")
    assert ran.err.splitlines() == [
        "warning: --rename matches no name in the files: 'nobody'; they have out/olmo-190M/checkpoint-20, "
        "out/olmo-190M/checkpoint-100 and 2 more",
        "warning: --rename: the study has olmo-1B@20 already; `benchcast rename` changes the name of a model",
    ]


def test_init_again_adds_the_files_that_are_new(cli, ladder, tmp_path, tree):
    assert init(cli, tmp_path, "--tokens-per-step", "2M").code == 0
    before = tree(tmp_path / "s")
    assert "has no new results" in init(cli, tmp_path).out
    assert tree(tmp_path / "s") == before
    relabelled(tmp_path / "logs", {"sedge-b": "out/web-190M/checkpoint-100"})
    ran = init(cli, tmp_path)
    assert "1 new file of 1 model (web-190M@100), 3 scores added" in ran.out
    study = bc.Study.open(tmp_path / "s")
    assert "web-190M@100" in study.models_with_losses()
    info = {m.model: m for m in study.models()}["web-190M@100"]
    assert (info.family, info.tokens) == ("web", 2e8), "tokens per step as when the study was made"
    assert (tmp_path / "s" / "outcomes" / "web-190M@100.parquet").is_file()


def test_a_new_study_of_all_files_and_one_that_grew_are_the_same(cli, ladder, tmp_path):
    shutil.move(ladder / "models__reed-b", tmp_path / "later")
    assert init(cli, tmp_path).code == 0
    shutil.move(tmp_path / "later", ladder / "models__reed-b")
    assert init(cli, tmp_path).code == 0
    whole = bc.create_from_logs(
        tmp_path / "whole", ladder, options=bc.ImportOptions({"pond_write": "exact_match,strict-match"})
    ).study
    grown = bc.Study.open(tmp_path / "s")
    assert grown.texts.digest == whole.texts.digest
    for model in whole.models_with_losses():
        assert np.array_equal(grown.losses(model).nats, whole.losses(model).nats, equal_nan=True)
    assert {(s.model, s.task): s for s in grown.scores()} == {(s.model, s.task): s for s in whole.scores()}
    assert sorted(m.model for m in grown.models()) == sorted(m.model for m in whole.models())


def test_a_changed_family_stays_and_new_checkpoints_of_its_run_join_it(cli, ladder, tmp_path):
    assert init(cli, tmp_path).code == 0
    (tmp_path / "m.csv").write_text("model,family\nweb-190M@20,crawl\n", encoding="utf-8")
    assert cli("import", "models", tmp_path / "s", tmp_path / "m.csv").code == 0
    relabelled(tmp_path / "logs", {"sedge-b": "out/web-190M/checkpoint-100"})
    assert init(cli, tmp_path).code == 0
    families = {m.model: m.family for m in bc.Study.open(tmp_path / "s").models()}
    assert (families["web-190M@20"], families["web-190M@100"], families["olmo-1B@20"]) == ("crawl", "crawl", "olmo")


def test_a_new_run_of_a_name_that_is_taken_gets_another_folder(cli, ladder, tmp_path):
    assert init(cli, tmp_path).code == 0
    relabelled(tmp_path / "logs", {"sedge-b": "redo/web-190M/checkpoint-20"})
    assert "(redo/web-190M@20)" in init(cli, tmp_path).out


def test_a_study_of_other_logs_is_refused(cli, ladder, tmp_path):
    assert init(cli, tmp_path).code == 0
    ran = cli("init", tmp_path / "s", "--from-lm-eval", MIDDLE)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "made from other logs than those in" in ran.err
    assert "stay as they were" in init(cli, tmp_path, "--items", "0.5").err
    (tmp_path / "s" / "logs.json").write_text('{"files": 3}', encoding="utf-8")
    assert "logs.json: damaged" in init(cli, tmp_path).err


def test_new_items_of_a_model_replace_its_losses_whole(cli, tmp_path):
    logs = relabelled(
        tmp_path / "logs", {"reed-a": "out/olmo-190M/checkpoint-20", "rush-a": "out/olmo-1B/checkpoint-20"}
    )
    assert init(cli, tmp_path).code == 0
    again = next((logs / "models__reed-a").glob("results_*.json"))
    copy = again.with_name("results_2030-01-01T00-00-00.json")
    shutil.copy(again, copy)
    for samples in list((logs / "models__reed-a").glob("samples_*")):
        shutil.copy(
            samples, samples.with_name(samples.name.replace(again.stem.removeprefix("results"), "_2030-01-01T00-00-00"))
        )
    as_model(copy, "out/olmo-190M/checkpoint-20")
    ran = init(cli, tmp_path)
    assert "1 new file of 1 model (olmo-190M@20), 0 scores added" in ran.out, ran.err
