"""Fits that are handed on: folders with a card, and the hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from small_hub import TOKEN, small_hub

import benchcast as bc
from benchcast.errors import InputError, StudyError
from benchcast.forecasts.intervals import out_of_fold_coverage
from benchcast.losses.dataset import LossView
from benchcast.methods.capability import WeightedLoss
from benchcast.methods.law import SigmoidLaw
from benchcast.methods.task_fit import OutOfFoldErrors, TaskFit
from benchcast.records import Task

MODEL = "family1-64M@432B"


@pytest.fixture(scope="module")
def fit(runs_folder):
    return bc.fit(bc.Study.open(runs_folder), task="task0", split="size")


@pytest.fixture(scope="module")
def losses(runs_folder):
    return bc.Study.open(runs_folder).losses(MODEL)


@pytest.mark.parametrize("include_texts", [False, True])
def test_a_shared_fit_predicts_the_same(fit, losses, tmp_path, include_texts):
    folder = fit.save_pretrained(tmp_path / "fit", include_texts=include_texts)
    back = bc.Fit.from_pretrained(folder)
    assert back.predict(losses) == fit.predict(losses)
    assert back.digest == fit.digest
    assert back.texts.digest == fit.texts.digest
    assert np.array_equal(back.texts.starts, fit.texts.starts)
    assert back.texts.sources == fit.texts.sources


def test_no_text_leaves_unless_asked(fit, tmp_path):
    texts = [t.text for t in fit.texts]
    for include in (False, True):
        folder = fit.save_pretrained(tmp_path / str(include), include_texts=include)
        held = "".join(p.read_bytes().decode(errors="ignore") for p in folder.iterdir())
        assert all((json.dumps(t, ensure_ascii=False)[1:-1] in held) is include for t in texts)
    bare = bc.Fit.from_pretrained(tmp_path / "False")
    with pytest.raises(InputError, match="shared without them"):
        bare.texts.utf8  # noqa: B018
    again = bc.Fit.from_pretrained(bare.save_pretrained(tmp_path / "again", include_texts=True))
    assert again.texts == bare.texts, "what is not here cannot be handed on"


@pytest.mark.parametrize("save", ["save", "save_pretrained"])
def test_a_folder_with_other_files_is_never_replaced(fit, tmp_path, save):
    folder = getattr(fit, save)(tmp_path / "fit")
    getattr(fit, save)(folder)
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    for place in (folder, folder / "notes.txt"):
        with pytest.raises(InputError, match=r"notes.txt.* not part of a fit"):
            getattr(fit, save)(place)
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert bc.load(folder).digest == fit.digest


@pytest.mark.slow
def test_the_folder_alone_forecasts_on_another_machine(fit, losses, runs_folder, tmp_path):
    """Without the study, from losses in a file, in a fresh process."""
    folder = fit.save_pretrained(tmp_path / "fit")
    file = tmp_path / "losses.parquet"
    file.write_bytes(bc.Study.open(runs_folder).losses_path(MODEL).read_bytes())
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            "import benchcast.cli as c; c.main()",
            "predict",
            "--fit",
            folder,
            "--losses",
            file,
            "--json",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)[0]["accuracy"] == fit.predict(losses).accuracy


def test_the_card_states_what_was_learned_and_how_far_it_misses(fit, tmp_path):
    card = (fit.save_pretrained(tmp_path / "fit") / "README.md").read_text(encoding="utf-8")
    _, front, body = card.split("---\n", 2)
    assert yaml.safe_load(front) == {
        "library_name": "benchcast",
        "tags": ["benchcast", "benchmark-forecast", "task:task0"],
    }
    rmse = 100 * np.sqrt(
        np.mean(
            [
                np.mean(fit.task_fit.out_of_fold.errors[fit.task_fit.out_of_fold.families == f] ** 2)
                for f in set(fit.task_fit.out_of_fold.families)
            ]
        )
    )
    for said in (
        f"root mean squared error {rmse:.1f} points",
        f"Intervals from the other families contain {out_of_fold_coverage(fit.task_fit):.0%}",
        f"training models ({len(fit.about['train'])}): {fit.about['train'][0]}",
        f"hash `{fit.texts.digest}`, not included",
        "split: size",
        "scorer synthetic",
        "`stack`",
    ):
        assert said in body


def test_coverage_of_a_family_rests_on_the_others():
    errors = np.array([0.01, -0.01, 0.012, -0.008, 0.5, 0.5])
    capability = WeightedLoss(views=(LossView.NATS,), weights=np.ones((1, 2), np.float32), unit=2.0)
    fit = TaskFit(
        task=Task("t"),
        method="pls",
        capability=capability,
        law=SigmoidLaw(-1.0, 0.0, 0.0),
        out_of_fold=OutOfFoldErrors(errors, np.array(list("aabbcc")), "synthetic"),
        range=(1.0, 3.0),
    )
    assert out_of_fold_coverage(fit) == pytest.approx(4 / 6), "the wild family lies outside what the others say"
    two = replace(fit, out_of_fold=OutOfFoldErrors(errors[:4], np.array(list("aabb")), "synthetic"))
    assert np.isnan(out_of_fold_coverage(two))


def run_with_hub(code: str, hub, home: Path, token: str | None = TOKEN) -> subprocess.CompletedProcess[str]:
    """A fresh process whose hub is ours; the token is in its environment or nowhere."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    env = kept | {"HF_ENDPOINT": hub.address, "HF_HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
    env |= {"HF_TOKEN": token} if token else {}
    env |= {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "127.0.0.1"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)


@pytest.mark.slow
def test_a_fit_goes_to_the_hub_and_comes_back(fit, losses, tmp_path):
    folder = fit.save(tmp_path / "fit")
    push = f"import benchcast as bc\nprint(bc.load({str(folder)!r}).push_to_hub('me/task0-fit'))"
    back = (
        "import benchcast as bc\n"
        "fit = bc.Fit.from_pretrained('me/task0-fit')\n"
        f"fit.save({str(tmp_path / 'back')!r})\n"
        "try: bc.Fit.from_pretrained('me/absent')\n"
        "except bc.BenchcastError as error: print(error)"
    )
    with small_hub() as hub:
        pushed = run_with_hub(push, hub, tmp_path / "home")
        assert pushed.returncode == 0, pushed.stderr
        assert pushed.stdout.strip() == f"{hub.address}/me/task0-fit"
        assert set(hub.repositories["me/task0-fit"]) == {"fit.json", "salience.safetensors", "README.md"}
        assert {token for _, path, token in hub.asked if "commit" in path} == {TOKEN}
        fetched = run_with_hub(back, hub, tmp_path / "other-home", token=None)
        assert fetched.returncode == 0, fetched.stderr
    assert bc.load(tmp_path / "back").predict(losses) == fit.predict(losses)
    assert "me/absent: neither a local folder nor a readable fit on the hub" in fetched.stdout
    assert fetched.stdout.count("\n") == 1


@pytest.mark.slow
def test_without_a_token_the_hub_refuses_in_one_line(fit, tmp_path):
    folder = fit.save(tmp_path / "fit")
    code = (
        "import benchcast as bc\n"
        f"try: bc.load({str(folder)!r}).push_to_hub('me/task0-fit')\n"
        "except bc.BenchcastError as error: print(error)"
    )
    with small_hub() as hub:
        ran = run_with_hub(code, hub, tmp_path / "home", token=None)
    assert "me/task0-fit: the upload to the hub failed" in ran.stdout, ran.stderr
    assert "HF_TOKEN" in ran.stdout
    assert hub.repositories == {}


def test_names_that_are_neither(fit, tmp_path):
    with pytest.raises(InputError, match="not a repository of the hub"):
        fit.push_to_hub("just-a-name")
    with pytest.raises(StudyError, match="no fit here"):
        bc.Fit.from_pretrained(tmp_path / "nothing")
