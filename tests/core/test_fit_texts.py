"""A fit forecasts only from losses on its own texts, and with all that the study knows of the model."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import benchcast as bc
from benchcast.errors import InputError
from benchcast.forecasts.registration import document, read, write
from benchcast.losses.regroup import regroup
from benchcast.records import ModelInfo, TextSet, TokenLosses
from benchcast.study.atomic import content_digest as digest
from benchcast.study.study import Study
from synthetic import Plan, World, make_world, write_study


@pytest.fixture(scope="module")
def other() -> World:
    """A world of as many texts as the synthetic one, all of them different."""
    return make_world(Plan(seed=9, families=5, sizes=4, checkpoints=1, tasks=2, texts_per_source=8))


@pytest.fixture(scope="module")
def fit(synthetic_folder: Path) -> bc.Fit:
    return bc.fit(Study.open(synthetic_folder), "task0", method="all-token")


def test_losses_on_other_texts_are_refused(fit, other, tmp_path):
    study = write_study(other, tmp_path / "other")
    name = other.models[0].model
    with pytest.raises(InputError, match=rf"losses of model '{name}' are on texts {study.texts.digest}, the fit of"):
        fit.predict(study.losses(name))
    with pytest.raises(InputError, match="are on texts"):
        fit.predict(other.losses[0])


@pytest.mark.parametrize("drop", ["last text", "tokens", "edge"])
def test_losses_that_do_not_cover_the_texts_are_refused_without_a_digest(fit, world, drop):
    whole = replace(world.losses[0], about={})
    assert np.isfinite(fit.predict(whole).accuracy)
    n = int(whole.counts[-1])
    cut = {
        "last text": replace(
            whole, counts=whole.counts[:-1], edges=whole.edges[: -n or None], nats=whole.nats[: -n or None]
        ),
        "tokens": replace(whole, nats=whole.nats[:-1]),
        "edge": replace(whole, edges=np.append(whole.edges[:-1], whole.edges[-1] - 1)),
    }[drop]
    with pytest.raises(InputError, match="do not match the texts of the fit of 'task0'"):
        fit.predict(cut)


def test_text_beyond_the_losses_is_missing_and_not_free():
    assert np.array_equal(regroup([2.0, 4.0], [0, 2, 4], [0, 2, 4, 6]), [2.0, 4.0, np.nan], equal_nan=True)
    assert np.isnan(regroup([2.0], [0, 4], [0, 6])).all()
    assert np.isnan(regroup([np.nan], [2, 4], [0, 2, 4])).all()


def test_predict_after_texts_were_cut_is_an_error_and_no_better_forecast(study, cli, world):
    assert cli("fit", study.root, "--method", "all-token").code == 0
    lines = (study.root / "texts.jsonl").read_text(encoding="utf-8").splitlines()
    (study.root / "texts.jsonl").write_text("\n".join(lines[:12]) + "\n", encoding="utf-8")
    shutil.rmtree(study.root / "losses")
    cut = Study.open(study.root)
    n, end = int(world.losses[0].counts[:12].sum()), cut.texts.starts[-1]
    one = world.losses[0]
    assert one.edges[n] == end
    cut.add_losses([TokenLosses(one.model, one.counts[:12], one.edges[: n + 1], one.nats[:n])])
    ran = cli("predict", study.root, "--model", one.model)
    assert ran.code == 1
    assert "fit again" in ran.err


def test_the_digest_of_a_fits_texts_knows_sources_and_answers(world):
    texts = world.texts
    first = texts.texts[0]
    for changed in (replace(first, source="elsewhere"), replace(first, answer_start=1)):
        changed_set = TextSet.of([changed, *texts.texts[1:]])
        assert changed_set.digest == texts.digest, "losses stay valid"
        assert changed_set.annotated_digest != texts.annotated_digest


def test_the_hash_of_a_fit_changes_with_the_answers_of_its_texts(study):
    before = bc.fit(study, "task0", method="all-token")
    path = study.root / "texts.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows[0] = {**rows[0], "source": "elsewhere"}
    path.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    after = bc.fit(Study.open(study.root), "task0", method="all-token")
    assert after.texts.digest == before.texts.digest
    assert after.digest != before.digest


def test_a_fit_stored_without_the_new_digest_still_loads_and_predicts(fit, world, tmp_path):
    stored = fit.save(tmp_path / "fit") / "fit.json"
    document = json.loads(stored.read_text(encoding="utf-8"))
    del document["about"]["annotated_texts"], document["sha256"]
    stored.write_text(json.dumps(document), encoding="utf-8")
    assert bc.load(tmp_path / "fit").predict(world.losses[0]) == fit.predict(world.losses[0])


def test_a_registered_forecast_names_the_texts_and_the_hash_of_the_losses_it_used(fit, world, tmp_path):
    forecast = fit.predict(world.losses[0])
    registered = document([fit], world.losses[0], [forecast])
    other = replace(world.losses[0], nats=world.losses[0].nats * 1.01)
    assert registered["texts"] == world.texts.digest
    assert registered["annotated_texts"] == world.texts.annotated_digest
    assert registered["losses_sha256"] != document([fit], other, [forecast])["losses_sha256"]


def test_a_forecast_registered_by_an_older_version_is_still_read(fit, world, tmp_path):
    registered = document([fit], world.losses[0], [fit.predict(world.losses[0])])
    old = {k: v for k, v in registered.items() if k not in ("annotated_texts", "sha256")}
    write(tmp_path / "old.json", {**old, "sha256": digest(old)})
    assert read(tmp_path / "old.json")["model"] == world.models[0].model


def test_flops_that_the_study_knows_reach_a_forecast_in_python(study, world):
    fit = bc.fit(study, "task0", method="compute")
    name = world.models[3].model
    forecast = fit.predict(study.losses(name))
    assert np.isfinite(forecast.accuracy)
    study.add_models([ModelInfo(name, flops=10 * world.models[3].compute)])
    assert fit.predict(study.losses(name)).capability == pytest.approx(forecast.capability + 1)


def test_metadata_of_one_model_is_not_used_for_another(study, world):
    fit = bc.fit(study, "task0", method="compute")
    renamed = replace(study.losses(world.models[0].model), model="another")
    assert fit.predict(renamed).remark == "no training FLOPs known"


def test_a_fit_keeps_the_options_of_its_texts_and_shares_them_only_with_the_texts(fit, tmp_path):
    first, *others = fit.texts
    first = replace(first, answer_start=0, options=(" a secret", " another"))
    fit = replace(fit, texts=TextSet.of([first, *others]))
    fit.save(tmp_path / "own")
    assert bc.load(tmp_path / "own").texts == fit.texts
    fit.save_pretrained(tmp_path / "shared")
    assert not any("a secret" in path.read_text() for path in (tmp_path / "shared").glob("*.*[nd]"))
    fit.save_pretrained(tmp_path / "whole", include_texts=True)
    assert bc.load(tmp_path / "whole").texts == fit.texts
