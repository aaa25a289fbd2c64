"""`benchcast proxies`: noise, signal and right decisions are those that were planted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import benchcast as bc
from benchcast.decisions.proxies import (
    ALL_TOKENS,
    ANSWERS,
    CHOICE,
    SCORE,
    Stages,
    advise,
    decisions,
    left_out_error,
    measure,
    noise_of,
)
from benchcast.records import ModelInfo

SIZES = (1e8, 1e9, 1e10)


def planted(rng, *, runs=40, checkpoints=12, noise=None):
    """Runs of three sizes with checkpoints: a true quality of each run, which metrics show with noise of their own."""
    noise = noise or {SCORE: 0.05, ANSWERS: 0.01}
    quality = rng.normal(0, 0.05, runs)
    infos, truth = [], []
    for run in range(runs):
        for size in SIZES:
            for step in range(checkpoints):
                tokens = size * (20 + step)
                infos.append(ModelInfo(f"run{run}-{size:g}@{step}", family=f"run{run}", params=size, tokens=tokens))
                truth.append(quality[run] + 0.1 * np.log10(size * tokens))
    truth = np.array(truth)
    metrics = {name: truth + rng.normal(0, level, len(truth)) for name, level in noise.items()}
    families = np.array([info.family for info in infos])
    params = np.array([info.params for info in infos])
    rows = tuple(np.flatnonzero(params == size) for size in SIZES)
    return metrics, infos, Stages(by="size", names=("100M", "1B", "10B"), rows=rows, runs=families), quality


def of(rows, stage, metric):
    return next(row for row in rows if (row.stage, row.metric) == (stage, metric))


def test_noise_is_that_of_neighbouring_checkpoints():
    metrics, infos, _, _ = planted(np.random.default_rng(0))
    for name, level in ((SCORE, 0.05), (ANSWERS, 0.01)):
        assert noise_of(metrics[name], infos, np.ones(len(infos), bool)) == pytest.approx(level, rel=0.08)


def test_signal_is_the_spread_of_runs_and_the_ratio_their_quotient():
    metrics, infos, stages, quality = planted(np.random.default_rng(1), runs=200)
    row = of(measure("t", metrics, stages, infos), "100M", ANSWERS)
    assert row.runs == 200
    assert row.signal == pytest.approx(np.hypot(quality.std(ddof=1), 0.01), rel=0.1)
    assert row.ratio == pytest.approx(row.signal / row.noise)


def test_a_less_noisy_metric_decides_better_and_is_advised():
    metrics, infos, stages, _ = planted(np.random.default_rng(2))
    rows = measure("t", metrics, stages, infos)
    small = {name: of(rows, "100M", name).decisions for name in metrics}
    assert small[ANSWERS] > small[SCORE] + 0.05
    assert of(rows, "100M", ANSWERS).error < of(rows, "100M", SCORE).error
    assert advise(rows, stages).startswith(f"below 10B watch the {ANSWERS}: ")


def test_the_score_is_advised_where_nothing_is_clearly_better():
    metrics, infos, stages, _ = planted(np.random.default_rng(3), noise={SCORE: 0.01, ANSWERS: 0.01})
    assert advise(measure("t", metrics, stages, infos), stages).startswith("below 10B watch the score: ")


def test_the_share_of_right_decisions_is_counted_over_pairs_with_a_difference():
    assert decisions(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])) == (pytest.approx(2 / 3), 3)
    assert decisions(np.array([1.0, 1.0]), np.array([1.0, 2.0])) == (0.5, 1)
    assert decisions(np.array([1.0, 2.0]), np.array([1.0, 1.0]))[1] == 0


def test_the_error_is_that_of_runs_left_out():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=12), rng.normal(size=12)
    by_hand = []
    for i in range(12):
        kept = np.arange(12) != i
        slope, offset = np.polyfit(x[kept], y[kept], 1)
        by_hand.append(y[i] - slope * x[i] - offset)
    assert left_out_error(x, y) == pytest.approx(np.sqrt(np.mean(np.square(by_hand))))


def test_a_metric_that_some_runs_lack_is_not_advised():
    metrics, infos, stages, _ = planted(np.random.default_rng(2))
    metrics[ANSWERS][[info.family == "run0" for info in infos]] = np.nan
    assert advise(measure("t", metrics, stages, infos), stages).startswith("below 10B watch the score: ")


def test_runs_whose_scores_are_all_equal_have_no_error():
    assert np.isnan(left_out_error(np.array([1.0, 2.0, 4.0, 3.0]), np.zeros(4)))


def test_runs_of_different_sizes_are_staged_by_length_of_training():
    infos = [
        ModelInfo(f"{size}M-{ratio}x@{k}", family=f"{size}M", params=size * 1e6, tokens=size * 1e6 * 20 * ratio * k / 8)
        for size in (100, 200, 400, 800, 1600)
        for ratio in (1, 5)
        for k in range(1, 9)
    ]

    class Metadata:
        params = np.array([info.params for info in infos])
        training_tokens = np.array([info.tokens for info in infos])

    class Data:
        metadata = Metadata
        families = np.array([info.family for info in infos])

    stages = Stages.of(Data, infos)
    assert stages.by == "length of training"
    assert stages.names == ("20 tokens per parameter", "100 tokens per parameter")


def test_the_command_prints_what_python_returns(cli, study):
    ran = cli("proxies", study.root, "--task", "task0", "--json")
    assert ran.code == 0, ran.err
    found = bc.proxies(study, tasks=["task0"])
    assert json.loads(ran.out) == json.loads(json.dumps(found.to_dict()))
    assert {row.metric for row in found.rows} >= {SCORE, ANSWERS, ALL_TOKENS, "forecast"}
    table = cli("proxies", study.root, "--task", "task0")
    assert f"task0: {found.advice['task0']}" in " ".join(table.out.split())


def test_a_study_with_too_few_runs_is_one_line(cli, study):
    few = study.root / "models.csv"
    few.write_text("\n".join(few.read_text().splitlines()[:1]) + "\n")
    (study.root / "scores.csv").write_text("\n".join((study.root / "scores.csv").read_text().splitlines()[:3]) + "\n")
    ran = cli("proxies", study.root)
    assert (ran.code, ran.err.count("\n")) == (1, 1)


def test_choice_losses_of_the_tasks_own_columns_are_a_metric(tmp_path):
    names = [f"m{i}" for i in range(8)]
    rng = np.random.default_rng(5)
    values = rng.uniform(0.5, 2, (8, 3))
    lines = [
        "model,general,answer.arc,choice.arc",
        *(f"{n},{a:.4f},{b:.4f},{c:.4f}" for n, (a, b, c) in zip(names, values, strict=True)),
    ]
    (tmp_path / "losses.csv").write_text("\n".join(lines) + "\n")
    from benchcast.importers.loss_table import create_table_study

    study = create_table_study(tmp_path / "s", tmp_path / "losses.csv", units=("nats",))
    with (study.root / "study.toml").open("a") as settings:
        settings.write('\n[tasks.arc]\nchance = 0.25\nanswers = ["answer.arc"]\nchoices = ["choice.arc"]\n')
    study = bc.Study.open(study.root)
    scores = 0.3 + 0.3 * (2 - values[:, 2])
    (tmp_path / "scores.csv").write_text(
        "model,task,accuracy\n" + "".join(f"{n},arc,{x:.4f}\n" for n, x in zip(names, scores, strict=True))
    )
    bc.import_scores(study, tmp_path / "scores.csv")
    found = bc.proxies(bc.Study.open(study.root), forecast=False)
    share = {row.metric: row.decisions for row in found.rows}
    assert share[CHOICE] == 1.0
    assert share[ANSWERS] < 0.9


def test_the_page_shows_what_the_ladder_gives():
    if not bc.datasets.find("olmo-ladder-choice").cached:  # asked here: tests have a cache of their own
        pytest.skip("no files of the OLMo ladder (BENCHCAST_DATA)")
    found = bc.proxies(bc.datasets.fetch("olmo-ladder-choice"), forecast=False)
    assert found.by == "length of training"
    page = (Path(__file__).parents[2] / "docs" / "proxies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\w+_(?:test|val)) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert len(rows) == 6
    for task, *shown in rows:
        for metric, text in zip((SCORE, ANSWERS, CHOICE), shown, strict=True):
            ratios = [row.ratio for row in found.rows if (row.task, row.metric) == (task, metric)]
            assert float(text) == pytest.approx(np.mean(ratios), abs=0.06), (task, metric)
