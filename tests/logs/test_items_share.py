"""`--items 0.5`: losses of one half of the items, scores of the other."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from log_files import METRIC, NEW, OLD

import benchcast as bc


@pytest.fixture(scope="module")
def half(cli, tmp_path_factory):
    root = tmp_path_factory.mktemp("half") / "study"
    ran = cli("init", root, "--from-lm-eval", NEW, "--items", "0.5", *METRIC)
    assert ran.code == 0, ran.err
    return bc.Study.open(root)


def test_no_item_has_both_a_loss_and_a_part_in_a_score(half):
    assert half.items == 0.5
    rows = {
        f"{task}-{i}": json.loads(line)
        for task in ("pond_sums", "pond_frogs")
        for i, line in enumerate(next((NEW / "models__reed-c").glob(f"samples_{task}_*")).read_text().splitlines())
    }
    learned = {t.id.rpartition("-")[0] for t in half.texts}
    others = [row for name, row in rows.items() if name not in learned]
    assert 0 < len(others) < len(rows)
    score = next(s for s in half.scores() if (s.model, s.task) == ("models/reed-c", "pond"))
    values = [row["acc"] for row in others]
    assert score.n_items == len(others)
    assert score.accuracy == pytest.approx(np.mean(values))


def test_the_standard_error_is_that_of_the_other_items(half):
    scores = [s for s in half.scores() if s.task == "pond_last"]
    for s in scores:
        assert s.stderr == pytest.approx(np.sqrt(s.accuracy * (1 - s.accuracy) / (s.n_items - 1)))


def test_another_model_is_scored_on_the_same_items(cli, half, tmp_path, logs):
    last = "models__sedge-c"
    shutil.move(logs / last, tmp_path / last)
    folder = tmp_path / "s"
    assert cli("init", folder, "--from-lm-eval", logs, "--items", "0.5", *METRIC).code == 0
    assert cli("import", "losses", folder, tmp_path / last).code == 0
    assert cli("import", "scores", folder, tmp_path / last, *METRIC).code == 0
    study = bc.Study.open(folder)
    assert np.array_equal(study.losses("models/sedge-c").nats, half.losses("models/sedge-c").nats, equal_nan=True)
    assert known(study) == known(half)


def known(study):
    return {(s.model, s.task, s.accuracy, s.n_items, s.stderr) for s in study.scores()}


def test_results_without_samples_are_refused(cli, half, tmp_path, tree):
    results = next((NEW / "models__reed-c").glob("results_*"))
    shutil.copy(results, tmp_path)
    before = tree(half.root)
    ran = cli("import", "scores", half.root, tmp_path / results.name, *METRIC)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "no samples beside it; run lm_eval with --log_samples" in ran.err
    assert tree(half.root) == before


def test_results_of_another_run_than_the_samples_are_refused(cli, logs, tmp_path):
    results = next((logs / "models__reed-c").glob("results_*"))
    document = json.loads(results.read_text())
    document["results"]["pond_last"]["acc,none"] = 0.5
    results.write_text(json.dumps(document))
    ran = cli("init", tmp_path / "s", "--from-lm-eval", logs, "--items", "0.5", *METRIC)
    assert "acc is 0.5 in the results and 0.833333 over the samples; are they of the same run?" in ran.err
    assert not (tmp_path / "s").exists()


def test_a_bad_share_in_study_toml_is_one_line(cli, half, tmp_path):
    folder = shutil.copytree(half.root, tmp_path / "s")
    settings = (folder / "study.toml").read_text()
    for value in ("0", "2", '"half"', "true"):
        (folder / "study.toml").write_text(settings.replace("items = 0.5", f"items = {value}"))
        ran = cli("status", folder)
        assert (ran.code, ran.err.count("\n")) == (1, 1)
        assert "items = " in ran.err


def test_a_task_whose_samples_do_not_name_their_filter_has_no_score_of_a_part(cli, tmp_path):
    """lm-eval 0.4.0 logs each item once for each filter of a generation, without the filter's name."""
    logs = shutil.copytree(OLD, tmp_path / "logs")
    ran = cli("init", tmp_path / "s", "--from-lm-eval", logs, "--items", "0.5")
    assert ran.code == 0, ran.err
    assert "pond_write: its samples do not hold the metric of the results" in ran.out
    assert "only its scores" not in ran.out
    assert "pond_write" not in {t.name for t in bc.Study.open(tmp_path / "s").tasks}
    ran = cli("init", tmp_path / "t", "--from-lm-eval", logs, *METRIC)
    assert "pond_write" in {s.task for s in bc.Study.open(tmp_path / "t").scores()}
