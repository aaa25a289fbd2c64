"""File × damage × message: whatever is wrong is said in one line, and no file changes.

The damage of a row is the file's content, or a function that writes the file or spoils the study. `{study}`, `{file}`,
`{here}`, `{digest}` and `{theirs}` in commands and messages stand for paths and hashes of texts.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchcast.errors import BenchcastError, InputError, StudyError
from benchcast.records import ModelInfo, Score, Task, TokenLosses
from benchcast.study.atomic import hashed, write_text
from benchcast.study.study import Study
from synthetic import World

ENTRY = [sys.executable, "-m", "benchcast"]
LONGEST_LINE = 600
HUGE = 10**400
NAN, INFINITY = float("nan"), float("inf")


@dataclass(frozen=True)
class Here:
    """A folder with a sound study, and the file that is to be damaged."""

    study: Study
    world: World
    file: Path

    def rows(self) -> list[dict[str, Any]]:
        """Sound losses of one model."""
        losses = self.world.losses[0]
        nats = np.split(losses.nats, np.cumsum(losses.counts)[:-1])
        text_bounds = losses.text_bounds(self.study.texts.starts)
        return [
            {"text_id": t.id, "bounds": b.tolist(), "nats": n.tolist()}
            for t, b, n in zip(self.study.texts, text_bounds, nats, strict=True)
        ]


Damage = str | bytes | Callable[[Here], Any]
Row = tuple[Any, ...]  # a damage and what the line must say


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """JSONL or Parquet, by the ending."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    else:
        path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


# ---- losses


def one(key: str, change: Callable[[Any], Any]) -> Damage:
    """Sound losses but for one value of the fifth text."""

    def damage(here: Here) -> None:
        rows = here.rows()
        rows[4][key] = change(rows[4][key])
        write(here.file, rows)

    return damage


def every(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Damage:
    """Sound losses whose rows are changed."""
    return lambda here: write(here.file, change(here.rows()))


AT = "text 'source0-4'"
SPOILED_ROWS: list[Row] = [
    (one("bounds", lambda b: [1, *b[1:]]), AT, "bounds start at 1, they must start at 0"),
    (one("bounds", lambda b: [*b[:2], b[1] - 1, *b[3:]]), AT, "bounds decrease from"),
    (one("bounds", lambda b: [*b[:-1], b[-1] + 3]), AT, "covers bytes 0..", "the text has"),
    (one("bounds", lambda b: [*b[:-1], b[-1] - 1]), AT, "covers bytes 0..", "was another version of the texts scored"),
    (one("nats", lambda x: [x[0], NAN, *x[2:]]), AT, "NaN", "write null where there is no loss"),
    (one("nats", lambda x: [x[0], INFINITY, *x[2:]]), AT, "infinite"),
    (one("nats", lambda x: [x[0], -0.5, *x[2:]]), AT, "negative nats (-0.5)"),
    (one("nats", lambda x: [*x, 1.0]), AT, "nats need", "bounds, found"),
    (one("text_id", lambda _: "source9-9"), "text 'source9-9' is not in the study"),
    (every(lambda rows: [*rows, rows[3]]), "text 'source0-3' occurs twice for model 'new'"),
]


def negated(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "nats": [-abs(x) for x in row["nats"]]} for row in rows]


def first(fields: str) -> Damage:
    """One row of JSONL for the first text; [0, 3] stands for bounds that cover it."""

    def damage(here: Here) -> None:
        length = len(here.study.texts.texts[0].text.encode())
        here.file.write_text(f'{{"text_id": "source0-0", {fields.replace("[0, 3]", f"[0, {length}]")}}}\n')

    return damage


NO_BOUNDS, NO_NATS = "bounds must be a list of numbers", "nats must be a list of numbers"
DEEP = "[" * 200_000 + "]" * 200_000
JSONL: list[Row] = [
    (every(negated), "are these log-probabilities? nats are −log p"),
    (b"\x89PNG\r\n\x1a\n\x00\xff\xfe", "not UTF-8 text"),
    (b"PK\x03\x04 binary but ascii", "line 1: not JSON"),
    (b"", "no rows"),
    ("[1, 2]\n", "a row needs text_id, bounds and nats"),
    ('{"text_id": "x", "nats": []}\n', "a row needs text_id, bounds and nats"),
    ("[" * 100_000, "not JSON"),
    ('{"text_id": ' + DEEP + "}", "not JSON"),
    (first('"bounds": [0, 1e999], "nats": [1]'), NO_BOUNDS),
    (first('"bounds": [0, 1e30], "nats": [1]'), NO_BOUNDS),
    (first('"bounds": [0, 2.5], "nats": [1]'), NO_BOUNDS),
    (first('"bounds": [0, null], "nats": [1]'), NO_BOUNDS),
    (first('"bounds": {"a": 1}, "nats": [1]'), NO_BOUNDS),
    (first('"bounds": [[0], [1]], "nats": [1]'), NO_BOUNDS),
    (first('"bounds": ["0", "3"], "nats": [1]'), NO_BOUNDS),
    (first('"bounds": [false, true], "nats": [1]'), NO_BOUNDS),
    (first('"bounds": [0, 3], "nats": ["1"]'), NO_NATS),
    (first('"bounds": [0, 3], "nats": [true]'), NO_NATS),
    (first('"bounds": [0, 3], "nats": 7'), NO_NATS),
    (first('"bounds": [0, 3], "nats": [1' + "0" * 400 + "]"), NO_NATS),
    (first('"bounds": [], "nats": []'), "0 nats need 1 bounds, found 0"),
    (first('"bounds": [0], "nats": []'), "covers bytes 0..0"),
    (first('"bounds": [0, 3], "nats": [1], "model": "  "'), "a model needs a name"),
    (first('"bounds": [0, 3], "nats": [1], "model": "\\ud800"'), "half a surrogate pair"),
]


def cut(share: float) -> Damage:
    """Sound losses in Parquet that end too early."""

    def damage(here: Here) -> None:
        whole = write(here.file, here.rows()).read_bytes()
        here.file.write_bytes(whole[: int(len(whole) * share)])

    return damage


def columns(**values: list[Any]) -> Damage:
    return lambda here: pq.write_table(pa.table(values), here.file)


def changed(change: Callable[[pa.Table], pa.Table]) -> Damage:
    """Sound losses in Parquet with another table around them."""
    return lambda here: pq.write_table(change(pa.Table.from_pylist(here.rows())), here.file)


def bomb(column: str) -> Damage:
    """Runs of one value take a few bytes; a file of a kilobyte can hold billions."""

    def damage(here: Here) -> None:
        sizes = {name: 10_000_000 if name == column else 2 for name in ("bounds", "nats")}
        lists = {
            name: pa.ListArray.from_arrays(pa.array([0, size], pa.int32()), pa.array(np.zeros(size, np.int8)))
            for name, size in sizes.items()
        }
        pq.write_table(pa.table({"text_id": pa.array(["source0-0"]), **lists}), here.file, compression="zstd")
        assert here.file.stat().st_size < 200_000

    return damage


def many_rows(here: Here) -> None:
    lists = pa.ListArray.from_arrays(pa.array(np.zeros(1_000_001, np.int32)), pa.array([], pa.int32()))
    pq.write_table(pa.table({"text_id": pa.array(["a"] * 1_000_000), "bounds": lists, "nats": lists}), here.file)


PARQUET: list[Row] = [
    *((cut(share), "not a complete Parquet file") for share in (0.1, 0.5, 0.9, 0.999)),
    (b"text_id,bounds,nats\n", "not a complete Parquet file"),
    (b"", "not a complete Parquet file"),
    (columns(text_id=["source0-0"]), "no column bounds, nats; found text_id"),
    (columns(text_id=["source0-0"], bounds=[3], nats=[1.0]), "column bounds must hold a list of numbers for every"),
    (columns(text_id=["source0-0"], bounds=[["a"]], nats=[["b"]]), "column bounds must hold numbers"),
    (columns(text_id=["source0-0"], bounds=[[0, 1]], nats=[["1.5"]]), "column nats must hold numbers, found string"),
    (columns(text_id=["source0-0"], bounds=[[0, 1]], nats=[[True]]), "column nats must hold numbers, found bool"),
    (changed(lambda t: t.slice(0, 0)), "no rows"),
    (
        changed(lambda t: t.append_column("model", pa.array(["a", *["b"] * (len(t) - 1)]))),
        "a Parquet file holds one model, found 2",
    ),
    (
        changed(lambda t: t.replace_schema_metadata({b"\xff\xfe": b"\xff", b"texts": b"\xff\xff"})),
        "another version of the texts",
    ),
    (bomb("nats"), "column nats holds 10000000 values, at most"),
    (bomb("bounds"), "column bounds holds 10000000 values, at most"),
    (many_rows, "1000000 rows, at most"),
]
WIDE: list[Row] = [
    (b"\x89PNG\r\n\x1a\n\x00\xff\xfe", "not a CSV file in UTF-8"),
    ("", "needs a column 'model'"),
    ("model,nowhere\nm,1\n", "column 'nowhere' is not a text of the study"),
    ("model,source0-0\nm,much\n", "'much' is not a number"),
    ("model,source0-0\nm,inf\n", "leave the cell empty"),
    ("model,source0-0\nm,-1\n", "negative nats"),
    ("model,source0-0\nm,1\nm,2\n", "model 'm' occurs twice"),
    ("model,source0-0\nm\n", "line 2 has a different number of cells"),
    ("model,source0-0,source0-0\nm,1,1\n", "column source0-0 occurs twice"),
    ("model,source0-0\n ,1\n", "a model needs a name"),
]


def one_model_in_two_files(here: Here) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        write(here.file.with_name(name), [{**r, "model": "same"} for r in here.rows()])


def a_good_file_and_a_bad_one(here: Here) -> None:
    write(here.file.with_name("a.jsonl"), here.rows())
    one("bounds", lambda b: [1, *b[1:]])(replace(here, file=here.file.with_name("b.jsonl")))


def a_study_of_the_first_text_turned_round(here: Here) -> None:
    texts = list(here.study.texts)
    Study.create(here.file, replace(here.study.texts, texts=(replace(texts[0], text=texts[0].text[::-1]), *texts[1:])))


# ---- scores, models, features, texts


def score_rows(*lines: str) -> str:
    return "\n".join(["model,task,accuracy", "ok,task0,0.5", *lines]) + "\n"


SCORES: list[Row] = [
    (score_rows("new,task0,63.2"), "line 3", "accuracy 63.2 is not between 0 and 1", "then write 0.632"),
    (score_rows("new,task0,-0.1"), "line 3", "accuracy -0.1 is not between 0 and 1"),
    (score_rows("new,task0,nan"), "line 3", "accuracy is nan"),
    (score_rows("new,task0,high"), "line 3", "accuracy 'high' is not a number"),
    (score_rows("new,tusk0,0.5"), "line 3", "unknown task 'tusk0'", "did you mean 'task0'?"),
    (score_rows(",task0,0.5"), "line 3", "a model needs a name"),
    (score_rows("ok,task0,0.6"), "'ok on task0' occurs twice"),
]
MODELS: list[Row] = [
    ("model,familie\na,b\n", "unknown column 'familie'; did you mean 'family'?"),
    ("family,params\na,1\n", "no column model"),
    ("model,split\na,tset\n", "split 'tset' is not train, validation or test; did you mean 'test'?"),
    ("model,params\na,big\n", "params 'big' is not a number"),
    ("model,params\na,-7\n", "params is negative"),
    ("model,params\na,inf\n", "params is inf"),
    ("model,family\na,x\na,y\n", "model 'a' occurs twice"),
]


def results(**changes: Any) -> str:
    """An lm-eval file of one task, with parts replaced."""
    document = {
        "results": {"task0": {"acc,none": 0.5, "acc_stderr,none": 0.01, "alias": "task0"}},
        "n-samples": {"task0": {"original": 100, "effective": 100}},
        "config": {"model_args": "pretrained=newcomer"},
        "versions": {"task0": 1},
    }
    return json.dumps(document | {"n-samples" if k == "n_samples" else k: v for k, v in changes.items()})


def scored(**parts: Any) -> dict[str, Any]:
    return {"task0": {"acc,none": 0.5, **parts}}


RESULTS: list[Row] = [
    (results(n_samples={"task0": {"effective": -5}}), "n-samples is -5"),
    (results(n_samples={"task0": {"effective": INFINITY}}), "n-samples is inf"),
    (results(n_samples={"task0": {"effective": HUGE}}), "n-samples is 1000"),
    (results(n_samples={}, results=scored(sample_len=-1)), "sample_len is -1"),
    (results(results=scored(**{"acc_stderr,none": -0.5})), "acc_stderr is -0.5"),
    (results(results=scored(**{"acc_stderr,none": INFINITY})), "acc_stderr is inf"),
    (results(config={"model_args": "pretrained=" + "x" * 200_000}), "a name of 200000 characters"),
    (results(config={"model_args": {"pretrained": "half \ud800"}}), "half a surrogate pair"),
    (results(versions={"task0": "v" * 200_000}), "a name of 200000 characters"),
    (results(results={"task0": {"acc,none": HUGE}}), ""),
    ('{"results": ' + DEEP + "}", "not JSON"),
]


def arrays(**changes: Callable[[np.ndarray], Any] | None) -> Damage:
    """Sound features as an npz file, with arrays changed or left out."""

    def damage(here: Here) -> None:
        edges, starts = here.world.edges, here.world.texts.starts
        counts = np.diff(np.searchsorted(edges, starts))
        ends = np.cumsum(counts)
        bounds = np.concatenate([edges[e - n : e + 1] - s for e, n, s in zip(ends, counts, starts, strict=False)])
        sound = {"features": here.world.features, "counts": counts, "bounds": bounds}
        left = {name: values for name, values in sound.items() if changes.get(name, len) is not None}
        np.savez(here.file, **{name: changes.get(name, np.asarray)(values) for name, values in left.items()})

    return damage


def features_cut_off(here: Here) -> None:
    arrays()(here)
    here.file.write_bytes(here.file.read_bytes()[:-300])


def a_single_array(here: Here) -> None:
    with here.file.open("wb") as single:
        np.save(single, here.world.features)


def claimed(name: str, *, padded: bool) -> Damage:
    """A header can claim terabytes; and a kilobyte of deflate can hold a megabyte of zeros."""

    def damage(here: Here) -> None:
        counts = np.ones(len(here.world.texts), int)
        of_one = {"counts": counts, "bounds": np.zeros(2 * len(counts), int)}
        np.savez(here.file, **of_one, features=np.zeros((len(counts), 2), "f4"))
        with zipfile.ZipFile(here.file) as old:
            members = {n: old.read(n) for n in old.namelist()}
        header = io.BytesIO()
        shape = (5_000_000,) if padded else (1 << 40, 1 << 10)
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
        zeros = 4 * 5_000_000 if padded and name != "features" else 100
        members[f"{name}.npy"] = header.getvalue() + bytes(zeros)
        with zipfile.ZipFile(here.file, "w", zipfile.ZIP_DEFLATED) as new:
            for member, blob in members.items():
                new.writestr(member, blob)

    return damage


FEATURES: list[Row] = [
    ("these are no arrays", "not a complete npz file"),
    (features_cut_off, "not a complete npz file"),
    (arrays(counts=None, bounds=None), "no array bounds, counts"),
    (a_single_array, "a single array, not an npz file"),
    (arrays(counts=lambda c: c[:-1]), "counts for 23 texts, the study has 24"),
    (arrays(counts=lambda c: np.concatenate([[-1], c[1:]])), "counts are negative"),
    (arrays(counts=lambda c: np.array(["a"] * len(c))), "counts must hold whole numbers"),
    (arrays(features=lambda x: x[:-1]), "so features need"),
    (arrays(bounds=lambda b: np.stack([b, b], axis=1)), "so features need"),
    (arrays(bounds=lambda b: b + 1), "bounds of text 'source0-0' must increase from 0"),
    (arrays(features=lambda x: np.where(np.arange(24) == 3, np.nan, x)), "features contain NaN or infinity"),
    (arrays(features=lambda x: x.astype(np.float64) * 1e300), "features contain NaN or infinity"),
    (arrays(features=lambda _: np.array([object()], dtype=object)), "not a complete npz file"),
    *((claimed(name, padded=p), "f.npz") for name in ("counts", "bounds", "features") for p in (False, True)),
]
TEXTS: list[Row] = [
    (f'{{"id": "first", "text": "hello"}}\n{line}\n', said)
    for line, said in (
        ('{"id": "a", "text": 7}', "a row needs a string 'text'"),
        ('{"id": "a", "txt": "x", "text": "y"}', "unknown key 'txt'; did you mean 'text'?"),
        ('{"id": "a", "text": "abc", "answer_start": 4}', "answer_start 4"),
        ('{"id": "a", "text": "abc", "answer_start": 1.5}', "whole number of bytes"),
        ('{"id": "a", "text": "abc", "answer_start": true}', "whole number of bytes"),
        ('{"id": "\\ud800", "text": "abc"}', "the id contains half a surrogate pair"),
        ('{"source": "\\ud800", "text": "abc"}', "the source contains half a surrogate pair"),
        ('{"text": "\\ud800"}', "the text contains half a surrogate pair"),
        ('{"id": "first", "text": "abc"}', "id 'first' occurs twice"),
        ("{", "line 2: not JSON"),
    )
]

# ---- the study itself

SETTINGS: list[Row] = [
    ('format = 1\nscorrer = "x"\n', "study.toml", "unknown key 'scorrer'", "did you mean 'scorer'?"),
    ("format = 1\n[tasks.a]\nchanse = 0.1\n", "unknown key in [tasks.a]: 'chanse'", "did you mean 'chance'?"),
    ("format = 1\n[tasks.a]\nchance = 1.0\n", "chance = 1.0", "from 0 to below 1"),
    ("format = 1\n[tasks.a]\nchance = -0.1\n", "study.toml", "chance = -0.1"),
    ("format = 1\n[tasks.a]\nchance = nan\n", "study.toml", "chance = nan"),
    ('format = 1\n[tasks.a]\nchance = "25%"\n', "study.toml", "chance = '25%'"),
    ("format = 1\n[tasks.a]\nchance = true\n", "study.toml", "chance = True"),
    ('format = 1\n[tasks.a]\nsources = "a"\n', "study.toml", "sources must be a list of names"),
    ("format = 1\ntasks = 3\n", "study.toml", "tasks must be a"),
    ('format = 1\nseed = "x"\n', "study.toml", "seed must be a"),
    ("format = 9\n", "study.toml", "format 9, this version reads 1", "newer benchcast; upgrade"),
    ("seed = 0\n", "study.toml", "is `format = 1` missing?"),
    ("format = \n", "study.toml", "not valid TOML"),
    ("format = 1\n[tasks.a]\n[tasks.a]\n", "study.toml", "not valid TOML"),
    ("format = 1\nseed = " + "9" * 5000, "study.toml", "not valid TOML"),
    ("format = 1\nseed = " + "9" * 4000, "study.toml", "seed must be from 0 to below 2^63"),
    ("format = 1\nx = " + "[" * 100_000, "study.toml", "not valid TOML"),
    # 10 MB each: the second one took hours, and the third printed a traceback
    ("format = 1\nx = " + "[" * 10_000_000, "study.toml", "not valid TOML"),
    ("format = 1\n" + "a." * 5_000_000 + "a = 1\n", "study.toml", "a name with more than 20 dots"),
    ("format = 1\nseed = 0x" + "f" * 10_000_000, "study.toml", "found a number with thousands of digits"),
    ("format = 1\nseed = [" + "[]," * 100_000 + "]\n", "study.toml", "seed must be a int, found [[], "),
    ('format = 1\n"' + "x" * 100_000 + '" = 1\n', "study.toml", "unknown key 'xxx", "...xxx"),
]


def losses_cut_off(here: Here) -> None:
    path = here.study.losses_path(here.world.models[2].model)
    path.write_bytes(path.read_bytes()[:200])


def features_of_other_texts(here: Here) -> None:
    meta = here.study.root / "features" / "synthetic" / "meta.json"
    meta.write_text(json.dumps(hashed(json.loads(meta.read_text()) | {"texts": "0123456789abcdef"})))


def two_scorers(here: Here) -> None:
    here.study.add_features("other", here.world.features, here.world.edges)


def a_scorer_that_is_not_there(here: Here) -> None:
    two_scorers(here)
    settings = here.study.root / "study.toml"
    settings.write_text(settings.read_text().replace("seed = 0", 'seed = 0\nscorer = "third"'))


def scores_of(keep: Callable[[Score], bool]) -> Damage:
    def damage(here: Here) -> None:
        kept = [s for s in here.study.scores() if keep(s)]
        (here.study.root / "scores.csv").unlink()
        if kept:
            here.study.add_scores(kept)

    return damage


def equal_scores(here: Here) -> None:
    rows = list(csv.DictReader((here.study.root / "scores.csv").read_text().splitlines()))
    with (here.study.root / "scores.csv").open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows({**row, "accuracy": "0.5"} for row in rows)


def no_losses(here: Here) -> None:
    scores_of(lambda _: False)(here)
    shutil.rmtree(here.study.root / "losses")


def families_by_name_alone(here: Here) -> None:
    lines = [f"{m.model},{m.model.partition('-')[0]}" for m in here.world.models]
    (here.study.root / "models.csv").write_text("\n".join(["model,family", *lines]) + "\n")


def nothing(_: Here) -> None:
    """The study is sound, and the command is not."""


def with_a_file_of_ones_own(name: str) -> Damage:
    def damage(here: Here) -> str:
        (here.file.parent / "own").mkdir()
        (here.file.parent / "own" / name).write_text('{"text": "collected by hand"}\n')
        return '{"text": "hello"}\n'

    return damage


FEW = {"family0-16M@8B", "family0-64M@16B", "family1-1M@2B"}
TOO_FEW = ("models have both losses and accuracy", "a fit needs at least 4")
NO_TASKS = "format = 1\n"
STUDY: list[tuple[str, Damage, *tuple[str, ...]]] = [
    ("status {study}", losses_cut_off, "{study}/losses/family0-16M@8B.parquet", "remove it and import it again"),
    ("fit {study}", features_of_other_texts, "made for texts 0123456789abcdef"),
    ("fit {study}", two_scorers, "say which in study.toml: scorer = "),
    ("fit {study}", a_scorer_that_is_not_there, "wants scorer 'third', features are there of other, synthetic"),
    ("fit {study}", scores_of(lambda s: s.model in FEW), *TOO_FEW),
    ("compare {study} --split family", scores_of(lambda s: s.model in FEW), *TOO_FEW),
    ("fit {study}", equal_scores, "task0: all training models score 0.5; there is nothing to learn from"),
    ("fit {study}", scores_of(lambda _: False), "no model has both losses and scores (20 with losses, 0 with scores"),
    ("fit {study}", no_losses, "0 with losses"),
    ("fit {study}", lambda h: (h.study.root / "study.toml").write_text(NO_TASKS), "has no tasks; add one"),
    ("compare {study} --split size", families_by_name_alone, "no test models", "three sizes", "--split family"),
    ("compare {study} --split column", families_by_name_alone, "no test models", "mark some in models.csv"),
    *(
        (f"{command} {{here}}/empty", lambda h: (h.file.parent / "empty").mkdir(), "no study here", "benchcast init")
        for command in ("status", "fit", "compare", "report")
    ),
    ("fit {study} --task taks0", nothing, "unknown task 'taks0'; study.toml has task0, task1; did you mean 'task0'?"),
    ("fit {study} --method salient", nothing, "unknown method 'salient'"),
    ("compare {study} --method salient", nothing, "did you mean 'salience'?"),
    ("predict {study} --model nobody", nothing, "no losses of model 'nobody'"),
    ("predict {study} --model family0-1M@2B", nothing, "no fits yet; run `benchcast fit"),
    ("predict {study} --model family0-1M@2B --task task0", nothing, "no fit here"),
    ("fit {study} --split colour", nothing, "'colour' is not one of", "see `benchcast fit --help`"),
    ("predict {study}", nothing, "give STUDY and --model, or --fit and --losses"),
    ("nonsense", nothing, "no such command 'nonsense'; see `benchcast --help`"),
]
IMPORT = "import losses {study} {file}"
TABLE: list[tuple[str, str, list[Row]]] = [
    (IMPORT, "new.jsonl", [(damage, "{file}", *says) for damage, *says in SPOILED_ROWS]),
    (IMPORT, "new.parquet", [(damage, "{file}", *says) for damage, *says in SPOILED_ROWS]),
    (IMPORT, "a.jsonl", JSONL),
    (IMPORT, "a.parquet", PARQUET),
    (IMPORT + " --unit nats", "a.csv", WIDE),
    (IMPORT, "a.txt", [("hello", "losses come as .jsonl, .parquet or a wide .csv")]),
    (IMPORT, "a", [("hello", "a file without ending")]),
    (
        "import losses {study} {here}/a.jsonl {here}/b.jsonl",
        "",
        [
            (one_model_in_two_files, "model 'same' occurs twice among the files"),
            (a_good_file_and_a_bad_one, "b.jsonl"),
        ],
    ),
    (
        "import losses {file} {study}/losses/family0-1M@2B.parquet",
        "other",
        [(a_study_of_the_first_text_turned_round, "{digest}", "{theirs}", "another version of the texts")],
    ),
    ("import scores {study} {file}", "s.csv", SCORES),
    ("import scores {study} {file} --allow-mixed", "results_1.json", RESULTS),
    ("import models {study} {file}", "m.csv", MODELS),
    ("import models {here}/nowhere {file}", "m.csv", [("model\na\n", "no study here", "benchcast init")]),
    ("import features {study} {file}", "f.npz", FEATURES),
    ("init {here}/new --texts {file}", "t.jsonl", TEXTS),
    ("init {study} --texts {file}", "t.jsonl", [('{"text": "hello"}\n', "there is a study already")]),
    ("init {file} --texts {file}", "t.jsonl", [('{"text": "hello"}\n', "exists and is not empty")]),
    (
        "init {here}/own --texts {file}",
        "t.jsonl",
        [(with_a_file_of_ones_own(name), "exists and is not empty") for name in ("thesis.tex", "texts.jsonl")],
    ),
    ("status {study}", "study/study.toml", SETTINGS),
    ("fit {study}", "study/study.toml", SETTINGS),
    *((command, "", [row]) for command, *row in STUDY),
]
CASES = [
    pytest.param(command, name, row[0], row[1:], id=f"{number} {command} {name}: {row[-1]}"[:90])
    for number, (command, name, row) in enumerate((c, n, r) for c, n, rows in TABLE for r in rows)
]


@pytest.fixture
def refused(cli: Callable[..., Any], tree: Callable[[Path], dict[str, str]], tmp_path: Path) -> Callable[..., None]:
    """Run a command that must be refused: exit 1, one line that says all of these, no file made or changed."""

    def check(arguments: Sequence[object], *says: str) -> None:
        before = tree(tmp_path)
        ran = cli(*arguments)
        assert (ran.code, ran.err.count("\n")) == (1, 1), ran
        assert ran.err.startswith("error: ")
        assert len(ran.err) < LONGEST_LINE
        assert [part for part in says if part not in ran.err] == [], ran.err
        assert tree(tmp_path) == before

    return check


@pytest.mark.parametrize(("command", "name", "damage", "says"), CASES)
def test_what_is_wrong_is_said_in_one_line_and_nothing_changes(
    command: str, name: str, damage: Damage, says: tuple[str, ...], study: Study, world: World, tmp_path: Path, refused
) -> None:
    file = tmp_path / (name or "none")
    content = damage if isinstance(damage, str | bytes) else damage(Here(study, world, file))
    if isinstance(content, str | bytes):
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    digests = {"{digest}": study.texts.digest, "{theirs}": Study.open(file).texts.digest if file.is_dir() else ""}
    words = {"{study}": study.root, "{file}": file, "{here}": tmp_path, **digests}

    def filled(text: str) -> str:
        for word, stands_for in words.items():
            text = text.replace(word, str(stands_for))
        return text

    refused([filled(word) for word in command.split()], *map(filled, says))
    assert not (tmp_path / "new").exists()


# ---- refused at first, and then allowed


def test_other_losses_under_a_known_name_are_refused_and_force_replaces_them(study, world, tmp_path, refused, cli):
    name = world.losses[0].model
    rows = Here(study, world, tmp_path).rows()
    rows[0]["nats"][0] += 1.0
    other = write(tmp_path / "other.jsonl", [{**r, "model": name} for r in rows])
    new = write(tmp_path / "new.jsonl", rows)
    clash = f"model {name!r} is in the study with other losses"
    refused(["import", "losses", study.root, new, other], clash, "--force")
    assert cli("import", "losses", study.root, other, "--force").code == 0
    assert study.losses(name).nats[0] == pytest.approx(world.losses[0].nats[0] + 1.0)


def test_losses_too_large_for_half_precision_clash_in_one_line(study, world, tmp_path, refused, cli):
    add, rows = ["import", "losses", study.root, "--allow-implausible"], Here(study, world, tmp_path).rows()
    rows[0]["nats"][0] = 1e6
    assert cli(*add, write(tmp_path / "new.jsonl", rows)).code == 0
    rows[0]["nats"][0] = 2e6
    refused([*add, write(tmp_path / "new.jsonl", rows)], "with other losses")


def test_another_score_than_the_studys_is_refused_and_force_replaces_it(study, world, tmp_path, refused, cli):
    score, file = world.scores[0], tmp_path / "s.csv"
    file.write_text(f"model,task,accuracy\n{score.model},{score.task},0.123\n")
    refused(["import", "scores", study.root, file], f"{score.model!r} has accuracy", "the file says 0.123; --force")
    assert cli("import", "scores", study.root, file, "--force").code == 0
    assert study.scores()[0].accuracy == 0.123


def test_another_number_of_items_for_the_same_score_is_a_question(study, world):
    old = world.scores[0]
    study.add_scores([replace(old, n_items=100.0, right_even=20.0)], force=True)
    with pytest.raises(InputError, match="100 items in the study, the file says 10"):
        study.add_scores([replace(old, n_items=10.0)])
    study.add_scores([replace(old, n_items=10.0)], force=True)
    score = next(s for s in study.scores() if (s.model, s.task) == (old.model, old.task))
    assert (score.n_items, np.isnan(score.right_even)) == (10.0, True)


def test_a_scorer_is_chosen_where_there_are_two(study, world, cli):
    study.add_features("other", world.features, world.edges)
    settings = study.root / "study.toml"
    settings.write_text(settings.read_text().replace("seed = 0", 'seed = 0\nscorer = "other"'))
    assert cli("fit", study.root, "--method", "ridge").code == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"n_samples": {}, "group_subtasks": {"task0": 5}},
        {"n_samples": {}, "group_subtasks": {"task0": [1, {}]}},
        {"n_samples": 7, "versions": 7, "higher_is_better": 7, "n-shot": 7},
        {"versions": {"task0": HUGE}},
        {"results": {" task0 ": {"acc,none": 0.5}}},
    ],
)
def test_odd_parts_of_results_do_no_harm(cli, study, tmp_path, changes):
    (tmp_path / "results_1.json").write_text(results(**changes))
    ran = cli("import", "scores", study.root, tmp_path / "results_1.json", "--allow-mixed")
    assert ran.code == 0, ran
    assert "newcomer" in {s.model for s in Study.open(study.root).scores() if s.task == "task0"}


def test_a_task_with_a_space_before_its_name_is_added_without_it(cli, study, world, tmp_path):
    file = tmp_path / "results_1.json"
    file.write_text(results(results={" mmlu_law": {"acc,none": 0.5}}))
    assert cli("import", "scores", study.root, file, "--add-tasks", "*mmlu*").code == 0
    assert "mmlu_law" in [t.name for t in Study.open(study.root).tasks]
    assert Study.open(study.root).scores()
    older = Study.create(tmp_path / "s", world.texts, tasks=[Task(" mmlu", 0.25)])
    older.add_scores([Score("a", " mmlu", 0.5)])
    assert [s.task for s in older.scores()] == [" mmlu"]


def test_a_table_that_would_not_read_back_does_not_replace_the_old_one(study, tree, tmp_path):
    before = tree(study.root)
    for write_it in (
        lambda: study.add_models([ModelInfo("x" * 200_000)]),
        lambda: study.add_models([ModelInfo("x", family="f" * 200_000)]),
        lambda: study.add_scores([Score("x", "task0", 0.5, n_items=-1.0)]),
        lambda: study.add_scores([Score("x", "no such task", 0.5)]),
        lambda: study.add_scores([Score("x", "task0", 1.5)]),
        lambda: study.add_losses([TokenLosses("\ud800", np.array([1]), np.array([0, 3]), np.array([1.5]))]),
    ):
        with pytest.raises(BenchcastError, match=r"^[^\n]{1,400}$"):
            write_it()
        assert tree(study.root) == before
    path = tmp_path / "new.txt"
    with pytest.raises(
        StudyError, match=r"new\.txt: not changed, since the new one could not be read back: new\.txt: no"
    ):
        write_text(path, "x", check=lambda new: (_ for _ in ()).throw(InputError(f"{new}: no")))
    assert not path.exists()


# ---- the terminal and the disk, in processes of their own


@pytest.mark.slow
def test_a_terminal_that_knows_only_ascii_gets_escapes_and_no_traceback(study):
    study.add_models([ModelInfo("模型", family="семья")])
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ran = subprocess.run([*ENTRY, "status", str(study.root)], env=environment, capture_output=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert ran.stdout.isascii()
    missing = subprocess.run([*ENTRY, "status", "нет"], env=environment, capture_output=True, check=False)
    assert (missing.returncode, missing.stderr.count(b"\n"), missing.stderr[:7]) == (1, 1, b"error: ")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_output_to_a_full_disk_is_one_line(study):
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run([*ENTRY, "status", str(study.root)], stdout=full, stderr=subprocess.PIPE, check=False)
    assert (ran.returncode, ran.stderr) == (1, b"error: No space left on device: the output cannot be written\n")


@pytest.mark.slow
def test_a_disk_without_room_is_one_line_that_names_the_file_and_leaves_the_old_one(study, tree):
    """The limit on the size of files stands in for the disk."""
    import resource

    before = tree(study.root)
    limit = (study.root / "scores.csv").stat().st_size // 2
    more = study.root.parent / "more.csv"
    more.write_text("model,task,accuracy\nnewcomer,task0,0.5\n")
    ran = subprocess.run(
        [*ENTRY, "import", "scores", str(study.root), str(more), "--allow-mixed"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    said = f"error: {study.root}/scores.csv: cannot be written (File too large)\n"
    assert (ran.returncode, ran.stderr) == (1, said)
    assert tree(study.root) == before
