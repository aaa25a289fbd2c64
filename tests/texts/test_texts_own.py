"""Texts of the user's own, and near-duplicates."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from benchcast.cli import cli
from benchcast.errors import InputError
from benchcast.importers.mixture import ALIKE, NearDuplicates, count_repeats, word_runs
from benchcast.importers.texts import not_normal, read_own
from benchcast.importers.texts import to_normal_form as normalize
from benchcast.records import Text, TextSet
from benchcast.study.study import Study

SENTENCE = "The heron that lives by the old mill pond eats seven small fish every single morning before the sun is up"


def test_a_folder_gives_one_text_a_file_with_its_subfolder_as_source(tmp_path: Path) -> None:
    for name, text in (("top.txt", "one\r\n"), ("law/a.md", "二"), ("law/.hidden", "no"), (".git/x", "no")):
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(text, encoding="utf-8", newline="")
    texts = read_own(tmp_path / "docs")
    assert [(t.id, t.source, t.text) for t in texts] == [("law/a.md", "law", "二"), ("top.txt", "docs", "one\r\n")]


def test_a_folder_with_another_encoding_or_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no files"):
        read_own(tmp_path)
    (tmp_path / "a.txt").write_bytes("naïve".encode("latin-1"))
    with pytest.raises(InputError, match=r"not UTF-8 text .* at byte 2"):
        read_own(tmp_path)


def test_a_file_without_rows_is_refused_by_its_name(tmp_path: Path) -> None:
    lines, table = tmp_path / "texts.jsonl", tmp_path / "texts.parquet"
    lines.write_text("\n", encoding="utf-8")
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), table)
    for path in (lines, table):
        with pytest.raises(InputError, match=f"{path.name}: no rows; a study needs at least one text"):
            read_own(path)


def test_a_parquet_column_keeps_ids_sources_and_answers(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(
        pa.table({"id": ["a", "b"], "source": ["x", "y"], "body": ["问 1", "q 2"], "answer_start": [4, None]}), path
    )
    texts = read_own(path, column="body")
    assert [(t.id, t.source, t.text, t.answer_start) for t in texts] == [("a", "x", "问 1", 4), ("b", "y", "q 2", None)]
    with pytest.raises(InputError, match=r"no column 'text' \(found id, source, body, answer_start; .*--column"):
        read_own(path)
    pq.write_table(pa.table({"text": ["a", None]}), path)
    with pytest.raises(InputError, match="row 2: text must be text, found None"):
        read_own(path)
    path.write_bytes(b"PAR1 and no more")
    with pytest.raises(InputError, match="not a complete Parquet file"):
        read_own(path)


def test_init_keeps_every_own_text_and_warns_of_repeats(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(
        "".join(f'{{"text": "{t}"}}\n' for t in (SENTENCE, SENTENCE + "!", "", "other words")), encoding="utf-8"
    )
    result = CliRunner().invoke(cli, ["init", str(tmp_path / "s"), "--texts", str(tmp_path / "t.jsonl")])
    assert result.exit_code == 0
    assert len(Study.open(tmp_path / "s").texts) == 4
    assert "1 empty texts, 1 texts that repeat another; kept as they are" in result.output


@given(st.lists(st.text(min_size=1), min_size=1, max_size=8, unique=True))
def test_a_repeated_text_is_never_kept_twice(texts: list[str]) -> None:
    seen = NearDuplicates()
    kept = [t for t in texts if seen.add(t)]
    assert kept
    assert not any(seen.add(t) for t in texts)


@given(st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=30).map(" ".join), max_size=20), st.data())
def test_kept_texts_are_those_of_a_comparison_with_every_kept_text(texts: list[str], data: st.DataObject) -> None:
    """With copies that differ in one word, which are the hard cases."""
    for text in list(texts):
        words = text.split()
        words[data.draw(st.integers(0, len(words) - 1))] = "e"
        texts.append(" ".join(words))
    seen = NearDuplicates()
    kept: list[set[tuple[str, ...]]] = []
    for text in texts:
        runs = word_runs(text)
        new = not any(len(runs & other) >= ALIKE * len(runs | other) for other in kept)
        assert seen.add(text) is new
        kept += [runs] * new


def test_a_changed_word_is_another_text_and_changed_marks_are_not() -> None:
    assert count_repeats([SENTENCE, SENTENCE.replace("seven", "nine")]) == 0
    assert count_repeats([SENTENCE, SENTENCE.upper() + "!!", f"  {SENTENCE},"]) == 2
    assert count_repeats(["女性生殖腺是什么器官", "女性生殖腺是什么器官？"]) == 1
    assert count_repeats(["not True is", "not False is"]) == 0


# ---- Unicode normal form


def test_init_reports_texts_that_are_not_in_nfc_and_keeps_them(tmp_path, cli):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"id": "a", "text": "cafe\\u0301 noir"}\n{"id": "b", "text": "caf\\u00e9"}\n', encoding="utf-8")
    ran = cli("init", tmp_path / "s", "--texts", path)
    assert ran.code == 0
    assert "warning: 1 texts are not in Unicode NFC (a)" in ran.err
    assert "--normalize nfc" in ran.err
    assert Study.open(tmp_path / "s").texts.texts[0].text == "cafe\u0301 noir"


def test_normalising_moves_the_answer_with_its_bytes(tmp_path, cli):
    text = "Cafe\u0301 ou the\u0301? re\u0301ponse"
    start = text.encode().index(b" re")
    row = json.dumps({"id": "a", "text": text, "answer_start": start})
    (tmp_path / "texts.jsonl").write_text(row + "\n", encoding="utf-8")
    ran = cli("init", tmp_path / "s", "--texts", tmp_path / "texts.jsonl", "--normalize", "nfc")
    assert ran.code == 0
    assert "1 texts were normalised to NFC (a)" in ran.out
    (stored,) = Study.open(tmp_path / "s").texts
    assert stored.text == unicodedata.normalize("NFC", text)
    assert stored.text.encode()[stored.answer_start :].decode() == " r\u00e9ponse"


def test_a_mark_that_starts_the_answer_takes_its_letter_along():
    text = Text("a", "s", "cafe\u0301", answer_start=4)  # the answer is the accent alone
    (normalised,) = normalize(TextSet.of([text]))
    assert (normalised.text, normalised.answer_start) == ("caf\u00e9", 3)


@given(st.text(max_size=20), st.integers(0, 60))
def test_normalised_texts_are_nfc_and_their_answers_hold_the_same_characters(body, at):
    start = min(at, len(body.encode()))
    (normalised,) = normalize(TextSet.of([Text("a", "s", body, start)]))
    assert unicodedata.is_normalized("NFC", normalised.text)
    assert not not_normal([normalised])
    before = body.encode()[:start].decode(errors="ignore")
    prompt = normalised.text.encode()[: normalised.answer_start].decode(errors="ignore")
    assert unicodedata.normalize("NFD", before).startswith(unicodedata.normalize("NFD", prompt))


def test_parquet_and_normal_form_keep_options(tmp_path: Path) -> None:
    rows = {
        "text": ["Is it cafe\u0301?", "1 + 1 = 2", "x"],
        "answer_start": [6, 8, None],
        "options": [["cafes", "cafe\u0301s"], ["3", "11"], None],
    }
    pq.write_table(pa.table(rows), tmp_path / "t.parquet")
    texts = read_own(tmp_path / "t.parquet")
    assert [t.options for t in texts] == [("cafes", "cafe\u0301s"), ("3", "11"), ()]
    assert not_normal(texts) == ["t-1"]
    first, second, _ = normalize(texts)
    assert (first.prompt, first.answer, first.options) == ("Is it ", "caf\u00e9?", ("cafes", "caf\u00e9s"))
    assert second == texts.texts[1]


def test_an_option_whose_first_mark_joins_the_prompt_takes_its_letter_along() -> None:
    text = Text("a", "s", "cafe\u0301", answer_start=4, options=(" b", "r"))
    (normal,) = normalize(TextSet.of([text]))
    assert (normal.prompt, normal.answer, normal.options) == ("caf", "\u00e9", ("e b", "er"))


def test_options_without_the_space_of_the_answer_are_a_warning(tmp_path, cli):
    row = {"text": "Paris is in France", "answer_start": 11, "options": [" Spain", "Italy"]}
    (tmp_path / "t.jsonl").write_text(json.dumps(row))
    ran = cli("init", tmp_path / "s", "--texts", tmp_path / "t.jsonl")
    assert ran.code == 0
    assert "1 text has options that start otherwise than the answer (t-1): one with a space" in ran.err
