"""Resolve the source of a model: a local folder, a GGUF file or a hub id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError

from safetensors import SafetensorError

from benchcast.errors import InputError, MissingExtraError, one_line
from benchcast.messages import did_you_mean
from benchcast.study.model_names import checkpoint_label, name_of

# Exceptions that libraries raise on bad files of a model.
BROKEN = (OSError, ValueError, KeyError, RuntimeError, EOFError, SafetensorError, UnpicklingError)


@contextmanager
def loading(source: str, problem: str) -> Iterator[None]:
    """Turn the errors of a library that loads a model into one line: the source, then the problem.

    An id that the hub could not give may be a mistyped path, so the line says that there is no such folder.
    """
    try:
        yield
    except ImportError as error:
        raise MissingExtraError(f"{source}: {one_line(error)}") from error
    except BROKEN as error:
        asked_hub = isinstance(error, OSError) and not Path(source).expanduser().exists()
        no_folder = " (there is no such folder, so it was read as a hub id)" if asked_hub else ""
        raise InputError(f"{source}: {problem}{no_folder}: {one_line(error)}") from error


def source_name(source: str) -> str:
    """A short name for a hub id or path: the id itself, or the last part of a local path."""
    path = Path(source).expanduser()
    if path.suffix == ".gguf":
        return path.stem
    return path.resolve().name if path.exists() else source


def model_name(source: str) -> str:
    """The name of the model at a path, GGUF file or hub id, as in `name_of`.

    A path that starts at the current directory, such as `.` or `checkpoint-60`, is completed first: it gets the name
    that its full path has.
    """
    path = Path(source).expanduser()
    inside = [part for part in path.parts if part not in ("..", path.anchor)]
    if path.exists() and (not inside or (len(inside) == 1 and checkpoint_label(inside[0]))):
        return name_of(str(path.resolve()))
    return name_of(source)


def locate_source(source: str) -> str:
    """The local path with `~` expanded, or the hub id; a path that does not exist is an error.

    Without this check the hub is asked for the path, with retries, and reports an invalid repository.
    """
    path = Path(source).expanduser()
    if path.exists() or "://" in source:
        return str(path) if path.exists() else source
    # a hub id is NAME or ORGANISATION/NAME
    certain = source.startswith(("/", ".", "~")) or "\\" in source or source.count("/") > 1 or source.endswith(".gguf")
    beside = "/" in source and path.parent.is_dir()
    if not certain and not beside:
        return source
    siblings = [p.name for p in path.parent.iterdir()] if beside else []
    why = "" if certain else f" ({path.parent} is a folder here, so this is read as a path)"
    raise InputError(f"{source}: no such file or folder{did_you_mean(path.name, siblings)}{why}")


def gguf_parts(source: str, gguf_file: str) -> tuple[str, str]:
    """Folder and file of a GGUF model; the file is empty for any other model."""
    path = Path(locate_source(source))
    if path.suffix == ".gguf" and not gguf_file:
        return str(path.parent), path.name
    return str(path) if path.exists() else source, gguf_file
