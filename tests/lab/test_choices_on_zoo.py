"""The kept tables of the zoo with choice losses are whole, and the command that reads them prints all its tables."""

from __future__ import annotations

import numpy as np
import pytest

from lab.log import choices_on_zoo as command
from lab.reproduce.decisions import SCORE
from lab.table_folders import read_folder


def test_kept_scores_are_those_of_the_scored_options():
    tables = read_folder(command.TABLES)
    scored = command.measures()["accuracy.scored"]
    assert len(tables.models) == 225
    for task in command.option_tasks():
        kept = {s.model: s.accuracy for s in tables.scores if s.task == task}
        assert kept == scored[task]


@pytest.mark.parametrize("kind", ["raw", "per character"])
def test_a_study_reads_the_choice_losses_of_its_kind(kind, tmp_path):
    studies = command.studies(command.TABLES, 1, tmp_path)
    dataset = studies[kind].dataset()
    plain = studies["none"].dataset()
    column = [text.id for text in studies[kind].texts].index("choice.facts")
    of_kind = command.measures()[command.KINDS[kind]]["facts"]
    assert dataset.metadata.choices["column"][:, column] == pytest.approx([of_kind[m] for m in dataset.models])
    assert not plain.choices.used
    assert np.allclose(dataset.nats[:, dataset.nats.any(axis=0)], plain.nats)


def test_all_tables_are_printed_for_a_few_families(capsys):
    command.main(["--families", "2"])
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    cells = {row[0]: row[1:] for row in rows}
    for kind in command.KINDS:
        assert float(cells[f"stack, {kind}"][0].rstrip("%")) > 50  # right decisions, the last table with this name
    assert cells[SCORE][0].endswith("%")
    raw, char = (float(x) for x in (cells["events, raw"][0], cells["events, raw"][2]))
    assert raw > 0.9
    assert char > 0.9
