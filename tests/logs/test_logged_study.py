"""A study made only from `--log_samples` folders of ten small models is compared, fitted, forecast and reported."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from log_files import FAMILIES, METRIC, NEW

import benchcast as bc


@pytest.fixture(scope="module")
def study(cli, tmp_path_factory):
    """Nine models with their families; the tenth comes later."""
    root = tmp_path_factory.mktemp("nine")
    shutil.copytree(NEW, root / "logs")
    shutil.move(root / "logs" / "models__reed-c", root / "new" / "models__reed-c")
    assert cli("init", root / "study", "--from-lm-eval", root / "logs", *METRIC).code == 0
    (root / "models.csv").write_text(FAMILIES.replace("models/reed-c,reed\n", ""), encoding="utf-8")
    assert cli("import", "models", root / "study", root / "models.csv").code == 0
    return root / "study"


def test_losses_forecast_unseen_families_better_than_the_mean(study):
    comparison = bc.compare(
        study, ["pond", "pond_last"], split="family", methods=["salience", "label-token", "constant"]
    )
    for task in comparison.tasks:
        best, mean = (comparison.measures(task, m)["mse"] for m in ("salience", "constant"))
        assert best < 0.5 * mean
    assert len(comparison.held_out["pond", "salience"].observed) == 9


def test_a_logged_model_is_forecast_before_its_scores_are_known(cli, study):
    assert cli("fit", study, "--task", "pond", "--task", "pond_last").code == 0
    ran = cli("import", "losses", study, study.parent / "new", "--family", "reed")
    assert ran.out.splitlines()[0].endswith("1 model added, 0 were there already")
    assert "no loss on" not in ran.err  # prompts never have losses in logs
    forecast = {f.task: f for f in bc.predict(study, models=["models/reed-c"])}
    scores = {s.task: s.accuracy for s in bc.Study.open(all_ten(study)).scores() if s.model == "models/reed-c"}
    for task in ("pond", "pond_last"):
        assert forecast[task].low <= scores[task] <= forecast[task].high
        assert abs(forecast[task].accuracy - scores[task]) < 0.25


def test_the_report_shows_the_logged_study(cli, study, tmp_path):
    ran = cli("report", study, "-o", tmp_path / "page.html")
    assert (ran.code, "split by family" in ran.err) == (0, True), "by size, three models would be left to train"
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "pond_last" in page
    assert "reed-d" in page


def test_scores_and_losses_of_a_sample_file_alone(cli, study, tmp_path):
    folder = shutil.copytree(study, tmp_path / "s")
    bc.remove_models(folder, ["models/reed-c"])
    file = next((study.parent / "new" / "models__reed-c").glob("samples_pond_sums_*"))
    assert cli("import", "losses", folder, file).code == 0
    nats = bc.Study.open(folder).losses("models/reed-c").nats
    assert np.isfinite(nats).sum() == 16


def all_ten(study):
    """The study of all ten models."""
    folder = study.parent / "ten"
    if not folder.exists():
        bc.create_from_logs(folder, NEW, options=bc.ImportOptions({"pond_write": METRIC[1].partition("=")[2]}))
    return folder


def test_logs_that_lack_the_tasks_of_a_preset_are_refused(cli, tmp_path):
    ran = cli("init", tmp_path / "s", "--from-lm-eval", NEW, "--preset", "olmes")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "preset olmes: none of its tasks is in the logs, which hold pond_last, pond_write, pond" in ran.err
    assert not (tmp_path / "s").exists()
