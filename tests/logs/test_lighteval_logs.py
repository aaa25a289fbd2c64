"""Files that lighteval 0.13.0 wrote become texts, losses, tasks and scores."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from log_files import LIGHT, NEW

import benchcast as bc
from benchcast.importers.logs.runs import read_runs
from benchcast.importers.scores.lm_eval import as_lm_eval, split_key


@pytest.fixture(scope="module")
def study(cli, tmp_path_factory):
    root = tmp_path_factory.mktemp("light") / "study"
    ran = cli("init", root, "--from-lighteval", LIGHT)
    assert ran.code == 0, ran.err
    assert "tasks: frogs (chance 0.5), sums (chance 0.3333)" in ran.out
    return bc.Study.open(root)


def test_losses_agree_with_those_of_lm_eval_on_the_same_questions(study):
    """Both harnesses asked the same model; only the order of items and the prompt of one task differ."""
    ours = {t.text: n for t, n in zip(study.texts, study.losses("models/reed-c").nats[1::2], strict=True)}
    theirs = [i for run in read_runs(NEW) if run.model == "models/reed-c" for i in run.items["pond_sums"]]
    assert len(theirs) == 16
    for item in theirs:
        assert ours[item.prompt + item.answer] == pytest.approx(item.nats, abs=1e-4)


def test_few_shot_examples_are_part_of_the_prompt(study):
    text = next(t for t in study.texts if t.id.startswith("frogs-7-"))
    assert text.text == "Frog Ada is green\n\nFrog Hal is grey"
    assert text.text.encode()[text.answer_start :] == b" grey"


def test_scores_name_harness_version_shots_and_items(study):
    score = next(s for s in study.scores() if (s.model, s.task) == ("models/reed-c", "frogs"))
    assert (score.accuracy, score.harness, score.version, score.shots, score.n_items) == (
        1.0,
        "lighteval",
        "1",
        "1",
        12,
    )
    score = next(s for s in study.scores() if (s.model, s.task) == ("models/reed-c", "sums"))
    assert (score.accuracy, score.stderr) == (0.875, pytest.approx(0.0853912))


def test_another_model_and_one_half_of_the_items(cli, tmp_path):
    logs = shutil.copytree(LIGHT, tmp_path / "logs")
    later = tmp_path / "later"
    for kind in ("results", "details"):
        (later / kind / "models").mkdir(parents=True)
        shutil.move(logs / kind / "models" / "sedge-c", later / kind / "models")
    assert cli("init", tmp_path / "s", "--from-lighteval", logs, "--items", "0.5").code == 0
    assert cli("import", "losses", tmp_path / "s", later).code == 0
    assert cli("import", "scores", tmp_path / "s", later).code == 0
    study = bc.Study.open(tmp_path / "s")
    assert 0 < len(study.texts) < 28
    assert {s.n_items for s in study.scores() if s.task == "sums"} == {
        16 - sum(t.source == "sums" for t in study.texts)
    }
    assert np.isfinite(study.losses("models/sedge-c").nats).sum() == len(study.texts)


def test_scores_alone_are_imported_too(cli, study, tmp_path):
    folder = shutil.copytree(study.root, tmp_path / "s")
    (folder / "scores.csv").unlink()
    ran = cli("import", "scores", folder, LIGHT)
    assert "read: lighteval results × 2" in ran.out
    assert len(bc.Study.open(folder).scores()) == 4


def test_averages_of_subsets_are_groups_and_old_keys_are_read():
    results = {
        "mmlu:law|5": {"acc": 0.2},
        "mmlu:art|5": {"acc": 0.4},
        "mmlu:_average|5": {"acc": 0.3},
        "all": {"acc": 0.3},
    }
    document = as_lm_eval({"results": results, "config_general": {"model_name": "m"}})
    assert document["group_subtasks"] == {"mmlu": ["mmlu:law", "mmlu:art"]}
    assert document["results"].keys() == {"mmlu:law", "mmlu:art", "mmlu"}
    assert (
        split_key("leaderboard|arc:challenge|25|0")
        == split_key("leaderboard|arc:challenge|25")
        == ("arc:challenge", "25")
    )


@pytest.mark.parametrize("fault", ["limit", "twice", "positive", "other file", "none"])
def test_bad_details_make_no_study(cli, tmp_path, fault):
    logs = shutil.copytree(LIGHT, tmp_path / "logs")
    results = next((logs / "results" / "models" / "reed-c").glob("*.json"))
    details = next(logs.rglob("reed-c/*/details_sums*"))
    table = pq.read_table(details)
    rows = table.to_pylist()
    if fault == "limit":
        document = json.loads(results.read_text())
        document["config_general"]["max_samples"] = 4
        results.write_text(json.dumps(document))
        said = "made with limit = 4"
    elif fault == "twice":
        pq.write_table(pa.concat_tables([table, table]), details)
        said = "an item occurs twice"
    elif fault == "positive":
        rows[0]["model_response"]["logprobs"] = [1.0, 1.0, 1.0]
        pq.write_table(pa.Table.from_pylist(rows), details)
        said = "finite number of at most 0, found 1.0"
    elif fault == "other file":
        pq.write_table(pa.table({"doc": [1]}), details)
        said = "not details of lighteval"
    else:
        shutil.rmtree(logs / "details")
        said = "no samples beside it; run lighteval with --save-details"
    ran = cli("init", tmp_path / "s", "--from-lighteval", logs)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert said in ran.err
    assert not (tmp_path / "s").exists()
