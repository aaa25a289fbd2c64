"""`collect` and `features`: store a model's losses or a scorer's hidden states."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchcast.cli.arguments import ADDRESS, EXECUTOR, FORCE, GPUS, PATH, RENAME, STUDY
from benchcast.cli.output import say, warn, workers
from benchcast.cli.progress import progress
from benchcast.collection.backends import BACKENDS
from benchcast.errors import BenchcastError, InputError
from benchcast.messages import counted

if TYPE_CHECKING:
    from benchcast.choices import ExecutorName
    from benchcast.collection.backends.base import Backend
    from benchcast.collection.backends.hf import HfBackend
    from benchcast.collection.jobs import CollectOptions, CollectResult, ModelSpec, Report
    from benchcast.collection.model_list import ModelEntry
    from benchcast.executors.local import Executor
    from benchcast.study.study import Study

DEVICE = click.option("--device", default="", help="cpu, cuda, cuda:1, … Default: cuda if available.")


def _size(context: click.Context, option: click.Parameter, value: str) -> int:
    if value == "auto":
        return 0
    if not value.isascii() or not value.isdigit() or int(value) < 1:
        raise click.BadParameter(f"{value!r} is neither auto nor a whole number from 1")
    return int(value)


BATCH = click.option(
    "--batch_size", default="auto", show_default=True, callback=_size, help="Sequences in a batch, or auto."
)


@click.command()
@STUDY
@click.option("--model", "backend", help=f"{', '.join([*BACKENDS][:-1])} or {[*BACKENDS][-1]}.")
@click.option("--model_args", default="", help="Settings of the model: pretrained=…,dtype=…,revision=…")
@click.option("--models", "models_file", type=PATH, help="A TOML or YAML list of models instead.")
@click.option("--name", default="", help="The model's name in the study. Default: hub id, file name or run@step.")
@RENAME
@click.option("--family", default="", help="The model's family.")
@BATCH
@DEVICE
@click.option("--check-against", "reference", type=click.Choice(["hf"]), help="Compare a few texts with this backend.")
@click.option("--skip-refused", is_flag=True, help="Skip texts that the tokenizer cannot cover exactly.")
@EXECUTOR
@ADDRESS
@GPUS
@FORCE
def collect(
    study: Path,
    backend: str | None,
    model_args: str,
    models_file: Path | None,
    name: str,
    renames: tuple[str, ...],
    family: str,
    batch_size: int,
    device: str,
    reference: str | None,
    skip_refused: bool,
    executor: ExecutorName,
    address: str,
    gpus: float | None,
    force: bool,
) -> None:
    """Score the texts with a model and store its losses; run it again to continue an interrupted run.

    \b
    benchcast collect study --model hf --model_args pretrained=HuggingFaceTB/SmolLM2-135M
    benchcast collect study --model hf --model_args pretrained=EleutherAI/pythia-70m,revision=step1000 --family pythia
    benchcast collect study --model vllm-server --model_args base_url=http://localhost:8000,model=my-7b
    benchcast collect study --models models.toml --executor ray --address auto
    """
    from benchcast.collection.jobs import CollectOptions
    from benchcast.collection.model_list import ModelEntry, read_models_list, with_distinct_names
    from benchcast.importers.scores.names import read_renames
    from benchcast.study.study import Study

    if (models_file is None) == (backend is None):
        raise click.UsageError("give --model with --model_args, or --models FILE")
    if models_file is not None:
        entries = with_distinct_names(read_models_list(models_file))
    else:
        entries = [ModelEntry.of(str(backend), model_args, name=name, family=family)]
    if reference and executor != "local":
        raise click.UsageError("--check-against compares in this process; leave out --executor ray")
    opened = Study.open(study)
    opened.texts.require_texts("collect")
    entries = [e.with_defaults(device=device, batch_size=batch_size, gpus=gpus) for e in entries]
    options = CollectOptions(force=force, skip_refused=skip_refused, renames=read_renames(renames))
    failed: list[str] = []
    with workers(executor, address) as pool:
        # this process loads one model after the other, a cluster several at once
        for part in [entries] if pool is not None else [[entry] for entry in entries]:
            errors = _collect(pool, opened, part, options=options, compared=bool(reference))
            failed += print_errors(errors, alone=len(entries) == 1)
            del errors  # their tracebacks hold the models
    if failed:
        raise InputError(f"{len(failed)} of {len(entries)} models failed: {', '.join(failed)}; the others are done")


def _collect(
    pool: Executor | None, study: Study, entries: Sequence[ModelEntry], *, options: CollectOptions, compared: bool
) -> dict[str, BenchcastError]:
    """Collect models at once and print a line for each; returns the errors of those that fail.

    A cluster's workers open a model themselves; this process, which gets one, opens it here.
    """
    from benchcast.collection.backends import open_reference
    from benchcast.collection.collect import CollectRequest, collect_on
    from benchcast.collection.jobs import ModelSpec
    from benchcast.executors.local import Local
    from benchcast.study.bos_policies import bos_lines_of
    from benchcast.study.check_losses import suspicious_losses

    def tell(name: str, done: CollectResult | None) -> None:
        say(describe(name, done))
        if done is not None:
            warn(*suspicious_losses(study, [done.model]), *bos_lines_of(study, [done.model]))

    label = f"{len(entries)} models" if len(entries) > 1 else "collecting"
    requests = []
    try:
        for entry in entries:
            model: Backend | ModelSpec = entry.open() if pool is None else entry.spec(pool)
            if compared:
                options = replace(options, reference=open_reference(entry.settings, device=entry.device))
            requests.append(CollectRequest(model, entry.name, metadata=entry.metadata, options=options))
            if not isinstance(model, ModelSpec):
                label = entry.name or model.model
        with progress(label, len(requests) * len(study.texts)) as advance:
            executor = pool or Local()
            return collect_on(executor, study, requests, report=rate(label, advance), on_done=tell)
    except BenchcastError as error:
        if pool is not None:
            raise
        return {entries[0].name or entries[0].settings.line: error}


def print_errors(errors: dict[str, BenchcastError], *, alone: bool) -> list[str]:
    """Print the errors, so that the other models can continue; the error of the only model is raised."""
    for error in errors.values():
        if alone:
            raise error
        say(f"error: {error}", err=True)
    return [*errors]


def rate(label: str, advance: Any) -> Report:
    """A callback for finished texts that advances the progress bar and shows tokens per second."""
    done, began = 0, 0.0

    def report(texts: int, tokens: int) -> None:
        nonlocal done, began
        began = began or time.monotonic()  # the first call comes after the model is loaded
        done += tokens
        speed = done / max(time.monotonic() - began, 1e-9)
        advance(f"{label}: {speed:,.0f} tokens/s" if done else label, by=texts)

    return report


def describe(name: str, done: CollectResult | None) -> str:
    """Summary of a run in one line."""
    if done is None:
        return f"{name}: losses are stored already (--force scores it again)"
    resumed = f", {done.resumed} from an earlier run" if done.resumed else ""
    rate = f", {done.tokens / done.seconds:,.0f} tokens/s" if done.tokens and done.seconds else ""
    agreement = f"; {done.agreement}" if done.agreement else ""
    refused = f"; {len(done.refused)} refused and skipped: {', '.join(done.refused)}" if done.refused else ""
    remarks = "".join(f"; {remark}" for remark in done.remarks)
    items = counted(done.options, "text")
    scored = f"{counted(done.texts, 'text')}, {counted(done.tokens, 'token')}" + (
        f" with the options of {items}" if done.options else ""
    )
    if done.only_options:
        scored = f"losses are stored already; options of {items} added, {done.tokens} tokens"
    return f"{name}: {scored}{resumed}{rate}{agreement}{refused}{remarks}"


@click.command()
@STUDY
@click.option("--scorer", required=True, help="The scorer: a local folder, a GGUF file or a hub id.")
@click.option("--name", default="", help="The scorer's name in the study. Default: its hub id or file name.")
@click.option("--dims", default=0, help="Reduce to this many principal components. Default: all dimensions.")
@click.option("--dtype", default="float16", show_default=True, help="How features are stored: float16 or float32.")
@click.option("--model_args", default="", help="More settings of the scorer: dtype=…,revision=…")
@BATCH
@DEVICE
@EXECUTOR
@ADDRESS
@GPUS
@FORCE
def features(
    study: Path,
    scorer: str,
    name: str,
    dims: int,
    dtype: str,
    model_args: str,
    batch_size: int,
    device: str,
    executor: ExecutorName,
    address: str,
    gpus: float | None,
    force: bool,
) -> None:
    """Store the last hidden states of a scorer for all texts; its tokens become the reference tokens.

    \b
    benchcast features study --scorer HuggingFaceTB/SmolLM2-135M
    benchcast features study --scorer models/smollm2.gguf --dims 64
    """
    from benchcast.collection.backends import open_scorer
    from benchcast.collection.hidden_states import FeatureOptions, make_features
    from benchcast.collection.model_list import ModelEntry
    from benchcast.study.study import Study

    opened = Study.open(study)
    opened.texts.require_texts("features")
    backend = open_scorer(scorer, model_args, device=device, batch_size=batch_size)
    label = name or backend.model
    if label in opened.scorers() and not force:
        say(f"{label}: features are stored already (--force computes them again)")
        return
    with workers(executor, address) as pool, progress(label, len(opened.texts)) as advance:
        model: HfBackend | ModelSpec = backend
        if pool is not None:
            entry = ModelEntry.of("", model_args).with_defaults(device=device, batch_size=batch_size, gpus=gpus)
            model = replace(entry, settings=entry.settings.having(pretrained=scorer)).spec(pool)
        about = make_features(
            opened,
            model,
            name=label,
            options=FeatureOptions(dims, dtype),
            report=rate(label, advance),
            executor=pool,
        )
    kept = f", reduced to {dims} that keep {about['kept_variance']:.1%} of the variance" if dims else ""
    say(f"{label}: {about['tokens']} tokens × {about['dims']} dimensions{kept}")
    say(f"next: benchcast fit {study}")
