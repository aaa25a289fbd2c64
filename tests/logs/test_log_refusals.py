"""Wrong or mixed logs give one line and change nothing."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from log_files import METRIC, NEW, PROSE

import benchcast as bc

PAGE = Path(__file__).parents[2] / "docs" / "lm-eval.md"
(SHOWN,) = re.findall(r"^error: results: (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def results_of(logs, model="reed-c"):
    return next((logs / f"models__{model}").glob("results_*"))


def samples_of(logs, task, model="reed-c"):
    return next((logs / f"models__{model}").glob(f"samples_{task}_*"))


def edit(path, change):
    """Change the parsed content of a results file."""
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def edit_rows(path, change):
    """Change the parsed rows of a sample file."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in change(rows)))


def reprompt(rows):
    for row in rows:
        for pair in row["arguments"].values():
            pair["arg_0"] = "Q: " + pair["arg_0"]
    return rows


BROKEN = {
    "other shots": (
        lambda logs: edit(results_of(logs), lambda d: d["n-shot"].update(pond_last=5)),
        "pond_last: scores with different shots ('0', '5') are not comparable; one study takes runs of one version",
    ),
    "other version": (
        lambda logs: edit(results_of(logs), lambda d: d["versions"].update(pond_last=2.0)),
        "scores with different version ('1', '2') are not comparable",
    ),
    "other prompt": (
        lambda logs: edit_rows(samples_of(logs, "pond_last"), reprompt),
        SHOWN,
    ),
    "fewer items": (
        lambda logs: edit_rows(samples_of(logs, "pond_last"), lambda rows: rows[:-1]),
        "models/reed-c lacks item pond_last-5 of the study; was it run with --limit or on other data?",
    ),
    "limit": (
        lambda logs: edit(results_of(logs), lambda d: d["config"].update(limit=4.0)),
        "made with limit = 4, so it covers only a part of each task",
    ),
    "an item twice": (
        lambda logs: edit_rows(samples_of(logs, "pond_last"), lambda rows: [*rows, rows[0]]),
        "line 7: item 0 occurs twice",
    ),
    "no results": (lambda logs: results_of(logs).unlink(), "no results of the same run beside it"),
    "no samples": (
        lambda logs: [p.unlink() for p in (logs / "models__reed-c").glob("samples_*")],
        "no samples beside it; run lm_eval with --log_samples",
    ),
    "broken line": (
        lambda logs: samples_of(logs, "pond_sums").write_text('{"doc_id": 0,\n'),
        "line 1: not JSON",
    ),
    "empty samples": (lambda logs: samples_of(logs, "pond_sums").write_text(""), "no samples"),
    "no likelihoods": (
        lambda logs: [p.unlink() for p in logs.rglob("samples_*") if "write" not in p.name],
        "the logs hold no log-likelihoods of answers",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_bad_logs_make_no_study(cli, logs, tmp_path, name):
    spoil, said = BROKEN[name]
    spoil(logs)
    ran = cli("init", tmp_path / "s", "--from-lm-eval", logs, *METRIC)
    assert (ran.code, ran.out, ran.err.count("\n")) == (1, "", 1)
    assert said in ran.err
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("name", ["other prompt", "fewer items", "broken line", "no samples"])
def test_bad_logs_of_another_model_change_nothing(cli, logs, tmp_path, tree, name):
    shutil.move(logs / "models__reed-c", tmp_path / "one" / "models__reed-c")
    assert cli("init", tmp_path / "s", "--from-lm-eval", logs, *METRIC).code == 0
    before = tree(tmp_path / "s")
    spoil, said = BROKEN[name]
    spoil(tmp_path / "one")
    ran = cli("import", "losses", tmp_path / "s", tmp_path / "one")
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert said in ran.err
    assert tree(tmp_path / "s") == before


def test_two_different_runs_of_one_task_and_model_are_refused(cli, logs, tmp_path):
    again = shutil.copytree(logs / "models__reed-c", logs / "again")
    ran = cli("init", tmp_path / "s", "--from-lm-eval", logs, *METRIC)
    assert ran.code == 0, ran.err  # the same run twice
    edit_rows(samples_of(logs, "pond_last"), lambda rows: [{**r, "filtered_resps": [["-9.0", "False"]]} for r in rows])
    ran = cli("init", tmp_path / "t", "--from-lm-eval", logs, *METRIC)
    assert "models/reed-c has other samples of 'pond_last' in another run; remove one of them" in ran.err
    assert again.is_dir()
    assert not (tmp_path / "t").exists()


def test_logs_of_other_tasks_are_refused(cli, logged, tree):
    before = tree(logged)
    ran = cli("import", "losses", logged, PROSE)
    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "models/reed-c has no losses of the study's texts; logged are pond_prose, the study has pond_sums" in ran.err
    assert tree(logged) == before


def test_a_folder_without_logs_is_one_line(cli, tmp_path):
    for folder, said in ((tmp_path, "no results_*.json"), (tmp_path / "none", "no such folder")):
        ran = cli("init", tmp_path / "s", "--from-lm-eval", folder)
        assert (ran.code, ran.err.count("\n")) == (1, 1)
        assert said in ran.err


def test_options_of_logs_need_logs(cli, tmp_path):
    texts = tmp_path / "t.jsonl"
    texts.write_text('{"text": "a"}\n')
    ran = cli("init", tmp_path / "s", "--texts", texts, "--items", "0.5")
    assert "init: --items is for --from-lm-eval and --from-lighteval, not for --texts" in ran.err
    with pytest.raises(bc.BenchcastError, match="it is a share of the items, above 0 and at most 1"):
        bc.create_from_logs(tmp_path / "s", NEW, items=1.5)


def test_limited_runs_can_be_accepted(cli, logs, tmp_path):
    assert cli("init", tmp_path / "whole", "--from-lm-eval", logs, *METRIC).code == 0
    for path in logs.rglob("results_*"):
        edit(path, lambda d: d["config"].update(limit=100))
    assert "limit" in cli("init", tmp_path / "s", "--from-lm-eval", logs, *METRIC).err
    assert cli("init", tmp_path / "s", "--from-lm-eval", logs, "--allow-limit", *METRIC).code == 0
    whole, limited = (bc.Study.open(tmp_path / name).scores() for name in ("whole", "s"))
    assert [(s.model, s.task, s.accuracy) for s in limited] == [(s.model, s.task, s.accuracy) for s in whole]
