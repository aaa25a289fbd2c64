"""Read a list of models to collect from TOML or YAML.

[[models]]
model = "hf"
family = "pythia"            # this, params, tokens, flops and split are written to models.csv
model_args = { pretrained = "EleutherAI/pythia-70m", revision = "step1000" }   # or the one-line form
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchcast.collection.backends import open_backend
from benchcast.collection.backends.base import Backend, ModelSettings
from benchcast.collection.backends.loaded import NO_METADATA
from benchcast.collection.jobs import ModelSpec
from benchcast.errors import InputError, library
from benchcast.executors.local import Executor
from benchcast.messages import refuse_unknown
from benchcast.records import ModelInfo
from benchcast.study.model_names import name_of, names_of
from benchcast.study.reading import need_file, parse_toml
from benchcast.study.tables import MODEL_COLUMNS, MODEL_NUMBERS, parse_model

METADATA = MODEL_COLUMNS[1:]
KEYS = ("model", "model_args", "name", "batch_size", "gpus", *METADATA)


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model to collect."""

    backend: str
    settings: ModelSettings
    name: str = ""  # in the study; empty: the backend's name for it
    metadata: ModelInfo = NO_METADATA  # for models.csv; its name is not used
    device: str = ""  # empty: the backend's default
    batch_size: int = 0  # 0: the backend's default
    gpus: float | None = None  # for each worker on a cluster; None: as many as its settings ask for

    @classmethod
    def of(cls, backend: str, model_args: str, *, name: str = "", family: str = "") -> ModelEntry:
        """Build an entry from the flags of the command line."""
        return cls(backend, ModelSettings.parse(model_args), name, metadata=ModelInfo("", family))

    def with_defaults(self, *, device: str, batch_size: int, gpus: float | None) -> ModelEntry:
        """The entry with the command's values where it has none of its own."""
        own_gpus = gpus if self.gpus is None else self.gpus
        return replace(self, device=device, batch_size=self.batch_size or batch_size, gpus=own_gpus)

    def open(self) -> Backend:
        return open_backend(self.backend, self.settings, device=self.device, batch_size=self.batch_size)

    def spec(self, executor: Executor) -> ModelSpec:
        """The model for an executor's workers, each with a GPU for each part of the model if there are any."""
        values = self.settings.values()
        parallel = values.get("tensor_parallel_size", "1")
        gpus = self.gpus
        if gpus is None:
            gpus = (float(parallel) if parallel.isdigit() else 1.0) if executor.has_gpus else 0.0
        return ModelSpec(self.backend, tuple(values.items()), device=self.device, batch_size=self.batch_size, gpus=gpus)


def with_distinct_names(entries: Sequence[ModelEntry]) -> list[ModelEntry]:
    """The entries; where two without a name would get the same one, each gets a further folder of its path."""
    sources = [e.settings.values().get("pretrained", "") for e in entries]
    unnamed = [source for e, source in zip(entries, sources, strict=True) if source and not e.name]
    usual = Counter(name_of(source) for source in dict.fromkeys(unnamed))
    distinct = names_of(source for source in unnamed if usual[name_of(source)] > 1)
    named = []
    for entry, source in zip(entries, sources, strict=True):
        revision = entry.settings.values().get("revision", "")
        name = distinct.get(source, "") + (f"@{revision}" if revision else "")
        named.append(replace(entry, name=name) if source in distinct and not entry.name else entry)
    return named


def read_models_list(path: Path) -> list[ModelEntry]:
    """All models of a file."""
    need_file(path)
    content = _parsed(path)
    rows = content.get("models") if isinstance(content, dict) else content
    if not isinstance(rows, list) or not rows or not all(isinstance(r, dict) for r in rows):
        raise InputError(f"{path}: a list of models is needed: one table [[models]] (or one item) each")
    return [_entry(row, f"{path}: model {number}") for number, row in enumerate(rows, start=1)]


def _entry(row: dict[str, Any], where: str) -> ModelEntry:
    refuse_unknown(row, KEYS, f"{where}: unknown key")
    if not isinstance(row.get("model"), str):
        raise InputError(f"{where}: no backend; add model = 'hf'")
    args = row.get("model_args", {})
    settings = ModelSettings(args, where) if isinstance(args, dict) else ModelSettings.parse(str(args), where)
    size = row.get("batch_size", 0)
    if not isinstance(size, int) or size < 0:
        raise InputError(f"{where}: batch_size {size!r}; a whole number is needed")
    gpus = row.get("gpus")
    if gpus is not None and (not isinstance(gpus, int | float) or isinstance(gpus, bool) or gpus < 0):
        raise InputError(f"{where}: gpus {gpus!r}; a number from 0 is needed")
    for key in METADATA:
        if not isinstance(row.get(key, ""), str | int | float) or isinstance(row.get(key), bool):
            raise InputError(f"{where}: {key} {row[key]!r} is not a {'number' if key in MODEL_NUMBERS else 'name'}")
    metadata = parse_model(where, {key: str(row[key]) for key in METADATA if key in row})  # 7e9 and "7B" are numbers
    name = str(row.get("name", ""))
    return ModelEntry(row["model"], settings, name, metadata=metadata, batch_size=size, gpus=gpus)


def _parsed(path: Path) -> Any:
    """Content of a file; the suffix decides between YAML and TOML."""
    if path.suffix.lower() not in (".yaml", ".yml"):
        try:
            return parse_toml(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: not valid TOML ({error})") from error
    yaml = library("yaml", "yaml")
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not valid YAML ({str(error).splitlines()[0]})") from error
