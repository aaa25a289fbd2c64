"""`benchcast watch`: whole checkpoints are scored once, in order; everything else is waited for or passed over."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from small import TOKENIZER, small_model

from benchcast.cli.watch import curve, draw_table
from benchcast.collection.backends.base import ModelSettings
from benchcast.errors import InputError
from benchcast.study.study import Study
from benchcast.training.checkpoints import find_checkpoints, lacking, progress_of, step_of
from benchcast.training.watch import Event, Watch, WatchedRun

# What ignores interrupts (nohup, a background job of a script) hands that on to its children.
INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from benchcast.cli import main; main()"
)


def age(folder: Path) -> None:
    """As if nobody had written there for a minute."""
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (time.time() - 60, time.time() - 60))


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """A checkpoint as the Trainer leaves it; not to be written to."""
    folder = tmp_path_factory.mktemp("saved") / "checkpoint-1"
    small_model().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "training_args.bin").write_bytes(b"")
    state = {"global_step": 1, "num_input_tokens_seen": 4096, "total_flos": 0.0}
    (folder / "trainer_state.json").write_text(json.dumps(state))
    age(folder)
    return folder


@pytest.fixture
def study(fitted_folder: Path, tmp_path: Path) -> Study:
    shutil.copytree(fitted_folder, tmp_path / "study")
    return Study.open(tmp_path / "study")


@pytest.fixture
def put(saved: Path, tmp_path: Path) -> Callable[[int], Path]:
    """Put a checkpoint of some step into the run's folder."""

    def copy(step: int) -> Path:
        return Path(shutil.copytree(saved, tmp_path / "run" / f"checkpoint-{step}"))

    return copy


def watching(study: Study, tmp_path: Path, **given: Any) -> Watch:
    (tmp_path / "run").mkdir(exist_ok=True)
    settings = {"checkpoints": tmp_path / "run", "losses": None, **given}
    return Watch(study, WatchedRun(name="run", family="mine", settings=ModelSettings({}), device="cpu", **settings))


def test_the_probability_of_a_needed_score_is_in_the_lines(cli, study: Study, tmp_path: Path) -> None:
    model = study.models_with_losses()[0]
    losses = tmp_path / "losses"
    losses.mkdir()
    rows = [
        {"text_id": text.id, "bounds": [0, len(text.text.encode())], "nats": [float(len(text.text))]}
        for text in study.texts
    ]
    (losses / "mine-1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = ("watch", study.root, "--losses", losses, "--once", "--need", "task0=0.4")
    event = json.loads(cli(*command, "--json").out.splitlines()[-1])
    found = event["forecasts"]["task0"]
    assert found["needed"] == 0.4
    assert 0 <= found["probability"] <= 1
    assert "probability" not in event["forecasts"]["task1"]
    assert "; 0.4 or more: " in cli(*command).out
    assert cli(*command[:-1], "task0=40").code == 1
    assert model in study.models_with_losses()


def test_checkpoints_come_in_the_order_of_their_steps(tmp_path: Path) -> None:
    for name in ("checkpoint-1000", "checkpoint-90", "step_200", "epoch=1-step=300", "7", "runs", "tmp-checkpoint-5"):
        (tmp_path / name).mkdir()
    (tmp_path / "checkpoint-3").write_text("a file")
    assert [step_of(p.name) for p in find_checkpoints(tmp_path)] == [7, 90, 200, 300, 1000]


def cut(path: Path, keep: float) -> None:
    path.write_bytes(path.read_bytes()[: int(len(path.read_bytes()) * keep)])


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda c: (c / "config.json").unlink(), "no config.json yet"),
        (lambda c: cut(c / "config.json", 0.5), "config.json is incomplete"),
        (lambda c: (c / "model.safetensors").unlink(), "no weights yet"),
        (lambda c: cut(c / "model.safetensors", 0.7), r"model.safetensors has [\d,]+ of [\d,]+ bytes"),
        (lambda c: (c / "model.safetensors").write_bytes(b"\x00" * 5), "model.safetensors is incomplete"),
        (lambda c: (c / "trainer_state.json").unlink(), "no trainer_state.json yet"),
        (lambda c: [p.unlink() for p in c.glob("token*")], "no tokenizer yet; give --tokenizer PATH"),
        (lambda c: (c / "config.json").touch(), "still changing"),
    ],
)
def test_what_is_not_there_yet_is_named(put: Any, damage: Callable[[Path], None], says: str) -> None:
    checkpoint = put(5)
    assert lacking(checkpoint) == ""
    damage(checkpoint)
    assert re.fullmatch(says + ".*", lacking(checkpoint))


def test_every_shard_of_an_index_is_waited_for(put: Any) -> None:
    checkpoint = put(5)
    whole = checkpoint / "model.safetensors"
    shards = [checkpoint / f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    index = {"weight_map": {"a": shards[0].name, "b": shards[1].name}}
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    whole.rename(shards[0])
    assert lacking(checkpoint) == f"no {shards[1].name} yet"
    shutil.copy(shards[0], shards[1])
    age(checkpoint)
    assert lacking(checkpoint) == ""


def test_each_checkpoint_is_scored_once_and_kept_with_what_is_known_of_it(
    study: Study, put: Any, tmp_path: Path
) -> None:
    put(200)
    put(90)
    watch = watching(study, tmp_path)
    events = list(watch.look())
    assert [(e.kind, e.model, e.step, e.new) for e in events] == [
        ("forecast", "run@90", 90, True),
        ("forecast", "run@200", 200, True),
    ]
    assert [f.task for f in events[0].forecasts] == ["task0", "task1"]
    assert all(np.isfinite(f.accuracy) for f in events[0].forecasts)
    info = study.infos(["run@90"])[0]
    assert (info.family, info.tokens) == ("mine", 4096)
    assert info.params == sum(p.numel() for p in small_model().parameters())
    assert list(watch.look()) == []
    written = study.losses_path("run@90").stat().st_mtime_ns
    put(300)
    again = list(watching(study, tmp_path).look())
    assert [(e.model, e.new) for e in again] == [("run@90", False), ("run@200", False), ("run@300", True)]
    assert again[0].forecasts == events[0].forecasts
    assert study.losses_path("run@90").stat().st_mtime_ns == written


def test_a_checkpoint_still_being_written_is_waited_for_and_the_watch_goes_on(
    study: Study, put: Any, saved: Path, tmp_path: Path
) -> None:
    cut(put(10) / "model.safetensors", 0.5)
    put(20)
    watch = watching(study, tmp_path)
    first = list(watch.look())
    assert [(e.kind, e.model) for e in first] == [("waiting", "run@10"), ("forecast", "run@20")]
    assert "bytes" in first[0].why
    assert list(watch.look()) == [], "the same reason is not said again"
    shutil.copy2(saved / "model.safetensors", tmp_path / "run" / "checkpoint-10")
    assert [(e.kind, e.model) for e in watch.look()] == [("forecast", "run@10")]


def test_a_broken_checkpoint_is_reported_once_and_tried_again_when_it_changes(
    study: Study, put: Any, saved: Path, tmp_path: Path
) -> None:
    bad = put(10)
    (bad / "config.json").write_text('{"model_type": "no-such-model"}')
    age(bad)
    put(20)
    watch = watching(study, tmp_path)
    first = list(watch.look())
    assert [(e.kind, e.model) for e in first] == [("skipped", "run@10"), ("forecast", "run@20")]
    assert "the model cannot be loaded" in first[0].why
    assert "\n" not in first[0].why
    assert list(watch.look()) == []
    shutil.copy2(saved / "config.json", bad)
    assert [(e.kind, e.model) for e in watch.look()] == [("forecast", "run@10")]


def test_a_tokenizer_beside_the_checkpoints_is_found(study: Study, put: Any, tokenizer: Any, tmp_path: Path) -> None:
    for file in put(10).glob("token*"):
        file.unlink()
    watch = watching(study, tmp_path)
    assert [(e.kind, e.why[:16]) for e in watch.look()] == [("waiting", "no tokenizer yet")]
    tokenizer.save_pretrained(tmp_path / "run")
    assert [e.kind for e in watch.look()] == ["forecast"]


def test_size_and_training_are_noted_even_where_a_watch_was_killed_before_that(
    study: Study, put: Any, tmp_path: Path
) -> None:
    put(90)
    list(watching(study, tmp_path).look())
    whole = (study.root / "models.csv").read_text(encoding="utf-8")
    (study.root / "models.csv").write_text(
        "".join(line for line in whole.splitlines(keepends=True) if not line.startswith("run@90")), encoding="utf-8"
    )
    assert [e.new for e in watching(study, tmp_path).look()] == [False]
    assert (study.root / "models.csv").read_text(encoding="utf-8") == whole


def test_losses_that_vanish_are_passed_over(study: Study, tmp_path: Path) -> None:
    (tmp_path / "losses").mkdir()
    (tmp_path / "losses" / "gone@1.jsonl").symlink_to(tmp_path / "nowhere")
    (tmp_path / "losses" / "good@2.jsonl").write_text("\n".join(lines_of(study, study.models_with_losses()[0])) + "\n")
    watch = watching(study, tmp_path, checkpoints=None, losses=tmp_path / "losses")
    assert [(e.kind, e.model) for e in watch.look()] == [("forecast", "good@2")]


def test_a_folder_that_is_not_there_yet_is_waited_for(study: Study, tmp_path: Path) -> None:
    watch = watching(study, tmp_path, checkpoints=tmp_path / "later", losses=tmp_path / "also")
    assert [(e.kind, e.why) for e in watch.look()] == [("waiting", "no such folder yet")] * 2
    (tmp_path / "later").mkdir()
    assert [(e.kind, e.why[:18]) for e in watch.look()] == [("waiting", "no checkpoints yet")]
    assert list(watch.look()) == []


def lines_of(study: Study, model: str) -> list[str]:
    """Losses of a model of the study as a training job would write them."""
    losses = study.losses(model)
    bounds, ends = losses.text_bounds(study.texts.starts), np.cumsum(losses.counts)
    return [
        json.dumps({"text_id": t.id, "bounds": b.tolist(), "nats": [float(x) for x in losses.nats[end - n : end]]})
        for t, b, end, n in zip(study.texts, bounds, ends, losses.counts, strict=True)
    ]


def test_losses_that_the_job_writes_are_read_when_they_are_whole(study: Study, tmp_path: Path) -> None:
    model = study.models_with_losses()[0]
    lines, folder = lines_of(study, model), tmp_path / "losses"
    folder.mkdir()
    growing = folder / "job@100.jsonl"
    growing.write_text("\n".join(lines[:3]) + "\n" + lines[3][:40])
    (folder / "job@50.jsonl").write_text("\n".join(lines) + "\n")
    watch = watching(study, tmp_path, checkpoints=None, losses=folder)
    first = list(watch.look())
    assert [(e.kind, e.model, e.step) for e in first] == [("forecast", "job@50", 50), ("waiting", "job@100", 100)]
    assert first[1].why == f"3 of {len(study.texts)} texts, the last line is being written"
    expected = [fit.predict(study.losses(model)).accuracy for fit in watch.fits]
    assert [f.accuracy for f in first[0].forecasts] == pytest.approx(expected, abs=1e-6)
    growing.write_text("\n".join(lines) + "\n")
    assert [(e.kind, e.model) for e in watch.look()] == [("forecast", "job@100")]
    assert study.infos(["job@100"])[0].family == "mine"


def test_one_file_may_hold_several_checkpoints(study: Study, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in lines_of(study, study.models_with_losses()[0])]
    (tmp_path / "losses").mkdir()
    rows = [{**row, "model": f"job@{step}"} for step in (1, 2) for row in lines][:-2]
    (tmp_path / "losses" / "all.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    events = list(watching(study, tmp_path, checkpoints=None, losses=tmp_path / "losses").look())
    assert [(e.kind, e.model) for e in events] == [("forecast", "job@1"), ("waiting", "job@2")]


def test_losses_of_other_texts_are_reported_once_and_passed_over(study: Study, tmp_path: Path) -> None:
    lines = lines_of(study, study.models_with_losses()[0])
    (tmp_path / "losses").mkdir()
    (tmp_path / "losses" / "bad@1.jsonl").write_text("\n".join(lines).replace("source0-0", "elsewhere") + "\n")
    (tmp_path / "losses" / "good@2.jsonl").write_text("\n".join(lines) + "\n")
    watch = watching(study, tmp_path, checkpoints=None, losses=tmp_path / "losses")
    events = list(watch.look())
    assert [(e.kind, e.model) for e in events] == [("skipped", "bad@1"), ("forecast", "good@2")]
    assert "is not in the study" in events[0].why
    assert list(watch.look()) == []


def test_fits_of_other_texts_are_refused(study: Study, tmp_path: Path) -> None:
    texts = (study.root / "texts.jsonl").read_text(encoding="utf-8")
    (study.root / "texts.jsonl").write_text(texts.replace("source0-0", "renamed"), encoding="utf-8")
    with pytest.raises(InputError, match=r"new losses are on texts .*the fit of 'task0' is on texts .*`benchcast fit"):
        watching(Study.open(study.root), tmp_path).fits  # noqa: B018


# ---- the command


def test_the_command_prints_lines_and_leaves(study: Study, put: Any, cli: Any, tmp_path: Path) -> None:
    put(5)
    cut(put(6) / "model.safetensors", 0.5)
    ran = cli("watch", study.root, "--checkpoints", tmp_path / "run", "--once", "--device", "cpu")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("run@5: task0 0.")
    assert ran.out.count("\n") == 1
    assert "waiting for run@6: model.safetensors has" in ran.err


def test_json_lines_can_be_read_by_a_machine(study: Study, put: Any, cli: Any, tmp_path: Path) -> None:
    put(5)
    (tmp_path / "run" / "checkpoint-6").mkdir()
    ran = cli("watch", study.root, "--checkpoints", tmp_path / "run", "--name", "mine", "--once", "--json")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert rows[0].keys() == {"event", "model", "step", "new", "seconds", "forecasts"}
    assert rows[0]["model"] == "mine@5"
    assert rows[0]["forecasts"]["task0"].keys() == {"accuracy", "low", "high", "capability", "remark"}
    assert rows[1] == {"event": "waiting", "model": "mine@6", "step": 6, "why": "no config.json yet"}


def test_a_checkpoint_of_this_very_second_is_given_another_look(
    study: Study, put: Any, cli: Any, tmp_path: Path
) -> None:
    (put(5) / "config.json").touch()
    ran = cli("watch", study.root, "--checkpoints", tmp_path / "run", "--once", "--device", "cpu")
    assert ran.out.startswith("run@5: task0")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "give --checkpoints DIR, --losses DIR or both"),
        (("--checkpoints", "x", "--model_args", "dtyp"), "--model_args: 'dtyp' is not key=value"),
    ],
)
def test_wrong_flags_get_one_line(study: Study, cli: Any, flags: tuple[str, ...], says: str) -> None:
    ran = cli("watch", study.root, *flags, "--once")
    assert (ran.code, ran.err) == (1, f"error: {says}\n")


@pytest.mark.parametrize("option", ["--checkpoints", "--losses"])
def test_once_on_a_folder_that_is_not_there_fails(study: Study, cli: Any, tmp_path: Path, option: str) -> None:
    missing = tmp_path / "missing"
    ran = cli("watch", study.root, option, missing, "--once")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"error: {option} {missing}: no such folder; without --once, watch waits for it\n"


def test_without_once_it_says_which_folder_it_waits_for(study: Study, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    command = [sys.executable, "-u", "-m", "benchcast", "watch", str(study.root), "--checkpoints", str(missing)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        assert process.stderr.readline() == f"waiting for {missing}: no such folder yet\n"
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_study_without_fits_is_told_at_once(synthetic_folder: Path, cli: Any, tmp_path: Path) -> None:
    ran = cli("watch", synthetic_folder, "--checkpoints", tmp_path, "--once")
    assert ran.code == 1
    assert ran.err == f"error: {synthetic_folder}: no fits yet; run `benchcast fit {synthetic_folder}`\n"


def test_an_unknown_setting_of_the_model_is_reported_and_nothing_is_stored(
    study: Study, put: Any, cli: Any, tmp_path: Path
) -> None:
    put(5)
    ran = cli("watch", study.root, "--checkpoints", tmp_path / "run", "--once", "--model_args", "dtyp=float32")
    assert "run@5: skipped: --model_args: unknown setting 'dtyp'" in ran.err
    assert "run@5" not in study.models_with_losses()


def test_a_model_without_bos_is_not_stored_and_the_way_out_is_named(
    study: Study, put: Any, cli: Any, tmp_path: Path
) -> None:
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(TOKENIZER.with_name(file), put(5) if file == "tokenizer.json" else tmp_path / "run/checkpoint-5")
    age(tmp_path / "run")
    command = ("watch", study.root, "--checkpoints", tmp_path / "run", "--once", "--device", "cpu")
    ran = cli(*command)
    assert "run@5: skipped: the tokenizer adds no BOS" in ran.err
    assert "--model_args add_bos_token=true" in ran.err
    assert "run@5" not in study.models_with_losses()
    assert cli(*command, "--model_args", "add_bos_token=true").out.startswith("run@5: task0")


@pytest.mark.slow
def test_a_watch_that_is_killed_goes_on_and_ends_with_ctrl_c(study: Study, put: Any, tmp_path: Path) -> None:
    for step in (1, 2):
        put(step)
    command = [sys.executable, "-c", INTERRUPTIBLE, "watch", str(study.root)]
    command += ["--checkpoints", str(tmp_path / "run"), "--interval", "0.2", "--device", "cpu"]
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert first.stdout is not None
    assert first.stdout.readline().startswith("run@1:")
    first.kill()
    first.communicate()
    second = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert second.stdout is not None
    assert [second.stdout.readline().split(":")[0] for _ in range(2)] == ["run@1", "run@2"]
    for patience in (20, 20, 60):  # an interrupt that falls into a library's clean-up is swallowed: press again
        second.send_signal(signal.SIGINT)
        try:
            _, error = second.communicate(timeout=patience)
            break
        except subprocess.TimeoutExpired:
            assert patience < 60, "three interrupts were not heard"
    assert second.returncode == 130
    assert "stopped; run the same command again to go on" in error
    assert "Traceback" not in error
    assert {"run@1", "run@2"} <= set(study.models_with_losses())


# ---- what a terminal shows


def test_the_curve_runs_from_the_least_to_the_greatest_value() -> None:
    assert curve([0.1, 0.2, 0.3]) == "0.10 ▁▅█ 0.30"
    assert curve([0.5, 0.5]) == "0.50 ▁▁ 0.50"
    assert curve([float("nan"), 0.0, 1.0]) == "0.00  ▁█ 1.00"
    assert curve([float("nan")]) == ""
    long = curve([i / 100 for i in range(100)]).split()[1]
    assert (len(long), long[0], long[-1]) == (22, "▁", "█"), "a long run is drawn whole, with fewer bars"


def test_the_table_shows_the_last_forecast_and_the_way_there(study: Study, put: Any, tmp_path: Path) -> None:
    put(1)
    put(2)
    events: list[Event] = list(watching(study, tmp_path).look())
    shown = Console(file=io.StringIO(), width=120, force_terminal=False)
    shown.print(draw_table("run", events, room=120))
    text = shown.file.getvalue()  # type: ignore[attr-defined]
    assert "run: 2 checkpoints, last run@2" in text
    assert f"{events[1].forecasts[0].accuracy:.3f}" in text
    shown.print(draw_table("run", [], room=120))


def test_a_file_that_is_no_tensor_file_is_refused(put: Any) -> None:
    checkpoint = put(5)
    (checkpoint / "model.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(InputError, match="not a safetensors file"):
        lacking(checkpoint)
    (checkpoint / "trainer_state.json").write_text("[]")
    shutil.copy(checkpoint / "config.json", checkpoint / "model.safetensors.index.json")
    (checkpoint / "model.safetensors").unlink()
    assert np.isnan(progress_of(checkpoint).params)


@pytest.mark.parametrize(
    ("index", "says"),
    [
        ([], "not an index of weights"),
        ({"weight_map": ["a"]}, "not an index of weights"),
        ({"weight_map": {"a": 1}}, "not an index of weights"),
        ({"weight_map": {"a": "../other.safetensors"}}, "names files outside its folder"),
    ],
)
def test_an_index_that_is_none_or_leads_elsewhere_is_refused(put: Any, index: Any, says: str) -> None:
    checkpoint = put(5)
    (checkpoint / "model.safetensors").rename(checkpoint.parent / "other.safetensors")
    (checkpoint / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=says):
        lacking(checkpoint)


@pytest.mark.parametrize(
    "header", [[], {"a": 1}, {"a": {"shape": [2]}}, {"a": {"shape": ["x"], "data_offsets": [0, 8]}}]
)
def test_a_header_that_describes_no_tensors_is_refused(put: Any, header: Any) -> None:
    checkpoint = put(5)
    blob = json.dumps(header).encode()
    (checkpoint / "model.safetensors").write_bytes(len(blob).to_bytes(8, "little") + blob)
    with pytest.raises(InputError, match="not a safetensors file"):
        lacking(checkpoint)
