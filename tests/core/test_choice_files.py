"""Choice losses on disk: one value for each text, kept by every command, and no trace where there are none."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchcast.errors import InputError
from benchcast.evaluation.select import cut_losses
from benchcast.forecasts.registration import losses_digest
from benchcast.importers import import_losses
from benchcast.records import Text, TextSet, TokenLosses
from benchcast.study.editing import rename_model
from benchcast.study.study import Study

TEXTS = TextSet.of([Text("a", "s", "abc"), Text("b", "s", "de"), Text("c", "s", "f")])
PLAIN = TokenLosses("m", np.array([1, 2, 1]), np.array([0, 3, 4, 5, 6]), np.array([1.5, np.nan, 0.5, 2.0]))
WITH = replace(PLAIN, choice=np.array([1.25, np.nan, 0.1]), choice_norm=np.array([1.5, np.nan, 1.3]))


@pytest.fixture
def study(tmp_path) -> Study:
    return Study.create(tmp_path / "study", TEXTS)


def _stored(study: Study, name: str = "m") -> dict[str, list[float]]:
    return {kind: values.tolist() for kind, values in study.losses(name).choices.items()}


def test_choice_losses_read_back_exactly_as_nullable_columns(study):
    study.add_losses([WITH])
    np.testing.assert_equal(_stored(study), {"choice": [1.25, np.nan, 0.1], "choice_norm": [1.5, np.nan, 1.3]})
    table = pq.read_table(study.losses_path("m"))
    assert table.schema.field("choice").type == table.schema.field("choice_norm").type == pa.float64()
    assert table["choice"].to_pylist() == [1.25, None, 0.1]


def test_losses_without_options_have_the_same_columns_and_bytes_as_before(study):
    study.add_losses([PLAIN])
    before = study.losses_path("m").read_bytes()
    assert pq.read_schema(study.losses_path("m")).names == ["text_id", "bounds", "nats"]
    study.add_losses([replace(PLAIN, choice=None)], force=True)
    assert study.losses_path("m").read_bytes() == before
    assert study.losses("m").choices == {}


def test_only_the_kind_that_a_text_has_gets_a_column(study, tmp_path):
    rows = [
        {"text_id": "a", "bounds": [0, 3], "nats": [1.5], "choice": 0.25, "choice_norm": None},
        {"text_id": "b", "bounds": [0, 2], "nats": [0.5]},
    ]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, rows)))
    import_losses(study, tmp_path / "m.jsonl")
    np.testing.assert_equal(_stored(study), {"choice": [0.25, np.nan, np.nan]})
    assert pq.read_schema(study.losses_path("m")).names == ["text_id", "bounds", "nats", "choice"]


def test_parquet_from_elsewhere_brings_choice_losses_in_any_order_and_type(study, tmp_path):
    table = pa.table(
        {
            "text_id": ["c", "a"],
            "bounds": [[0, 1], [0, 3]],
            "nats": [[2.0], [1.0]],
            "choice": pa.array([0.5, None], pa.float32()),
            "choice_norm": pa.array([1, 2], pa.int16()),
        }
    )
    pq.write_table(table, tmp_path / "m.parquet")
    import_losses(study, tmp_path / "m.parquet")
    np.testing.assert_equal(_stored(study), {"choice": [np.nan, np.nan, 0.5], "choice_norm": [2.0, np.nan, 1.0]})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("0.5", "choice must be a finite number or null"),
        (True, "choice must be a finite number or null"),
        ([0.5], "choice must be a finite number or null"),
        (-0.5, "text 'a' has an impossible choice (-0.5); a choice loss is −ln of the share of the right answer"),
    ],
)
def test_a_value_that_is_no_choice_loss_is_one_line(study, tmp_path, value, said):
    row = {"text_id": "a", "bounds": [0, 3], "nats": [1.5], "choice": value}
    (tmp_path / "m.jsonl").write_text(json.dumps(row))
    with pytest.raises(InputError, match=r"m\.jsonl") as refused:
        import_losses(study, tmp_path / "m.jsonl")
    assert said in str(refused.value)
    assert study.models_with_losses() == []


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([np.nan]), "text 'a' has a choice that is NaN; write null where there is none"),
        (pa.array([np.inf]), "text 'a' has an impossible choice (inf)"),
        (pa.array([[0.5]]), "column choice must hold one number or null for every text"),
    ],
)
def test_a_column_that_holds_no_choice_losses_is_one_line(study, tmp_path, column, said):
    pq.write_table(
        pa.table({"text_id": ["a"], "bounds": [[0, 3]], "nats": [[1.0]], "choice": column}), tmp_path / "m.parquet"
    )
    with pytest.raises(InputError) as refused:
        import_losses(study, tmp_path / "m.parquet")
    assert said in str(refused.value)


@pytest.mark.parametrize("half", [False, True])
def test_importing_again_adds_choice_losses_and_changes_nothing_else(study, half):
    study.add_losses([replace(PLAIN, about={"tokenizer": "t"})], half=half)
    before = study.losses("m")
    assert [study.add_losses([WITH]), study.add_losses([WITH]), study.add_losses([PLAIN])] == [1, 0, 0]
    after = study.losses("m")
    assert after.about["tokenizer"] == "t"
    np.testing.assert_array_equal(after.nats, before.nats)
    np.testing.assert_equal(_stored(study), {"choice": [1.25, np.nan, 0.1], "choice_norm": [1.5, np.nan, 1.3]})
    assert (pq.read_schema(study.losses_path("m")).field("nats").type == pa.list_(pa.float16())) == half


def test_texts_that_lack_a_choice_loss_are_filled_and_known_ones_stay(study):
    study.add_losses([WITH])
    more = replace(PLAIN, choice=np.array([1.25 + 1e-12, 0.7, np.nan]))
    assert study.add_losses([more]) == 1
    assert _stored(study)["choice"] == [1.25, 0.7, 0.1]


def test_another_choice_loss_of_the_same_text_needs_force(study):
    study.add_losses([WITH])
    other = replace(WITH, choice=np.array([1.5, np.nan, 0.1]))
    with pytest.raises(InputError, match=r"'m' is in the study with other choice losses \(choice\)"):
        study.add_losses([other])
    assert study.add_losses([other], force=True) == 1
    assert _stored(study)["choice"][0] == 1.5


def test_rename_keeps_choice_losses(study):
    study.add_losses([WITH], family="f")
    rename_model(study, "m", "n")
    np.testing.assert_equal(_stored(study, "n"), {"choice": [1.25, np.nan, 0.1], "choice_norm": [1.5, np.nan, 1.3]})


def test_a_selection_of_texts_takes_their_choice_losses():
    cut = cut_losses(WITH, TEXTS, np.array([0, 2]))
    assert cut.choices["choice"].tolist() == [1.25, 0.1]
    assert cut.choices["choice_norm"].tolist() == [1.5, 1.3]


def test_the_hash_of_a_registered_forecast_covers_choice_losses_and_is_as_before_without():
    assert losses_digest(WITH) != losses_digest(PLAIN)
    assert losses_digest(PLAIN) == "1c512854c53df55ac9c63ac30cc818c16d63f94104189d837ec1e289d04dff4c"
