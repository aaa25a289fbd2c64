"""Whatever is wrong is said in one line, and the study stays as it was."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchcast.storage.hashes import hashed
from benchcast.store import Study


@pytest.fixture
def refused(cli, study, tree):
    """Run a command that must be refused: exit 1, one line that says all of these, no file changed."""

    def check(arguments: list, *says: str, root: Path | None = None) -> str:
        before = tree(root or study.root)
        ran = cli(*arguments)
        assert ran.code == 1, ran
        lines = ran.err.splitlines()
        assert len(lines) == 1, ran.err
        assert lines[0].startswith("error: ")
        for part in says:
            assert part in lines[0], lines[0]
        assert tree(root or study.root) == before
        return lines[0]

    return check


@pytest.fixture
def rows(study, world) -> list[dict]:
    """Sound losses of one model, ready to be spoiled."""
    losses = world.losses[0]
    nats = np.split(losses.nats, np.cumsum(losses.counts)[:-1])
    text_bounds = losses.text_bounds(study.texts.starts)
    return [
        {"text_id": t.id, "bounds": b.tolist(), "nats": n.tolist()}
        for t, b, n in zip(study.texts, text_bounds, nats, strict=True)
    ]


def write(path: Path, rows: list[dict]) -> Path:
    """JSONL or Parquet, by the ending."""
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


def spoil_start(row):
    row["bounds"][0] = 1


def spoil_order(row):
    row["bounds"][2] = row["bounds"][1] - 1


def spoil_end(row):
    row["bounds"][-1] += 3


def spoil_short(row):
    row["bounds"][-1] -= 1


def spoil_nan(row):
    row["nats"][1] = float("nan")


def spoil_infinite(row):
    row["nats"][1] = float("inf")


def spoil_negative(row):
    row["nats"][1] = -0.5


def spoil_sign(row):
    row["nats"] = [-abs(x) for x in row["nats"]]


def spoil_length(row):
    row["nats"].append(1.0)


def spoil_id(row):
    row["text_id"] = "source9-9"


SPOILED = [
    (spoil_start, ["bounds start at 1, they must start at 0"]),
    (spoil_order, ["bounds decrease from"]),
    (spoil_end, ["covers bytes 0..", "the text has"]),
    (spoil_short, ["covers bytes 0..", "was another version of the texts scored"]),
    (spoil_nan, ["NaN", "write null where there is no loss"]),
    (spoil_infinite, ["infinite"]),
    (spoil_negative, ["negative nats (-0.5)"]),
    (spoil_length, ["nats need", "bounds, found"]),
    (spoil_id, ["text 'source9-9' is not in the study"]),
]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize(("spoil", "says"), SPOILED, ids=[s.__name__ for s, _ in SPOILED])
def test_spoiled_losses_are_refused_with_the_file_and_the_text(spoil, says, ending, rows, study, tmp_path, refused):
    spoil(rows[4])
    file = write(tmp_path / f"new.{ending}", rows)
    where = [] if spoil is spoil_id else [f"text {rows[4]['text_id']!r}"]
    refused(["import", "losses", study.root, file], str(file), *where, *says)


def test_log_probabilities_given_as_nats_are_recognised(rows, study, tmp_path, refused):
    for row in rows:
        spoil_sign(row)
    file = write(tmp_path / "new.jsonl", rows)
    refused(["import", "losses", study.root, file], "are these log-probabilities? nats are −log p")


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_a_text_given_twice_is_refused(rows, study, tmp_path, refused, ending):
    file = write(tmp_path / f"new.{ending}", [*rows, rows[3]])
    refused(["import", "losses", study.root, file], f"text {rows[3]['text_id']!r} occurs twice for model 'new'")


def test_a_model_given_twice_is_refused(rows, study, tmp_path, refused):
    for name in ("a", "b"):
        write(tmp_path / f"{name}.jsonl", [{**r, "model": "same"} for r in rows])
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    refused(["import", "losses", study.root, *files], "model 'same' occurs twice among the files")


def test_one_bad_file_among_good_ones_keeps_all_of_them_out(rows, study, tmp_path, refused):
    good = write(tmp_path / "good.jsonl", rows)
    spoil_start(rows[0])
    refused(["import", "losses", study.root, good, write(tmp_path / "bad.jsonl", rows)], "bad.jsonl")


def test_other_losses_under_a_known_name_are_refused_and_force_replaces_them(
    rows, study, world, tmp_path, refused, cli
):
    name = world.losses[0].model
    rows[0]["nats"][0] += 1.0
    other = write(tmp_path / "other.jsonl", [{**r, "model": name} for r in rows])
    new = write(tmp_path / "new.jsonl", rows)
    refused(
        ["import", "losses", study.root, new, other], f"model {name!r} is in the study with other losses", "--force"
    )
    assert cli("import", "losses", study.root, other, "--force").code == 0
    assert study.losses(name).nats[0] == pytest.approx(world.losses[0].nats[0] + 1.0)


def test_losses_too_large_for_half_precision_clash_in_one_line(rows, study, tmp_path, refused, cli):
    add = ["import", "losses", study.root, "--allow-implausible"]
    rows[0]["nats"][0] = 1e6
    assert cli(*add, write(tmp_path / "new.jsonl", rows)).code == 0
    rows[0]["nats"][0] = 2e6
    refused([*add, write(tmp_path / "new.jsonl", rows)], "with other losses")


def test_losses_of_another_version_of_the_texts_are_refused(study, world, tmp_path, refused):
    texts = tmp_path / "texts.jsonl"
    lines = (study.root / "texts.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    first["text"] = first["text"][::-1]  # as long as before
    first.pop("answer_start")
    texts.write_text("\n".join([json.dumps(first), *lines[1:]]))
    from benchcast.storage.tables import read_texts

    other = Study.create(tmp_path / "other", read_texts(texts))
    stored = study.losses_path(world.losses[0].model)
    digests = study.texts.digest, other.texts.digest
    refused(["import", "losses", other.root, stored], *digests, "another version of the texts", root=other.root)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", b"\x89PNG\r\n\x1a\n\x00\xff\xfe", "not UTF-8 text"),
        ("a.jsonl", b"PK\x03\x04 binary but ascii", "line 1: not JSON"),
        ("a.jsonl", b"", "no rows"),
        ("a.jsonl", b"[1, 2]\n", "a row needs text_id, bounds and nats"),
        ("a.jsonl", b'{"text_id": "x", "nats": []}\n', "a row needs text_id, bounds and nats"),
        ("a.jsonl", b"[" * 100_000, "not JSON"),
        ("a.parquet", b"text_id,bounds,nats\n", "not a complete Parquet file"),
        ("a.parquet", b"", "not a complete Parquet file"),
        ("a.csv", b"\x89PNG\r\n\x1a\n\x00\xff\xfe", "not a CSV file in UTF-8"),
        ("a.csv", b"", "needs a column 'model'"),
        ("a.csv", b"model,nowhere\nm,1\n", "column 'nowhere' is not a text of the study"),
        ("a.csv", b"model,source0-0\nm,much\n", "'much' is not a number"),
        ("a.csv", b"model,source0-0\nm,inf\n", "leave the cell empty"),
        ("a.csv", b"model,source0-0\nm,-1\n", "negative nats"),
        ("a.csv", b"model,source0-0\nm,1\nm,2\n", "model 'm' occurs twice"),
        ("a.csv", b"model,source0-0\nm\n", "line 2 has a different number of cells"),
        ("a.csv", b"model,source0-0,source0-0\nm,1,1\n", "column source0-0 occurs twice"),
        ("a.csv", b"model,source0-0\n ,1\n", "a model needs a name"),
        ("a.txt", b"hello", "losses come as .jsonl, .parquet or a wide .csv"),
        ("a", b"hello", "a file without ending"),
    ],
)
def test_files_that_are_not_what_their_ending_says_are_refused(name, content, says, study, tmp_path, refused):
    (tmp_path / name).write_bytes(content)
    refused(["import", "losses", study.root, tmp_path / name, "--unit", "nats"], says)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ('"bounds": [0, 1e999], "nats": [1]', "bounds must be a list of numbers"),
        ('"bounds": [0, 1e30], "nats": [1]', "bounds must be a list of numbers"),
        ('"bounds": [0, 2.5], "nats": [1]', "bounds must be a list of numbers"),
        ('"bounds": [0, null], "nats": [1]', "bounds must be a list of numbers"),
        ('"bounds": {"a": 1}, "nats": [1]', "bounds must be a list of numbers"),
        ('"bounds": [[0], [1]], "nats": [1]', "bounds must be a list of numbers"),
        ('"bounds": ["0", "3"], "nats": [1]', "bounds must be a list of numbers"),
        ('"bounds": [false, true], "nats": [1]', "bounds must be a list of numbers"),
        ('"bounds": [0, 3], "nats": ["1"]', "nats must be a list of numbers"),
        ('"bounds": [0, 3], "nats": [true]', "nats must be a list of numbers"),
        ('"bounds": [0, 3], "nats": 7', "nats must be a list of numbers"),
        ('"bounds": [0, 3], "nats": [1' + "0" * 400 + "]", "nats must be a list of numbers"),
        ('"bounds": [], "nats": []', "0 nats need 1 bounds, found 0"),
        ('"bounds": [0], "nats": []', "covers bytes 0..0"),
        ('"bounds": [0, 3], "nats": [1], "model": "  "', "a model needs a name"),
        ('"bounds": [0, 3], "nats": [1], "model": "\\ud800"', "half a surrogate pair"),
    ],
)
def test_values_that_are_no_losses_are_refused(row, says, study, tmp_path, refused):
    length = len(study.texts.texts[0].text.encode())
    row = row.replace("[0, 3]", f"[0, {length}]")
    (tmp_path / "a.jsonl").write_text(f'{{"text_id": "source0-0", {row}}}\n')
    refused(["import", "losses", study.root, tmp_path / "a.jsonl"], says)


def test_a_truncated_parquet_file_is_refused_wherever_it_is_cut(rows, study, tmp_path, refused):
    whole = write(tmp_path / "a.parquet", rows).read_bytes()
    for share in (0.1, 0.5, 0.9, 0.999):
        (tmp_path / "a.parquet").write_bytes(whole[: int(len(whole) * share)])
        refused(["import", "losses", study.root, tmp_path / "a.parquet"], "not a complete Parquet file")


def test_parquet_of_another_shape_is_refused(rows, study, tmp_path, refused):
    file = tmp_path / "a.parquet"
    import_it = ["import", "losses", study.root, file]
    pq.write_table(pa.table({"text_id": ["source0-0"]}), file)
    refused(import_it, "no column bounds, nats; found text_id")
    pq.write_table(pa.table({"text_id": ["source0-0"], "bounds": [3], "nats": [1.0]}), file)
    refused(import_it, "column bounds must hold a list of numbers for every text")
    pq.write_table(pa.table({"text_id": ["source0-0"], "bounds": [["a"]], "nats": [["b"]]}), file)
    refused(import_it, "column bounds must hold numbers")
    write(file, rows)
    table = pq.read_table(file)
    pq.write_table(table.slice(0, 0), file)
    refused(import_it, "no rows")
    two = pa.array(["a", *["b"] * (len(rows) - 1)])
    pq.write_table(table.append_column("model", two), file)
    refused(import_it, "a Parquet file holds one model, found 2")
    pq.write_table(table.replace_schema_metadata({b"\xff\xfe": b"\xff", b"texts": b"\xff\xff"}), file)
    refused(import_it, "another version of the texts")


# ---- scores, models, features


def table(path: Path, header: str, *lines: str) -> Path:
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("new,task0,63.2", ["accuracy 63.2 is not between 0 and 1", "is it a percentage? then write 0.632"]),
        ("new,task0,-0.1", ["accuracy -0.1 is not between 0 and 1"]),
        ("new,task0,nan", ["accuracy is nan"]),
        ("new,task0,high", ["accuracy 'high' is not a number"]),
        ("new,tusk0,0.5", ["unknown task 'tusk0'", "did you mean 'task0'?"]),
        (",task0,0.5", ["a model needs a name"]),
    ],
)
def test_bad_scores_are_refused_with_their_line(line, says, study, tmp_path, refused):
    file = table(tmp_path / "s.csv", "model,task,accuracy", "ok,task0,0.5", line)
    refused(["import", "scores", study.root, file], "line 3", *says)


def test_two_scores_of_one_model_on_one_task_are_refused(study, tmp_path, refused):
    file = table(tmp_path / "s.csv", "model,task,accuracy", "a,task0,0.5", "a,task0,0.6")
    refused(["import", "scores", study.root, file], "'a on task0' occurs twice")


def test_another_score_than_the_studys_is_refused_and_force_replaces_it(study, world, tmp_path, refused, cli):
    score = world.scores[0]
    file = table(tmp_path / "s.csv", "model,task,accuracy", f"{score.model},{score.task},0.123")
    refused(["import", "scores", study.root, file], f"{score.model!r} has accuracy", "the file says 0.123; --force")
    assert cli("import", "scores", study.root, file, "--force").code == 0
    assert study.scores()[0].accuracy == 0.123


@pytest.mark.parametrize(
    ("header", "line", "says"),
    [
        ("model,familie", "a,b", "unknown column 'familie'; did you mean 'family'?"),
        ("family,params", "a,1", "no column model"),
        ("model,split", "a,tset", "split 'tset' is not train, validation or test; did you mean 'test'?"),
        ("model,params", "a,big", "params 'big' is not a number"),
        ("model,params", "a,-7", "params is negative"),
        ("model,params", "a,inf", "params is inf"),
    ],
)
def test_bad_descriptions_of_models_are_refused(header, line, says, study, tmp_path, refused):
    refused(["import", "models", study.root, table(tmp_path / "m.csv", header, line)], says)


def test_a_model_described_twice_is_refused(study, tmp_path, refused):
    file = table(tmp_path / "m.csv", "model,family", "a,x", "a,y")
    refused(["import", "models", study.root, file], "model 'a' occurs twice")


def test_features_that_do_not_fit_the_texts_are_refused(study, world, tmp_path, refused):
    file = tmp_path / "f.npz"
    import_it = ["import", "features", study.root, file]
    counts = np.diff(np.searchsorted(world.edges, world.texts.starts))
    bounds = np.concatenate(
        [
            world.edges[a : a + n + 1] - start
            for a, n, start in zip(np.cumsum(counts) - counts, counts, world.texts.starts, strict=False)
        ]
    )
    sound = {"features": world.features, "counts": counts, "bounds": bounds}

    def spoiled(**changes) -> None:
        np.savez(file, **{**sound, **changes})

    file.write_text("these are no arrays")
    refused(import_it, "not a complete npz file")
    spoiled()
    file.write_bytes(file.read_bytes()[:-300])
    refused(import_it, "not a complete npz file")
    np.savez(file, features=world.features)
    refused(import_it, "no array bounds, counts")
    with file.open("wb") as single:
        np.save(single, world.features)
    refused(import_it, "a single array, not an npz file")
    spoiled(counts=counts[:-1])
    refused(import_it, "counts for 23 texts, the study has 24")
    spoiled(counts=np.concatenate([[-1], counts[1:]]))
    refused(import_it, "counts are negative")
    spoiled(counts=np.array(["a"] * 24))
    refused(import_it, "counts must hold whole numbers")
    spoiled(features=world.features[:-1])
    refused(import_it, "so features need")
    spoiled(bounds=np.stack([bounds, bounds], axis=1))
    refused(import_it, "so features need")
    spoiled(bounds=bounds + 1)
    refused(import_it, f"bounds of text {world.texts.texts[0].id!r} must increase from 0")
    spoiled(features=np.where(np.arange(24) == 3, np.nan, world.features))
    refused(import_it, "features contain NaN or infinity")
    spoiled(features=world.features.astype(np.float64) * 1e300)
    refused(import_it, "features contain NaN or infinity")
    np.savez(file, features=np.array([object()], dtype=object), counts=counts, bounds=bounds)
    refused(import_it, "not a complete npz file")


@pytest.mark.parametrize(
    ("line", "says"),
    [
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
    ],
)
def test_texts_that_cannot_be_used_make_no_study(line, says, cli, tmp_path):
    (tmp_path / "t.jsonl").write_text('{"id": "first", "text": "hello"}\n' + line + "\n")
    ran = cli("init", tmp_path / "study", "--texts", tmp_path / "t.jsonl")
    assert ran.code == 1
    (said,) = ran.err.splitlines()
    assert said.startswith("error: ")
    assert says in said
    assert not (tmp_path / "study").exists()


# ---- the study itself


def with_settings(study, text: str) -> None:
    (study.root / "study.toml").write_text(text)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ('format = 1\nscorrer = "x"\n', ["unknown key 'scorrer'", "did you mean 'scorer'?"]),
        ("format = 1\n[tasks.a]\nchanse = 0.1\n", ["unknown key in [tasks.a]: 'chanse'", "did you mean 'chance'?"]),
        ("format = 1\n[tasks.a]\nchance = 1.0\n", ["chance = 1.0", "from 0 to below 1"]),
        ("format = 1\n[tasks.a]\nchance = -0.1\n", ["chance = -0.1"]),
        ("format = 1\n[tasks.a]\nchance = nan\n", ["chance = nan"]),
        ('format = 1\n[tasks.a]\nchance = "25%"\n', ["chance = '25%'"]),
        ("format = 1\n[tasks.a]\nchance = true\n", ["chance = True"]),
        ('format = 1\n[tasks.a]\nsources = "a"\n', ["sources must be a list of names"]),
        ("format = 1\ntasks = 3\n", ["tasks must be a"]),
        ('format = 1\nseed = "x"\n', ["seed must be a"]),
        ("format = 9\n", ["format 9, this version reads 1", "newer benchcast; upgrade"]),
        ("seed = 0\n", ["is `format = 1` missing?"]),
        ("format = \n", ["not valid TOML"]),
        ("format = 1\n[tasks.a]\n[tasks.a]\n", ["not valid TOML"]),
    ],
)
@pytest.mark.parametrize("command", ["status", "fit"])
def test_settings_that_are_not_understood_are_refused(settings, says, command, study, refused):
    with_settings(study, settings)
    refused([command, study.root], "study.toml", *says)


@pytest.mark.parametrize("command", [["status"], ["fit"], ["compare"], ["report"], ["import", "models"]])
def test_what_is_not_a_study_is_refused(command, refused, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    file = table(tmp_path / "m.csv", "model", "a")
    refused([*command, empty, *([file] if "import" in command else [])], "no study here", "benchcast init", root=empty)


def test_init_never_writes_over_anything(study, refused, tmp_path):
    texts = tmp_path / "t.jsonl"
    texts.write_text('{"text": "hello"}\n')
    refused(["init", study.root, "--texts", texts], "there is a study already")
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("ten years of work")
    refused(["init", other, "--texts", texts], "exists and is not empty", root=other)
    refused(["init", texts, "--texts", texts], "exists and is not empty", root=tmp_path)
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "texts.jsonl").write_text('{"text": "collected by hand"}\n')
    refused(["init", folder, "--texts", texts], "exists and is not empty", root=folder)


def test_a_damaged_losses_file_is_named(study, world, refused):
    path = study.losses_path(world.models[2].model)
    path.write_bytes(path.read_bytes()[:200])
    refused(["status", study.root], str(path), "remove it and import it again")


def test_features_of_other_texts_are_refused(study, refused):
    meta = study.root / "features" / "synthetic" / "meta.json"
    said = json.loads(meta.read_text()) | {"texts": "0123456789abcdef"}
    meta.write_text(json.dumps(hashed(said)))
    refused(["fit", study.root], "made for texts 0123456789abcdef")


def test_features_of_two_scorers_need_a_choice(study, world, refused, cli):
    study.add_features("other", world.features, world.edges)
    refused(["fit", study.root], "say which in study.toml: scorer = ")
    settings = study.root / "study.toml"
    settings.write_text(settings.read_text().replace("seed = 0", 'seed = 0\nscorer = "third"'))
    refused(["fit", study.root], "study.toml wants scorer 'third', features are there of other, synthetic")
    settings.write_text(settings.read_text().replace("third", "other"))
    assert cli("fit", study.root, "--method", "ridge").code == 0


# ---- too little to learn from


def keep_scores(study, keep) -> None:
    kept = [s for s in study.scores() if keep(s)]
    (study.root / "scores.csv").unlink()
    if kept:
        study.add_scores(kept)


@pytest.mark.parametrize("command", ["fit", "compare"])
def test_fewer_than_four_models_are_too_few(command, study, world, refused):
    few = {m.model for m in world.models[2:5]}  # two of the first family, one of the second
    keep_scores(study, lambda s: s.model in few)
    split = [] if command == "fit" else ["--split", "family"]
    refused([command, study.root, *split], "models have both losses and accuracy", "a fit needs at least 4")


def test_scores_that_are_all_equal_teach_nothing(study, refused):
    lines = (study.root / "scores.csv").read_text().splitlines()
    rows = list(csv.DictReader(lines))
    for row in rows:
        row["accuracy"] = "0.5"
    with (study.root / "scores.csv").open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    refused(["fit", study.root], "task0: all training models score 0.5; there is nothing to learn from")


def test_no_scores_or_no_tasks_or_no_losses_are_each_said(study, refused):
    keep_scores(study, lambda s: False)
    refused(["fit", study.root], "no model has both losses and scores (20 with losses, 0 with scores")
    shutil.rmtree(study.root / "losses")
    refused(["fit", study.root], "0 with losses")
    with_settings(study, "format = 1\n")
    refused(["fit", study.root], "has no tasks; add one")


def test_a_split_without_test_models_is_said(study, world, refused, tmp_path):
    names = [m.model for m in world.models]
    (study.root / "models.csv").unlink()
    table(study.root / "models.csv", "model,family", *(f"{n},{n.partition('-')[0]}" for n in names))
    refused(["compare", study.root, "--split", "size"], "no test models", "three sizes", "--split family")
    refused(["compare", study.root, "--split", "column"], "no test models", "mark some in models.csv")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["fit", "--task", "taks0"], "unknown task 'taks0'; study.toml has task0, task1; did you mean 'task0'?"),
        (["fit", "--method", "salient"], "unknown method 'salient'"),
        (["compare", "--method", "salient"], "did you mean 'salience'?"),
        (["predict", "--model", "nobody"], "no losses of model 'nobody'"),
        (["predict", "--model", "family0-1M@2B"], "no fits yet; run `benchcast fit"),
        (["predict", "--model", "family0-1M@2B", "--task", "task0"], "no fit here"),
    ],
)
def test_names_that_are_not_there_are_said(arguments, says, study, refused):
    refused([arguments[0], study.root, *arguments[1:]], says)


def test_a_mistake_in_the_command_itself_is_one_line_too(study, refused):
    refused(["fit", study.root, "--split", "colour"], "'colour' is not one of", "see `benchcast fit --help`")
    refused(["predict", study.root], "give STUDY and --model, or --fit and --losses")
    refused(["nonsense"], "no such command 'nonsense'; see `benchcast --help`")
