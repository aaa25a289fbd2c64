"""A name follows from the path alone, tells checkpoints of different runs apart, and says what it is of."""

from __future__ import annotations

import math
import os

import pytest

from benchcast.errors import InputError
from benchcast.study.model_names import NameParts, check_renames, guessed_infos, name_of, names_of, renamed

REVISION = "0123456789abcdef0123456789abcdef01234567"
NAMES = {
    "run-a/checkpoint-60": "run-a@60",
    "./run-a/checkpoint-60/": "run-a@60",
    "/data/out/run-a/checkpoint-60": "run-a@60",
    "run-a/checkpoints/step_60": "run-a@60",
    "run-a/iter_0000060": "run-a@60",
    "run-a/iter-60": "run-a@60",
    "run-a/global_step60": "run-a@60",
    "/x/run-a/global_step60/hf": "run-a@60",
    "run-a/60": "run-a@60",
    "run-a/main": "run-a@main",
    "run-a/final": "run-a@final",
    "run-a/stage1-step60-tokens4B": "run-a@stage1-step60-tokens4B",
    "run-a/epoch=1-step=60": "run-a@epoch=1-step=60",
    f"run-a/{REVISION}": "run-a@01234567",
    f"~/.cache/huggingface/hub/models--org--my-7b/snapshots/{REVISION}": "org/my-7b@01234567",
    "org/my-7b": "org/my-7b",
    "models/reed-a": "models/reed-a",
    "org/step3": "org/step3",
    "org/Step-3.5-Flash": "org/Step-3.5-Flash",
    "org/step3-vl-10b": "org/step3-vl-10b",
    "pythia-70m/step4": "pythia-70m@4",
    "/data/run-a/step3": "run-a@3",
    "run-a/step0": "run-a@0",
    "run-a/step5k": "run-a@step5k",
    "OLMo/step5-tokens4B": "OLMo@step5-tokens4B",
    "EleutherAI/pythia-70m@step1000": "EleutherAI/pythia-70m@step1000",
    "my-7b": "my-7b",
    "checkpoint-60": "checkpoint-60",
    "./my-7b": "my-7b",
    "/models/my-7b": "my-7b",
    "a/b/my-7b": "my-7b",
    "org/my-7b.Q4.gguf": "my-7b.Q4",
    "/x/run-a/checkpoint-60.gguf": "run-a@60",
    "C:\\runs\\run-a\\checkpoint-60": "run-a@60",
    ".": ".",
    "": "",
}


@pytest.mark.parametrize(("source", "name"), NAMES.items())
def test_a_checkpoint_keeps_its_run_and_a_hub_id_stays_whole(source, name):
    assert name_of(source) == name


def test_a_name_is_the_same_where_the_folder_exists_and_where_it_does_not(tmp_path, monkeypatch):
    elsewhere = [name_of(source) for source in NAMES]
    for source in ("run-a/checkpoint-60", "run-b/checkpoint-60", "org/my-7b", "models/reed-a"):
        (tmp_path / source).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert [name_of(source) for source in NAMES] == elsewhere
    assert os.path.isdir("org/my-7b")  # noqa: PTH112


def test_equal_names_get_another_folder_of_their_path():
    sources = ["/x/warm/run-a/checkpoint-60", "/x/cold/run-a/checkpoint-60", "/x/cold/run-b/checkpoint-60"]
    assert list(names_of(sources).values()) == ["warm/run-a@60", "cold/run-a@60", "run-b@60"]
    deep = names_of(["s1/ck/run/step_1", "s2/ck/run/step_1"])
    assert list(deep.values()) == ["s1/ck/run@1", "s2/ck/run@1"]
    inside = names_of(["run/hf/step_1", "run/ckpts/step_1"])
    assert len(set(inside.values())) == 2
    assert names_of(["sweep/run/step_1"], taken=["run@1"]) == {"sweep/run/step_1": "sweep/run@1"}


def test_renames_take_names_and_one_star_on_each_side():
    renames = {"run-a@*": "warm@*", "run-b@60": "cold", "out/*/final": "*"}
    assert renamed("out/run-a/checkpoint-60", renames) == "warm@60"
    assert renamed("run-b/checkpoint-60", renames) == "cold"
    assert renamed("out/run-c/final", renames) == "run-c"
    assert renamed("run-c@1", renames) is None
    assert renamed("run[1]@5", {"run[1]@*": "one@*"}) == "one@5"
    check_renames(renames)
    for bad in ({"a@*": "b"}, {"a": "b@*"}, {"*-*": "*"}):
        with pytest.raises(InputError, match=r"one \* on each side"):
            check_renames(bad)


@pytest.mark.parametrize(
    ("name", "family", "step", "params"),
    [
        ("olmo-190M@60", "olmo", 60, 190e6),
        ("org/pythia-1.4b-deduped@step1000", "pythia-deduped", 1000, 1.4e9),
        ("llama-1p4b-base", "llama-base", math.nan, 1.4e9),
        ("7B-mine@5", "mine", 5, 7e9),
        ("run-a@final", "run-a", math.nan, math.nan),
        ("run-a-step60", "run-a", 60, math.nan),
        ("Mixtral-8x7B-v0.1", "Mixtral-v0.1", math.nan, math.nan),
        ("my_model_3B_long", "my_model_long", math.nan, 3e9),
        ("190M@7", "190M", 7, 190e6),
    ],
)
def test_family_step_and_size_are_read_from_a_name(name, family, step, params):
    parts = NameParts.of(name)
    assert parts.family == family
    assert [parts.step, parts.params] == pytest.approx([step, params], nan_ok=True)


def test_tokens_are_steps_times_tokens_per_step_unless_the_name_says():
    names = [
        "run-190M@1000",
        "run-190M@200",
        "run-1B@200",
        "run-1B@stage1-step60-tokens4B",
        "zoo-50M@36.0M",
        "my-model",
    ]
    infos = {i.model: i for i in guessed_infos(names, params={"run-1B@200": 1.2e9}, tokens_per_step=2e6)}
    assert list(infos)[1:4] == ["run-190M@200", "run-190M@1000", "run-1B@stage1-step60-tokens4B"], "order of training"
    assert infos["run-190M@200"].tokens == 4e8
    assert infos["run-1B@stage1-step60-tokens4B"].tokens == 4e9
    assert infos["zoo-50M@36.0M"].tokens == 36e6
    assert (infos["run-1B@200"].params, infos["run-190M@200"].params) == (1.2e9, 190e6)
    assert {i.family for i in infos.values()} == {"run", "zoo", ""}, "nothing is guessed of my-model"


def test_seeds_are_one_family_and_folders_of_one_name_are_two():
    infos = guessed_infos(["x-190M-seed1@5", "x-190M-seed2@5"])
    assert {(i.family, i.seed) for i in infos} == {("x", "1"), ("x", "2")}
    assert [i.family for i in guessed_infos(["warm/run@5", "cold/run@5"])] == ["cold/run", "warm/run"]
