"""Every example of docs/formats.md is imported as it stands on the page, with the output that is shown."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from benchcast.study.study import Study
from benchcast.study.tables import MODEL_COLUMNS, SCORE_COLUMNS
from tools.site.pages import steps, write_shown

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def study(cli, tmp_path_factory) -> Study:
    """The study that the page makes, after all of its commands."""
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("formats")
        patch.chdir(root)
        for line, shown in steps(PAGE):
            words = shlex.split(line) if "\n" not in line else []
            if not words:
                exec(line, {})
            elif words[0] == "cat":
                write_shown(line, shown)
            else:
                ran = cli(*words[1:])
                assert ran.code == 0, (line, ran.err)
                assert not shown or ran.out.splitlines() == shown, line
    return Study.open(root / "study")


def test_every_example_is_imported_and_prints_what_the_page_shows(study):
    assert study.models_with_losses() == ["ash-1B", "elm-2B", "my-7b", "oak-1B", "oak-3B", "oak-7B"]
    assert {s.model for s in study.scores()} == {"ash-1B", "elm-2B", "oak-1B", "oak-3B", "oak-7B"}
    assert study.features().scorer == "tiny"
    assert study.infos(["oak-1B"])[0].flops == 6e21


@pytest.mark.parametrize(("table", "columns"), [("models.csv", MODEL_COLUMNS), ("scores.csv", SCORE_COLUMNS)])
def test_the_page_describes_every_column(table, columns):
    section = PAGE.split(f"\n## {table}\n")[1].split("\n```")[0]
    assert [column for column in columns if f"`{column}`" not in section] == []


def test_the_page_names_what_a_fit_folder_holds(study):
    folder = study.fit_folder("mmlu")
    document = json.loads((folder / "fit.json").read_text(encoding="utf-8"))
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (.*) \|$", PAGE, re.MULTILINE))
    said = re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", rows["fit.json"]))
    assert set(said) == document.keys()
    assert set(re.findall(r"`([\w.]+)`", re.sub(r"\([^)]*\)", "", rows["salience.safetensors"]))) == set(
        load_file(folder / "salience.safetensors")
    )
    about = PAGE.split("`about` is the provenance")[1].split("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", about))) <= document["about"].keys()


def test_help_of_import_losses_shows_a_row_that_is_imported(cli, tmp_path):
    shown = cli("import", "losses", "--help").out
    row = json.loads(re.search(r"\{.*\}", " ".join(shown.split()))[0])
    texts = tmp_path / "texts.jsonl"
    texts.write_text(json.dumps({"id": row["text_id"], "text": "x" * row["bounds"][-1]}) + "\n", encoding="utf-8")
    assert cli("init", tmp_path / "s", "--texts", texts).code == 0
    (tmp_path / "m.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    assert cli("import", "losses", tmp_path / "s", tmp_path / "m.jsonl").code == 0
    assert Study.open(tmp_path / "s").losses("m").counts.tolist() == [3]
