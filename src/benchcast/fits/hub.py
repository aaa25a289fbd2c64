"""Download and upload fits on the Hugging Face hub; huggingface_hub reads the token from the environment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from benchcast.errors import InputError, MissingExtraError, one_line

ID = re.compile(r"[\w.-]+/[\w.-]+")
FILES = ("fit.json", "salience.safetensors", "README.md")


def is_id(name: str) -> bool:
    """Whether a name has the form of a hub repository, user/name."""
    return ID.fullmatch(name) is not None and not name.startswith(".")


def _library(repo_id: str) -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise MissingExtraError(
            f'{repo_id}: no such folder, and the hub needs huggingface_hub: pip install "benchcast[hub]"'
        ) from error
    return huggingface_hub


def fetch(repo_id: str, revision: str | None = None) -> Path:
    """Download a fit unless it is cached; returns its folder."""
    library = _library(repo_id)
    try:
        return Path(library.snapshot_download(repo_id, revision=revision, allow_patterns=list(FILES)))
    except (library.errors.HfHubHTTPError, library.errors.LocalEntryNotFoundError, OSError, ValueError) as error:
        raise InputError(
            f"{repo_id}: neither a local folder nor a readable fit on the hub ({one_line(error).rstrip('.')}); "
            "is HF_TOKEN set, if it is private?"
        ) from error


def push(folder: Path, repo_id: str, *, private: bool | None = None) -> str:
    """Upload a fit's folder, creating the repository if needed; returns its address."""
    if not is_id(repo_id):
        raise InputError(f"{repo_id!r} is not a repository of the hub; needed is user/name")
    library = _library(repo_id)
    api = library.HfApi(library_name="benchcast")
    try:
        repository = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository.repo_id,
            folder_path=folder,
            allow_patterns=list(FILES),
            commit_message="Upload a benchcast fit",
        )
    except (library.errors.HfHubHTTPError, OSError, ValueError) as error:
        raise InputError(
            f"{repo_id}: the upload to the hub failed ({one_line(error).rstrip('.')}); is HF_TOKEN set?"
        ) from error
    return str(repository)
