"""The walk of a new user: own texts, own models, lm-eval files, then every command in the order a reader meets them.

The models are real: three shipped checkpoints with three tokenizers, each also with more and more noise in its
weights, which makes fifteen models from useless to trained. Their scores follow from their losses on the answers.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

SHIPPED = Path(__file__).parents[1] / "zoo" / "shipped"
NOISE = (0.0, 0.02, 0.04, 0.08, 0.16)  # standard deviation of what is added to a weight
ITEMS = 400
COLUMNS = 80


def texts() -> list[dict[str, object]]:
    """Thirty sums and thirty sentences; the answer is the last word."""
    rows: list[dict[str, object]] = []
    for k in range(30):
        prompt, answer = f"{k + 3} + {2 * k + 1} =", f" {3 * k + 4}"
        rows.append({"id": f"sum-{k}", "source": "sums", "text": prompt + answer, "answer_start": len(prompt)})
    places = ("river", "market", "house", "garden", "mill")
    for k in range(30):
        prompt, answer = f"Anna went to the {places[k % 5]} and saw", f" the {places[(k * 3 + 1) % 5]}."
        rows.append({"id": f"story-{k}", "source": "stories", "text": prompt + answer, "answer_start": len(prompt)})
    return rows


def noisy(source: Path, target: Path, noise: float) -> None:
    """A checkpoint with noise in its weights."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target)
    generator = torch.Generator().manual_seed(0)
    weights = load_file(source / "model.safetensors")
    spoiled = {k: v + (noise * torch.randn(v.shape, generator=generator)).to(v.dtype) for k, v in weights.items()}
    save_file(spoiled, target / "model.safetensors", metadata={"format": "pt"})


def lm_eval_file(folder: Path, model: str, scores: dict[str, float]) -> None:
    """A results file as lm-evaluation-harness 0.4 writes it."""
    folder.mkdir(parents=True)
    results = {
        task: {"alias": task, "acc,none": a, "acc_stderr,none": float(np.sqrt(a * (1 - a) / ITEMS))}
        for task, a in scores.items()
    }
    document = {
        "results": results,
        "versions": dict.fromkeys(scores, 1.0),
        "n-shot": dict.fromkeys(scores, 0),
        "n-samples": {task: {"original": ITEMS, "effective": ITEMS} for task in scores},
        "config": {"model": "hf", "model_args": f"pretrained=checkpoints/{model}", "limit": None},
        "lm_eval_version": "0.4.9",
    }
    (folder / "results_2026-01-01T00-00-00.000000.json").write_text(json.dumps(document), encoding="utf-8")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the user has before the first command: texts, checkpoints, and a list of them."""
    folder = tmp_path_factory.mktemp("user")
    lines = "".join(json.dumps(row) + "\n" for row in texts())
    (folder / "texts.jsonl").write_text(lines, encoding="utf-8")
    entries = []
    for source in sorted(SHIPPED.iterdir()):
        family = source.name.rsplit("-", 1)[0]
        for noise in NOISE:
            name = f"{family}-n{round(100 * noise):02d}"
            noisy(source, folder / "checkpoints" / name, noise)
            entries.append(
                f'[[models]]\nmodel = "hf"\nfamily = "{family}"\n'
                f'model_args = {{ pretrained = "{folder / "checkpoints" / name}" }}\n'
            )
    (folder / "models.toml").write_text("\n".join(entries), encoding="utf-8")
    return folder


def answer_scores(study: Path) -> dict[str, dict[str, float]]:
    """A score on each task that follows the loss on that task's answers, with the noise of 400 items."""
    from benchcast.study.study import Study

    opened = Study.open(study)
    rng = np.random.default_rng(0)
    source = np.array([t.source for t in opened.texts])
    answers = np.array([int(t.answer_start or 0) for t in opened.texts]) + opened.texts.starts[:-1]
    loss: dict[str, dict[str, float]] = {}
    for model in opened.models_with_losses():
        losses = opened.losses(model)
        text = np.repeat(np.arange(len(source)), losses.counts)
        answer = losses.edges[1:] > answers[text]
        loss[model] = {
            task: float(np.nanmean(losses.nats[answer & (source[text] == task)])) for task in ("sums", "stories")
        }
    out: dict[str, dict[str, float]] = {m: {} for m in loss}
    for task in ("sums", "stories"):
        values = np.array([loss[m][task] for m in loss])
        share = 1 / (1 + np.exp(2 * (values - np.median(values)) / values.std()))
        for model, p in zip(loss, 0.25 + 0.75 * share, strict=True):
            out[model][task] = float(rng.binomial(ITEMS, p) / ITEMS)
    return out


@pytest.fixture(scope="module")
def study(files: Path, cli: Callable[..., object]) -> Path:
    """The study after `init`, tasks, `collect` and `import scores` of all models but one."""
    root = files / "study"
    ran = cli("init", root, "--texts", files / "texts.jsonl")
    assert ran.code == 0
    assert f"{root}: 60 texts from 2 sources (sums, stories)" in ran.out
    assert "next: add your tasks to" in ran.out
    with (root / "study.toml").open("a", encoding="utf-8") as settings:
        settings.write('\n[tasks.sums]\nchance = 0.25\nsources = ["sums"]\n')
        settings.write('\n[tasks.stories]\nchance = 0.25\nsources = ["stories"]\n')
    ran = cli("collect", root, "--models", files / "models.toml", "--device", "cpu")
    assert ran.code == 0, ran.err
    assert ran.out.count(": 60 texts, ") == 15
    scores = answer_scores(root)
    for model, by_task in scores.items():
        if model != "ash-n02":  # the model whose score is not known yet
            lm_eval_file(files / "results" / model, model, by_task)
    (files / "waiting.json").write_text(json.dumps(scores["ash-n02"]), encoding="utf-8")
    ran = cli("import", "scores", root, files / "results")
    assert ran.code == 0, ran.err
    return root


def fits_terminal(text: str) -> bool:
    return all(len(line) <= COLUMNS for line in text.splitlines())


def test_collect_writes_what_it_knows_of_the_models(study: Path) -> None:
    lines = (study / "models.csv").read_text(encoding="utf-8").splitlines()
    header = lines[0].split(",")
    rows = [dict(zip(header, line.split(","), strict=True)) for line in lines[1:]]
    assert len(rows) == 15
    assert {row["family"] for row in rows} == {"ash", "cedar", "oak-a"}
    assert all(float(row["params"]) > 1e5 for row in rows)


def test_status_says_what_is_there_and_what_comes_next(study: Path, cli) -> None:
    ran = cli("status", study)
    assert ran.code == 0
    assert "15" in ran.out
    assert "ash-n02" in ran.out, "the model without a score is named"
    assert "next: benchcast compare" in ran.out, "a forecast needs no scorer"
    assert "or: benchcast features" in ran.out
    assert "first tokens have none without a BOS" in " ".join(ran.out.split())
    assert "models that lack text" not in ran.out, "what all models lack is no model's fault"
    assert fits_terminal(ran.out.replace(str(study), "study"))


def test_compare_falls_back_to_families_and_says_so(study: Path, cli) -> None:
    ran = cli("compare", study, "--method", "salience", "--method", "label-token", "--method", "all-token")
    assert ran.code == 0, ran.err
    assert "family" in ran.out + ran.err
    assert "14 held-out models" in ran.out
    for name in ("sums", "stories", "salience", "label-token", "all-token"):
        assert name in ran.out
    assert fits_terminal(ran.out)


@pytest.fixture(scope="module")
def fitted(study: Path, cli) -> Path:
    ran = cli("fit", study)
    assert ran.code == 0, ran.err
    for task in ("sums", "stories"):
        assert f"{task}: " in ran.out
        assert "14 training models" in ran.out
    assert "next: benchcast predict" in ran.out
    return study


def test_predict_forecasts_the_model_without_a_score(fitted: Path, files: Path, cli) -> None:
    rows = json.loads(cli("predict", fitted, "--model", "ash-n02", "--json").out)
    scored = json.loads((files / "waiting.json").read_text(encoding="utf-8"))
    assert {row["task"] for row in rows} == {"sums", "stories"}
    for row in rows:
        assert row["low"] <= row["accuracy"] <= row["high"]
        assert row["low"] <= scored[row["task"]] <= row["high"]
    ran = cli("predict", fitted, "--model", "ash-n0[02]")
    assert "ash-n00" in ran.out
    assert "ash-n02" in ran.out
    assert "seen" in ran.out, "a forecast of a training model is marked"
    assert fits_terminal(ran.out)


def test_a_mistyped_model_is_one_line_with_a_suggestion(fitted: Path, cli) -> None:
    ran = cli("predict", fitted, "--model", "ash-n2")
    assert ran.code == 1
    assert "ash-n02" in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_explain_names_the_tokens_of_a_task(fitted: Path, cli) -> None:
    ran = cli("explain", fitted, "--task", "sums")
    assert ran.code == 0, ran.err
    assert "nan" not in ran.out
    assert "sum-" in ran.out


def test_the_report_is_one_page_with_every_model(fitted: Path, files: Path, cli) -> None:
    page = files / "report.html"
    ran = cli("report", fitted, "-o", page)
    assert ran.code == 0, ran.err
    html = page.read_text(encoding="utf-8")
    assert "ash-n02" in html
    assert "cedar-n16" in html


def test_a_registered_forecast_is_verified_by_scores_that_come_later(fitted: Path, files: Path, cli) -> None:
    note = files / "ash-n02.json"
    ran = cli("predict", fitted, "--model", "ash-n02", "--register", note)
    assert ran.code == 0, ran.err
    assert "sha256" in ran.out
    waiting = json.loads((files / "waiting.json").read_text(encoding="utf-8"))
    lm_eval_file(files / "later", "ash-n02", waiting)
    ran = cli("verify", note, "--scores", files / "later")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("unaltered: sha256 ")
    assert "inside their interval" in ran.out


def test_new_scores_make_a_fit_stale_and_removing_a_model_names_the_fits(fitted: Path, files: Path, cli) -> None:
    copy = files / "changed"
    shutil.copytree(fitted, copy)
    lm_eval_file(files / "more", "ash-n02", json.loads((files / "waiting.json").read_text(encoding="utf-8")))
    assert cli("import", "scores", copy, files / "more").code == 0
    assert "14 of now 15 models" in " ".join(cli("status", copy).out.split())
    ran = cli("predict", copy, "--model", "ash-n00")
    assert ran.code == 0
    assert "--refit" in ran.err
    ran = cli("remove", copy, "--model", "cedar-n16")
    assert ran.code == 0, ran.err
    assert "cedar-n16" in ran.out
    assert "sums" in ran.out + ran.err, "the fits it affects are named"
    assert "cedar-n16" not in (copy / "scores.csv").read_text(encoding="utf-8")
    ran = cli("predict", copy, "--model", "ash-n00", "--refit")
    assert ran.code == 0, ran.err
    assert "--refit" not in cli("predict", copy, "--model", "ash-n00").err
