"""What the backends that load a model into this process have in common: its source, its settings and its tokenizer."""

from __future__ import annotations

from functools import cached_property

from benchcast.backends.base import ModelSettings, Vocabulary
from benchcast.backends.sources import locate_source, source_name
from benchcast.backends.stated import stated_by_config
from benchcast.backends.vocabulary import VocabularySource


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
        self.model = source_name(source) + (f"@{self._revision}" if self._revision else "")

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The model's tokenizer."""
        return self._tokens.load()

    @cached_property
    def _stated(self) -> dict[str, str]:
        """Metadata from the configuration, for models that another library loads."""
        return stated_by_config(locate_source(self._source), revision=self._revision, trust_remote_code=self._trust)
