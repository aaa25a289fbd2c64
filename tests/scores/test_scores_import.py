"""Score files of every kind, from the command line into scores.csv."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchcast.importers.scores.entries import ReaderOptions
from benchcast.importers.scores.formats import read_score_file
from benchcast.records import ModelInfo, Score
from benchcast.study.study import Study

Run = Callable[..., tuple[int, str, str]]
Write = Callable[[str, str], Path]

SUMMARY = """dataset,version,metric,mode,qwen-7b,Llama-2-7b-hf
--------- 考试 Exam ---------,-,-,-,-,-
ceval-test,-,naive_average,ppl,72.49,-
mmlu,-,naive_average,ppl,62.15,46.78
mmlu-anatomy,2846a9,accuracy,ppl,50.00,40.00
gsm8k,1d7fe4,accuracy,gen,54.36,16.76
bbh,-,naive_average,gen,39.87,38.27
"""
V2 = """fullname,Average ⬆️,IFEval Raw,IFEval,BBH Raw,BBH,MMLU-PRO Raw,MMLU-PRO
meta-llama/Llama-2-7b-hf,8.8,0.2519,25.19,0.3496,10.35,0.1861,9.57
"""
V1 = """model_name_for_query,Model,Average ⬆️,ARC,HellaSwag,MMLU,TruthfulQA,Winogrande,GSM8K
meta-llama/Llama-2-7b-hf,<a href=x>y</a>,50.97,53.07,78.59,46.87,38.76,74.03,14.48
"""


def old(model: str = "hf-causal", **results: dict[str, object]) -> str:
    """A results file as lm-evaluation-harness wrote them before 0.4."""
    config: dict[str, object] = {
        "model": model,
        "model_args": "use_accelerate=True,pretrained=meta-llama/Llama-2-7b-hf",
        "limit": None,
    }
    config["num_fewshot"] = 5
    return json.dumps({"results": results, "versions": dict.fromkeys(results, 0), "config": config})


def leaderboard_results(subjects: int = 57) -> str:
    results: dict[str, dict[str, float]] = {
        "harness|hellaswag|10": {"acc": 0.58, "acc_norm": 0.78, "acc_norm_stderr": 0.004},
        "harness|gsm8k|5": {"acc": 0.14},
        "all": {"acc": 0.5},
    }
    results |= {f"harness|hendrycksTest-subject_{i}|5": {"acc": i / 100, "acc_norm": 0.9} for i in range(subjects)}
    return json.dumps({"config_general": {"model_name": "meta-llama/Llama-2-7b-hf"}, "results": results})


def scores_by_key(study: Study) -> dict[tuple[str, str], Score]:
    return {(s.model, s.task): s for s in study.scores()}


def about(score: Score) -> tuple[str, str, str]:
    return score.harness, score.version, score.shots


def test_a_recorded_lm_eval_file_is_read_with_items_shots_and_version(run: Run, study: Study, fixtures: Path) -> None:
    path = next(fixtures.glob("results_*.json"))
    assert "pond_sums: which metric? found exact_match,strict-match, exact_match,flexible" in run(path)[2]
    code, out, _ = run(path, "--metric", "pond_sums=exact_match,strict-match")
    assert code == 0
    pond, sums = scores_by_key(study)["reed-7k", "pond"], scores_by_key(study)["reed-7k", "pond_sums"]
    assert (pond.accuracy, pond.n_items, about(pond)) == (0.25, 20, ("lm-eval", "1", "2"))
    assert (sums.accuracy, sums.n_items, sums.shots, sums.version) == (0.0, 6, "0", "3")
    assert "pond acc" in out
    assert "pond_sums exact_match,strict-match" in out
    assert "not in study.toml, left out: pond_anatomy, pond_law" in out


def test_standard_errors_are_read(fixtures: Path) -> None:
    path = next(fixtures.glob("results_*.json"))
    _, entries = read_score_file(path, ReaderOptions([], set))
    by = {(r.score.task, r.metric): r for r in entries}
    assert by["pond_anatomy", "acc_norm"].stderr == pytest.approx(0.11236664)
    assert by["pond_anatomy", "acc"].score.n_items == 12


def test_a_whole_output_folder_is_searched(run: Run, study: Study, fixtures: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "reed-7k").mkdir(parents=True)
    shutil.copy(next(fixtures.glob("results_*.json")), tmp_path / "out" / "reed-7k")
    assert run(tmp_path / "out", "--metric", "pond_sums=exact_match,strict-match")[0] == 0
    assert ("reed-7k", "pond") in scores_by_key(study)
    (tmp_path / "none").mkdir()
    assert "no results_*.json or summary_*.csv below" in run(tmp_path / "none")[2]


def test_a_run_with_a_limit_is_refused_unless_allowed(run: Run, study: Study, fixtures: Path) -> None:
    path = next((fixtures / "limit").glob("*.json"))
    code, _, err = run(path)
    assert code == 1
    assert "made with limit = 4" in err
    assert not scores_by_key(study)
    assert run(path, "--allow-limit")[0] == 0
    assert scores_by_key(study)["reed-7k", "pond"].n_items == 8


def test_files_from_before_filters_and_word_valued_errors_are_read(run: Run, study: Study, write: Write) -> None:
    path = write("old.json", old(hellaswag={"acc": 0.5, "acc_norm": 0.7, "acc_norm_stderr": "N/A"}))
    code, out, _ = run(path)
    assert code == 0
    assert scores_by_key(study)["Llama-2-7b-hf", "hellaswag"].accuracy == 0.7
    assert about(scores_by_key(study)["Llama-2-7b-hf", "hellaswag"]) == ("lm-eval", "0", "5")
    assert "metrics: hellaswag acc_norm" in out
    assert "meta-llama/Llama-2-7b-hf is Llama-2-7b-hf" in out


def test_the_metric_is_stated_and_can_be_chosen(run: Run, study: Study, write: Write) -> None:
    path = write("r.json", old(hellaswag={"acc,none": 0.5, "acc_norm,none": 0.7}))
    assert run(path, "--metric", "hellaswag=acc")[0] == 0
    assert scores_by_key(study)["Llama-2-7b-hf", "hellaswag"].accuracy == 0.5
    assert "no metric 'f1'; found acc, acc_norm" in run(path, "--metric", "hellaswag=f1")[2]
    assert "no scores of task 'helaswag' in these files; did you mean" in run(path, "--metric", "helaswag=acc")[2]
    two = write("two.json", old(gsm8k={"f1,a": 0.5, "f1,b": 0.7}))
    assert "gsm8k: which metric? found f1,a, f1,b; choose one with --metric gsm8k=f1,a" in run(two)[2]


def test_a_task_without_a_usable_metric_is_said(run: Run, study: Study, write: Write) -> None:
    code, _, err = run(write("r.json", old(mmlu={"word_perplexity,none": 12.0, "alias": "mmlu"})))
    assert code == 1
    assert "mmlu: no usable metric" in err
    lower = json.loads(old(mmlu={"loss,none": 0.4}))
    lower["higher_is_better"] = {"mmlu": {"loss": False}}
    assert "no usable metric" in run(write("l.json", json.dumps(lower)))[2]
    assert not scores_by_key(study)


def test_a_file_that_lacks_the_metric_of_the_others_is_not_dropped_in_silence(run: Run, write: Write) -> None:
    a = write("a.json", old(mmlu={"acc,none": 0.5}))
    b = write("b.json", old(mmlu={"exact_match,none": 0.4}).replace("meta-llama/Llama-2-7b-hf", "qwen-7b"))
    assert "no metric 'acc', which the other files have for 'mmlu'" in run(a, b)[2]


def test_opencompass_summaries_are_percentages(run: Run, study: Study, write: Write) -> None:
    code, out, _ = run(write("summary_1.csv", SUMMARY))
    assert code == 0
    scores = scores_by_key(study)
    assert scores["qwen-7b", "mmlu"].accuracy == pytest.approx(0.6215)
    assert scores["qwen-7b", "ceval"].accuracy == pytest.approx(0.7249)
    assert ("Llama-2-7b-hf", "ceval") not in scores
    assert scores["qwen-7b", "gsm8k"].accuracy == pytest.approx(0.5436)
    assert about(scores["qwen-7b", "gsm8k"]) == ("opencompass", "1d7fe4 gen", "")
    assert "OpenCompass summary × 1" in out
    assert "left out: mmlu-anatomy" in out


def test_a_recorded_opencompass_summary_is_read(run: Run, study: Study, fixtures: Path) -> None:
    code, out, _ = run(*fixtures.glob("summary_*.csv"))
    assert code == 0
    scores = scores_by_key(study)
    assert scores["rush-90k", "mmlu"].accuracy == pytest.approx(0.2937)
    assert about(scores["reed-7k-hf", "gsm8k"]) == ("opencompass", "db1b43 gen", "")
    assert {task for model, task in scores if model == "rush-90k"} == {"mmlu", "hellaswag"}
    assert "the study has no model 'reed-7k-hf' yet; near: reed-7k" in out
    assert run(*fixtures.glob("summary_*.csv"), "--add-tasks", "lukaemon_mmlu_*")[0] == 0
    assert Study.open(study.root).task("lukaemon_mmlu_anatomy").chance == 0.25


def test_a_summary_of_a_whole_opencompass_run_is_read(run: Run, study: Study, fixtures: Path) -> None:
    code, out, _ = run(fixtures / "opencompass")
    assert code == 0
    assert "4 scores added" in out
    scores = scores_by_key(study)
    assert {key: s.accuracy for key, s in scores.items()} == {
        ("reed-7k-hf", "pond"): 0.25,
        ("rush-90k-hf", "pond"): 0.25,
        ("reed-7k-hf", "pond_sums"): 0.0,
        ("rush-90k-hf", "pond_sums"): 0.0,
    }
    assert about(scores["rush-90k-hf", "pond_sums"]) == ("opencompass", "359d58 gen", "")
    assert "left out: pond_anatomy, pond_law" in out


def test_two_columns_of_one_model_are_refused(run: Run, study: Study, write: Write) -> None:
    path = write("summary_1.csv", SUMMARY.replace("Llama-2-7b-hf", "qwen-7b"))
    assert "two columns of model 'qwen-7b'" in run(path)[2]
    wide = write("wide.csv", "task,qwen-7b,qwen-7b\nmmlu,1,2\n")
    assert "column qwen-7b occurs twice" in run(wide, "--unit", "percent")[2]
    named = write("named.csv", "task,qwen-7b,org/qwen-7b\nmmlu,1,2\n")
    assert "'qwen-7b' and 'org/qwen-7b' are both model 'qwen-7b'" in run(named, "--unit", "percent")[2]
    assert not scores_by_key(study)


def test_leaderboard_2_takes_the_raw_columns(run: Run, study: Study, write: Write, tmp_path: Path) -> None:
    assert run(write("v2.csv", V2))[0] == 0
    score = scores_by_key(study)["Llama-2-7b-hf", "bbh"]
    assert (score.accuracy, score.shots, score.harness) == (0.3496, "3", "open-llm-leaderboard-v2")
    rescaled = "fullname,IFEval,BBH,MUSR\nx,1,2,3\n"
    assert "only the rescaled columns" in run(write("rescaled.csv", rescaled))[2]
    pq.write_table(pa.table({"fullname": ["meta-llama/Llama-2-7b-hf"], "BBH Raw": [0.3496]}), tmp_path / "v2.parquet")
    assert "0 scores added, 1 were there already" in run(tmp_path / "v2.parquet")[1]


def test_leaderboard_1_tables_are_percentages_and_results_are_fractions(run: Run, study: Study, write: Write) -> None:
    assert run(write("v1.csv", V1))[0] == 0
    score = scores_by_key(study)["Llama-2-7b-hf", "hellaswag"]
    assert score.accuracy == pytest.approx(0.7859)
    assert about(score) == ("open-llm-leaderboard-v1", "", "10")
    assert run(write("r.json", leaderboard_results()), "--force")[0] == 0
    scores = scores_by_key(study)
    assert scores["Llama-2-7b-hf", "hellaswag"].accuracy == 0.78
    assert scores["Llama-2-7b-hf", "mmlu"].accuracy == pytest.approx(0.28)
    assert "56 subjects of MMLU" in run(write("part.json", leaderboard_results(56)))[2]


def test_older_leaderboard_results_name_the_model_in_its_arguments(run: Run, study: Study, write: Write) -> None:
    document = json.loads(leaderboard_results())
    del document["config_general"]
    document["config"] = {"model_args": "pretrained=meta-llama/Llama-2-7b-hf,revision=main"}
    assert run(write("old.json", json.dumps(document)))[0] == 0
    assert scores_by_key(study)["Llama-2-7b-hf", "hellaswag"].accuracy == 0.78
    document["versions"] = {"harness|hendrycksTest-subject_0|5": 0}
    assert "leaves out (version 0)" in run(write("wrong.json", json.dumps(document)))[2]


FRACTIONS = {
    "summary": "dataset,version,metric,mode,qwen-7b\nmmlu,-,naive_average,ppl,0.52\n",
    "v1": "fullname,Average,ARC,HellaSwag,MMLU\nqwen-7b,0.5,0.5,0.5,0.52\n",
    "v2": "fullname,IFEval Raw,MMLU Raw\nqwen-7b,0.5,0.52\n",
    "long": "model,task,accuracy,stderr\nqwen-7b,mmlu,0.52,0.01\n",
    "listed": "model,task,metric,accuracy\nqwen-7b,mmlu,acc,0.52\n",
    "wide": "model,mmlu (%)\nqwen-7b,0.52\n",
}


@pytest.mark.parametrize("kind", FRACTIONS)
@pytest.mark.parametrize("unit", ["fraction", "percent"])
def test_the_unit_that_is_given_holds_for_every_kind_of_table(
    run: Run, study: Study, write: Write, kind: str, unit: str
) -> None:
    text = FRACTIONS[kind] if unit == "fraction" else FRACTIONS[kind].replace("0.52", "52").replace("0.01", "1")
    code, _, err = run(write(f"{kind}.csv", text), "--unit", unit)
    assert code == 0, err
    score = scores_by_key(study)["qwen-7b", "mmlu"]
    assert score.accuracy == pytest.approx(0.52)
    assert kind != "long" or score.stderr == pytest.approx(0.01)


def test_results_in_json_are_fractions_whatever_is_asked(run: Run, study: Study, write: Write) -> None:
    code, _, err = run(write("old.json", old(mmlu={"acc": 0.5})), "--unit", "percent")
    assert code == 1
    assert "results files in JSON hold fractions" in err
    assert run(write("old.json", old(mmlu={"acc": 0.5})), "--unit", "fraction")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ("pretrained=/models/llama,gguf_file=llama-7b.Q4_K_M.gguf,dtype=float32", "llama-7b.Q4_K_M"),
        ({"pretrained": "org/llama-GGUF", "gguf_file": "sub/llama-7b.Q8_0.gguf"}, "llama-7b.Q8_0"),
        ("path=/models/llama-7b.Q2.gguf", "llama-7b.Q2"),
        ("pretrained=org/llama,revision=step1000", "org/llama@step1000"),
        ("pretrained=org/llama,revision=main", "org/llama"),
    ],
)
def test_lm_eval_results_are_stored_under_the_name_that_collect_gives(
    run: Run, study: Study, write: Write, arguments: object, name: str
) -> None:
    document = json.loads(old(mmlu={"acc": 0.5}))
    document["config"]["model_args"] = arguments
    if "gguf_file" in arguments:  # the harness names the folder
        document["model_name"] = "/models/llama"
    assert run(write("r.json", json.dumps(document)))[0] == 0
    assert [m for m, _ in scores_by_key(study)] == [name]


def test_wide_tables_say_their_unit_or_are_asked(run: Run, study: Study, write: Write) -> None:
    plain = write("wide.csv", "model,family,params_b,MMLU,GSM8K\nqwen-7b,Qwen,7.7,0.62,\nother,O,13,0.5,0.1\n")
    code, _, err = run(plain)
    assert code == 1
    assert "does not state whether a perfect score is 1 or 100" in err
    assert run(plain, "--unit", "fraction")[0] == 0
    assert scores_by_key(study)["qwen-7b", "mmlu"].accuracy == 0.62
    assert ("qwen-7b", "gsm8k") not in scores_by_key(study)
    assert run(write("pc.csv", "model,bbh (%)\nqwen-7b,0.5\n"))[0] == 0
    assert scores_by_key(study)["qwen-7b", "bbh"].accuracy == 0.005
    assert (
        "62 is not between 0 and 1; these scores are fractions"
        in run(write("f.csv", "model,mmlu\nx,62\n"), "--unit", "fraction")[2]
    )
    assert "no task of study.toml in it; found speed" in run(write("n.csv", "model,speed\nx,1\n"))[2]


def test_helm_tables_are_fractions_with_their_metric(run: Run, study: Study, write: Write) -> None:
    code, out, _ = run(write("helm.csv", "Model/adapter,MMLU - EM,GSM8K - EM\nqwen-7b,0.62,-\n"))
    assert code == 0
    assert scores_by_key(study)["qwen-7b", "mmlu"].accuracy == 0.62
    assert about(scores_by_key(study)["qwen-7b", "mmlu"]) == ("helm", "", "")
    assert "metrics: mmlu EM" in out
    newer = "Model,Mean win rate,NarrativeQA - F1,MMLU - EM,MMLU - EM (Robustness),GSM8K - EM\nx,0.7,0.6,0.5,0.45,0.4\n"
    assert run(write("lite.csv", newer))[0] == 0
    assert {task: s.accuracy for (m, task), s in scores_by_key(study).items() if m == "x"} == {
        "mmlu": 0.5,
        "gsm8k": 0.4,
    }


def test_lists_of_scores_with_other_headings_are_read(run: Run, study: Study, write: Write) -> None:
    text = "model,scenario,metric,mean,run\nqwen-7b,mmlu,exact_match,0.61,1\nqwen-7b,mmlu,latency,,1\n"
    path = write("helm.csv", text)
    assert "column 'mean' does not state whether a perfect score is 1 or 100" in run(path)[2]
    assert run(path, "--unit", "fraction")[0] == 0
    assert scores_by_key(study)["qwen-7b", "mmlu"].accuracy == 0.61
    percent = write("pc.csv", "model,task,percent,shots\nqwen-7b,gsm8k,54.5,8\n")
    assert run(percent)[0] == 0
    assert (scores_by_key(study)["qwen-7b", "gsm8k"].accuracy, scores_by_key(study)["qwen-7b", "gsm8k"].shots) == (
        0.545,
        "8",
    )
    kept = "model,task,percent,n_items,stderr\nqwen-7b,bbh,40,250,3.1\nother,bbh,50,,-\n"
    assert run(write("kept.csv", kept))[0] == 0
    score, plain = scores_by_key(study)["qwen-7b", "bbh"], scores_by_key(study)["other", "bbh"]
    assert (score.n_items, score.stderr) == (250, pytest.approx(0.031))
    assert math.isnan(plain.n_items)
    assert math.isnan(plain.stderr)
    assert "n_items 'many' is not a whole number" in run(write("n.csv", kept.replace("250", "many")))[2]
    assert "a score needs a model and a task" in run(write("e.csv", "model,task,percent\n,mmlu,5\n"))[2]


def test_the_long_form_keeps_working(run: Run, study: Study, write: Write) -> None:
    text = "model,task,accuracy,n_items,right_even\nqwen-7b,mmlu,0.5,100,26\n"
    assert "1 score added" in run(write("long.csv", text))[1]
    assert scores_by_key(study)["qwen-7b", "mmlu"].right_even == 26
    assert "unknown task 'mmlv'; study.toml has" in run(write("t.csv", text.replace("mmlu", "mmlv")))[2]
    percent = run(write("p.csv", "model,task,accuracy\nx,mmlu,50\n"))
    assert "is it a percentage? then write 0.5" in percent[2]


def test_the_long_form_takes_new_tasks_and_other_spellings(run: Run, study: Study, write: Write) -> None:
    path = write("long.csv", "model,task,accuracy\nqwen-7b,MMLU,0.5\nqwen-7b,mmlu_law,0.4\nqwen-7b,ceval-test,0.6\n")
    code, out, err = run(path)
    assert (code, out) == (1, "")
    assert "line 3: unknown task 'mmlu_law'; study.toml has mmlu, bbh, gsm8k, hellaswag, ceval, pond" in err
    assert not scores_by_key(study)
    code, out, _ = run(path, "--add-tasks", "mmlu_*")
    assert code == 0
    assert "3 scores added" in out
    assert "new tasks: mmlu_law (chance 0.25)" in out
    again = Study.open(study.root)
    assert {task for _, task in scores_by_key(again)} == {"mmlu", "mmlu_law", "ceval"}
    assert again.task("mmlu_law").sources == ("mmlu",)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", "{", "not JSON"),
        ("a.json", "[1]", "no 'results' object"),
        ("a.json", '{"results": {"mmlu": 3}, "model_name": "x"}', "must be an object"),
        ("a.json", '{"results": {"mmlu": {"acc": 0.5}}}', "does not name its model"),
        ("a.json", '{"results": {}, "model_name": "x"}', "contains no results"),
        ("a.json", '{"results": {"harness|gsm8k|5": 3}, "config": {"model_name": "x"}}', "must be an object"),
        ("a.json", '{"results": {"mmlu": {"acc": 0.5}}, "config": {"limit": "5"}}', "made with limit = 5"),
        ("a.txt", "x", "scores come as .json, .csv or .parquet, not '.txt'"),
        ("a.csv", "x,y\n1,2\n", "unknown format of a score file"),
        ("a.csv", "model,mmlu\n", "no rows"),
        ("a.csv", "model,mmlu (%)\nx,lots\n", "'lots' is not a number"),
        ("summary_a.csv", "dataset,version,metric,mode,m\nmmlu,1,acc,gen,150\n", "150 is not between 0 and 100"),
        ("a.csv", "fullname,BBH Raw\n<a href=1>x</a>,0.3\n", "is not a model name"),
    ],
)
def test_files_that_cannot_be_used_are_one_line_and_change_nothing(
    run: Run, study: Study, write: Write, name: str, text: str, said: str
) -> None:
    before = sorted(p.name for p in study.root.iterdir())
    code, out, err = run(write(name, text))
    assert (code, out) == (1, "")
    assert said in err
    assert err.count("\n") == 1
    assert sorted(p.name for p in study.root.iterdir()) == before


def test_files_in_another_encoding_are_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_bytes("model,mmlu\nmodèle,0.5\n".encode("latin-1"))
    assert "not UTF-8 text" in run(tmp_path / "x.csv", "--unit", "fraction")[2]
    assert "no such file" in run(tmp_path / "absent.csv")[2]


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [("harness", ("a", "b"), "harness ('a', 'b')"), ("shots", ("0", "5"), "shots"), ("version", ("1", ""), "unstated")],
)
def test_mixed_sources_of_one_task_are_refused_unless_allowed(
    run: Run, study: Study, write: Write, column: str, values: tuple[str, str], said: str
) -> None:
    first = write("1.csv", f"model,task,accuracy,{column}\na,mmlu,0.5,{values[0]}\n")
    second = write("2.csv", f"model,task,accuracy,{column}\nb,mmlu,0.6,{values[1]}\nc,gsm8k,0.1,{values[0]}\n")
    assert "mmlu: scores with different " + column in run(first, second)[2]
    assert not scores_by_key(study)
    assert run(first)[0] == 0
    assert said in run(second)[2]
    assert len(scores_by_key(study)) == 1
    assert run(second, "--allow-mixed")[0] == 0
    assert len(scores_by_key(study)) == 3


def test_unmatched_models_are_listed_with_near_names_and_can_be_renamed(run: Run, study: Study, write: Write) -> None:
    path = write("long.csv", "model,task,accuracy\nqwen_7b,mmlu,0.5\n")
    code, out, _ = run(path)
    assert code == 0
    assert "the study has no model 'qwen_7b' yet; near: qwen-7b" in out
    assert run(path, "--rename", write("names.csv", "from,to\nqwen_7b,qwen-7b\n"))[0] == 0
    assert ("qwen-7b", "mmlu") in scores_by_key(study)
    for text in ("a,b\n1,2\n", "from,to\nx,\n", "from,to\nx,y\nx,z\n"):
        assert run(path, "--rename", write("bad.csv", text))[0] == 1


def test_a_local_path_is_named_as_collect_names_it(
    run: Run, study: Study, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "step-9").mkdir(parents=True)
    names = ("runs/step-9", "/disk/out/step-8", "org/my-7b")
    rows = "".join(f"{n},mmlu,0.{i}\n" for i, n in enumerate(names, start=5))
    code, out, _ = run(write("long.csv", "model,task,accuracy\n" + rows))
    assert code == 0
    assert {m for m, _ in scores_by_key(study)} == {"runs@9", "out@8", "org/my-7b"}
    assert "/disk/out/step-8 is out@8" in out


def test_models_of_one_name_get_another_folder_and_renames_that_merge_two_are_refused(
    run: Run, study: Study, write: Write
) -> None:
    both = write("both.csv", "model,task,accuracy\n/a/x/my-7b,mmlu,0.5\n/a/y/my-7b,mmlu,0.6\n")
    assert (
        "are both model 'z'; give them different names with --rename"
        in run(both, "--rename", "x/my-7b=z", "--rename", "/a/x/my-7b=z", "--rename", "/a/y/my-7b=z")[2]
    )
    assert run(both)[0] == 0
    assert {m for m, _ in scores_by_key(study)} == {"x/my-7b", "y/my-7b"}


def test_a_model_that_an_older_version_stored_by_its_last_part_still_matches(
    run: Run, study: Study, write: Write
) -> None:
    study.add_models([ModelInfo("checkpoint-60"), ModelInfo("out/run-c/step-5")])
    path = write("long.csv", "model,task,accuracy\n/x/run-a/checkpoint-60,mmlu,0.5\nout/run-c/step-5,mmlu,0.6\n")
    assert "/x/run-a/checkpoint-60 is checkpoint-60" in run(path)[1]
    assert {m for m, _ in scores_by_key(study)} == {"checkpoint-60", "out/run-c/step-5"}
    two = "model,task,accuracy\n/x/run-a/checkpoint-60,gsm8k,0.5\n/x/run-b/checkpoint-60,gsm8k,0.6\n"
    assert run(write("two.csv", two))[0] == 0
    assert {m for m, t in scores_by_key(study) if t == "gsm8k"} == {"run-a@60", "run-b@60"}, "of which run is unknown"


def test_pairs_with_a_star_rename_models(run: Run, study: Study, write: Write) -> None:
    path = write("long.csv", "model,task,accuracy\nold/checkpoint-1,mmlu,0.5\nold/checkpoint-2,mmlu,0.6\n")
    assert run(path, "--rename", "old@*=new@*", "--rename", "old@2=last")[0] == 0
    assert {m for m, _ in scores_by_key(study)} == {"new@1", "last"}
    for bad in ("old@*=new", "=x", "old=", "no-such-file"):
        assert "--rename" in run(path, "--rename", bad)[2]


def test_tasks_are_renamed_by_the_same_file(run: Run, study: Study, write: Write) -> None:
    names = write("names.csv", "from,to\nmmlu_zero,mmlu\n")
    assert run(write("r.json", old(mmlu_zero={"acc": 0.4})), "--rename", names)[0] == 0
    assert scores_by_key(study)["Llama-2-7b-hf", "mmlu"].accuracy == 0.4
    long = write("l.csv", "model,task,accuracy,harness,version,shots\nqwen-7b,mmlu_zero,0.5,lm-eval,0,5\n")
    assert run(long, "--rename", names)[0] == 0
    both = write("b.json", old(**{"ceval-val": {"acc": 0.4}, "ceval-test": {"acc": 0.5}}))
    assert "could both be task 'ceval'" in run(both)[2]


def test_subtasks_become_tasks_of_their_own(run: Run, study: Study, write: Write) -> None:
    results = {"mmlu": {"acc": 0.5}, "mmlu_anatomy": {"acc": 0.4}, "bbh_cot_fewshot_snarks": {"acc_norm": 0.6}}
    path = write("r.json", old(**results))
    text = (study.root / "study.toml").read_text(encoding="utf-8")
    code, out, _ = run(path, "--add-tasks", "mmlu_*", "--add-tasks", "bbh_*")
    assert code == 0
    assert "new tasks: mmlu_anatomy (chance 0.25), bbh_cot_fewshot_snarks (chance 0.5)" in out
    again = Study.open(study.root)
    assert again.task("mmlu_anatomy").sources == ("mmlu",)
    assert scores_by_key(again)["Llama-2-7b-hf", "mmlu_anatomy"].accuracy == 0.4
    assert (study.root / "study.toml").read_text(encoding="utf-8").startswith(text.rstrip("\n"))
    odd = write("odd.json", old(riddles={"acc": 0.5}))
    assert "its chance (the accuracy of random guessing) is unknown" in run(odd, "--add-tasks", "*")[2]


def test_a_changed_score_leaves_tasks_and_scores_alone(run: Run, study: Study, write: Write) -> None:
    assert run(write("1.json", old(mmlu={"acc": 0.5})))[0] == 0
    before = {p.name: p.read_bytes() for p in study.root.iterdir() if p.is_file()}
    changed = write("2.json", old(mmlu={"acc": 0.6}, mmlu_law={"acc": 0.1}))
    assert "--force replaces it" in run(changed, "--add-tasks", "mmlu_*")[2]
    assert {p.name: p.read_bytes() for p in study.root.iterdir() if p.is_file()} == before


def test_two_different_results_of_one_model_are_a_question(run: Run, study: Study, write: Write) -> None:
    a, b = write("1.json", old(mmlu={"acc": 0.5})), write("2.json", old(mmlu={"acc": 0.6}))
    assert "remove one of them" in run(a, b)[2]
    assert run(a, write("3.json", old(mmlu={"acc": 0.5})))[0] == 0
    assert math.isnan(scores_by_key(study)["Llama-2-7b-hf", "mmlu"].n_items)
