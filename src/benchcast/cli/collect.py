"""`collect` and `features`: store a model's losses or a scorer's hidden states."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchcast.cli.arguments import ADDRESS, EXECUTOR, FORCE, GPUS, PATH, STUDY
from benchcast.cli.output import progress, say, warn, workers
from benchcast.errors import BenchcastError, InputError

if TYPE_CHECKING:
    from benchcast.choices import ExecutorName
    from benchcast.collection.backends.hf import HfBackend
    from benchcast.collection.collect import CollectRequest, CollectResult, Report
    from benchcast.collection.jobs import CollectOptions, ModelSpec
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
@click.option("--model", "backend", help="hf, vllm, vllm-server, sglang, lmdeploy, llamacpp or completions.")
@click.option("--model_args", default="", help="Settings of the model: pretrained=…,dtype=…,revision=…")
@click.option("--models", "models_file", type=PATH, help="A TOML or YAML list of models instead.")
@click.option("--name", default="", help="The model's name in the study. Default: its hub id or file name.")
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
    from benchcast.collection.model_list import ModelEntry, read_models_list
    from benchcast.study.study import Study

    if (models_file is None) == (backend is None):
        raise click.UsageError("give --model with --model_args, or --models FILE")
    if models_file is not None:
        entries = read_models_list(models_file)
    else:
        entries = [ModelEntry.of(str(backend), model_args, name=name, family=family)]
    if reference and executor != "local":
        raise click.UsageError("--check-against compares in this process; leave out --executor ray")
    opened = Study.open(study)
    opened.texts.require_texts("collect")
    flags = Flags(batch_size, device, gpus, reference, skip_refused, force)
    with workers(executor, address) as pool:
        failed = _collect_here(opened, entries, flags) if pool is None else _collect_on(pool, opened, entries, flags)
    if failed:
        raise InputError(f"{len(failed)} of {len(entries)} models failed: {', '.join(failed)}; the others are done")


@dataclass(frozen=True, slots=True)
class Flags:
    """The flags that apply to all models of a run."""

    batch_size: int
    device: str
    gpus: float | None
    reference: str | None = None
    skip_refused: bool = False
    force: bool = False

    def options(self, entry: ModelEntry) -> CollectOptions:
        """How a model of the list is collected."""
        from benchcast.collection.backends import open_reference
        from benchcast.collection.jobs import CollectOptions

        reference = open_reference(entry.settings, device=self.device) if self.reference else None
        return CollectOptions(self.force, self.skip_refused, reference)

    def spec(self, entry: ModelEntry, pool: Executor) -> ModelSpec:
        """A model for workers; its GPUs come from the list, else the command, else the model's settings."""
        from benchcast.collection.jobs import ModelSpec

        values = entry.settings.values()
        parallel = values.get("tensor_parallel_size", "1")
        default_gpus = float(parallel) if parallel.isdigit() else 1.0
        gpus = next((g for g in (entry.gpus, self.gpus) if g is not None), default_gpus if pool.has_gpus else 0.0)
        size = entry.batch_size or self.batch_size
        return ModelSpec(entry.backend, tuple(values.items()), device=self.device, batch_size=size, gpus=gpus)


def _collect_here(study: Study, entries: Sequence[ModelEntry], flags: Flags) -> list[str]:
    """Collect one model after the other in this process; returns the names of those that fail."""
    alone = len(entries) == 1
    return [name for entry in entries for name in _failed(_collect_one(study, entry, flags), alone=alone)]


def _collect_one(study: Study, entry: ModelEntry, flags: Flags) -> dict[str, BenchcastError]:
    from benchcast.collection.backends import open_backend
    from benchcast.collection.collect import CollectRequest
    from benchcast.executors.local import Local

    size = entry.batch_size or flags.batch_size
    try:
        backend = open_backend(entry.backend, entry.settings, device=flags.device, batch_size=size)
        request = CollectRequest(backend, entry.name, entry.metadata, flags.options(entry))
        return _collect(Local(), study, [request], entry.name or backend.model)
    except BenchcastError as error:
        return {entry.name or entry.settings.line: error}


def _collect_on(pool: Executor, study: Study, entries: Sequence[ModelEntry], flags: Flags) -> list[str]:
    """Collect all models at once on a cluster; returns the names of those that fail."""
    from benchcast.collection.collect import CollectRequest

    requests = [
        CollectRequest(flags.spec(entry, pool), entry.name, entry.metadata, flags.options(entry)) for entry in entries
    ]
    label = f"{len(requests)} models" if len(requests) > 1 else "collecting"
    return _failed(_collect(pool, study, requests, label), alone=len(requests) == 1)


def _collect(
    executor: Executor, study: Study, requests: Sequence[CollectRequest], label: str
) -> dict[str, BenchcastError]:
    from benchcast.collection.collect import collect_on

    with progress(label, len(requests) * len(study.texts)) as advance:
        return collect_on(executor, study, requests, report=rate(label, advance), on_done=partial(_tell, study))


def _failed(errors: dict[str, BenchcastError], *, alone: bool) -> list[str]:
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


def _tell(study: Study, name: str, done: CollectResult | None) -> None:
    """Print the summary of a run, and warn of losses that are implausible beside those of other models."""
    from benchcast.study.check_losses import suspicious_losses

    say(describe(name, done))
    if done is not None:
        warn(*suspicious_losses(study, [done.model]))


def describe(name: str, done: CollectResult | None) -> str:
    """Summary of a run in one line."""
    if done is None:
        return f"{name}: losses are stored already (--force scores it again)"
    resumed = f", {done.resumed} from an earlier run" if done.resumed else ""
    rate = f", {done.tokens / done.seconds:,.0f} tokens/s" if done.tokens and done.seconds else ""
    agreement = f"; {done.agreement}" if done.agreement else ""
    refused = f"; {len(done.refused)} refused and skipped: {', '.join(done.refused)}" if done.refused else ""
    remarks = "".join(f"; {remark}" for remark in done.remarks)
    return f"{name}: {done.texts} texts, {done.tokens} tokens{resumed}{rate}{agreement}{refused}{remarks}"


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
    from benchcast.collection.backends.base import ModelSettings
    from benchcast.collection.hidden_states import FeatureOptions, make_features
    from benchcast.collection.model_list import ModelEntry
    from benchcast.study.study import Study

    opened = Study.open(study)
    opened.texts.require_texts("features")
    backend = open_scorer(scorer, ModelSettings.parse(model_args), device=device, batch_size=batch_size)
    label = name or backend.model
    if label in opened.scorers() and not force:
        say(f"{label}: features are stored already (--force computes them again)")
        return
    with workers(executor, address) as pool, progress(label, len(opened.texts)) as advance:
        model: HfBackend | ModelSpec = backend
        if pool is not None:
            entry = ModelEntry("", ModelSettings.parse(model_args).having(pretrained=scorer))
            model = Flags(batch_size, device, gpus).spec(entry, pool)
        options, report = FeatureOptions(dims, dtype), rate(label, advance)
        about = make_features(opened, model, name=label, options=options, report=report, executor=pool)
    kept = f", reduced to {dims} that keep {about['kept_variance']:.1%} of the variance" if dims else ""
    say(f"{label}: {about['tokens']} tokens × {about['dims']} dimensions{kept}")
    say(f"next: benchcast fit {study}")
