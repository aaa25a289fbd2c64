"""Public studies of real models, and the embedded study.

import benchcast as bc

study = bc.datasets.fetch_olmo_ladder()      # downloaded once, checked and cached
result = bc.compare(study)

Each function returns a read-only study; `benchcast init STUDY --from NAME` makes a writable copy.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import benchcast
from benchcast.datasets import dclm, llm_line, olmo_ladder, public_llms
from benchcast.datasets.download import cache_folder, data_folder, fetch_files, public_files
from benchcast.errors import InputError
from benchcast.importers import loss_table
from benchcast.importers.loss_table import PublicStudyTables, create_whole, write_tables
from benchcast.importers.loss_table import create_table_study as create_table_study
from benchcast.messages import did_you_mean
from benchcast.study.atomic import READ_ONLY, write_folder, write_text
from benchcast.study.study import Study

ZOO = "zoo"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicStudy:
    """Description of a public study."""

    name: str
    about: str
    models: int  # number
    losses: int  # number of losses of each model
    tasks: int  # number
    source: str
    licence: str
    read: Callable[[Path], PublicStudyTables] | None = None  # reads the public files; None: embedded in the package
    targets: tuple[str, ...] = ()  # the models that `demo` forecasts

    @property
    def summary(self) -> str:
        """Description and counts in one line."""
        losses = "texts" if self.read is None else "losses each"
        return f"{self.about}: {self.models} models, {self.losses} {losses}, {self.tasks} tasks"

    @property
    def cached(self) -> bool:
        """Whether it can be opened without network."""
        if self.read is None or _study_folder(self.name).is_dir():
            return True
        folder = data_folder(None)
        return all((folder / file.place).is_file() for file in public_files(self.name))


DATASETS = {
    study.name: study
    for study in (
        PublicStudy(
            name=ZOO,
            about="small models of nine families, trained for the package",
            models=225,
            losses=650,
            tasks=6,
            source="embedded",
            licence="Apache-2.0",
            targets=("ash-50M@36.0M", "elm-50M@36.0M", "oak-b-50M@36.0M"),
        ),
        PublicStudy(
            name="olmo-ladder",
            about="OLMo 2 model ladder, 190M to 3B, and the 7B and 13B runs",
            models=321,
            losses=31,
            tasks=13,
            source="github.com/allenai/OLMo-ladder",
            licence="Apache-2.0",
            read=olmo_ladder.read,
            targets=olmo_ladder.TARGETS,
        ),
        PublicStudy(
            name="olmo-ladder-choice",
            about="the OLMo 2 model ladder with a choice loss for each task",
            models=321,
            losses=44,
            tasks=13,
            source="github.com/allenai/OLMo-ladder",
            licence="Apache-2.0",
            read=olmo_ladder.read_with_choices,
            targets=olmo_ladder.TARGETS,
        ),
        PublicStudy(
            name="dclm",
            about="DataComp-LM model database, 412M to 6.9B, 170 data recipes",
            models=236,
            losses=57,
            tasks=16,
            source="github.com/mlfoundations/dclm",
            licence="MIT",
            read=dclm.read,
        ),
        PublicStudy(
            name="public-llms",
            about="public LLMs, bits per byte on English texts, leaderboard scores",
            models=89,
            losses=263,
            tasks=9,
            source="github.com/TristanThrush/perplexity-correlations, github.com/felipemaiapolo/sloth",
            licence="MIT",
            read=public_llms.read,
        ),
        PublicStudy(
            name="llm-line",
            about="checkpoints of seven architectures and training sets, bits per byte, scores below chance",
            models=112,
            losses=14,
            tasks=9,
            source="github.com/brendel-group/llm-line",
            licence="MIT",
            read=llm_line.read,
        ),
    )
}


def load_zoo() -> Study:
    """The embedded study: 225 small models of nine families, token losses on 650 texts, six tasks.

    Each family has its own tokenizer and training mixture, five sizes and five checkpoints of each. lab/zoo creates it.
    The study is in the package and read-only.
    """
    return Study.open(Path(str(files("benchcast.datasets") / "zoo")))


def fetch_olmo_ladder(data_home: str | Path | None = None) -> Study:
    """The OLMo 2 model ladder: 321 checkpoints, 31 losses, 13 tasks (see `fetch`)."""
    return fetch("olmo-ladder", data_home)


def fetch_olmo_ladder_choice(data_home: str | Path | None = None) -> Study:
    """The OLMo 2 model ladder with choice losses: 321 checkpoints, 31 + 13 columns, 13 tasks (see `fetch`)."""
    return fetch("olmo-ladder-choice", data_home)


def fetch_dclm(data_home: str | Path | None = None) -> Study:
    """The DataComp-LM model database: 236 models, 57 losses, 16 tasks (see `fetch`)."""
    return fetch("dclm", data_home)


def fetch_public_llms(data_home: str | Path | None = None) -> Study:
    """89 public LLMs: bits per byte on 263 texts, 9 tasks (see `fetch`)."""
    return fetch("public-llms", data_home)


def fetch_llm_line(data_home: str | Path | None = None) -> Study:
    """112 checkpoints of seven architectures × training sets: 14 losses, 9 tasks (see `fetch`)."""
    return fetch("llm-line", data_home)


def find(name: str) -> PublicStudy:
    """The description of a public study by its name."""
    if name not in DATASETS:
        raise InputError(f"unknown dataset {name!r}; known: {', '.join(DATASETS)}{did_you_mean(name, DATASETS)}")
    return DATASETS[name]


def fetch(
    name: str, data_home: str | Path | None = None, *, on_file: Callable[[str], None] = lambda path: None
) -> Study:
    """Open a public study, downloading its files if needed. The study is read-only.

    Parameters
    ----------
    name : a key of `DATASETS`
    data_home : folder with the public files, in the layout REPOSITORY/PATH; missing files are downloaded to it.
        Default: $BENCHCAST_DATA, else the user's cache
    on_file : called with the path of each file before it is read or downloaded

    Returns
    -------
    The study; it is built once and stored in the user's cache.
    """
    read = find(name).read
    if read is None:
        return load_zoo()
    built = _study_folder(name)
    if not built.is_dir():
        raw = data_folder(data_home)
        fetch_files(public_files(name), raw, on_file)
        tables = read(raw)

        def fill(folder: Path) -> None:
            write_tables(folder, tables)
            write_text(folder / READ_ONLY, f"{name}\n")

        write_folder(built, fill)
    return Study.open(built)


def copy_dataset(name: str, root: str | Path, *, on_file: Callable[[str], None] = lambda path: None) -> Study:
    """Make a writable copy of a public study in the folder `root`; `on_file` is as for `fetch`."""
    source = fetch(name, on_file=on_file).root

    def fill(folder: Path) -> None:
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock", READ_ONLY))

    return create_whole(root, fill)


def _study_folder(name: str) -> Path:
    """Cache folder of a study that this version builds from the pinned files."""
    parts = [benchcast.__version__, *(f.sha256 for f in public_files(name))]
    sources = [*sorted(Path(__file__).parent.glob("*.py")), Path(loss_table.__file__)]
    parts += [p.read_text(encoding="utf-8") for p in sources]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache_folder() / "studies" / f"{name}-{key}"
