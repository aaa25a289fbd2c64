"""What backends share that load a model: its source, its settings, and its metadata for models.csv.

config.json may state the number of training tokens as `training_tokens`, `num_training_tokens`, `train_tokens` or
`tokens_seen`, and the family as `model_family` or `family`. `model_type` is not read: it names an architecture that
many families share.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from benchcast.collection.backends.base import ModelSettings, Vocabulary, is_number
from benchcast.collection.backends.sources import locate_source, model_name
from benchcast.collection.backends.vocabulary import VocabularySource
from benchcast.records import ModelInfo

TOKENS = ("training_tokens", "num_training_tokens", "train_tokens", "tokens_seen")
FAMILY = ("model_family", "family")
LONGEST_FAMILY = 100  # characters
NO_METADATA = ModelInfo("")
PREFIX = "model_"  # of the metadata entries in `about()`


class LoadedBackend:
    """A model from a folder, file or hub id; a subclass loads it and scores with it."""

    name: str

    def __init__(self, settings: ModelSettings, *, dtype: str, max_length: int = 0) -> None:
        """Read the settings; `dtype` and `max_length` are the defaults."""
        self.asked = settings.line
        self._source = settings.needed("pretrained", "PATH_OR_HUB_ID")
        self._revision = settings.text("revision")
        self._dtype = settings.text("dtype", dtype)
        self._max_length = settings.whole("max_length", max_length)
        self._trust = bool(settings.flag("trust_remote_code", False))
        self._tokens = VocabularySource.of(settings, self._source)
        source = settings.text("gguf_file") or self._source
        self.model = model_name(source) + (f"@{self._revision}" if self._revision else "")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        return self._tokens.load()

    @cached_property
    def _stated(self) -> dict[str, str]:
        """Metadata from the configuration, for models that another library loads."""
        return stated_by_config(locate_source(self._source), revision=self._revision, trust_remote_code=self._trust)


def stated(model: Any) -> dict[str, str]:
    """Entries of `about()` for a transformers model: parameters, training tokens and family, if known."""
    entries, config, parameters = {}, model.config, list(model.parameters())  # tied parameters are listed once
    if parameters and all(p.is_floating_point() for p in parameters):  # otherwise quantisation packed them
        entries[f"{PREFIX}params"] = str(sum(p.numel() for p in parameters))
    tokens = next((v for v in (getattr(config, key, None) for key in TOKENS) if is_number(v) and v >= 1), None)
    if tokens is not None:
        entries[f"{PREFIX}tokens"] = repr(float(tokens))
    family = next((v for v in (getattr(config, key, None) for key in FAMILY) if isinstance(v, str)), "").strip()
    if family.isprintable() and 0 < len(family) <= LONGEST_FAMILY:
        entries[f"{PREFIX}family"] = family
    return entries


def stated_by_config(source: str, *, revision: str = "", trust_remote_code: bool = False) -> dict[str, str]:
    """Entries of `about()` from a configuration, for models loaded by another library; empty if it is unreadable."""
    import torch
    import transformers

    options = {"trust_remote_code": trust_remote_code}
    try:
        config = transformers.AutoConfig.from_pretrained(source, revision=revision or "main", **options)
        with torch.device("meta"):  # allocates no memory
            return stated(transformers.AutoModelForCausalLM.from_config(config, **options))
    except (ImportError, OSError, ValueError, KeyError, RuntimeError):
        return {}


def metadata_of(about: dict[str, str]) -> ModelInfo:
    """The metadata entries of `about()` as a row of models.csv without a name."""
    params, tokens = (float(about.get(PREFIX + key, "nan")) for key in ("params", "tokens"))
    return ModelInfo("", family=about.get(f"{PREFIX}family", ""), params=params, tokens=tokens)


def without_metadata(about: dict[str, str]) -> dict[str, str]:
    """The entries of `about()` that are stored with losses and features, without those for models.csv."""
    return {key: value for key, value in about.items() if not key.startswith(PREFIX)}
