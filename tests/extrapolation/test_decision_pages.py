"""The pages on items and gates: their scripts run, and their outputs are what the commands print."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import benchcast as bc
from benchcast.study.study import Study

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LOGS = ROOT / "tests" / "logs" / "fixtures" / "lm-eval-0.4.13"


def block(page: str, start: str) -> str:
    """The block of a page that starts so."""
    return re.search(rf"```\w+\n({re.escape(start)}.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)[1]


@pytest.fixture
def place(runs_folder, tmp_path):
    """A folder with a fitted study, and the commands that scripts call."""
    study = Study.open(shutil.copytree(runs_folder, tmp_path / "study"))
    bc.fit_tasks(study, ["task0"], method="salience", store=True)
    (tmp_path / "runs" / "my-run").mkdir(parents=True)
    shims = tmp_path / "bin"
    shims.mkdir()
    python = f'#!/bin/bash\nexec "{sys.executable}" -m benchcast "$@"\n'
    for name, text in (("benchcast", python), ("sbatch", '#!/bin/bash\necho "$@" >> submitted.txt\n')):
        (shims / name).write_text(text)
        (shims / name).chmod(0o755)
    return tmp_path


def run(script: str, place: Path, model: str = "") -> subprocess.CompletedProcess:
    environment = {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}", "MODEL": model}
    return subprocess.run(
        ["bash", "-c", script], cwd=place, env=environment, capture_output=True, text=True, check=False
    )


def model_for(place: Path, verdict: str) -> tuple[str, float]:
    """A model of the study and the score on code for which the gate gives this verdict."""
    study = Study.open(place / "study")
    model = study.models_with_losses()[-1]
    for score in (0.001, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 0.999, 1.0):
        if bc.gate(study, model, {"task0": score}).verdict == verdict:
            return model, score
    pytest.fail(f"no score is {verdict}")


@pytest.mark.parametrize(
    ("verdict", "left"),
    [("reached", "long-run.sh"), ("missed", "will not reach it"), ("open", "--begin=now+6hours gate.sh")],
)
def test_the_slurm_job_acts_on_the_verdict(place, verdict, left):
    model, score = model_for(place, verdict)
    done = run(block("gate.md", "#!/bin/bash").replace("code=0.3", f"task0={score}"), place, model)
    file = place / ("verdict.txt" if verdict == "missed" else "submitted.txt")
    assert file.is_file(), done.stderr
    assert left in file.read_text()


@pytest.mark.parametrize(("verdict", "code"), [("reached", 0), ("missed", 3), ("open", 0)])
def test_the_ci_step_fails_only_for_a_missed_need(place, verdict, code):
    yaml = pytest.importorskip("yaml")
    model, score = model_for(place, verdict)
    (step,) = yaml.safe_load(block("gate.md", "steps:"))["steps"]
    done = run(step["run"].replace("code=0.3", f"task0={score}"), place, model)
    assert done.returncode == code, done.stderr
    assert (place / "comment.md").read_text().startswith(f"### {model}: {verdict}")
    assert ("a person decides" in done.stdout) == (verdict == "open")


@pytest.mark.parametrize(("base", "new", "code"), [("reed-d", "reed-a", 1), ("reed-a", "reed-d", 0)])
def test_the_ci_script_for_items_fails_for_a_worse_model(place, base, new, code):
    shutil.copytree(LOGS / f"models__{base}", place / "logs" / "base")
    shutil.copytree(LOGS / f"models__{new}", place / "logs" / "new")
    script = block("items.md", "benchcast compare --items logs/base").replace(
        "--json", "--metric pond_write=exact_match,strict-match --json"
    )
    done = run(script, place)
    assert done.returncode == code, done.stdout + done.stderr
    assert "mean of tasks: " in done.stdout


def test_the_page_lists_the_exit_codes(place):
    from benchcast.cli.gate import EXIT

    page = (DOCS / "gate.md").read_text(encoding="utf-8")
    assert all(f"| {code} | {verdict} |" in page for verdict, code in EXIT.items())
