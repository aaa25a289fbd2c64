"""Choice losses in a table: read by `stack` and `salience` alone, and learned where they tell more than losses."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import benchcast as bc
from benchcast.errors import BenchcastError, InputError
from benchcast.importers.loss_table import create_table_study
from benchcast.losses.choice_losses import choice_support
from benchcast.methods import METHODS
from benchcast.methods.spec import fit_method
from benchcast.records import CHOICE_COLUMN, ModelInfo, Score, Task
from benchcast.splits import Fold, make_folds
from benchcast.study.check_losses import suspicious_losses
from benchcast.study.study import Study

COLUMNS = ("bpb.web", "bpb.books", "bpb.code", "bpb.facts", "choice.facts", "choice.code")
FAMILIES, SIZES = 5, 6
FACTS = Task("facts", 0.25, (), ("bpb.facts",), choices=("choice.facts",))
CODE = Task("code", 0.0, (), ("bpb.code",), choices=("choice.code",))


def table() -> tuple[list[list[object]], list[Score]]:
    """Losses that fall with size; the accuracy of `facts` follows its choice loss, that of `code` its answers' loss."""
    rng = np.random.default_rng(3)
    rows: list[list[object]] = []
    scores = []
    for f in range(FAMILIES):
        for s in range(SIZES):
            nats = 0.6 + 2 * np.exp(-(s + 0.4 * f + rng.normal(0, 0.15, 4)) / 4)
            options = rng.uniform(0.9, 1.38)  # unrelated to the losses of tokens
            rows.append([f"f{f}-{s}", *nats, options, 0.5 + rng.normal(0, 0.01)])
            right = 1 / (1 + np.exp(12 * (options - 1.15)))
            scores.append(Score(f"f{f}-{s}", "facts", float(0.25 + 0.75 * right), n_items=2000))
            scores.append(Score(f"f{f}-{s}", "code", float(1 / (1 + np.exp(4 * (nats[2] - 1.5)))), n_items=2000))
    return rows, scores


def make(
    root: Path,
    rows: list[list[object]],
    columns: tuple[str, ...],
    tasks: tuple[Task, ...],
    scores: list[Score] | None = None,
) -> Study:
    file = root.with_suffix(".csv")
    with file.open("w", newline="") as lines:
        csv.writer(lines).writerows([["model", *columns], *rows])
    study = create_table_study(root, file, units=["nats"]).add_tasks(tasks)
    study.add_models([ModelInfo(str(row[0]), str(row[0]).partition("-")[0]) for row in rows])
    study.add_scores(table()[1] if scores is None else scores)
    return study


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("choices") / "study", table()[0], COLUMNS, (FACTS, CODE)).root


@pytest.fixture
def chosen(folder: Path) -> Study:
    """Not to be written to."""
    return Study.open(folder)


@pytest.fixture
def plain(tmp_path: Path) -> Study:
    """The same study without the columns of choice losses."""
    tasks = (Task("facts", 0.25, (), ("bpb.facts",)), Task("code", 0.0, (), ("bpb.code",)))
    return make(tmp_path / "plain", [row[:5] for row in table()[0]], COLUMNS[:4], tasks)


def lacking(tmp_path: Path, models: tuple[str, ...]) -> Study:
    """The study with empty cells for the choice losses of some models."""
    rows = [[*row[:5], "", ""] if str(row[0]) in models else row for row in table()[0]]
    return make(tmp_path / "lacking", rows, COLUMNS, (FACTS, CODE))


def errors(study: Study, method: str, task: str = "facts") -> float:
    return bc.compare(study, [task], split="family", methods=[method]).measures(task, method)["mse"]


def test_study_toml_keeps_the_choices_of_a_task(chosen):
    assert chosen.task("facts").choices == ("choice.facts",)
    assert 'choices = ["choice.facts"]' in (chosen.root / "study.toml").read_text()
    assert chosen.choice_columns == ("choice.facts", "choice.code")


@pytest.mark.parametrize("method", [m for m, row in METHODS.items() if not (row.reads_choices or row.needs_features)])
def test_other_methods_forecast_as_if_the_columns_were_not_there(method, chosen, plain):
    with_columns, without = chosen.dataset(), plain.dataset()
    _, folds = make_folds(chosen.infos(with_columns.models), "family", groups=with_columns.groups)
    for a, b in zip(fit_method(method, with_columns, folds)[0], fit_method(method, without, folds)[0], strict=True):
        one = a.forecast(with_columns.nats, with_columns.metadata)
        two = b.forecast(without.nats, without.metadata)
        np.testing.assert_allclose(one, two, atol=1e-6)


def test_relatives_profiles_and_characters_are_those_without_the_columns(chosen, plain):
    one, two = chosen.dataset(), plain.dataset()
    assert one.groups.tolist() == two.groups.tolist()
    assert one.characters == two.characters
    profiles = [fit_method("stack", d, make_folds(chosen.infos(d.models), "family")[1][:1])[0][0] for d in (one, two)]
    assert profiles[0].profile.mean == pytest.approx(profiles[1].profile.mean)


def test_without_choices_stack_is_as_without_the_columns(chosen, plain):
    one = Study.open(chosen.root, read_choices=False)
    assert errors(one, "stack") == pytest.approx(errors(plain, "stack"), rel=1e-3)


@pytest.mark.parametrize("method", ["stack", "salience"])
def test_choice_losses_are_learned_where_accuracy_follows_them(method, chosen, plain):
    assert errors(chosen, method) < 0.1 * errors(plain, method)


@pytest.mark.parametrize("method", ["stack", "salience"])
def test_choice_losses_that_say_nothing_do_little_harm(method, chosen, plain):
    assert errors(chosen, method, "code") < 1.25 * errors(plain, method, "code")


@pytest.mark.parametrize("method", ["stack", "salience"])
def test_a_stored_fit_keeps_the_weights_of_choice_losses(method, chosen, tmp_path):
    fit = bc.fit(chosen, "facts", method=method)
    again = bc.load(fit.save(tmp_path / "fit"))
    assert again.digest == fit.digest
    values, arrays = again.task_fit.capability.fields()
    assert values["choices"] == CHOICE_COLUMN
    weights = np.abs(arrays["choices"]).sum(axis=0)
    assert (weights > 0).tolist() == [c == "choice.facts" for c in COLUMNS]
    assert again.predict(chosen.losses("f1-2")) == fit.predict(chosen.losses("f1-2"))


def test_a_better_choice_loss_never_lowers_a_forecast_of_salience(chosen):
    fit = bc.fit(chosen, "facts", method="salience")
    (at,) = [i for i, text in enumerate(chosen.texts) if text.id == "choice.facts"]
    losses = chosen.losses("f2-3")
    forecasts = []
    for value in (0.95, 1.1, 1.25, 1.38):
        losses.nats[at] = value
        forecasts.append(fit.predict(losses).accuracy)
    assert forecasts == sorted(forecasts, reverse=True)
    assert forecasts[0] > forecasts[-1] + 0.2


def test_a_model_without_choice_losses_is_told_what_is_missing_and_how_to_go_on(tmp_path, cli):
    study = lacking(tmp_path, ("f1-2",))
    ran = cli("fit", study.root)
    assert "`stack` and `salience` leave out f1-2, which lack more than 10% of the choice losses" in ran.out
    assert "f1-2" not in bc.load(study.fit_folder("facts")).about["train"]
    said = "model 'f1-2' has no choice loss on 100% of the 1 column that the fit reads one of (fit of 'facts')"
    with pytest.raises(InputError) as refused:
        bc.load(study.fit_folder("facts")).predict(study.losses("f1-2"))
    assert said in str(refused.value)
    assert "predict STUDY --restrict" in str(refused.value)
    restricted = cli("predict", study.root, "--model", "f1-2", "--task", "facts", "--restrict")
    assert restricted.code == 0, restricted.err
    assert cli("fit", study.root, "--no-choices").code == 0
    assert cli("predict", study.root, "--model", "f1-2").code == 0


def test_compare_says_why_a_held_out_model_has_no_forecast(tmp_path):
    study = lacking(tmp_path, ("f1-2",))
    held = bc.compare(study, ["facts"], split="family", methods=["stack", "all-token"])
    assert held.measures("facts", "all-token")["n_test"] == FAMILIES * SIZES
    reason = held.held_out["facts", "stack"].reason
    assert reason.startswith("no choice loss on 100% of the 1 column")


def test_status_names_models_that_lack_choice_losses(tmp_path, chosen):
    assert not [line for line in bc.status(chosen).problems if "choice" in line]
    few = "\n".join(bc.status(lacking(tmp_path, ("f1-2", "f3-3"))).problems)
    assert "`stack` and `salience` leave out f1-2, f3-3, which lack more than 10%" in few
    assert "look wrong" not in few


def test_columns_are_dropped_where_most_models_lack_them(tmp_path):
    study = lacking(tmp_path, tuple(str(row[0]) for row in table()[0][:20]))
    dataset = study.dataset()
    assert not dataset.choices.used
    assert len(dataset.models) == FAMILIES * SIZES
    assert dataset.choices.lines()[0].startswith("choice losses are not used: too few models have the same ones")


def test_either_models_or_texts_are_left_out_whichever_keeps_more():
    values = np.ones((10, 8))
    values[0] = np.nan  # one model has none: it goes
    support = choice_support({"choice_norm": values}, list("abcdefghij"), columns=np.zeros(0, np.int64))
    assert (support.left_out, support.texts.sum()) == (("a",), 8)
    values = np.ones((10, 8))
    values[:4, 0] = np.nan  # four models lack one text of eight: it goes
    support = choice_support({"choice_norm": values}, list("abcdefghij"), columns=np.zeros(0, np.int64))
    assert (support.left_out, support.texts.tolist()) == ((), [False] + [True] * 7)
    assert support.lacking == pytest.approx(dict.fromkeys("abcd", 1 / 8))


def test_a_text_counts_only_if_every_model_has_its_value():
    values = np.ones((4, 20))
    values[2, 7] = np.nan
    support = choice_support({"choice_norm": values}, list("abcd"), columns=np.zeros(0, np.int64))
    assert support.left_out == ()
    assert np.flatnonzero(~support.texts).tolist() == [7]


@pytest.mark.parametrize(
    ("choices", "answers", "said"),
    [
        (("choice.fact",), (), "choices name 'choice.fact', not a column of the study, did you mean 'choice.facts'?"),
        (("choice.facts",), ("choice.facts",), "answers name 'choice.facts', which is among the choices of a task"),
    ],
)
def test_a_mistake_in_choices_is_one_line(choices, answers, said, tmp_path):
    study = make(tmp_path / "wrong", table()[0], COLUMNS, (Task("facts", 0.25, (), answers, choices=choices), CODE))
    with pytest.raises(BenchcastError) as refused:
        study.dataset()
    assert said.split(",")[0] in str(refused.value)


def test_choices_need_a_table(study):
    tasks = (study.root / "study.toml").read_text() + '\n[tasks.more]\nchoices = ["a"]\n'
    (study.root / "study.toml").write_text(tasks)
    with pytest.raises(InputError, match="`choices` name columns of a table"):
        Study.open(study.root).dataset()


def test_columns_of_choice_losses_are_not_checked_as_losses(tmp_path):
    """With eight models and more, losses are compared; choice losses near ln 4 would look like another unit."""
    rows = [[*row[:5], float(str(row[5])) * (100 if i == 7 else 1), row[6]] for i, row in enumerate(table()[0])]
    study = make(tmp_path / "odd", rows, COLUMNS, (FACTS, CODE))
    assert suspicious_losses(study, [str(row[0]) for row in rows]) == []


def test_explain_lists_choice_losses_among_the_columns(folder, tmp_path, cli, chosen):
    explained = {w.column: w for w in bc.explain(chosen, "facts")}
    assert explained["choice.facts"].choices
    assert explained["choice.facts"].share > 0.3
    assert np.isnan(explained["choice.code"].salience)
    ran = cli("explain", folder, "--task", "facts")
    assert "choice.facts (choice losses)" in ran.out


def test_extrapolation_and_selection_read_tokens_alone(chosen):
    from benchcast.scaling.extrapolate import read_study_models

    models = read_study_models(chosen)
    assert not models.dataset.choices.used
    assert bc.select(chosen, 3, tasks=["facts"]).ids


def test_a_score_follows_the_choice_loss_from_a_floor_of_zero(tmp_path: Path) -> None:
    """A score that is 0.25 where four options are alike, in log-odds linear in the choice loss: no floor bends it."""
    rng = np.random.default_rng(5)
    options = np.linspace(1.45, 0.7, FAMILIES * SIZES)
    names = [f"f{k % FAMILIES}-{k}" for k in range(len(options))]
    rows = [[name, *rng.uniform(0.6, 2, 4), c, 0.5] for name, c in zip(names, options, strict=True)]
    right = 1 / (1 + 3 * np.exp(5 * (options - np.log(4))))
    scores = [Score(name, "facts", float(q), n_items=2000) for name, q in zip(names, right, strict=True)]
    dataset = make(tmp_path / "zero", rows, COLUMNS, (FACTS,), scores).dataset()
    strongest = np.isin(dataset.models, names[-8:])
    (fit,) = METHODS["stack"].learn(dataset, [Fold(~strongest, np.zeros_like(strongest), strongest)])[0]
    assert fit.capability.parts[-1].law.chance == 0.0
    assert fit.capability.parts[-1].share_of_stronger > 0.5
    forecast = fit.forecast(dataset.nats[strongest], dataset.metadata.take(strongest))
    assert forecast == pytest.approx(dataset.accuracy[0][strongest], abs=0.02)
