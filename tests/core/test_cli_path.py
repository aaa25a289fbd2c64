"""The whole way through the command line: from files to a forecast and a report."""

from __future__ import annotations

import csv
import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchcast import load
from benchcast.records import ModelMetadata
from benchcast.study.study import Study

ENTRY = str(Path(sys.executable).with_name("benchcast"))


def write_jsonl(path: Path, losses, texts, *, model: str | None = None) -> Path:
    """One model's losses as anyone would write them."""
    rows, at = [], 0
    for text, text_bounds in zip(texts, losses.text_bounds(texts.starts), strict=True):
        nats = losses.nats[at : at + len(text_bounds) - 1]
        at += len(text_bounds) - 1
        row = {
            "text_id": text.id,
            "bounds": text_bounds.tolist(),
            "nats": [None if v != v else v for v in nats.tolist()],
        }
        rows.append(row if model is None else {**row, "model": model})
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return path


def write_table(path: Path, header: list[str], rows: list[list]) -> Path:
    with path.open("w", newline="") as out:
        csv.writer(out).writerows([header, *rows])
    return path


@pytest.fixture(scope="module")
def files(world, tmp_path_factory) -> Path:
    """The synthetic world as files of any make."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "texts.jsonl").write_text("".join(json.dumps(t.as_row()) + "\n" for t in world.texts), encoding="utf-8")
    for losses in world.losses[:10]:
        write_jsonl(folder / f"{losses.model}.jsonl", losses, world.texts)
    for losses in world.losses[10:]:
        text_bounds = losses.text_bounds(world.texts.starts)
        cuts = np.cumsum(losses.counts)[:-1]
        table = {
            "text_id": [t.id for t in world.texts],
            "bounds": [b.tolist() for b in text_bounds],
            "nats": [n.tolist() for n in np.split(losses.nats, cuts)],
        }
        pq.write_table(pa.table(table), folder / f"{losses.model}.parquet")
    models = [[m.model, m.family, m.params, m.tokens] for m in world.models]
    write_table(folder / "models.csv", ["model", "family", "params", "tokens"], models)
    scores = [[s.model, s.task, s.accuracy, s.n_items] for s in world.scores]
    write_table(folder / "scores.csv", ["model", "task", "accuracy", "n_items"], scores)
    counts = np.diff(np.searchsorted(world.edges, world.texts.starts))
    bounds = [
        world.edges[a : a + n + 1] - start
        for a, n, start in zip(np.cumsum(counts) - counts, counts, world.texts.starts, strict=False)
    ]
    np.savez(folder / "scorer.npz", features=world.features, counts=counts, bounds=np.concatenate(bounds))
    return folder


def add_tasks(study: Path, world) -> None:
    lines = [f'\n[tasks.{t.name}]\nchance = {t.chance}\nsources = ["{t.sources[0]}"]\n' for t in world.tasks]
    with (study / "study.toml").open("a") as settings:
        settings.write("".join(lines))


@pytest.fixture(scope="module")
def done(files, world, cli, tmp_path_factory) -> Path:
    """A study made with commands alone, up to its fits."""
    study = tmp_path_factory.mktemp("made") / "study"
    for step in (
        ["init", study, "--texts", files / "texts.jsonl"],
        ["import", "losses", study, *sorted(files.glob("family*.jsonl")), *sorted(files.glob("family*.parquet"))],
        ["import", "models", study, files / "models.csv"],
        None,
        ["import", "scores", study, files / "scores.csv"],
        ["import", "features", study, files / "scorer.npz"],
        ["fit", study],
    ):
        if step is None:
            add_tasks(study, world)
            continue
        ran = cli(*step)
        assert ran.code == 0, ran
        assert ran.err == ""
    return study


def test_a_study_made_by_commands_holds_what_a_study_made_in_python_does(done, synthetic_folder):
    by_commands, in_python = Study.open(done), Study.open(synthetic_folder)
    assert by_commands.texts == in_python.texts
    assert by_commands.models_with_losses() == in_python.models_with_losses()
    for name in by_commands.models_with_losses():
        assert by_commands.losses(name).nats.tolist() == in_python.losses(name).nats.tolist()
    assert repr(by_commands.scores()) == repr(in_python.scores())
    assert repr(by_commands.models()) == repr(in_python.models())
    assert (by_commands.features().values == in_python.features().values).all()
    assert by_commands.scorers() == ["scorer"], "named after its file"


def test_status_tells_what_is_there_and_what_to_run_next(done, files, cli, tmp_path):
    ran = cli("status", done)
    assert (ran.code, ran.err) == (0, "")
    assert "24 texts, 20 models with losses, scorer: scorer" in " ".join(ran.out.split())
    assert f"next: benchcast predict {done} --model NAME" in ran.out
    status = json.loads(cli("status", done, "--json").out)
    assert [t["usable"] for t in status["tasks"]] == [20, 20]
    assert [t["fitted"] for t in status["tasks"]] == [True, True]
    fresh = tmp_path / "fresh"
    cli("init", fresh, "--texts", files / "texts.jsonl")
    assert f"next: add your tasks to {fresh / 'study.toml'}" in cli("status", fresh).out


def test_what_status_says_next_leads_from_nothing_to_a_forecast(files, world, cli, tmp_path):
    study = tmp_path / "study"
    cli("init", study, "--texts", files / "texts.jsonl")
    add_tasks(study, world)
    said = []
    for step in (
        ["import", "losses", study, *sorted(files.glob("family*.*"))],
        ["import", "scores", study, files / "scores.csv"],
        ["import", "models", study, files / "models.csv"],
        ["import", "features", study, files / "scorer.npz"],
        ["fit", study, "--method", "all-token"],
    ):
        said.append(json.loads(cli("status", study, "--json").out)["next_step"])
        assert cli(*step).code == 0
    assert ["import losses" in said[0], "import scores" in said[1], "import models" in said[2]] == [True] * 3
    assert said[3].startswith("benchcast compare")
    assert "import features" in said[3]
    assert "benchcast fit" in said[4]


def test_importing_the_same_again_changes_nothing(done, files, cli, tree):
    before = tree(done)
    for step, says in (
        (["losses", done, *sorted(files.glob("family*.*"))], "0 models added, 20 were there already"),
        (["scores", done, files / "scores.csv"], "0 scores added, 40 were there already"),
        (["models", done, files / "models.csv"], "20 models described"),
    ):
        ran = cli("import", *step)
        assert ran.code == 0
        assert says in ran.out
    assert tree(done) == before


@pytest.mark.parametrize("split", ["size", "family"])
def test_compare_prints_one_row_a_method_and_marks_the_least_of_a_task(done, cli, split):
    methods = ["--method", "all-token", "--method", "constant", "--method", "label-token"]
    ran = cli("compare", done, "--split", split, *methods)
    assert (ran.code, ran.err) == (0, "")
    comparison = json.loads(cli("compare", done, "--split", split, *methods, "--json").out)
    errors = {m: comparison["tasks"]["task1"][m]["mse"] for m in comparison["methods"]}
    best = min(errors, key=lambda m: errors[m])
    row = next(line for line in ran.out.splitlines() if line.startswith(f"{best} "))
    assert row.split()[2] == f"*{errors[best]:.2e}"
    assert sum(" *" in line for line in ran.out.splitlines()) <= len(comparison["tasks"]), "one mark a task"
    gains = ran.out.partition("squared error of all-token ÷ that of the method over all tasks")[2].splitlines()
    gain = comparison["gains"]["label-token"]
    cells = next(line for line in gains if line.startswith("label-token ")).split()
    assert [cells[1], *cells[-2:]] == [f"{gain[name]:.2f}" for name in ("value", "median", "summed")]


def test_predict_by_study_and_by_files_say_the_same(done, files, world, cli):
    for losses, ending in ((world.losses[3], "jsonl"), (world.losses[15], "parquet")):
        by_study = json.loads(cli("predict", done, "--model", losses.model, "--json").out)
        for i, task in enumerate(world.tasks):
            by_file = cli(
                "predict", "--fit", done / "fits" / task.name, "--losses", files / f"{losses.model}.{ending}", "--json"
            )
            (one,) = json.loads(by_file.out)
            assert one["model"] == losses.model
            assert one["task"] == task.name == by_study[i]["task"]
            assert one["accuracy"] == pytest.approx(by_study[i]["accuracy"], abs=1e-5)
            assert one["low"] < one["accuracy"] < one["high"]


def test_a_fit_needs_nothing_but_its_folder(done, world, files, cli, tmp_path):
    shutil.copytree(done / "fits" / "task0", tmp_path / "elsewhere")
    model = world.losses[3].model
    ran = cli("predict", "--fit", tmp_path / "elsewhere", "--losses", files / f"{model}.jsonl", "--json")
    assert ran.code == 0
    assert json.loads(ran.out)[0]["task"] == "task0"


@pytest.mark.parametrize("method", ["salience", "ridge", "compute", "constant"])
def test_a_fit_reloaded_predicts_the_same_bit_for_bit(study, world, tmp_path, method):
    from benchcast import fit

    new_fit = fit(study, "task0", method=method)
    again = load(new_fit.save(tmp_path / "fit"))
    for losses in world.losses:
        metadata = ModelMetadata.of(study.infos([losses.model]), study.scores())
        assert again.predict(losses, metadata=metadata) == new_fit.predict(losses, metadata=metadata)
    assert (again.supported == new_fit.supported).all()
    assert again.about == new_fit.about
    second = load(again.save(tmp_path / "second"))
    assert (tmp_path / "second" / "fit.json").read_bytes() == (tmp_path / "fit" / "fit.json").read_bytes()
    assert second.task_fit.out_of_fold.errors.tolist() == new_fit.task_fit.out_of_fold.errors.tolist()


def test_fitting_twice_gives_the_same_files(done, cli, tmp_path, tree):
    shutil.copytree(done, tmp_path / "study")
    before = tree(tmp_path / "study" / "fits")
    assert cli("fit", tmp_path / "study").code == 0
    assert tree(tmp_path / "study" / "fits") == before


def test_fit_takes_a_task_named_twice_once(study, cli):
    ran = cli("fit", study.root, "--task", "task1", "--task", "task1", "--method", "all-token")
    assert ran.code == 0, ran.err
    assert study.fitted_tasks() == ["task1"]


def test_the_test_models_of_a_split_are_not_learned_from(study, world):
    from benchcast import fit

    new_fit = fit(study, "task0", method="all-token", split="size")
    largest = {m.model for m in world.models if m.params == 64e6}
    second = {m.model for m in world.models if m.params == 16e6}
    everyone = {m.model for m in world.models}
    assert set(new_fit.about["validation"]) == second
    assert set(new_fit.about["train"]) == everyone - second - largest
    assert set(fit(study, "task0", method="all-token").about["train"]) == everyone


def test_a_damaged_or_absent_fit_is_one_clear_line(done, files, world, cli, tmp_path):
    losses = files / f"{world.losses[0].model}.jsonl"

    def predict(folder: Path) -> str:
        ran = cli("predict", "--fit", folder, "--losses", losses)
        assert ran.code == 1
        assert ran.out == ""
        (line,) = ran.err.splitlines()
        return line

    def spoiled(name: str, file: str, content: bytes) -> Path:
        shutil.copytree(done / "fits" / "task0", tmp_path / name)
        (tmp_path / name / file).write_bytes(content)
        return tmp_path / name

    whole = (done / "fits" / "task0" / "fit.json").read_text()
    arrays = (done / "fits" / "task0" / "salience.safetensors").read_bytes()
    other = (done / "fits" / "task1" / "salience.safetensors").read_bytes()
    newer = whole.replace('"format": 1', '"format": 7').encode()
    assert "no fit here" in predict(tmp_path / "nowhere")
    assert "damaged fit" in predict(spoiled("half", "fit.json", whole[:500].encode()))
    assert "damaged fit" in predict(spoiled("empty", "fit.json", b"{}"))
    for key in ("texts", "law"):
        without = json.dumps({**json.loads(whole), key: []})
        assert "damaged fit" in predict(spoiled(key, "fit.json", without.encode()))
    assert "does not belong to fit.json" in predict(spoiled("short", "salience.safetensors", arrays[:-9]))
    assert "does not belong to fit.json" in predict(spoiled("swapped", "salience.safetensors", other))
    assert "upgrade benchcast" in predict(spoiled("newer", "fit.json", newer))
    unlike = {key: value for key, value in json.loads(newer).items() if key not in ("reads", "method")}
    assert "upgrade benchcast" in predict(spoiled("newer and unlike", "fit.json", json.dumps(unlike).encode()))


# ---- wide CSV


@pytest.mark.parametrize("unit", ["bits-per-byte", "nats"])
def test_a_wide_csv_of_either_unit_gives_each_text_its_total(files, world, cli, tmp_path, unit):
    study = tmp_path / "study"
    cli("init", study, "--texts", files / "texts.jsonl")
    lengths = np.diff(world.texts.starts)
    totals = {
        losses.model: np.add.reduceat(losses.nats, np.cumsum(losses.counts) - losses.counts)
        for losses in world.losses[:3]
    }
    scale = lengths * np.log(2) if unit == "bits-per-byte" else 1.0
    rows = [[name, *(total / scale)] for name, total in totals.items()]
    rows[0][3] = ""  # no loss of the first model on the third text
    table = write_table(tmp_path / "wide.csv", ["model", *(t.id for t in world.texts)], rows)
    ran = cli("import", "losses", study, table, "--unit", unit)
    assert ran.code == 0, ran.err
    for name, total in totals.items():
        losses = Study.open(study).losses(name)
        assert (losses.counts == 1).all()
        wanted = total.copy()
        if name == rows[0][0]:
            wanted[2] = np.nan
        np.testing.assert_allclose(losses.nats, wanted, rtol=1e-6)
    again = cli("import", "losses", study, table, "--unit", unit)
    assert "0 models added, 3 were there already" in again.out


def test_a_wide_csv_must_say_its_unit(study, world, cli, tmp_path):
    table = write_table(tmp_path / "wide.csv", ["model", world.texts.texts[0].id], [["m", 1.0]])
    ran = cli("import", "losses", study.root, table)
    assert ran.code == 1
    assert "--unit nats or --unit bits-per-byte" in ran.err


# ---- names

HOSTILE = ["org/model", "../../../outside", "..", ".hidden", "with spaces", "通义-7B 😀", "x" * 300, "a%2Fb", "a[/b]"]


def test_models_of_any_name_go_all_the_way_and_never_leave_the_study(study, world, cli, tmp_path, tree):
    out = tmp_path / "in"
    out.mkdir()
    outside = {p for p in tmp_path.rglob("*") if study.root not in (p, *p.parents)}
    for i, name in enumerate(HOSTILE):
        write_jsonl(out / f"{i}.jsonl", world.losses[i], world.texts, model=name)
    outside |= set(out.iterdir())
    ran = cli("import", "losses", study.root, *sorted(out.iterdir()), "--family", "hostile/../family")
    assert ran.code == 0, ran.err
    scores = write_table(out / "s.csv", ["model", "task", "accuracy"], [[n, "task0", 0.5] for n in HOSTILE])
    outside.add(scores)
    ran = cli("import", "scores", study.root, scores)
    assert ran.code == 0, ran.err
    opened = Study.open(study.root)
    assert set(HOSTILE) <= set(opened.models_with_losses())
    assert {m.model for m in opened.models() if m.family == "hostile/../family"} == set(HOSTILE)
    assert cli("fit", study.root, "--task", "task0", "--method", "all-token").code == 0
    for i, name in enumerate(HOSTILE):
        ran = cli("predict", study.root, "--model", name)
        assert ran.code == 0, ran.err
        assert name.replace(" ", "") in re.sub(r"\s", "", ran.out), "shown as it is, no mark-up taken from it"
        (forecast,) = json.loads(cli("predict", study.root, "--model", name, "--json").out)
        (plain,) = json.loads(cli("predict", study.root, "--model", world.losses[i].model, "--json").out)
        assert forecast["accuracy"] == plain["accuracy"]
    now = {p for p in tmp_path.rglob("*") if study.root not in (p, *p.parents)}
    assert now == outside


def test_a_model_is_named_after_its_file_without_the_last_ending(study, world, cli, tmp_path):
    write_jsonl(tmp_path / "ash-4.0M.jsonl", world.losses[0], world.texts)
    assert cli("import", "losses", study.root, tmp_path / "ash-4.0M.jsonl").code == 0
    assert "ash-4.0M" in study.models_with_losses()


def test_a_folder_that_looks_like_a_partition_names_no_model(files, world, cli, tmp_path):
    folder = tmp_path / "model=other"
    folder.mkdir()
    name = world.losses[12].model
    shutil.copy(files / f"{name}.parquet", folder)
    study = folder / "study"
    cli("init", study, "--texts", files / "texts.jsonl")
    assert cli("import", "losses", study, folder / f"{name}.parquet").code == 0
    opened = Study.open(study)
    assert opened.models_with_losses() == [name]
    assert opened.losses(name).model == name


def test_one_jsonl_may_hold_several_models(study, world, cli, tmp_path):
    parts = [write_jsonl(tmp_path / f"{i}.jsonl", world.losses[i], world.texts, model=f"new-{i}") for i in range(3)]
    (tmp_path / "all.jsonl").write_text("".join(p.read_text() for p in parts))
    ran = cli("import", "losses", study.root, tmp_path / "all.jsonl")
    assert "3 models added" in ran.out
    np.testing.assert_allclose(study.losses("new-1").nats, world.losses[1].nats, rtol=1e-6)


# ---- a model that lacks part of the support


def test_a_model_that_lacks_part_of_the_support_is_named_with_the_share_and_restrict_works(study, world, cli, tmp_path):
    losses = world.losses[7]
    nats = losses.nats.copy()
    n_tokens = int(losses.counts[:6].sum())
    nats[:n_tokens] = np.nan  # the first six of 24 texts
    partial = type(losses)("partial", losses.counts, losses.edges, nats)
    write_jsonl(tmp_path / "partial.jsonl", partial, world.texts)
    assert cli("fit", study.root, "--method", "all-token").code == 0
    assert cli("import", "losses", study.root, tmp_path / "partial.jsonl").code == 0
    lacking = np.searchsorted(world.edges, world.texts.starts[6]) / (len(world.edges) - 1)
    for step in (
        ["predict", study.root, "--model", "partial"],
        ["predict", "--fit", study.root / "fits" / "task0", "--losses", tmp_path / "partial.jsonl"],
    ):
        ran = cli(*step)
        assert ran.code == 1
        (line,) = ran.err.splitlines()
        assert f"'partial' has no loss on {lacking:.1%} of the tokens" in line
        assert "--restrict" in line
    ran = cli("predict", study.root, "--model", "partial", "--restrict", "--json")
    assert ran.code == 0, ran.err
    restricted = {f["task"]: f["accuracy"] for f in json.loads(ran.out)}
    whole = {
        f["task"]: f["accuracy"] for f in json.loads(cli("predict", study.root, "--model", losses.model, "--json").out)
    }
    for task in whole:
        assert restricted[task] == pytest.approx(whole[task], abs=0.15)


# ---- the report


def test_the_report_is_one_file_that_needs_no_network(done, cli, tmp_path):
    ran = cli("report", done, "-o", tmp_path / "report.html")
    assert (ran.code, ran.err) == (0, "")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    head = page[: page.index('<script type="application/json"')]
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', head)
    assert "salience" in head
    figures = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S).group(1)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    assert json.loads(figures, parse_constant=refuse)


EVIL = ["<script>alert(1)</script>", "</script><img src=x onerror=alert(2)>", '"><svg onload=alert(3)>', "{{7*7}}"]


def test_hostile_names_end_escaped_in_the_report(world, cli, tmp_path):
    """Models, families, texts, tasks and the scorer may be called anything."""
    from dataclasses import replace

    from benchcast.records import TextSet
    from synthetic import write_study

    models = tuple(
        replace(m, model=EVIL[i % 4] + m.model, family=EVIL[int(m.family[-1]) % 4] + m.family)
        for i, m in enumerate(world.models)
    )
    called = dict(zip([m.model for m in world.models], [m.model for m in models], strict=True))
    evil = replace(
        world,
        texts=TextSet.of([replace(t, id=EVIL[i % 4] + t.id) for i, t in enumerate(world.texts)]),
        models=models,
        losses=tuple(replace(x, model=called[x.model]) for x in world.losses),
        scores=tuple(replace(s, model=called[s.model], task=EVIL[int(s.task[-1])]) for s in world.scores),
        tasks=tuple(replace(t, name=EVIL[i]) for i, t in enumerate(world.tasks)),
    )
    study = write_study(evil, tmp_path / "study")
    study.add_features(EVIL[1], world.features, world.edges)
    shutil.rmtree(study.root / "features" / "synthetic")
    assert cli("report", study.root).code == 0
    page = (study.root / "report.html").read_text(encoding="utf-8")
    for name in EVIL[:3]:
        assert name not in page
    assert "<img src=x" not in page
    assert "<svg onload" not in page
    assert html.escape(EVIL[0]) in page, "the name is there, as text"
    assert "49" not in re.findall(r"<h1>.*?</h1>", page)[0]


# ---- the real entry point


def run_entry(*arguments: object, **kwargs) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ENTRY, *map(str, arguments)], capture_output=True, text=True, timeout=120, **kwargs)


@pytest.mark.slow
def test_the_entry_point_goes_the_whole_way(files, world, tmp_path):
    study = tmp_path / "study"
    steps = [
        ["init", study, "--texts", files / "texts.jsonl"],
        ["import", "losses", study, *sorted(files.glob("family*.*"))],
        ["import", "scores", study, files / "scores.csv"],
        ["fit", study, "--task", "task0", "--method", "all-token"],
        ["predict", study, "--task", "task0", "--model", world.losses[0].model, "--json"],
    ]
    for step in steps:
        ran = run_entry(*step)
        assert (ran.returncode, ran.stderr) == (0, ""), step
        if step[0] == "init":
            add_tasks(study, world)
    assert 0 <= json.loads(ran.stdout)[0]["accuracy"] <= 1


@pytest.mark.slow
def test_the_entry_point_says_a_users_mistake_in_one_line(tmp_path):
    ran = run_entry("status", tmp_path)
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert ran.stderr == f"error: {tmp_path}: no study here (no study.toml); make one with `benchcast init`\n"


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_crash(done):
    ran = subprocess.run(f"{ENTRY} status {done} | head -n 1", shell=True, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in ran.stderr
    assert "24 texts" in ran.stdout
