"""The three decisions from files to an answer: two folders of logs, a run of five checkpoints, the ladder of OLMo 2."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from test_three_starts import LOGS, two_runs

import benchcast as bc

STRICT = ("--metric", "pond_write=exact_match,strict-match")


def printed(pattern: str, out: str) -> tuple[str, ...]:
    """The groups of the first line that the pattern matches."""
    found = re.search(pattern, out, re.MULTILINE)
    assert found, out
    return found.groups()


def test_two_folders_of_logs_are_compared_item_by_item(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    base, new = LOGS / "models__reed-c", LOGS / "models__reed-d"
    ran = cli("compare", "--items", base, new, *STRICT)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("models/reed-d against models/reed-c\n")
    reported = [json.loads(next(x.glob("results_*")).read_text())["results"]["pond"]["acc,none"] for x in (base, new)]
    items, *numbers = printed(r"^pond +(\d+) +([\d.]+) +([\d.]+) +(\S+) +(\S+) – (\S+)$", ran.out)
    first, second, difference, low, high = map(float, numbers)
    assert [first, second] == pytest.approx(reported, abs=0.0006)
    assert difference == pytest.approx(reported[1] - reported[0], abs=0.0011)
    assert low < difference < high
    assert int(items) == 28
    assert printed(r"^mean of tasks +(\d+) ", ran.out) == ("40",)
    needed = int(printed(r"^pond +\d+% +\d+% +[\d.]+ +(\d+) items$", ran.out)[0])
    assert needed > int(items)  # the interval holds 0, so the items at hand do not settle it
    printed(r"^(mean of tasks) +\d+% +\d+% +[\d.]+ +already settled$", ran.out)
    assert not list(tmp_path.iterdir())  # neither a study nor anything else is left behind


def test_five_checkpoints_of_a_run_pass_a_gate_or_do_not(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    two_runs(tmp_path / "results")
    assert cli("init", "study", "--from-lm-eval", "results", *STRICT, "--tokens-per-step", "2M").code == 0
    assert cli("fit", "study", "--method", "salience").code == 0
    gate = ("gate", "study", "--model", "cold-1B@100", "--need")
    verdicts = []
    for need in np.linspace(0.02, 0.98, 25):
        ran = cli(*gate, f"pond_last={need:.2f}")
        verdict = ran.out.splitlines()[0].removeprefix("cold-1B@100: ")
        row = r"^pond_last +([\d.]+) +([\d.]+)% +(\w+) +([\d.]+) +([\d.]+) – ([\d.]+) +([\d.]+)$"
        asked, probability, of_task, *_ = printed(row, ran.out)
        assert (float(asked), of_task) == (pytest.approx(need, abs=0.005), verdict)
        assert verdict == ("reached" if float(probability) >= 90 else "missed" if float(probability) <= 10 else "open")
        assert ran.code == {"reached": 0, "missed": 3, "open": 4}[verdict]
        verdicts.append(verdict)
    assert list(dict.fromkeys(verdicts)) == ["reached", "open", "missed"]
    most = max(m.compute for m in bc.Study.open("study").models() if m.family == "cold")
    ran = cli(*gate, "pond=0.3", "--at", f"{4 * most:.6g}")
    assert ran.code in (0, 3, 4), ran.err
    assert printed(r"^at ([\d.e+]+) times the compute of the run's last checkpoint$", ran.out) == ("4",)


def test_the_ladder_names_the_metric_to_watch(cli, tmp_path, monkeypatch):
    if not bc.datasets.find("olmo-ladder-choice").cached:
        pytest.skip("no files of the OLMo ladder (BENCHCAST_DATA)")
    monkeypatch.chdir(tmp_path)
    assert cli("init", "ladder", "--from", "olmo-ladder-choice").code == 0
    ran = cli("proxies", "ladder", "--no-forecast", "--task", "arc_easy_test", "--task", "boolq_val")
    assert ran.code == 0, ran.err
    lengths = dict.fromkeys(re.findall(r"^(\d+) +score +\d+ ", ran.out, re.MULTILINE))
    assert list(lengths) == ["10", "20", "40", "100", "200"]
    means = {}
    for task in ("arc_easy_test", "boolq_val"):
        block = ran.out[ran.out.index(f"{task}\ntokens per") :]
        ratios = re.findall(r"^\d+ +score +\d+ +[\d.]+ +[\d.]+ +([\d.]+) +– +–$", block, re.MULTILINE)
        means[task] = np.mean([float(x) for x in ratios[: len(lengths)]])
    assert means["arc_easy_test"] > 5 * means["boolq_val"]
    advice = printed(r"^arc_easy_test: watch the score: signal ÷ noise ([\d.]+)$", ran.out)
    assert float(advice[0]) == pytest.approx(means["arc_easy_test"], abs=0.1)
    watched, of_score = printed(
        r"^boolq_val: watch the loss of answers: signal ÷ noise ([\d.]+), of the score ([\d.]+)$", ran.out
    )
    assert float(watched) > float(of_score) == pytest.approx(means["boolq_val"], abs=0.1)
