"""A fit's files: damage is found, and what no fit can be ends in one line, hashes right or not."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

import benchcast as bc
from benchcast.errors import StudyError
from benchcast.forecasts.fit import fit_tasks
from benchcast.forecasts.staleness import older_line
from benchcast.study.atomic import HASH, content_digest


@pytest.fixture(scope="module")
def stored(synthetic_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fit with a calibration curve, on disk."""
    fit = fit_tasks(bc.Study.open(synthetic_folder), ["task0"])[0]
    return fit.save(tmp_path_factory.mktemp("fits") / "task0")


@pytest.fixture
def craft(stored: Path, tmp_path: Path) -> Callable[..., Path]:
    """A copy with changed content and hashes that are right."""

    def make(change: Callable[[dict[str, Any], dict[str, np.ndarray]], object], *, hashed: bool = True) -> Path:
        text = json.loads((stored / "fit.json").read_text())
        arrays = load_arrays((stored / "salience.safetensors").read_bytes())
        change(text, arrays)
        blob = save_arrays({k: np.ascontiguousarray(v) for k, v in arrays.items()})
        text["arrays_sha256"] = hashlib.sha256(blob).hexdigest()
        text[HASH] = content_digest(text)
        if not hashed:
            del text[HASH]
        (tmp_path / "fit").mkdir(exist_ok=True)
        (tmp_path / "fit" / "fit.json").write_text(json.dumps(text))
        (tmp_path / "fit" / "salience.safetensors").write_bytes(blob)
        return tmp_path / "fit"

    return make


def test_a_fit_without_a_hash_loads_as_before(stored, craft):
    assert bc.load(craft(lambda text, arrays: None, hashed=False)).digest == bc.load(stored).digest


def test_out_of_fold_errors_keep_the_names_of_their_models(stored, world):
    errors = bc.load(stored).task_fit.out_of_fold
    families = {m.model: m.family for m in world.models}
    assert [families[m] for m in errors.models] == list(errors.families)
    assert len(errors.models) == len(errors.errors) > 0


def test_a_stored_fit_of_stack_keeps_what_its_intervals_need(stored, synthetic_folder, world):
    """The width, three directions of the candidates' disagreement, and its value for each held-out model."""
    study = bc.Study.open(synthetic_folder)
    fit, again = fit_tasks(study, ["task0"])[0], bc.load(stored)
    assert again.task_fit.width == fit.task_fit.width
    held_out, directions = again.task_fit.out_of_fold, again.task_fit.disagreement
    assert len(held_out.disagreement) == len(held_out.errors) > 0
    assert (held_out.disagreement > 0).all()
    assert directions.weights.dtype == np.float16
    for losses in world.losses[:3]:
        new, old = fit.predict(losses), again.predict(losses)
        assert (new.low, new.high) == (old.low, old.high)
        assert new.probability_above(0.5) == old.probability_above(0.5)


def test_what_candidates_disagree_about_is_of_the_size_seen_on_held_out_models(stored, synthetic_folder):
    """For the models learned from, candidates agree as well as for left-out ones or better, by far not ten times."""
    study, fit = bc.Study.open(synthetic_folder), bc.load(stored).task_fit
    dataset = study.dataset(["task0"])
    found = fit.disagreement_about(dataset.nats, dataset.metadata)
    assert 0.1 < found.mean() / fit.out_of_fold.disagreement.mean() < 3


@pytest.mark.parametrize(
    "width",
    [
        {"steepness": 0.6, "disagreement": 0.6, "distance": 0.0},
        {"steepness": -0.1, "disagreement": 0.0, "distance": 0.0},
        {"steepness": 0.0, "disagreement": 0.0, "distance": 2.0},
        {"steepness": "much", "disagreement": 0.0, "distance": 0.0},
    ],
)
def test_an_impossible_width_is_a_damaged_fit(craft, width):
    with pytest.raises(StudyError, match="damaged fit"):
        bc.load(craft(lambda text, arrays: text.update(interval=width)))


def test_a_fit_without_a_width_is_one_of_an_older_version(craft, stored, synthetic_folder, world):
    def drop(text: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        del text["interval"]
        for name in [n for n in arrays if n.startswith("disagreement.") or n.endswith(".disagreement")]:
            del arrays[name]

    older, newer = bc.load(craft(drop)), bc.load(stored)
    assert older_line([older, newer]) == "task0: fitted by an older version, whose intervals are kept"
    assert older_line([newer]) == ""
    ends = [(f.low, f.high) for f in (fit.predict(world.losses[-1]) for fit in (older, newer))]
    assert ends[0] != ends[1]


def test_a_fit_without_names_of_held_out_models_loads_and_keeps_its_digest(craft):
    old = bc.load(craft(lambda text, arrays: text["honest"].pop("models")))
    assert old.task_fit.out_of_fold.models == ()
    assert len(old.task_fit.out_of_fold.errors) > 0
    again = bc.load(old.save(craft(lambda text, arrays: None)))
    assert (again.digest, again.task_fit.out_of_fold.models) == (old.digest, ())


def test_every_flipped_bit_of_fit_json_is_found_or_changes_nothing(stored, tmp_path):
    whole, blob = (stored / "fit.json").read_bytes(), (stored / "salience.safetensors").read_bytes()
    right = bc.load(stored).digest
    (tmp_path / "salience.safetensors").write_bytes(blob)
    rng = np.random.default_rng(0)
    refused = 0
    for at in rng.choice(len(whole), 150, replace=False):
        flipped = bytearray(whole)
        flipped[at] ^= 1 << int(rng.integers(8))
        (tmp_path / "fit.json").write_bytes(bytes(flipped))
        try:
            assert bc.load(tmp_path).digest == right, f"bit flipped in byte {at}"
        except StudyError:
            refused += 1
    assert refused > 100


def in_text(*path: Any, value: Any) -> Callable[[dict[str, Any], dict[str, np.ndarray]], None]:
    def change(text: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        at: Any = text
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change


def in_arrays(name: str, make: Callable[[np.ndarray], np.ndarray]) -> Callable[..., None]:
    def change(text: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        arrays[name] = make(arrays[name])

    return change


def deep(levels: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


CRAFTED = {
    "fewer weights": in_arrays("weights", lambda x: x[:, :-1]),
    "more weights": in_arrays("weights", lambda x: np.hstack([x, x])),
    "flat weights": in_arrays("weights", lambda x: x[0]),
    "weights of no view": in_arrays("weights", lambda x: x[:0]),
    "weights NaN": in_arrays("weights", lambda x: x * np.nan),
    "whole weights": in_arrays("weights", lambda x: x.astype(np.int64)),
    "short salience": in_arrays("salience", lambda x: x[:-1]),
    "salience infinite": in_arrays("salience", lambda x: np.where(x == x.max(), np.inf, x).astype(np.float32)),
    "edges decrease": in_arrays("edges", lambda x: x[::-1]),
    "edges too long": in_arrays("edges", lambda x: x * 2),
    "edges as floats": in_arrays("edges", lambda x: x.astype(np.float64)),
    "edges short": in_arrays("edges", lambda x: x[:-1]),
    "edges of the texts missing": in_arrays("edges", lambda x: np.where(np.arange(len(x)) < len(x) - 1, 0, x)),
    "edges empty": in_arrays("edges", lambda x: x[:0]),
    "supported twos": in_arrays("supported", lambda x: x * 2),
    "supported short": in_arrays("supported", lambda x: x[1:]),
    "supported floats": in_arrays("supported", lambda x: x.astype(np.float32)),
    "out-of-fold errors NaN": in_arrays("honest_errors", lambda x: x * np.nan),
    "out-of-fold errors fewer": in_arrays("honest_errors", lambda x: x[:-1]),
    "out-of-fold errors square": in_arrays("honest_errors", lambda x: np.stack([x, x])),
    "out-of-fold errors of 5": in_arrays("honest_errors", lambda x: x + 5),
    "no edges": lambda text, arrays: arrays.pop("edges"),
    "unknown method": in_text("method", value="oracle"),
    "method a number": in_text("method", value=3),
    "reads nothing it knows": in_text("reads", value=["smell"]),
    "reads mixed": in_text("reads", value=["nats", "flops"]),
    "reads flops": in_text("reads", value=["flops"]),
    "reads ladder": in_text("reads", value=["ladder"]),
    "reads a word": in_text("reads", value="nats"),
    "reads two ladders of all": in_text("reads", value=["ladder", "ladder"]),
    "names of other errors": in_text("honest", "models", value=["a"]),
    "reads numbers": in_text("reads", value=[1, 2]),
    "unit zero": in_text("unit", value=0),
    "unit text": in_text("unit", value="5"),
    "unit null": in_text("unit", value=None),
    "unit huge": in_text("unit", value=10**400),
    "slope null": in_text("law", "slope", value=None),
    "slope text": in_text("law", "slope", value="-1"),
    "ceiling 7": in_text("law", "ceiling", value=7),
    "chance too low": in_text("law", "chance", value=-2.5),
    "unknown part of the law": in_text("law", "wings", value=2),
    "calibration a word": in_text("law", "bend", value="left"),
    "calibration incomplete": in_text("law", "bend", value={"shift": 0.0}),
    "calibration with few slopes": in_text(
        "law", "bend", value={"shift": 0.0, "slopes": [0.0], "low": 0.0, "high": 1.0}
    ),
    "calibration too steep": in_text(
        "law", "bend", value={"shift": 0.0, "slopes": [900.0] * 6, "low": 0.0, "high": 1.0}
    ),
    "calibration backwards": in_text("law", "bend", value={"shift": 0.0, "slopes": [0.0] * 6, "low": 2.0, "high": 1.0}),
    "range reversed": in_text("range", value=[2.0, 1.0]),
    "range of words": in_text("range", value=["a", "b"]),
    "range short": in_text("range", value=[1.0]),
    "task chance 1": in_text("task", "chance", value=1.0),
    "task name empty": in_text("task", "name", value=" "),
    "task a word": in_text("task", value="mmlu"),
    "sources numbers": in_text("task", "sources", value=[1]),
    "about a list": in_text("about", value=[]),
    "about texts a number": in_text("about", "texts", value=7),
    "about other texts": in_text("about", "texts", value="0123456789abcdef"),
    "about unit miles": in_text("about", "unit", value="mile"),
    "about train numbers": in_text("about", "train", value=[1, 2]),
    "about level text": in_text("about", "level", value="90%"),
    "texts none": in_text("texts", value=[]),
    "texts a word": in_text("texts", value="abc"),
    "text without id": in_text("texts", 0, value={"source": "s", "text": "x"}),
    "text with a number": in_text("texts", 0, "text", value=5),
    "text twice": lambda text, arrays: text["texts"].append(text["texts"][0]),
    "another text": in_text("texts", 0, "text", value="x"),
    "outlines negative": in_text("texts", value=[{"id": "a", "source": "s", "bytes": -3}]),
    "outlines without bytes": in_text(
        "texts", value=[{"id": "a", "source": "s", "bytes": 3}, {"id": "b", "source": "s"}]
    ),
    "notes a word": in_text("notes", value="none"),
    "out-of-fold kind a number": in_text("honest", "kind", value=4),
    "format text": in_text("format", value="1"),
    "format newer": in_text("format", value=2),
    "deep notes": in_text("notes", value=deep(900)),
}


@pytest.mark.parametrize("hashed", [True, False], ids=["hashed", "without hash"])
@pytest.mark.parametrize("change", CRAFTED.values(), ids=CRAFTED.keys())
def test_what_no_fit_can_be_ends_in_one_line(change, hashed, craft):
    folder = craft(change, hashed=hashed)
    with pytest.raises(StudyError, match=r"^[^\n]+$") as caught:
        bc.load(folder)
    assert str(folder) in str(caught.value)


def test_files_nested_too_deep_end_in_one_line(stored, tmp_path):
    (tmp_path / "salience.safetensors").write_bytes((stored / "salience.safetensors").read_bytes())
    (tmp_path / "fit.json").write_text('{"format": ' + "[" * 200_000 + "]" * 200_000 + "}")
    with pytest.raises(StudyError, match="damaged fit"):
        bc.load(tmp_path)
