"""Exports of W&B, MLflow and TensorBoard become studies: losses are chosen, never guessed from anything else."""

from __future__ import annotations

import math
import re

import pytest

import benchcast as bc
from benchcast.importers.run_tables import ACCURACY, choose_columns, join_tables, read_csvs, task_of_column

RUNS = (
    "Name,State,Notes,User,Tags,Created,Runtime,lr,model.n_layers,batch_size,optimizer,_step,params,"
    "eval/loss,train/loss,eval/c4/loss,eval/arc_easy/acc,eval/piqa/acc\n"
)
ROW = "{n},finished,-,me,,2026-11-01T00:00:00Z,3600,0.001,12,256,adamw,1000,{p},{l},{l},{c},{a},{b}\n"


def wandb(path, rows=12):
    """A table of runs as the page of a project exports it: larger models have lower losses and higher scores."""
    text = RUNS
    for i in range(rows):
        family, size = ("web", "code", "mix")[i % 3], 10 * 2 ** (i // 3)
        loss = 4.0 - 0.3 * (i // 3) - 0.05 * (i % 3)
        share = 1 / (1 + math.exp(2 * (loss - 3.3)))
        text += ROW.format(
            n=f"{family}-{size}M", p=size * 1e6, l=f"{loss:.4f}", c=f"{loss + 0.3:.4f}",
            a=f"{0.25 + 0.7 * share:.4f}", b=f"{0.5 + 0.4 * share:.4f}",
        )  # fmt: skip
    path.write_text(text, encoding="utf-8")
    return path


CHART = (
    '"Step","web-10M - eval/loss","web-10M - eval/loss__MIN","web-10M - eval/loss__MAX",'
    '"web-10M - eval/arc_easy/acc","code-10M - eval/loss","code-10M - eval/arc_easy/acc"\n'
    '"100","4.1","4.0","4.2","0.27","4.2",""\n"200","3.9","3.9","3.9","0.29","4.0","0.28"\n"250","","","","0.30","",""\n'
)


def test_configuration_steps_texts_and_accuracies_are_never_losses(cli, tmp_path):
    ran = cli("init", tmp_path / "s", "--table", wandb(tmp_path / "runs.csv"))
    assert ran.code == 0, ran.err
    study = bc.Study.open(tmp_path / "s")
    assert [t.id for t in study.texts] == ["eval/loss", "eval/c4/loss"]
    assert study.tasks == ()
    line = next(line for line in ran.out.splitlines() if line.startswith("left out"))
    for said in ("step: _step", "accuracy: eval/arc_easy/acc", "--losses PATTERN", "--scores PATTERN"):
        assert said in line
    for column in ("lr", "model.n_layers", "batch_size"):
        assert column in line


def test_patterns_choose_losses_scores_and_tasks_with_their_chance(cli, tmp_path):
    options = ("--losses", "eval/*loss*", "--scores", "eval/*/acc", "--tokens-per-step", "2M")
    ran = cli("init", tmp_path / "s", "--table", wandb(tmp_path / "runs.csv"), *options)
    assert ran.code == 0, ran.err
    study = bc.Study.open(tmp_path / "s")
    assert {t.name: t.chance for t in study.tasks} == {"arc_easy": 0.25, "piqa": 0.5}
    assert len(study.scores()) == 24
    info = study.infos(["web-80M"])[0]
    assert (info.family, info.params, info.tokens) == ("web", 8e7, 2e9)
    assert "tasks: arc_easy (chance 0.25), piqa (chance 0.5)" in ran.out
    assert "24 scores; next: benchcast compare" in ran.out
    assert cli("compare", tmp_path / "s", "--method", "all-token", "--method", "constant").code == 0


def test_a_plain_table_leaves_out_what_is_plainly_no_loss(cli, tmp_path):
    (tmp_path / "t.csv").write_text(
        "model,lr,_step,bpb.web,eval/arc_easy/acc\na,0.1,5,1.2,0.3\nb,0.2,6,1.1,0.4\n", encoding="utf-8"
    )
    ran = cli("init", tmp_path / "s", "--table", tmp_path / "t.csv")
    assert [t.id for t in bc.Study.open(tmp_path / "s").texts] == ["bpb.web"]
    assert "left out 3 columns (configuration: lr; step: _step; accuracy: eval/arc_easy/acc)" in ran.out


@pytest.mark.parametrize(
    "column",
    ["facts", "code", "bpb.arc_easy", "ce.web", "mmlu-12", "eval/loss", "item_17", "wiki.bits", "x", "en", "zh", "0"],
)
def test_columns_of_tables_made_by_hand_stay_losses(tmp_path, column):
    (tmp_path / "t.csv").write_text(f"model,{column}\na,1.5\nb,0.7\n", encoding="utf-8")
    study = bc.datasets.create_table_study(tmp_path / "s", tmp_path / "t.csv")
    assert [t.id for t in study.texts] == [column]


def test_a_chart_gives_rows_of_runs_at_steps_where_all_losses_are_present(cli, tmp_path):
    (tmp_path / "chart.csv").write_text(CHART, encoding="utf-8")
    table = join_tables(read_csvs([tmp_path / "chart.csv"]))
    assert table.columns == ("eval/loss", "eval/arc_easy/acc"), "__MIN and __MAX are dropped"
    ran = cli("init", tmp_path / "s", "--table", tmp_path / "chart.csv", "--scores", "eval/*/acc")
    assert ran.code == 0, ran.err
    study = bc.Study.open(tmp_path / "s")
    assert study.models_with_losses() == ["code-10M@100", "code-10M@200", "web-10M@100", "web-10M@200"]
    assert {(s.model, s.accuracy) for s in study.scores()} == {
        ("web-10M@100", 0.27), ("web-10M@200", 0.29), ("code-10M@200", 0.28)
    }  # fmt: skip
    assert "left out 1 row that lack one of the losses: web-10M@250" in ran.out
    assert {m.family for m in study.listed_models()} == {"web", "code"}


def test_mlflow_exports_of_the_page_and_of_search_runs_are_read(tmp_path):
    page = (
        "Start Time,Duration,Run ID,Name,Source Type,User,Status,lr,eval_loss\n2026,1s,ab12,web-1M,NB,me,OK,0.1,3.5\n"
    )
    search = "run_id,status,metrics.eval_loss,params.lr,tags.mlflow.runName\ncd34,FINISHED,3.1,0.1,web-2M\n"
    for name, text, model in (("page.csv", page, "web-1M"), ("search.csv", search, "web-2M")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        study = bc.datasets.create_table_study(tmp_path / name[:-4], tmp_path / name)
        assert ([t.id for t in study.texts], study.models_with_losses()) == (["eval_loss"], [model])


def test_scalars_of_tensorboard_are_joined_by_run_and_step(cli, tmp_path):
    (tmp_path / "tb").mkdir()
    for tag, values in {"eval_loss": (4.0, 3.5), "eval_piqa_acc": (0.5, 0.6)}.items():
        rows = "".join(f"17000{i},{100 * (i + 1)},{v}\n" for i, v in enumerate(values))
        (tmp_path / "tb" / f"run-web-1M-tag-{tag}.csv").write_text("Wall time,Step,Value\n" + rows, encoding="utf-8")
    ran = cli("init", tmp_path / "s", "--table", tmp_path / "tb", "--scores", "eval_*_acc")
    assert ran.code == 0, ran.err
    study = bc.Study.open(tmp_path / "s")
    assert study.models_with_losses() == ["web-1M@100", "web-1M@200"]
    assert [(s.task, s.accuracy) for s in study.scores()] == [("piqa", 0.5), ("piqa", 0.6)]


def test_import_scores_and_losses_read_the_same_exports(cli, tmp_path):
    assert cli("init", tmp_path / "s", "--table", wandb(tmp_path / "runs.csv", rows=6)).code == 0
    with (tmp_path / "s" / "study.toml").open("a", encoding="utf-8") as settings:
        settings.write("\n[tasks.arc_easy]\nchance = 0.25\nanswers = []\n")
    ran = cli("import", "scores", tmp_path / "s", tmp_path / "runs.csv")
    assert ran.code == 0, ran.err
    assert "6 scores added" in ran.out
    assert "read: export of W&B, MLflow or TensorBoard × 1" in ran.out
    ran = cli("import", "losses", tmp_path / "s", wandb(tmp_path / "later.csv", rows=9))
    assert ran.out.startswith(f"{tmp_path / 's'}: 3 models added, 6 were there already"), ran.err
    ran = cli("import", "scores", tmp_path / "s", tmp_path / "later.csv", "--scores", "eval/arc*/acc")
    assert "3 scores added" in ran.out, ran.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--losses", "val/*"), "--losses 'val/*' matches no column"),
        (
            ("--losses", "eval/*loss*", "--chance", "arc=0.2"),
            "--chance arc: no such task; --scores PATTERN makes tasks",
        ),
        (("--scores", "eval/*/acc", "--chance", "arc=0.2"), "--chance arc: no such task; the tasks are arc_easy, piqa"),
        (("--scores", "eval/*/acc", "--chance", "piqa=2"), "needs a task and a number from 0 to below 1"),
        (("--losses", "train/loss", "--scores", "par*", "--chance", "params=0"), "is no score from 0 to 1, or percent"),
        (("--losses", "optim*"), "--losses matches optimizer, which holds text"),
        (("--items", "0.5"), "--items is for --from-lm-eval and --from-lighteval, not for --table"),
        (("--rename", "web-*=x-*", "--rename", "code-*=x-*"), "the name 'x-10M'"),
    ],
)
def test_mistakes_are_one_line(cli, tmp_path, options, said):
    ran = cli("init", tmp_path / "s", "--table", wandb(tmp_path / "runs.csv"), *options)
    assert (ran.code, ran.err.count("\n")) == (1, 1), ran.err
    assert said in ran.err
    assert not (tmp_path / "s").exists()


def test_an_unknown_chance_is_asked_for(cli, tmp_path):
    (tmp_path / "t.csv").write_text("Name,State,eval/loss,eval/pond/acc\na,finished,3,0.4\n", encoding="utf-8")
    arguments = ("init", tmp_path / "s", "--table", tmp_path / "t.csv", "--scores", "eval/*/acc")
    assert "--chance pond=0.25" in cli(*arguments).err
    assert cli(*arguments, "--chance", "pond=0.25").code == 0


def test_two_runs_of_one_name_that_differ_are_refused(tmp_path):
    (tmp_path / "t.csv").write_text("Name,State,eval/loss\na,finished,3\na,crashed,4\n", encoding="utf-8")
    with pytest.raises(bc.BenchcastError, match=re.escape("two rows of 'a' differ in 'eval/loss' (3 and 4)")):
        bc.datasets.create_table_study(tmp_path / "s", tmp_path / "t.csv")


def test_the_history_of_one_run_is_named_by_its_file(tmp_path):
    (tmp_path / "web-1M.csv").write_text("_step,_runtime,eval/loss\n100,5,4\n200,9,\n300,12,3.5\n", encoding="utf-8")
    study = bc.datasets.create_table_study(tmp_path / "s", tmp_path / "web-1M.csv")
    assert study.models_with_losses() == ["web-1M@100", "web-1M@300"]


@pytest.mark.parametrize(
    "name", ["acc", "eval/mmlu/acc,none", "arc_easy_acc_norm", "val.accuracy", "gsm8k/exact_match"]
)
def test_names_of_accuracies_are_known(name):
    assert ACCURACY.search(name)


def test_the_star_of_a_pattern_is_the_task(tmp_path):
    assert task_of_column("eval/mmlu/acc", ["eval/*/acc"]) == "mmlu"
    assert task_of_column("downstream/mmlu_acc", ["*acc*"]) == "mmlu"
    assert task_of_column("eval/loss", ["eval/*/acc"]) == ""
    table = join_tables(read_csvs([wandb(tmp_path / "runs.csv")]))
    assert choose_columns(table, losses=["eval/*"], scores=["eval/*/acc"]).losses == ("eval/loss", "eval/c4/loss")
