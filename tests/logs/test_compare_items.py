"""`compare --items`: two models on the same items, from recorded logs and on drawn worlds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from log_files import FIXTURES, NEW, OLD

import benchcast as bc
from benchcast.decisions.compare_items import MEAN, compare_sides
from benchcast.decisions.logged_models import LoggedSide, TaskItems, TaskQuestions

STRICT = "pond_write=exact_match,strict-match"
LIGHT = FIXTURES / "lighteval-0.13.0"
FIRST, SECOND = NEW / "models__reed-c", NEW / "models__reed-d"
OPTIONS = {"metrics": {"pond_write": "exact_match,strict-match"}}


def rows(folder, task):
    file = next(folder.glob(f"samples_{task}_*"))
    return [json.loads(line) for line in file.read_text().splitlines()]


def of_task(comparison, task):
    return next(d for d in comparison.differences if d.task == task)


# Recorded logs


def test_a_difference_is_the_mean_of_the_differences_on_the_items():
    found = of_task(bc.compare_items([FIRST, SECOND], **OPTIONS), "pond")
    items = [[r["acc"] for task in ("pond_sums", "pond_frogs") for r in rows(x, task)] for x in (FIRST, SECOND)]
    d = np.subtract(items[1], items[0])
    assert found.difference == pytest.approx(d.mean())
    assert (found.items, found.clusters) == (len(d), len(d))
    assert found.low < found.difference < found.high
    assert found.first_score == pytest.approx(np.mean(items[0]))


def test_items_are_joined_by_their_documents_whatever_their_order(tmp_path):
    other = Path(shutil.copytree(SECOND, tmp_path / "other"))
    for file in other.glob("samples_*"):
        file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))
    ours, reordered = bc.compare_items([FIRST, SECOND], **OPTIONS), bc.compare_items([FIRST, other], **OPTIONS)
    assert [d.difference for d in ours.differences] == [d.difference for d in reordered.differences]


def test_logs_without_hashes_join_those_that_have_them():
    found = bc.compare_items([OLD, FIRST], tasks=["pond_last"])
    assert of_task(found, "pond_last").items == 6
    assert of_task(found, "pond_last").other_prompts == 0


def test_other_prompts_are_refused_and_named_where_they_are_accepted(cli, tmp_path):
    other = Path(shutil.copytree(SECOND, tmp_path / "other"))
    file = next(other.glob("samples_pond_last_*"))
    changed = [{**json.loads(line), "prompt_hash": "x"} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in changed))
    ran = cli("compare", "--items", FIRST, other, "--metric", STRICT)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "pond_last: models/reed-c and models/reed-d saw different prompts on 6 of 6 items" in ran.err
    ran = cli("compare", "--items", FIRST, other, "--metric", STRICT, "--allow-different-prompts")
    assert ran.code == 0
    assert "different prompts were accepted on pond_last" in ran.out


def test_what_is_no_mean_over_items_is_listed_and_left_out(cli, tmp_path):
    other = Path(shutil.copytree(SECOND, tmp_path / "other"))
    results = next(other.glob("results_*"))
    document = json.loads(results.read_text())
    document["results"]["pond_last"]["acc,none"] = 0.123
    results.write_text(json.dumps(document))
    ran = cli("compare", "--items", FIRST, other, "--metric", STRICT)
    assert ran.code == 0, ran.err
    text = " ".join(ran.out.split())
    assert "left out: pond_last: acc is no mean over items (0.1230 in the results of models/reed-d" in text
    assert "pond_last" not in [d.task for d in bc.compare_items([FIRST, other], **OPTIONS).differences]


def test_a_model_that_answered_only_the_first_items_is_named(tmp_path):
    other = Path(shutil.copytree(SECOND, tmp_path / "other"))
    results = next(other.glob("results_*"))
    document = json.loads(results.read_text())
    document["config"]["limit"] = 100.0
    results.write_text(json.dumps(document))
    line = "made with a limit, so the items are the first of each task: models/reed-d"
    assert line in bc.compare_items([FIRST, other], **OPTIONS).notes
    assert not any("limit" in note for note in bc.compare_items([FIRST, SECOND], **OPTIONS).notes)


def test_models_of_one_lighteval_folder_are_named_by_their_results(cli):
    models = LIGHT / "results" / "models"
    found = of_task(bc.compare_items([models / "reed-c", models / "sedge-c"]), "frogs")
    assert (found.first, found.second, found.items) == ("models/reed-c", "models/sedge-c", 12)
    scores = [
        json.loads(next((models / x).glob("*")).read_text())["results"]["frogs|1"]["acc"] for x in ("reed-c", "sedge-c")
    ]
    assert [found.first_score, found.second_score] == pytest.approx(scores)
    assert "holds 2 models" in cli("compare", "--items", models / "reed-c", LIGHT).err


def test_a_folder_with_several_models_needs_a_choice(cli):
    ran = cli("compare", "--items", FIRST, NEW, "--metric", STRICT)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "holds 10 models" in ran.err
    assert "--model" in ran.err
    picked = bc.compare_items([FIRST, NEW], models=["models/rush-c"], **OPTIONS)
    assert picked.models["models/rush-c"] == ("models/rush-c",)
    ran = cli("compare", "--items", FIRST, NEW, "--metric", STRICT, "--model", "rush-d")
    assert "--model rush-d: no such model in these folders" in ran.err


def test_checkpoints_of_one_run_are_averaged_and_their_spread_is_noise(tmp_path):
    for step, name in ((1, "reed-b"), (2, "reed-c"), (3, "reed-d")):
        folder = Path(shutil.copytree(NEW / f"models__{name}", tmp_path / "run" / str(step)))
        results = next(folder.glob("results_*"))
        document = json.loads(results.read_text()) | {"model_name": f"run@{step}B"}
        document["config"]["model_args"] = ""
        results.write_text(json.dumps(document))
    found = bc.compare_items([FIRST, tmp_path / "run"], **OPTIONS)
    assert found.models["run"] == ("run@1B", "run@2B", "run@3B")
    single = [of_task(bc.compare_items([FIRST, NEW / f"models__reed-{x}"], **OPTIONS), "pond") for x in "bcd"]
    averaged = of_task(found, "pond")
    assert averaged.second_score == pytest.approx(np.mean([d.second_score for d in single]))
    assert not np.isnan(averaged.models_needed)
    spread = np.std([d.second_score for d in single], ddof=1)
    assert averaged.high - averaged.low > 2 * spread  # two degrees of freedom, 1/1 + 1/3 of the variance


def test_all_ways_to_print_agree(cli, tmp_path):
    command = ("compare", "--items", FIRST, SECOND, "--metric", STRICT)
    table, document, text = cli(*command), cli(*command, "--json"), cli(*command, "--markdown")
    found = bc.compare_items([FIRST, SECOND], **OPTIONS)
    assert json.loads(document.out) == json.loads(json.dumps(found.to_dict()))
    mean = of_task(found, MEAN)
    for out in (table.out, text.out):
        assert f"{mean.difference:+.3f}" in out
    assert text.out.startswith("### models/reed-d against models/reed-c\n")
    assert list(found.to_pandas().task) == [d.task for d in found.differences]
    drawn = cli(*command, "--figure", tmp_path / "x.html")
    assert (drawn.code, (tmp_path / "x.html").stat().st_size > 1000) == (0, True)


def test_panels_of_a_figure_are_in_the_order_of_the_folders():
    folders = [NEW / f"models__{name}" for name in ("reed-c", "rush-c", "reed-d")]
    facet = bc.compare_items(folders, **OPTIONS).plot().to_dict()["facet"]
    assert facet["sort"] == ["models/rush-c − models/reed-c", "models/reed-d − models/reed-c"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--items", FIRST), "two or more folders of logs are needed"),
        (("--items", FIRST, SECOND, "--runs", "a,b"), "--items goes with"),
        ((FIRST, "--markdown"), "go with --items"),
        (("--items", FIRST, SECOND, "--markdown", "--json"), "--json and --markdown: give one of them"),
        (("--items", FIRST, SECOND, "--metric", STRICT, "--task", "ponds"), "no results of task 'ponds'"),
        (("--items", FIRST, "nowhere"), "nowhere: no such folder"),
        ((), "missing argument 'STUDY'"),
    ],
)
def test_mistakes_are_one_line(cli, arguments, said):
    ran = cli("compare", *arguments)
    assert ran.code in (1, 2)
    assert said in ran.err
    assert "Traceback" not in ran.err


# Drawn worlds: what is stated comes out


def drawn_task(rng, gap, *, items=200, per_passage=1, name="t"):
    """The items of two models whose true difference on new items is `gap`: item difficulties shared, answers drawn."""
    passages = items // per_passage
    easy = np.repeat(rng.normal(0.3, 1.0, passages), per_passage) + rng.normal(0, 0.7, items)
    taste = np.repeat(rng.normal(0, 1.2, (2, passages)), per_passage, axis=1)  # how each model suits the passage
    found = []
    for k in range(2):
        p = np.clip(1 / (1 + np.exp(-(easy + taste[k]))) + (gap if k else 0.0), 0, 1)
        right = (rng.random(items) < p).astype(float)
        keys = tuple((name, str(i), 0) for i in range(items))
        clusters = np.array([f"{name}-{i // per_passage}" for i in range(items)])
        prompts = np.array(["p"] * items)
        found.append(TaskItems("acc", TaskQuestions(keys, prompts, clusters), right, by_part=False))
    return found


def drawn_comparison(rng, gaps, **world):
    tasks = [drawn_task(rng, gap, name=f"t{t}", **world) for t, gap in enumerate(gaps)]
    sides = [
        LoggedSide(name, {name: {f"t{t}": pair[k] for t, pair in enumerate(tasks)}}) for k, name in enumerate("ab")
    ]
    return compare_sides(sides, {})


@pytest.mark.parametrize("per_passage", [1, 5])
@pytest.mark.parametrize("items", [50, 400])
def test_equal_models_are_called_different_in_5_percent(per_passage, items):
    rng = np.random.default_rng(0)
    draws = 1000
    found = [drawn_comparison(rng, [0.0], items=items, per_passage=per_passage).differences[0] for _ in range(draws)]
    share = np.mean([d.low > 0 or d.high < 0 for d in found])
    assert 0.029 < share < 0.071, share  # 3 standard errors of a share of 5% are 2.1 points


def test_without_clusters_items_of_one_passage_would_be_called_different_too_often():
    rng = np.random.default_rng(0)
    called = []
    for _ in range(300):
        one, two = drawn_task(rng, 0.0, per_passage=10)
        d = two.right - one.right
        called.append(abs(d.mean()) > 1.97 * d.std(ddof=1) / np.sqrt(len(d)))
    assert np.mean(called) > 0.1


def test_stated_probabilities_come_out():
    rng = np.random.default_rng(1)
    stated, truth = [], []
    for _ in range(800):
        gap = rng.normal(0, 0.15)  # wide beside the noise, so that all differences are about equally likely beforehand
        stated.append(drawn_comparison(rng, [gap], items=100).differences[0].higher)
        truth.append(gap > 0)
    stated, truth = np.array(stated), np.array(truth)
    for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.7), (0.7, 0.9), (0.9, 1.0)):
        inside = (stated >= low) & (stated <= high)
        said, happened = stated[inside].mean(), truth[inside].mean()
        noise = np.sqrt(max(said * (1 - said), 0.01) / inside.sum())
        assert abs(said - happened) < 3 * noise, (low, high, said, happened)


def test_one_of_many_equal_tasks_is_called_different_in_5_percent_after_correction():
    rng = np.random.default_rng(2)
    comparisons = [drawn_comparison(rng, [0.0] * 10, items=60) for _ in range(200)]
    found = [[d for d in comparison.differences if d.task != MEAN] for comparison in comparisons]
    at_all = np.mean([any(d.low > 0 or d.high < 0 for d in of_draw) for of_draw in found])
    corrected = np.mean([any(2 * min(d.corrected, 1 - d.corrected) < 0.05 for d in of_draw) for of_draw in found])
    assert at_all > 0.25
    assert 0.01 < corrected < 0.1, corrected


def test_the_smallest_resolvable_difference_is_found_in_80_percent():
    rng = np.random.default_rng(3)
    resolvable = np.mean([drawn_comparison(rng, [0.0]).differences[0].resolvable for _ in range(20)])
    found = [drawn_comparison(rng, [resolvable]).differences[0].low > 0 for _ in range(300)]
    assert 0.7 < np.mean(found) < 0.9


def test_as_many_items_as_stated_settle_a_difference_of_the_same_size():
    rng = np.random.default_rng(4)
    first = next(
        d for d in (drawn_comparison(rng, [0.05]).differences[0] for _ in range(100)) if 300 < d.items_needed < 2000
    )
    more = [drawn_comparison(rng, [first.difference], items=int(first.items_needed)).differences[0] for _ in range(100)]
    assert 0.35 < np.mean([d.settled for d in more]) < 0.65  # the gap drawn again is larger or smaller equally often
