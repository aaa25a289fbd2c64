"""Download and upload fits on the Hugging Face hub; huggingface_hub reads the token from the environment."""

from __future__ import annotations

import re
from pathlib import Path

from benchcast.errors import InputError, one_line
from benchcast.extras import library

ID = re.compile(r"[\w.-]+/[\w.-]+")
FILES = ("fit.json", "salience.safetensors", "README.md")


def is_id(name: str) -> bool:
    """Whether a name has the form of a hub repository, user/name."""
    return ID.fullmatch(name) is not None and not name.startswith(".")


def fetch(repo_id: str, revision: str | None = None) -> Path:
    """Download a fit unless it is cached; returns its folder."""
    hub = library("huggingface_hub", "hub", f"; there is no folder {repo_id}")
    try:
        return Path(hub.snapshot_download(repo_id, revision=revision, allow_patterns=list(FILES)))
    except (hub.errors.HfHubHTTPError, hub.errors.LocalEntryNotFoundError, OSError, ValueError) as error:
        raise InputError(
            f"{repo_id}: neither a local folder nor a readable fit on the hub ({one_line(error).rstrip('.')}); "
            "is HF_TOKEN set, if it is private?"
        ) from error


def push(folder: Path, repo_id: str, *, private: bool | None = None) -> str:
    """Upload a fit's folder, creating the repository if needed; returns its address."""
    if not is_id(repo_id):
        raise InputError(f"{repo_id!r} is not a repository of the hub; needed is user/name")
    hub = library("huggingface_hub", "hub")
    api = hub.HfApi(library_name="benchcast")
    try:
        repository = api.create_repo(repo_id, private=private, exist_ok=True)
        api.upload_folder(
            repo_id=repository.repo_id,
            folder_path=folder,
            allow_patterns=list(FILES),
            commit_message="Upload a benchcast fit",
        )
    except (hub.errors.HfHubHTTPError, OSError, ValueError) as error:
        raise InputError(
            f"{repo_id}: the upload to the hub failed ({one_line(error).rstrip('.')}); is HF_TOKEN set?"
        ) from error
    return str(repository)
