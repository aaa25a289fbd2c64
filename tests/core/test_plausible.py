"""Losses in a wrong unit are named; losses of real models are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchcast.datasets import load_zoo
from benchcast.errors import InputError
from benchcast.losses.plausible import MOST_NATS, WordSample, bits_per_byte, refuse_impossible, suspicious
from benchcast.records import Text, TextSet, TokenLosses
from benchcast.study.check_losses import check_losses, suspicious_losses
from benchcast.study.reading import read_csv
from benchcast.study.study import Study

TABLES = Path(__file__).parents[2].parent / "shared" / "real_models"  # where they are
STEADY = "oak-b-5M@24.0M"  # a model near the middle of the embedded study


def per_text(losses: TokenLosses) -> tuple[np.ndarray, np.ndarray]:
    text = np.repeat(np.arange(len(losses.counts)), losses.counts)
    return np.bincount(text, losses.nats)[text], losses.counts[text]


MISTAKES: dict[str, tuple[Callable[[TokenLosses], np.ndarray], str]] = {
    "bits": (lambda x: x.nats / np.log(2), "are they in bits?"),
    "mean per byte": (lambda x: x.nats / np.maximum(1, np.diff(x.edges)), "means per byte or per token"),
    "mean per token": (lambda x: per_text(x)[0] / per_text(x)[1] ** 2, "means per byte or per token"),
    "base 10": (lambda x: x.nats / np.log(10), "logarithms to base 10"),
    "probabilities": (lambda x: np.exp(-x.nats), "are they probabilities?"),
    "perplexities": (lambda x: np.exp(x.nats), "are they perplexities"),
    "the text's loss at every token": (lambda x: per_text(x)[0], "the loss of a whole text at every token"),
}


@pytest.fixture(scope="module")
def embedded():
    """Losses of all 225 real models, checkpoints from early in training included, on a sample of words."""
    study = load_zoo()
    sample = WordSample.of(study.texts)
    return study, sample, {m: sample.read(study.losses(m)) for m in study.models_with_losses()}


def test_no_real_model_of_the_embedded_study_is_suspected(embedded):
    _, sample, words = embedded
    assert len(words) == 225
    assert suspicious(sample, words) == {}


def test_no_real_model_is_suspected_in_any_small_study(embedded):
    _, sample, words = embedded
    rng, names = np.random.default_rng(5), list(words)
    for _ in range(100):
        few = rng.choice(names, rng.integers(3, 30), replace=False)
        assert suspicious(sample, {m: words[m] for m in few}) == {}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_likely_mistake_is_named_for_that_model_alone(embedded, mistake):
    study, sample, words = embedded
    make, said = MISTAKES[mistake]
    losses = study.losses(STEADY)
    some = {m: words[m] for m in list(words)[::12]} | {STEADY: sample.read(replace(losses, nats=make(losses)))}
    reasons = suspicious(sample, some)
    assert list(reasons) == [STEADY]
    assert said in reasons[STEADY]


def test_nothing_is_said_with_few_models(embedded):
    study, sample, words = embedded
    losses = study.losses(STEADY)
    some = {m: words[m] for m in list(words)[:6]} | {STEADY: sample.read(replace(losses, nats=losses.nats / np.log(2)))}
    assert suspicious(sample, some) == {}


@pytest.mark.skipif(not TABLES.is_dir(), reason="tables of public models lie beside the repository")
@pytest.mark.parametrize("table", ["olmo_ladder", "dclm"])
def test_no_model_of_a_public_table_is_suspected(table):
    rows = read_csv(TABLES / table / "losses.csv")
    columns = [c for c in rows[0] if c != "model"]
    texts = TextSet.of(Text(c, "s", "x" * 100) for c in columns)
    sample = WordSample.of(texts)
    counts = np.ones(len(columns), np.int64)
    words = {
        r["model"]: sample.read(TokenLosses(r["model"], counts, texts.starts, np.array([float(r[c]) for c in columns])))
        for r in rows
    }
    assert suspicious(sample, words) == {}


# ---- where it is said


@pytest.fixture
def odd(study: Study, world) -> TokenLosses:
    losses = world.losses[9]
    return replace(losses, model="odd", nats=losses.nats * 8)


def test_import_and_status_name_the_model(study, odd, cli, tmp_path):
    path = tmp_path / "odd.jsonl"
    bounds = odd.text_bounds(study.texts.starts)
    nats = np.split(odd.nats, np.cumsum(odd.counts)[:-1])
    rows = [
        {"text_id": t.id, "bounds": b.tolist(), "nats": x.tolist()}
        for t, b, x in zip(study.texts, bounds, nats, strict=True)
    ]
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    ran = cli("import", "losses", study.root, path)
    assert ran.code == 0
    said = "losses of model odd look wrong: they are"
    assert f"warning: {said}" in ran.err
    assert said in " ".join(cli("status", study.root).out.split())


def test_fit_compare_and_predict_print_the_line_of_status(study, world, cli):
    """A model with losses eight times too large; predict speaks of the model that is asked for, and of no other."""
    name = world.losses[9].model
    study.add_losses([replace(world.losses[9], nats=world.losses[9].nats * 8)], force=True)
    line = next(x for x in check_losses(study, study.models_with_losses(), set()).lines() if x.startswith("losses of"))
    assert line.startswith(f"losses of model {name} look wrong: they are")
    assert f"warning: {line}" in cli("fit", study.root, "--method", "all-token").err
    assert f"warning: {line}" in cli("compare", study.root, "--method", "all-token").err
    assert f"warning: {line}" in cli("predict", study.root, "--model", name).err
    assert "look wrong" not in cli("predict", study.root, "--model", world.losses[2].model).err


@pytest.fixture
def few(tmp_path: Path) -> Callable[[float], Path]:
    """A table of four models, so few that none can be compared with others, the last with losses times a factor."""

    def write(times: float) -> Path:
        rows = [f"m{i},{(1.2 - i / 10) * (times if i == 3 else 1):g},{1.0 - i / 10:g}" for i in range(4)]
        file = tmp_path / f"{times:g}.csv"
        file.write_text("model,web,task\n" + "\n".join(rows) + "\n", encoding="utf-8")
        return file

    return write


def test_losses_worse_than_guessing_bytes_get_a_line_whatever_the_others_have(few, cli, tmp_path):
    for times, wrong in ((1, False), (25, True)):
        ran = cli("init", tmp_path / f"study{times}", "--table", few(times), "--unit", "bits-per-byte")
        assert ran.code == 0
        assert ("losses of model m3 look wrong: they are 11.6 bits per byte" in ran.err) == wrong
        assert ("look wrong" in ran.err) == wrong


def test_losses_that_no_model_has_are_refused_unless_allowed(study, world):
    factor = 270 / bits_per_byte(world.losses[0], study.texts)
    odd = replace(world.losses[0], model="odd", nats=world.losses[0].nats * factor)
    with pytest.raises(InputError, match=r"model 'odd': its losses are 270 bits per byte; .*--allow-implausible"):
        study.add_losses([odd])
    assert study.add_losses([odd], allow_implausible=True) == 1
    assert suspicious_losses(study, ["odd"])[0].startswith("losses of model odd look wrong: they are")


def test_a_sound_import_says_nothing(study, world):
    study.add_losses([replace(world.losses[2], model="sound")])
    assert suspicious_losses(study, ["sound"]) == []


def test_status_says_which_text_is_lost_and_to_whom(study, world):
    name = world.models[0].model
    source = study.task("task0").sources[0]
    text = np.repeat(np.arange(len(world.losses[0].counts)), world.losses[0].counts)
    texts_of_source = [i for i, t in enumerate(study.texts) if t.source == source]
    part = replace(world.losses[0], nats=np.where(np.isin(text, texts_of_source), np.nan, world.losses[0].nats))
    study.add_losses([part], force=True)
    lines = check_losses(study, study.models_with_losses(), {s.model for s in study.scores()}).lines()
    assert lines == [f"model {name} is left out of fits: it lacks 100% of the text of task task0"]


def test_status_names_losses_of_other_texts_and_goes_on(study, cli):
    path = study.losses_path(study.models_with_losses()[0])
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({**table.schema.metadata, b"texts": b"0123456789abcdef"}), path)
    ran = cli("status", study.root)
    assert ran.code == 0
    assert "scored on texts 0123456789abcdef" in " ".join(ran.out.split())


# ---- values that no softmax gives


@pytest.mark.parametrize("most", [1e8, MOST_NATS * 1.01])
def test_an_impossible_loss_is_refused_unless_allowed(study, world, most):
    nats = world.losses[0].nats.copy()
    token = int(np.argmax(np.diff(world.losses[0].edges) == 1))
    nats[token] = most
    odd = replace(world.losses[0], model="odd", nats=nats)
    with pytest.raises(InputError, match=r"model 'odd': 1 tokens have impossible losses.*--allow-implausible"):
        study.add_losses([odd])
    assert "odd" not in study.models_with_losses()
    assert study.add_losses([odd], allow_implausible=True) == 1
    assert study.losses("odd").nats[token] == pytest.approx(most)


def test_a_whole_text_as_one_token_may_have_a_large_loss():
    refuse_impossible(TokenLosses("m", np.array([1]), np.array([0, 1000]), np.array([2e4])))
    with pytest.raises(InputError, match="impossible"):
        refuse_impossible(TokenLosses("m", np.array([1]), np.array([0, 1]), np.array([2e4])))
