"""Files that lm-evaluation-harness 0.4.0 and 0.4.13 wrote become texts, losses, tasks and scores."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from log_files import METRIC, MIDDLE, NEW, OLD, PROSE

import benchcast as bc
from benchcast.errors import InputError
from benchcast.importers.logs.items import LoggedItem, spaces_to_answer
from benchcast.importers.logs.lm_eval import SampleRow, items_of
from benchcast.importers.logs.runs import read_run, read_runs


def sample(**changes):
    """A row of a question with two options."""
    row = {
        "doc_id": 0,
        "doc": {"q": "1"},
        "target": "1",
        "arguments": {"gen_args_0": {"arg_0": "Q", "arg_1": " a"}, "gen_args_1": {"arg_0": "Q", "arg_1": " b"}},
        "filtered_resps": [["-2.5", "False"], ["-1.5", "True"]],
        "acc": 1.0,
    }
    return SampleRow.of("here", {**row, **changes})


def requests(*pairs: tuple[str, str]) -> dict[str, dict[str, str]]:
    return {f"gen_args_{i}": {"arg_0": prompt, "arg_1": answer} for i, (prompt, answer) in enumerate(pairs)}


def folder_of(logs: Path, model: str) -> Path:
    return logs / f"models__{model}"


def test_the_oldest_and_the_newest_version_say_the_same_of_one_model():
    old = read_run(OLD / "results.json")
    new = {t: items for run in read_runs(NEW) if run.model == "models/reed-c" for t, items in run.items.items()}
    new |= read_runs(PROSE)[0].items
    assert old.model == "models/reed-c"
    assert old.items.keys() == new.keys() == {"pond_sums", "pond_frogs", "pond_last", "pond_write", "pond_prose"}
    for task, items in old.items.items():
        assert [i.text_id for i in items] == [i.text_id for i in new[task]]
        assert [i.document for i in items] == [i.document for i in new[task]]
        assert np.array_equal([i.nats for i in items], [i.nats for i in new[task]], equal_nan=True)
        assert [i.options for i in items] == [i.options for i in new[task]]


def test_a_version_between_them_says_the_same():
    (middle,), new = read_runs(MIDDLE), next(run for run in read_runs(NEW) if run.model == "models/reed-c")
    for task, items in new.items.items():
        assert [(i.text_id, i.options) for i in middle.items[task]] == [(i.text_id, i.options) for i in items]
        assert np.array_equal([i.nats for i in middle.items[task]], [i.nats for i in items], equal_nan=True)
    assert middle.items["pond_sums"][0].metrics == new.items["pond_sums"][0].metrics
    assert middle.items["pond_write"][0].metrics == {}, "it does not name the filter"


def test_the_loss_of_an_item_is_that_of_its_right_answer(logged):
    study = bc.Study.open(logged)
    row = json.loads(next(folder_of(NEW, "reed-c").glob("samples_pond_sums*")).read_text().splitlines()[1])
    right = row["doc"]["answer"]
    text = study.texts.texts[1]
    assert text.text == f"{row['doc']['a']} plus {row['doc']['b']} is {row['doc']['choices'][right]}"
    losses = study.losses("models/reed-c")
    assert losses.counts[:2].tolist() == [2, 2]
    assert math.isnan(losses.nats[2])
    assert losses.nats[3] == pytest.approx(-float(row["filtered_resps"][right][0]), rel=1e-6)
    assert losses.edges[4] - losses.edges[3] == len(text.text) - text.answer_start
    assert text.text[text.answer_start] == " "


def test_scores_are_those_of_the_results(logged):
    scores = {(s.model, s.task): s for s in bc.Study.open(logged).scores()}
    document = json.loads(next(folder_of(NEW, "reed-c").glob("results_*")).read_text())
    score = scores["models/reed-c", "pond"]
    assert score.accuracy == document["results"]["pond"]["acc,none"]
    assert (score.n_items, score.harness, score.version) == (28, "lm-eval", "1")
    assert scores["models/reed-c", "pond_last"].stderr == document["results"]["pond_last"]["acc_stderr,none"]
    assert scores["models/reed-c", "pond_write"].shots == "0"


def test_chance_is_one_over_the_options_and_groups_have_the_texts_of_their_members(logged):
    tasks = {t.name: t for t in bc.Study.open(logged).tasks}
    assert tasks["pond"].chance == pytest.approx((16 / 3 + 12 / 2) / 28, abs=1e-4)
    assert tasks["pond"].sources == ("pond_sums", "pond_frogs")
    assert (tasks["pond_write"].chance, tasks["pond_write"].sources) == (0, ())


def test_sizes_come_from_the_results(logged):
    assert bc.Study.open(logged).infos(["models/reed-c"])[0].params == 26912


def test_texts_without_questions_are_texts_without_tasks(cli, logs, tmp_path):
    shutil.copytree(PROSE, logs, dirs_exist_ok=True)
    ran = cli("init", tmp_path / "s", "--from-lm-eval", logs, *METRIC)
    assert "pond_prose: no accuracy in the results; its texts are used, it is no task" in ran.out
    study = bc.Study.open(tmp_path / "s")
    prose = [t for t in study.texts if t.source == "pond_prose"]
    assert [t.answer_start for t in prose] == [None] * 3
    bits = {r.source: r for r in bc.bits_per_byte(study, ["models/reed-c"]).rows}
    document = json.loads(next(folder_of(PROSE, "reed-c").glob("results_*")).read_text())
    assert bits["pond_prose"].whole_text == pytest.approx(document["results"]["pond_prose"]["bits_per_byte,none"])
    assert math.isnan(bits["pond_sums"].whole_text)


def test_a_target_may_be_an_index_or_the_text_of_an_option():
    assert items_of("t", [sample(target="1")])[0].answer == " b"
    assert items_of("t", [sample(target="b")])[0].answer == " b"
    options = requests(("Q", " 1"), ("Q", " 0"))
    assert items_of("t", [sample(arguments=options, target="1")])[0].answer == " 0"
    assert items_of("t", [sample(arguments=options, target="0")])[0].answer == " 0"  # index 0 contradicts acc


def test_prompts_that_differ_instead_of_answers_are_told_apart_by_the_accuracy():
    options = requests(("He saw Al", " run"), ("He saw Bo", " run"))
    item = items_of("t", [sample(arguments=options, target="run", acc=0.0)])[0]
    assert (item.prompt, item.answer, item.nats) == ("He saw Al", " run", 2.5)


def test_an_unknown_right_answer_gives_no_loss():
    three = requests(("Q", " a"), ("Q", " b"), ("Q", " c"))
    row = sample(arguments=three, target="[0, 2]", filtered_resps=[[-1, False], [-2, False], [-3, False]], acc=0.0)
    item = items_of("t", [row])[0]
    assert not item.has_loss
    assert item.options == 3


def test_requests_without_prompt_for_mutual_information_are_no_options():
    four = requests(("Q", " a"), ("Q", " b"), ("", " a"), ("", " b"))
    item = items_of("t", [sample(arguments=four, filtered_resps=[[-3.0], [-2.0], [-9.0], [-8.0]])])[0]
    assert (item.options, item.nats, item.prompt) == (2, 2.0, "Q")


def test_space_at_the_end_of_a_prompt_belongs_to_the_answer():
    assert spaces_to_answer("Answer: ", "yes") == ("Answer:", " yes")
    assert spaces_to_answer("Answer:", " yes") == ("Answer:", " yes")
    assert spaces_to_answer("", "yes") == ("", "yes")


def test_drawn_items_are_a_random_share_that_depends_on_the_seed():
    items = [LoggedItem("t", i, f"{i:x}") for i in range(2000)]
    first, second = ([i.drawn(0.3, seed) for i in items] for seed in (0, 1))
    assert np.mean(first) == pytest.approx(0.3, abs=0.04)
    assert np.mean(np.array(first) & np.array(second)) == pytest.approx(0.09, abs=0.03)
    assert [LoggedItem("other", 7, f"{i:x}").drawn(0.3, 0) for i in range(2000)] == first


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"doc_id": "x"}, "doc_id must be a whole number"),
        ({"arguments": "Q"}, "arguments must hold the prompt"),
        ({"filtered_resps": [[-1.0]]}, "2 requests have 1 log-likelihoods"),
        ({"filtered_resps": [["nan"], ["-1"]]}, "finite number of at most 0, found 'nan'"),
        ({"filtered_resps": [[0.5], [-1]]}, "finite number of at most 0, found '0.5'"),
        ({"filtered_resps": None}, "no list of responses"),
    ],
)
def test_bad_rows_are_refused(changes, said):
    with pytest.raises(InputError, match=said):
        sample(**changes)
