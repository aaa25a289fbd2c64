"""A study is a folder: wherever a study is named, a URL is one line that says how to copy it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import benchcast as bc
from benchcast.errors import InputError
from benchcast.evaluation.select import select, write_smaller
from benchcast.study.atomic import local_folder
from benchcast.study.study import Study

URL = "s3://bucket/study"
LINE = (
    f"{URL}: a study is a folder on this machine; two sync commands copy it here and back, such as "
    f"`aws s3 sync {URL} study` and `aws s3 sync study {URL}`"
)
COMMANDS = (
    ["status", URL],
    ["fit", URL],
    ["compare", URL],
    ["predict", URL, "--all"],
    ["collect", URL, "--model", "hf", "--model_args", "pretrained=no-model"],
    ["features", URL, "--scorer", "no-model"],
    ["init", URL, "--texts", "no-file.jsonl"],
    ["import", "losses", URL, "no-file.jsonl"],
    ["import", "scores", URL, "no-file.json"],
    ["remove", URL, "--model", "m"],
    ["rename", URL, "old", "new"],
    ["report", URL],
    ["explain", URL, "--task", "t"],
    ["extrapolate", URL],
    ["select", URL, "--budget", "4"],
    ["watch", URL, "--checkpoints", "runs"],
    ["contamination", URL, "folder"],
    ["bpb", URL],
    ["import", "models", URL, "no-file.csv"],
    ["import", "features", URL, "no-file.npz"],
    ["select", "study", "--budget", "4", "-o", URL],
    ["contamination", "study", URL],
    ["demo", "--out", URL],
    ["verify", "no-file.json", "--scores", URL],
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: " ".join(w for w in c[:2] if w != URL))
def test_every_command_refuses_it(command: list[str], cli) -> None:
    ran = cli(*command)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"error: {LINE}\n"


@pytest.mark.parametrize("place", [URL, Path(URL)], ids=["text", "path"])
def test_every_function_refuses_it(place: str | Path, study: Study, tmp_path: Path) -> None:
    table = tmp_path / "losses.csv"
    table.write_text("model,a,b\nm,1.0,2.0\n", encoding="utf-8")
    chosen = select(study, 8, tasks=["task0"])
    calls = (
        lambda: Study.open(place),
        lambda: Study.of(place),
        lambda: Study.create(place, study.texts),
        lambda: bc.compare(place),
        lambda: bc.fit(study, "task0", method="all-token").predict(place),
        lambda: bc.datasets.copy_dataset("zoo", place),
        lambda: bc.datasets.create_table_study(place, table),
        lambda: write_smaller(chosen, place),
    )
    for call in calls:
        with pytest.raises(InputError, match=f"^{re.escape(LINE)}$"):
            call()


@pytest.mark.parametrize("place", ["study", "/a/b", "C:/studies/one", "a:b", "runs/s3:/x", "."])
def test_other_paths_are_folders(place: str) -> None:
    assert local_folder(place) == Path(place)


@pytest.mark.parametrize("scheme", ["gs", "file", "abfss", "https"])
def test_any_scheme_is_a_url(scheme: str) -> None:
    with pytest.raises(InputError, match=f"^{scheme}://bucket/study: a study is a folder on this machine"):
        local_folder(f"{scheme}://bucket/study")
