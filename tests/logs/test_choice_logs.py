"""Choice losses come from the log-likelihoods of logged options, and logs whose accuracies disagree are refused."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from log_files import LIGHT, METRIC, MIDDLE, NEW, OLD

import benchcast as bc
from benchcast.errors import InputError
from benchcast.importers.logs.lm_eval import SampleRow, items_of
from benchcast.importers.logs.right_options import choice_losses
from benchcast.importers.logs.runs import read_run, read_runs

WITH_OPTIONS = ("pond_sums", "pond_frogs")


def row(**changes):
    """A row as lm-eval 0.4.13 writes it: the longest of three options is right by characters, the first without."""
    options = (" a", " bb", " cccc")
    return {
        "doc_id": 7,
        "doc": {"q": "1"},
        "target": "2",
        "arguments": {f"gen_args_{i}": {"arg_0": "Q", "arg_1": option} for i, option in enumerate(options)},
        "filtered_resps": [["-3.0", "False"], ["-5.0", "False"], ["-4.0", "False"]],
        "filter": "none",
        "acc": 0.0,
        "acc_norm": 1.0,
        **changes,
    }


def read(*rows):
    return items_of("t", [SampleRow.of(f"line {i}", r) for i, r in enumerate(rows, start=1)])


def reference(values, right):
    """−log of a softmax, written down once more."""
    share = np.exp(values) / np.exp(values).sum()
    return -math.log(share[right])


def test_the_values_are_the_softmax_of_sums_and_of_sums_per_character():
    (item,) = read(row())
    assert item.choice == pytest.approx(reference(np.array([-3.0, -5.0, -4.0]), 2))
    assert item.choice_norm == pytest.approx(reference(np.array([-3.0, -2.5, -1.0]), 2))


def test_lengths_are_in_characters_not_bytes():
    assert choice_losses([-2.0, -2.0], [" 是", " 不是"], 1)[1] == pytest.approx(reference(np.array([-2.0, -1.0]), 1))


def test_far_apart_options_do_not_overflow():
    assert choice_losses([-1.0, -5000.0], ["a", "b"], 1) == (4999.0, 4999.0)


@pytest.mark.parametrize("logs", [OLD, MIDDLE, NEW], ids=["0.4.0", "0.4.4", "0.4.13"])
def test_every_version_gives_choice_losses_where_there_are_options_and_nowhere_else(logs):
    run = read_run(OLD / "results.json") if logs is OLD else read_runs(logs)[0]
    for task, items in run.items.items():
        has = [math.isfinite(i.choice) and math.isfinite(i.choice_norm) for i in items]
        assert has == [task in WITH_OPTIONS] * len(items), task


def test_the_oldest_and_the_newest_version_give_the_same_of_one_model():
    old = read_run(OLD / "results.json")
    (new,) = [run for run in read_runs(NEW) if run.model == "models/reed-c" and "pond_sums" in run.items]
    for task in WITH_OPTIONS:
        for kind in ("choice", "choice_norm"):
            one, two = ([getattr(i, kind) for i in run.items[task]] for run in (old, new))
            assert one == pytest.approx(two, abs=1e-6)


def test_lighteval_gives_those_of_its_own_options():
    (path,) = LIGHT.glob("details/models/reed-c/*/details_sums*.parquet")
    items = {i.number: i for r in read_runs(LIGHT) if r.model == "models/reed-c" for i in r.items["sums"]}
    rows = pq.read_table(path).to_pylist()
    assert len(rows) == len(items) == 16
    for logged in rows:
        item, values = items[int(logged["doc"]["id"])], np.array(logged["model_response"]["logprobs"])
        gold = logged["doc"]["gold_index"]
        right = gold[0] if isinstance(gold, list) else gold
        lengths = np.array([len(o.strip()) for o in logged["doc"]["choices"]])
        assert item.choice == pytest.approx(reference(values, right))
        assert item.choice_norm == pytest.approx(reference(values / lengths, right))


def test_the_scorers_of_0_5_write_a_row_each_and_its_own_metric_agrees():
    """As `api/metrics` and `evaluator_utils` of 0.5.0.dev1 write it: arguments are lists, numbers are numbers."""
    likelihoods = [-3.0, -5.0, -4.0]
    new = row(
        target=2,
        arguments=[["Q", " a"], ["Q", " bb"], ["Q", " cccc"]],
        filtered_resps=[[[x, False]] for x in likelihoods],
        metrics=["acc", "acc_norm", "choice_logprob"],
        acc=0,
        acc_norm=1,
        choice_logprob=-reference(np.array(likelihoods), 2),
    )
    (item,) = read({**new, "filter": "first"}, {**new, "filter": "second", "acc_norm": 1})
    assert item.choice == pytest.approx(-item.metrics["choice_logprob,first"])
    with pytest.raises(InputError, match="line 2: item 7: the logged acc_norm is 0"):
        read({**new, "filter": "first"}, {**new, "filter": "second", "acc_norm": 0})


@pytest.mark.parametrize("target", [[0, 2], "[0, 2]", [2]])
def test_several_right_answers_have_none(target):
    assert math.isnan(read(row(target=target, acc=1.0))[0].choice)


def test_two_options_of_which_both_are_right_have_none():
    two = {"arguments": [["Q", " a"], ["Q", " b"]], "filtered_resps": [[-1.0], [-2.0]], "acc": 1.0}
    (item,) = read(row(target="[0, 1]", acc_norm=1.0, **two))
    assert math.isnan(item.choice)


def test_an_accuracy_that_is_no_count_has_none():
    """The share of several right answers, as in TruthfulQA mc2, is no argmax."""
    assert math.isnan(read(row(acc=0.37, acc_norm=0.4))[0].choice)


@pytest.mark.parametrize(("metric", "logged"), [("acc", 1.0), ("acc_norm", 0.0)])
def test_an_accuracy_that_disagrees_is_refused_with_the_item(metric, logged):
    good = row(doc_id=3)
    with pytest.raises(InputError) as refused:
        read(good, row(**{metric: logged}))
    said = f"line 2: item 7: the logged {metric} is {logged}, its log-likelihoods give {1 - logged}"
    assert said in str(refused.value)


def test_equal_values_may_go_either_way():
    tie = {"filtered_resps": [["-4.0", "False"], ["-5.0", "False"], ["-4.0", "False"]]}
    for logged in (0.0, 1.0):
        assert math.isfinite(read(row(acc=logged, **tie))[0].choice)


def test_options_with_the_space_in_their_length_are_accepted():
    """0.5 counts the delimiter; the same options without it have another best."""
    counted = {"filtered_resps": [["-2.0", "False"], ["-5.0", "False"], ["-4.6", "False"]]}
    bare, with_space = [-2.0, -2.5, -1.15], [-1.0, -5 / 3, -0.92]
    assert np.argmax(bare) == np.argmax(with_space) == 2
    one = {"filtered_resps": [["-2.0", "False"], ["-5.0", "False"], ["-5.5", "False"]]}
    assert np.argmax([-2.0, -2.5, -1.375]) != np.argmax([-1.0, -5 / 3, -1.1])
    for changes, logged in ((counted, 1.0), (one, 1.0), (one, 0.0)):
        assert math.isfinite(read(row(acc_norm=logged, **changes))[0].choice_norm)


def mutual(likelihoods, alone, **changes):
    """A row of a task with `acc_mutual_info`: the same options again, without the prompt."""
    options = [" a", " bb", " cccc"]
    pairs = [["Q", o] for o in options] + [["", o] for o in options]
    return row(arguments=pairs, filtered_resps=[[x, False] for x in (*likelihoods, *alone)], target=2, **changes)


def test_requests_of_mutual_information_come_second_and_are_no_options():
    (item,) = read(mutual([-3.0, -5.0, -4.0], [-3.0, -6.0, -8.0], acc_mutual_info=1.0))
    assert item.choice == pytest.approx(reference(np.array([-3.0, -5.0, -4.0]), 2))
    with pytest.raises(InputError, match="item 7: the logged acc_mutual_info is 0"):
        read(mutual([-3.0, -5.0, -4.0], [-3.0, -6.0, -8.0], acc_mutual_info=0.0))


def test_accuracies_that_old_versions_spoiled_are_refused():
    """Before 0.4.9 every other of the six log-likelihoods was taken: 3, 2 and 6 nats, so the wrong option was best."""
    likelihoods, alone = [-3.0, -5.0, -2.0], [-4.0, -6.0, -8.0]
    assert np.argmax(likelihoods) == 2
    spoiled = float(np.argmax([*likelihoods, *alone][::2]) == 2)
    assert math.isfinite(read(mutual(likelihoods, alone, acc=1.0))[0].choice)
    with pytest.raises(InputError, match=r"the logged acc is 0\.0.*versions before 0\.4\.9"):
        read(mutual(likelihoods, alone, acc=spoiled))


def test_options_in_the_prompt_are_compared_by_their_likelihoods():
    """As in Winogrande: the continuation is the same, and the lengths of the options are not logged."""
    prompts = {"arguments": [["He saw Al", " run"], ["He saw Bo", " run"]], "filtered_resps": [[-2.0], [-1.0]]}
    (item,) = read(row(target="run", acc=1.0, acc_norm=0.0, **prompts))
    assert item.choice == pytest.approx(reference(np.array([-2.0, -1.0]), 1))


def without_choices(study):
    """The study as an earlier version stored it."""
    for model in study.models_with_losses():
        study.add_losses([study.losses(model).with_choices({})], force=True)


def test_a_study_of_logs_has_them_and_old_logs_add_them_to_an_existing_study(cli, tmp_path):
    assert cli("init", tmp_path / "s", "--from-lm-eval", NEW, *METRIC).code == 0
    study = bc.Study.open(tmp_path / "s")
    expected = {m: study.losses(m).choices for m in study.models_with_losses()}
    sources = np.array([t.source for t in study.texts])
    for values in expected["models/reed-c"].values():
        np.testing.assert_array_equal(np.isfinite(values), np.isin(sources, WITH_OPTIONS))
    without_choices(study)
    assert not study.losses("models/reed-c").choices
    losses = study.losses("models/reed-c").nats.copy()
    ran = cli("import", "losses", study.root, NEW)
    assert ran.code == 0, ran.err
    assert "0 models added, 10 were there already" in ran.out
    assert "10 models of these got choice losses, which the study lacked" in ran.out
    again = bc.Study.open(study.root)
    np.testing.assert_array_equal(again.losses("models/reed-c").nats, losses)
    for model, choices in expected.items():
        np.testing.assert_equal(again.losses(model).choices, choices)
    assert "got choice losses" not in cli("import", "losses", study.root, NEW).out


def test_stack_reads_choice_losses_of_logs(cli, tmp_path):
    assert cli("init", tmp_path / "s", "--from-lm-eval", NEW, *METRIC).code == 0
    study = bc.Study.open(tmp_path / "s")
    assert not [line for line in bc.status(study).problems if "choice" in line]
    fit = bc.fit(study, "pond", method="salience")
    values, arrays = fit.task_fit.capability.fields()
    assert values["choices"] == "choice_norm"
    assert arrays["choices"].shape == (2, len(study.texts))
    read_of = {study.texts.texts[i].source for i in np.flatnonzero(np.abs(arrays["choices"]).sum(axis=0))}
    assert read_of <= set(WITH_OPTIONS)


def test_a_changed_accuracy_in_a_file_makes_no_study(cli, logs, tmp_path):
    (path,) = (logs / "models__reed-c").glob("samples_pond_sums_*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[4]["acc"] = 1 - rows[4]["acc"]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    ran = cli("init", tmp_path / "s", "--from-lm-eval", logs, *METRIC)
    assert ran.code == 1
    assert f"{path.name}: line 5: item {rows[4]['doc_id']}: the logged acc is" in ran.err
    assert not (tmp_path / "s").exists()


def test_details_of_lighteval_that_disagree_are_refused(cli, tmp_path):
    logs = shutil.copytree(LIGHT, tmp_path / "logs")
    path = next(logs.rglob("details_sums*.parquet"))
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[2]["metric"]["acc"] = 1 - rows[2]["metric"]["acc"]
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    ran = cli("init", tmp_path / "s", "--from-lighteval", logs)
    assert ran.code == 1
    assert "row 3: item" in ran.err
    assert "the logged acc is" in ran.err
