"""What the Python functions that create and fill a study do, and that the command line prints their results."""

from __future__ import annotations

import json

import numpy as np
import pytest

import benchcast as bc
from benchcast.errors import InputError


@pytest.fixture
def texts_file(tmp_path):
    rows = [{"id": f"t{i}", "source": "a", "text": f"number {i} is {i * i}"} for i in range(6)]
    rows += [{"id": "empty", "source": "a", "text": " "}, {"id": "e", "source": "a", "text": "cafe\u0301"}]
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def loss_file(study, path, *, first=1.0):
    rows = [
        {"text_id": t.id, "bounds": [0, 2, len(t.text.encode())], "nats": [first, 2.0]}
        for t in study.texts
        if len(t.text.encode()) > 2
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_study_is_created_from_texts_with_warnings_in_the_result(texts_file, tmp_path):
    created = bc.create_study(tmp_path / "study", texts_file, seed=3)
    assert created.study.seed == 3
    assert [line.split(";")[0] for line in created.warnings] == [
        "1 texts are not in Unicode NFC (e)",
        "1 empty texts, 0 texts that repeat another",
    ]
    normal = bc.create_study(tmp_path / "nfc", texts_file, normalize=True)
    assert normal.notes == ("1 texts were normalised to NFC (e)",)
    assert normal.study.texts.texts[-1].text == "caf\u00e9"


def test_losses_are_imported_in_one_call_as_the_command_does(texts_file, tmp_path, cli):
    for name in ("one", "two"):
        bc.create_study(tmp_path / name, texts_file)
    study = bc.Study.open(tmp_path / "one")
    files = [loss_file(study, tmp_path / f"{m}.jsonl", first=first) for m, first in (("m1", 1.0), ("m2", None))]
    seen = []
    result = bc.import_losses(study, files, family="f", on_file=seen.append)
    assert (result.models, result.added, seen) == (("m1", "m2"), 2, files)
    assert result.warnings[0].startswith("m2 has no loss on ")
    assert bc.import_losses(study, str(files[0])).added == 0
    ran = cli("import", "losses", tmp_path / "two", *files, "--family", "f")
    assert "2 models added, 0 were there already" in ran.out
    assert f"warning: {result.warnings[0]}" in ran.err
    first, second = (bc.Study.open(tmp_path / name) for name in ("one", "two"))
    assert np.array_equal(first.losses("m2").nats, second.losses("m2").nats, equal_nan=True)
    assert first.models() == second.models()


def test_one_invalid_file_imports_nothing(texts_file, tmp_path):
    study = bc.create_study(tmp_path / "study", texts_file).study
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"bad\.jsonl"):
        bc.import_losses(study, [loss_file(study, tmp_path / "good.jsonl"), bad])
    assert study.models_with_losses() == []


def test_scores_and_models_are_imported_in_one_call(study, tmp_path):
    scores, models = tmp_path / "scores.csv", tmp_path / "models.csv"
    scores.write_text("model,task,accuracy\nnew-model,task0,50\nnew-model,mmlu_law,40\n", encoding="utf-8")
    models.write_text("model,family\nnew-model,new\n", encoding="utf-8")
    with pytest.raises(InputError, match="50"):
        bc.import_scores(study, scores)
    scores.write_text("model,task,accuracy\nnew-model,task0,0.5\nnew-model,mmlu_law,0.4\n", encoding="utf-8")
    result = bc.import_scores(study, scores, bc.ImportOptions(add_tasks=("mmlu_*",)))
    assert (result.added, result.without_losses, [t.name for t in result.new_tasks]) == (
        2,
        ("new-model",),
        ["mmlu_law"],
    )
    assert bc.import_scores(study.root, [scores]).added == 0
    assert bc.import_models(study, models) == 1
    assert {m.model: m.family for m in bc.Study.open(study.root).models()}["new-model"] == "new"


def test_features_are_imported_in_one_call(study, tmp_path):
    stored = study.features()
    values, edges = stored.values, stored.edges
    text = np.searchsorted(study.texts.starts[1:], edges[:-1], side="right")
    counts = np.bincount(text, minlength=len(study.texts))
    at = np.cumsum(counts) - counts
    bounds = [edges[a : a + n + 1] - edges[a] for a, n in zip(at, counts, strict=True)]
    np.savez(tmp_path / "other.npz", features=values, bounds=np.concatenate(bounds), counts=counts)
    assert bc.import_features(study, tmp_path / "other.npz") == values.shape
    assert set(study.scorers()) == {stored.scorer, "other"}


def test_the_results_have_short_representations(texts_file, tmp_path):
    created = bc.create_study(tmp_path / "study", texts_file)
    assert repr(created).endswith("study': 8 texts, 2 warnings>")
    losses = bc.import_losses(created.study, loss_file(created.study, tmp_path / "m.jsonl"))
    assert repr(losses) == "<ImportedLosses of 1 model, 1 added, 0 warnings>"
