"""An extension of Griffe, which reads the package for mkdocstrings: docstrings become Markdown."""

from __future__ import annotations

from typing import Any

import griffe

from tools.site.markdown import as_markdown


class MarkdownDocstrings(griffe.Extension):  # type: ignore[misc]
    """Rewrite every docstring of the package as it is read."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        """Rewrite the docstring of one module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
