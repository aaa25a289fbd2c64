"""Read tables of training runs that trackers export: W&B, MLflow and TensorBoard.

| file | columns | rows |
|---|---|---|
| W&B, table of runs | `Name`, `State`, configuration, `eval/loss`, `eval/arc_easy/acc` | a run each |
| W&B, chart | `Step`, `run - metric`, `run - metric__MIN`, `run - metric__MAX` | a step of all runs each |
| W&B, history of one run | `_step`, `eval/loss`, …; the run is the name of the file | a step each |
| MLflow | `Run ID`, `Name`, or `run_id`, `tags.mlflow.runName`; parameters and metrics | a run each |
| TensorBoard, scalars | `Wall time`, `Step`, `Value`; run and tag are in the file's name | a step each |

A row of a `RunTable` is a run, or `run@step` where a file has steps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from benchcast.errors import InputError
from benchcast.messages import counted, few
from benchcast.study.reading import read_csv

BETWEEN = " - "  # of a run and its metric in the heading of a chart
BOUNDS = ("__MIN", "__MAX")
STEPS = ("Step", "_step", "global_step", "train/global_step", "trainer/global_step", "step")
TENSORBOARD = ("Wall time", "Step", "Value")
WANDB_ONLY = ("State", "Sweep", "Runtime", "Created", "Tags", "Notes", "User")
MLFLOW_ID, MLFLOW_NAME = ("Run ID", "run_id"), ("Name", "tags.mlflow.runName")
SEPARATORS = ("/", ".", "_", " ", "-")  # between the parts of a column's name
UNFINISHED = ("", "nan", "null", "none", "-", "–", "n/a")

ACCURACY = re.compile(
    r"(^|[/._ -])(acc(uracy)?(_norm|_n|_char|_bytes|_per_char|_uncond|_raw)?|exact_match|em|f1|mc[12]|pass@\d+|"
    r"pass_at_\d+|win_?rate|score)(,[\w-]+)?$",
    re.IGNORECASE,
)
STEP_LIKE = re.compile(
    r"(^|[/._])_?(step|steps|global_step|epoch|iter|iteration|runtime|timestamp|wall_?time|relative time.*)$", re.I
)
CONFIGURATION = re.compile(
    r"(^|[/._])(lr|learning_rate|min_lr|max_lr|lr_.*|.*_lr|batch_?size|.*_batch_size|micro_batch.*|weight_decay|wd|"
    r"warmup.*|seed|.*_seed|n_?layers?|num_(?!.*loss).*|n_(heads?|embd|params|ctx)|d_model|d_ff|hidden_(size|dim)|"
    r"vocab_size|params|n_params|parameters|non_embedding_params|.*_params|tokens|.*_tokens|tokens_per_.*|flops|"
    r"total_flos|dropout|beta_?[12]|betas|adam_.*|eps|epsilon|grad_?norm|grad_clip.*|clip.*|optimizer|scheduler|"
    r"max_steps|max_length|seq_?len(gth)?|context_length|world_size|gpus?|.*_per_second|throughput|mfu|.*_memory.*|"
    r".*_mb|.*_gb)$",
    re.IGNORECASE,
)
CONFIG_PREFIXES = ("config.", "config/", "params.", "args.", "args/", "tags.", "system/", "system.", "_wandb")
LOSS = re.compile(r"(^|[^a-z])(loss(es)?|nll|bpb|bits|ce|xent|cross_?entropy|nats)($|[^a-z])", re.IGNORECASE)
TRAINING = re.compile(r"^(train|training)[/._]", re.IGNORECASE)
PARAMS = ("params", "nparams", "numparams", "parameters", "numparameters", "nonembeddingparams", "modelnumparameters")
TOKENS = ("tokens", "traintokens", "tokensseen", "numinputtokensseen", "trainingtokens", "totaltokens", "ntokens")


@dataclass(frozen=True, slots=True)
class RunTable:
    """Rows of runs or checkpoints with the cells of their columns, as text."""

    where: str  # files, for messages
    kind: str  # the tracker and kind of export
    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, str]]  # name of a run or `run@step` → column → cell; empty cells are left out


@dataclass(frozen=True, slots=True)
class ChosenColumns:
    """Which columns of a table are losses and which are scores, and why others are neither."""

    losses: tuple[str, ...]
    scores: Mapping[str, str]  # column → task
    left_out: Mapping[str, str]  # column → what it plainly is


def kind_of_table(header: Sequence[str]) -> str:
    """The tracker that wrote a table with this header; empty if it is none of them."""
    names = set(header)
    if set(TENSORBOARD) == names:
        return "TensorBoard scalars"
    if any(c in names for c in MLFLOW_ID) and any(c in names for c in MLFLOW_NAME):
        return "MLflow runs"
    if header and header[0] in STEPS and any(BETWEEN in c for c in header):
        return "W&B chart"
    if "Name" in names and names & set(WANDB_ONLY):
        return "W&B runs"
    if "model" not in names and any(step in names for step in STEPS[:-1]):
        return "W&B history"
    return ""


CsvRows = Sequence[tuple[Path, Sequence[Mapping[str, str]]]]  # files that have been read, and their rows


def read_csvs(paths: Sequence[Path]) -> CsvRows:
    """The rows of all files, and of all CSV files in folders."""
    files = [file for path in paths for file in (sorted(path.glob("*.csv")) if path.is_dir() else [path])]
    if not files:
        raise InputError(f"{few([str(p) for p in paths])}: no CSV in this folder")
    return [(file, read_csv(file)) for file in files]


def join_tables(read: CsvRows) -> RunTable | None:
    """One table of the rows of all files, joined by run and step; None if they are no exports of trackers."""
    kinds = [kind_of_table(list(rows[0])) if rows else "" for _, rows in read]
    if not any(kinds):
        return None
    columns: dict[str, None] = {}
    table: dict[str, dict[str, str]] = {}
    for (file, rows), kind in zip(read, kinds, strict=True):
        if not kind:
            raise InputError(f"{file}: not an export of W&B, MLflow or TensorBoard, as other files here are")
        for name, cells in READERS[kind](file, rows):
            columns |= dict.fromkeys(cells)
            row = table.setdefault(name, {})
            for column, cell in cells.items():
                if cell.strip().casefold() in UNFINISHED:
                    continue
                if row.setdefault(column, cell) != cell:
                    raise InputError(
                        f"{file}: two rows of {name!r} differ in {column!r} ({row[column]} and {cell}); "
                        "give the runs different names, or remove one"
                    )
    return RunTable(
        where=few([str(file) for file, _ in read]),
        kind=" and ".join(dict.fromkeys(kinds)),
        columns=tuple(columns),
        rows=table,
    )


Rows = Iterable[tuple[str, dict[str, str]]]


def _runs(file: Path, rows: Sequence[Mapping[str, str]]) -> Rows:
    """Rows of a table of runs of W&B or MLflow; an unnamed run has its id."""
    header = list(rows[0])
    ids = [c for c in (*MLFLOW_ID, "ID", "Id") if c in header]
    names = [c for c in (*MLFLOW_NAME, "Name") if c in header]
    for number, row in enumerate(rows, start=2):
        name = next((row[c].strip() for c in (*names, *ids) if row[c].strip()), "")
        if not name:
            raise InputError(f"{file}: line {number}: a run needs a {names[0]}")
        dropped = {*ids, *names, *WANDB_ONLY}
        yield name, {c.removeprefix("metrics."): v for c, v in row.items() if c not in dropped}


def _chart(file: Path, rows: Sequence[Mapping[str, str]]) -> Rows:
    """Rows of a chart: a step of each run that has a value there."""
    header = list(rows[0])
    step = header[0]
    for row in rows:
        of_run: dict[str, dict[str, str]] = {}
        for column in header[1:]:
            run, sign, metric = column.rpartition(BETWEEN)
            if sign and not metric.endswith(BOUNDS) and row[column].strip():
                of_run.setdefault(run.removeprefix("Group: "), {})[metric] = row[column]
        for run, cells in of_run.items():
            yield f"{run}@{_step(file, row[step])}", cells


def _history(file: Path, rows: Sequence[Mapping[str, str]]) -> Rows:
    """Rows of the history of one run, which is named by its file."""
    step = next(c for c in STEPS if c in rows[0])
    for row in rows:
        if row[step].strip():
            yield f"{file.stem}@{_step(file, row[step])}", {c: v for c, v in row.items() if c != step}


def _scalars(file: Path, rows: Sequence[Mapping[str, str]]) -> Rows:
    """Rows of one tag: `run-RUN-tag-TAG.csv` as TensorBoard names it, else the whole stem is the tag of its folder."""
    run, sign, tag = file.stem.removeprefix("run-").partition("-tag-")
    if not sign:
        run, tag = file.resolve().parent.name, file.stem
    for row in rows:
        yield f"{run.strip('._') or 'run'}@{_step(file, row['Step'])}", {tag: row["Value"]}


def _step(file: Path, cell: str) -> str:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not value >= 0 or math.isinf(value):
        raise InputError(f"{file}: step {cell!r} is not a number from 0")
    return str(int(value)) if value.is_integer() else f"{value:g}"


READERS: dict[str, Callable[[Path, Sequence[Mapping[str, str]]], Rows]] = {
    "TensorBoard scalars": _scalars,
    "MLflow runs": _runs,
    "W&B runs": _runs,
    "W&B chart": _chart,
    "W&B history": _history,
}


def choose_columns(table: RunTable, *, losses: Sequence[str] = (), scores: Sequence[str] = ()) -> ChosenColumns:
    """Choose losses and scores by patterns; without patterns, columns that look like losses.

    In an export of a tracker only columns with the name of a loss are one by default; a table made by hand holds losses
    but for what is plainly something else.

    Parameters
    ----------
    table : the table
    losses : patterns of columns that are losses; none: what is not plainly something else
    scores : patterns of columns that are scores
    """
    is_score = {c: task_of_column(c, scores) for c in table.columns}
    plainly = {c: what_it_is(table, c) for c in table.columns}
    for option, patterns in (("--losses", losses), ("--scores", scores)):
        for pattern in patterns:
            if not any(fnmatchcase(c, pattern) for c in table.columns):
                raise InputError(
                    f"{table.where}: {option} {pattern!r} matches no column; columns: {few(table.columns, 12)}"
                )
    if losses:
        chosen = [c for c in table.columns if any(fnmatchcase(c, p) for p in losses) and not is_score[c]]
        texts = [c for c in chosen if plainly[c] == "text"]
        if texts:
            raise InputError(f"{table.where}: --losses matches {few(texts)}, which holds text")
    else:
        chosen = [c for c in table.columns if not plainly[c] and not is_score[c]]
        if table.kind:
            chosen = [c for c in chosen if LOSS.search(c)]
            chosen = [c for c in chosen if not TRAINING.search(c)] or chosen
        elif not chosen:
            chosen = list(table.columns)
    if not chosen:
        raise InputError(
            f"{table.where}: no column that is plainly a loss; choose with --losses, such as "
            f"--losses 'eval/*loss*'; columns: {few(table.columns, 12)}"
        )
    return ChosenColumns(
        losses=tuple(chosen),
        scores={c: task for c, task in is_score.items() if task},
        left_out={c: plainly[c] or "other" for c in table.columns if c not in chosen and not is_score[c]},
    )


def what_it_is(table: RunTable, column: str) -> str:
    """What a column plainly is instead of a loss: text, step, configuration or accuracy; empty if it may be a loss."""
    cells = [row[column] for row in table.rows.values() if column in row]
    values = [number_in(cell) for cell in cells]
    if not cells:
        return "empty" if table.kind else ""
    if all(math.isnan(v) for v in values):
        return "text"
    if STEP_LIKE.search(column):
        return "step"
    if ACCURACY.search(column) and not LOSS.search(column):
        return "accuracy"
    if column.startswith(CONFIG_PREFIXES) or (CONFIGURATION.search(column) and not LOSS.search(column)):
        return "configuration"
    return ""


def number_in(cell: str) -> float:
    """The number in a cell; NaN if it holds none."""
    try:
        return float(cell)
    except ValueError:
        return math.nan


def task_of_column(column: str, patterns: Sequence[str]) -> str:
    """The task of a column that matches one of the patterns: what the only `*` stands for, else the part that names it.

    >>> task_of_column("eval/arc_easy/acc", ["eval/*/acc"]), task_of_column("val.piqa.acc", ["*acc"])
    ('arc_easy', 'piqa')
    """
    for pattern in patterns:
        if not fnmatchcase(column, pattern):
            continue
        before, star, after = pattern.partition("*")
        whole_part = before[-1:] in SEPARATORS and after[:1] in SEPARATORS
        if star and whole_part and "*" not in after and not set("[]?") & set(pattern):
            return column[len(before) : len(column) - len(after)].strip("/._ ") or column
        return task_in(column)[0]
    return ""


def task_in(column: str) -> tuple[str, str]:
    """Task and metric in the name of a column of scores.

    >>> task_in("eval/arc_easy/acc_norm,none"), task_in("piqa_acc"), task_in("downstream/mmlu")
    (('arc_easy', 'acc_norm'), ('piqa', 'acc'), ('mmlu', ''))
    """
    match = ACCURACY.search(column)
    metric = "" if match is None else match[0].strip("/._ -").removesuffix(",none")
    rest = column if match is None else column[: match.start()]
    return re.split(r"[/ ]|(?<=\D)\.(?=\D)", rest.strip("/._ -"))[-1] or column, metric


def amounts(table: RunTable, names: Sequence[str]) -> dict[str, float]:
    """Row → number in the first column whose plain name is one of `names`; rows without one are left out."""
    column = next((c for c in table.columns if re.sub(r"[\W_]+", "", c.rpartition(".")[2]).casefold() in names), None)
    if column is None:
        return {}
    values = {name: number_in(row.get(column, "")) for name, row in table.rows.items()}
    return {name: value for name, value in values.items() if value > 0}


def describe_left_out(left_out: Mapping[str, str]) -> str:
    """One line on the columns that are neither losses nor scores, and how to choose; empty if there are none."""
    if not left_out:
        return ""
    by_kind: dict[str, list[str]] = {}
    for column, kind in left_out.items():
        by_kind.setdefault(kind, []).append(column)
    said = "; ".join(f"{kind}: {few(columns, 5)}" for kind, columns in by_kind.items())
    return f"left out {counted(len(left_out), 'column')} ({said}); choose with --losses PATTERN and --scores PATTERN"
