"""Names of models in a study, and what a name says: run, step, tokens, size, seed and family.

A name follows from the path, hub id or file that a harness or `collect` was given, and from nothing else: the same
string gives the same name in every folder of every machine.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from benchcast.errors import InputError
from benchcast.messages import few
from benchcast.records import ModelInfo
from benchcast.study.tables import SUFFIXES

NO_RENAMES: Mapping[str, str] = MappingProxyType({})
# The last part of a path that names a checkpoint and not a model: `checkpoint-60`, `iter_0000060`, `epoch=1-step=60`.
COUNTED = re.compile(
    r"(?:checkpoint|ckpt|chkpt|global[-_]?steps?|steps?|iters?|iterations?|updates?|epochs?|ep|ba|stage)[-_=]?\d"
    r"[\w.=-]*|\d+",
    re.IGNORECASE,
)
STEP = re.compile(
    r"(?:^|[-_@])(?:checkpoint|ckpt|chkpt|global[-_]?steps?|steps?|iters?|iterations?|updates?|ba)[-_=]?(\d+)(k?)(?![.\d])",
    re.IGNORECASE,
)
ONLY_STEP = re.compile(
    r"(?:checkpoint|ckpt|chkpt|global[-_]?steps?|steps?|iters?|iterations?)[-_=]?0*(\d+)|0*(\d+)", re.IGNORECASE
)
# A model's name that looks like a checkpoint: `step3`, `Step-3.5-Flash`. In a hub id, whose first part has no size, it
# is a model; behind a run with its size, as in `pythia-70m/step4`, it is a checkpoint. So are `step0`, `step5k` and
# `step5-tokens4B` everywhere.
VERSION = re.compile(r"step(?:[1-9]|[-_]?\d+[.]\d+)(?!\d|k\b|.*tokens).*", re.IGNORECASE)
STATES = ("main", "master", "final", "last", "latest", "best")
REVISION = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
SHORT_REVISION = 8  # characters of a commit's hash that a name keeps
# Folders between a run and its checkpoints, or inside a checkpoint, that say nothing about either.
HOLDERS = ("hf", "huggingface", "hf_model", "checkpoints", "checkpoint", "ckpts", "ckpt", "snapshots", "weights")
PLAIN_HOLDERS = ("model", "models", "output", "outputs", "save", "saves")  # these may be parts of a hub id
CACHED = "models--"  # of a folder of the hub's cache, models--ORGANISATION--NAME
TOKENS = re.compile(r"(?:^|[-_@])(?:tokens?[-_=]?)?(\d+(?:\.\d+)?)([MBT])$|tokens?[-_=]?(\d+(?:\.\d+)?)([MBT])", re.I)
SIZE = re.compile(r"(?:^|(?<=[-_. ]))(?:(\d+)x)?(\d+(?:[.p]\d+)?)([MB])(?=$|[-_. @])", re.IGNORECASE)
SEED = re.compile(r"[-_.]?seed[-_=]?(\d+)", re.IGNORECASE)
GAPS = re.compile(r"(?<=[-_. ])[-_. ]+|^[-_. ]+|[-_. ]+$")


def name_of(source: str) -> str:
    """The name of the model at a path, hub id or file.

    The last part of a path; a name with one slash stays whole, since it may be a hub id. A part that names a checkpoint
    and not a model keeps the run that it belongs to. A GGUF file is named by its stem.

    >>> name_of("/data/run-a/checkpoint-60"), name_of("run-a/final"), name_of("EleutherAI/pythia-70m")
    ('run-a@60', 'run-a@final', 'EleutherAI/pythia-70m')
    """
    return candidate_names(source)[0]


@cache
def candidate_names(source: str) -> tuple[str, ...]:
    """Names of a model, the usual one first; each further one has one more folder of its path in front."""
    cleaned = source.strip().replace("\\", "/") if re.match(r"[A-Za-z]:\\|\.\\", source.strip()) else source.strip()
    is_file = cleaned.lower().endswith(".gguf")
    cleaned = cleaned[: -len(".gguf")] if is_file else cleaned
    parts = [part for part in cleaned.split("/") if part not in ("", ".", "..", "~")]
    if "://" in cleaned or not parts:
        return (source.strip(),)
    is_path = cleaned.startswith(("/", ".", "~")) or cleaned.rstrip("/").count("/") > 1 or ":" in parts[0]
    whole, passed = list(parts), (*HOLDERS, *(PLAIN_HOLDERS if is_path else ()))
    while len(parts) > 1 and parts[-1].casefold() in passed:
        parts.pop()
    is_model = not is_path and bool(VERSION.fullmatch(parts[-1])) and not SIZE.search(parts[0])
    label = checkpoint_label(parts[-1]) if len(parts) > 1 and not is_model else ""
    if not label and not is_path and not is_file:
        return ("/".join(map(_uncached, parts)),)
    if label:
        parts.pop()
        while len(parts) > 1 and parts[-1].casefold() in (*HOLDERS, *PLAIN_HOLDERS):
            parts.pop()
    ending = f"@{label}" if label else ""
    names = ["/".join(map(_uncached, parts[-depth:])) + ending for depth in range(1, len(parts) + 1)]
    return tuple(dict.fromkeys([*names, "/".join(whole)]))


def _uncached(part: str) -> str:
    """A part of a path; the hub id where it is a folder of the hub's cache."""
    return part.removeprefix(CACHED).replace("--", "/") if part.startswith(CACHED) else part


def checkpoint_label(part: str) -> str:
    """What follows the @ in a name for this last part of a path: a step, a state, a revision; empty if none of these.

    >>> checkpoint_label("iter_0000060"), checkpoint_label("final"), checkpoint_label("my-7b")
    ('60', 'final', '')
    """
    if part.casefold() in STATES:
        return part
    if REVISION.fullmatch(part):
        return part[:SHORT_REVISION]
    step = ONLY_STEP.fullmatch(part)
    if step:
        return step[1] or step[2]
    return part if COUNTED.fullmatch(part) else ""


def former_name(source: str) -> str:
    """The name that earlier versions gave to a path: its last part."""
    stem = source.strip().rstrip("/").rpartition("/")[2]
    return stem.removesuffix(".gguf") or source


def names_of(sources: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """A name for each source; where two would have one name, each gets a further folder of its path.

    Parameters
    ----------
    sources : paths and hub ids
    taken : names that other models have

    >>> names_of(["warm/run-a/checkpoint-60", "cold/run-a/checkpoint-60"])
    {'warm/run-a/checkpoint-60': 'warm/run-a@60', 'cold/run-a/checkpoint-60': 'cold/run-a@60'}
    """
    depth = dict.fromkeys(sources, 0)
    known = set(taken)
    while True:
        names = {source: candidate_names(source)[at] for source, at in depth.items()}
        counts = Counter(names.values())
        deeper = [
            source
            for source, at in depth.items()
            if (counts[names[source]] > 1 or names[source] in known) and at + 1 < len(candidate_names(source))
        ]
        if not deeper:
            return names
        for source in deeper:
            depth[source] += 1


def renamed(name: str, renames: Mapping[str, str], *, usual: str = "") -> str | None:
    """The new name of a model or task, None if no rename matches.

    Renames may use the name in the file or the study's (`usual`). Exact names come first; then patterns with one `*`,
    in their order.

    >>> renamed("out/run-a/checkpoint-60", {"run-a@*": "warm@*"})
    'warm@60'
    """
    forms = (name, usual or name_of(name))
    for form in forms:
        if form in renames:
            return renames[form]
    for old, new in renames.items():
        before, star, after = old.partition("*")
        for form in forms if star else ():
            if form.startswith(before) and form[len(before) :].endswith(after):
                return new.replace("*", form[len(before) : len(form) - len(after)])
    return None


def check_renames(renames: Mapping[str, str]) -> None:
    """Raise an error for a rename with several `*`, or with a `*` on one side only."""
    for old, new in renames.items():
        if old.count("*") > 1 or old.count("*") != new.count("*"):
            raise InputError(f"--rename {old}={new}: one * on each side, or none; such as 'old-run@*=new-run@*'")


def unused_renames(renames: Mapping[str, str], in_files: Iterable[str]) -> tuple[str, ...]:
    """One line on the renames that match no name in the files; empty if each matches one.

    >>> unused_renames({"run-a": "warm", "run-x": "cold"}, ["run-a", "run-b"])
    ("--rename matches no name in the files: 'run-x'; they have run-a, run-b",)
    """
    found = list(dict.fromkeys(in_files))
    forms = {*found, *names_of(found).values()}
    unused = [
        old
        for old, new in renames.items()
        if old not in forms and not ("*" in old and any(renamed(form, {old: new}) is not None for form in forms))
    ]
    listed = few([repr(old) for old in unused])
    return (f"--rename matches no name in the files: {listed}; they have {few(found, 2)}",) if unused else ()


@dataclass(frozen=True, slots=True)
class NameParts:
    """What a model's name says about it; unknown is empty or NaN."""

    run: str  # the name without its step
    step: float
    tokens: float  # training tokens
    params: float
    seed: str
    family: str  # the run without size, seed and organisation

    @classmethod
    def of(cls, name: str) -> NameParts:
        """Take a name apart.

        >>> parts = NameParts.of("org/olmo-190M-seed2@60")
        >>> parts.family, parts.step, parts.params, parts.seed
        ('olmo', 60.0, 190000000.0, '2')
        """
        run, _, state = name.rpartition("@")
        if not run:
            run, state = name, ""
            inside = STEP.search(name)
            if inside and inside.start():
                run, state = name[: inside.start()], name[inside.start() :]
        base = run.rpartition("/")[2] or run
        seed = SEED.search(base)
        without_seed = SEED.sub("", base) if seed else base
        size = SIZE.search(without_seed)
        family = without_seed if size is None else without_seed[: size.start()] + without_seed[size.end() :]
        family = GAPS.sub("", family) or base
        return cls(
            run=run,
            step=_step(state),
            tokens=_tokens(state),
            params=math.nan if size is None or size[1] else _amount(size[2].replace("p", "."), size[3]),
            seed=seed[1] if seed else "",
            family=family,
        )


def _step(state: str) -> float:
    if state.isdecimal():
        return float(state)
    match = STEP.search(state)
    return math.nan if match is None else float(match[1]) * (1000 if match[2] else 1)


def _tokens(state: str) -> float:
    match = TOKENS.search(state)
    return math.nan if match is None else _amount(match[1] or match[3], match[2] or match[4])


def _amount(digits: str, suffix: str) -> float:
    return float(digits) * SUFFIXES[suffix.lower()]


def guessed_infos(
    names: Iterable[str], *, params: Mapping[str, float] = MappingProxyType({}), tokens_per_step: float = math.nan
) -> list[ModelInfo]:
    """Rows of models.csv from names, in order of training; a family only where a name has a step, a size or a seed.

    Runs of one name in different folders are different families.

    Parameters
    ----------
    names : of models in the study
    params : model → number of parameters as measured; of other models it is what the name says
    tokens_per_step : training tokens of one step; NaN: unknown
    """
    parts = {name: NameParts.of(name) for name in names}
    folders: dict[str, set[str]] = {}
    for part in parts.values():
        folder, _, run = part.run.rpartition("/")
        folders.setdefault(run, set()).add(folder)
    infos = []
    for name, part in parts.items():
        folder, _, run = part.run.rpartition("/")
        is_ambiguous = len(folders[run]) > 1 and folder
        of_series = part.run != name or bool(part.seed) or not math.isnan(part.params)
        info = ModelInfo(
            name,
            family=(f"{folder}/{part.family}" if is_ambiguous else part.family) if of_series else "",
            params=params.get(name, part.params),
            tokens=part.step * tokens_per_step if math.isnan(part.tokens) else part.tokens,
            seed=part.seed,
        )
        infos.append(info)
    return sorted(infos, key=lambda info: _training_order(info, parts[info.model]))


def _training_order(info: ModelInfo, parts: NameParts) -> tuple[str, float, str, float]:
    """By family, size, run and step; what is unknown comes last."""
    size, step = (math.inf if math.isnan(x) else x for x in (info.params, parts.step))
    return info.family or info.model, size, parts.run, step


@dataclass(frozen=True, slots=True)
class FoundFamily:
    """What is known of the models of one family."""

    family: str  # empty: models without a family
    models: int
    runs: int
    params: tuple[float, ...]  # distinct sizes, ascending
    steps: tuple[float, ...]  # distinct steps in the names, ascending
    tokens: tuple[float, ...]  # distinct numbers of training tokens, ascending


def found_families(infos: Iterable[ModelInfo]) -> list[FoundFamily]:
    """The families of models.csv, in the order of its rows; models without one come last."""
    by_family: dict[str, list[ModelInfo]] = {}
    for info in infos:
        by_family.setdefault(info.family, []).append(info)
    rows = []
    for family in sorted(by_family, key=lambda name: not name):
        members = by_family[family]
        parts = [NameParts.of(m.model) for m in members]
        row = FoundFamily(
            family=family,
            models=len(members),
            runs=len({part.run for part in parts}),
            params=_distinct(m.params for m in members),
            steps=_distinct(part.step for part in parts),
            tokens=_distinct(m.tokens for m in members),
        )
        rows.append(row)
    return rows


def _distinct(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(sorted({value for value in values if not math.isnan(value)}))
