"""Read and write the files of a fit: arrays in salience.safetensors, all other values in fit.json; no pickle."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchcast.errors import InputError, StudyError, one_line
from benchcast.fits.card import fit_card
from benchcast.fits.checks import FitParts, check_parts, need
from benchcast.fits.hub import FILES
from benchcast.formatting import nan_to_none
from benchcast.law import MonotoneCalibration, SigmoidLaw
from benchcast.predictors import parse_predictor
from benchcast.profile import LossProfile
from benchcast.records import NamedTexts, Task, Text, TextOutlines, TextSet
from benchcast.storage.folders import read_files
from benchcast.storage.hashes import hash_holds, hashed
from benchcast.task_fit import NO_ERRORS, Fade, Member, Members, OutOfFoldErrors, TaskFit

FORMAT = 1
GONE_METHOD, GONE_INPUTS = "proxy-metrics", ("rank", "entropy", "hit", "margin")  # of older versions
PROFILE_ARRAYS, PROFILE_NUMBERS = ("group", "mean", "whiten"), ("typical", "usual", "strongest")
ERROR_ARRAYS = ("hidden_set", "observed", "distance")  # stored where they are known


def digest(parts: FitParts) -> str:
    """Hash of everything that affects a forecast; the same with or without the content of the texts."""
    blob, text = _contents(parts)
    rest = {k: v for k, v in text.items() if k != "texts"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, allow_nan=False).encode() + blob).hexdigest()


def write_parts(folder: Path, parts: FitParts, *, include_texts: bool = True, with_card: bool = False) -> None:
    """Write a fit into an empty folder; with `with_card`, with a model card."""
    blob, text = _contents(parts)
    text["texts"] = _text_rows(parts.texts, include_texts=include_texts)
    (folder / "salience.safetensors").write_bytes(blob)
    document = json.dumps(hashed(text), indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "fit.json").write_text(document, encoding="utf-8")
    if with_card:
        included = "text" in text["texts"][0]
        card = fit_card(parts.core, parts.about, texts=len(parts.texts), include_texts=included)
        (folder / "README.md").write_text(card, encoding="utf-8")


def _contents(parts: FitParts) -> tuple[bytes, dict[str, Any]]:
    """The arrays as safetensors bytes, and all other values as JSON values."""
    from safetensors.numpy import save

    core = parts.core
    arrays = {
        "salience": parts.salience,
        "weights": core.weights,
        "edges": parts.edges,
        "supported": parts.supported.astype(np.uint8),
        **_error_arrays("honest_errors", core.out_of_fold),
        **(_error_arrays("stronger_errors", core.stronger) if len(core.stronger.errors) else {}),
        **{f"profile.{k}": getattr(core.profile, k) for k in PROFILE_ARRAYS if core.profile is not None},
        **({f"member.{k}": m.weights for k, m in enumerate(core.average.members)} if core.average else {}),
        **{f"history.{name}": np.ascontiguousarray(x) for name, x in core.history.items()},
    }
    blob = save({name: np.ascontiguousarray(x) for name, x in arrays.items()})
    return blob, {
        "format": FORMAT,
        "task": {k: v for k, v in asdict(core.task).items() if v or k in ("name", "chance", "sources")},
        "method": core.method,
        "reads": [str(predictor) for predictor in core.reads],
        "unit": core.unit,
        "law": _law_values(core.law),
        **({"average": _average_values(core.average)} if core.average is not None else {}),
        "range": [nan_to_none(x) for x in core.range],
        "honest": _out_of_fold(core.out_of_fold),
        **({"stronger": _out_of_fold(core.stronger)} if len(core.stronger.errors) else {}),
        **({"profile": {k: getattr(core.profile, k) for k in PROFILE_NUMBERS}} if core.profile is not None else {}),
        "notes": core.notes,
        "about": parts.about,
        "texts": _text_rows(parts.texts, include_texts=True),
        "arrays_sha256": hashlib.sha256(blob).hexdigest(),
    }


def _law_values(law: SigmoidLaw) -> dict[str, Any]:
    return {"bend" if k == "calibration" else k: nan_to_none(v) for k, v in asdict(law).items()}


def _average_values(average: Members) -> dict[str, Any]:
    """All but the weights of the members."""
    members = [
        {"law": _law_values(m.law), "share": m.share, "share_of_stronger": m.share_of_stronger} for m in average.members
    ]
    return {"fade": asdict(average.fade), "members": members}


def _error_arrays(name: str, errors: OutOfFoldErrors) -> dict[str, npt.NDArray[Any]]:
    """The errors, and what is known of each besides names."""
    known = {f"{name}.{k}": getattr(errors, k) for k in ERROR_ARRAYS if len(getattr(errors, k))}
    return {name: errors.errors, **known}


def _out_of_fold(errors: OutOfFoldErrors) -> dict[str, Any]:
    """All but the errors themselves; without names if they are unknown, so that the digest of an old fit stays."""
    stored = {"kind": errors.kind, "families": list(map(str, errors.families))}
    return stored | ({"models": list(errors.models)} if errors.models else {})


def _text_rows(texts: TextSet, *, include_texts: bool) -> list[dict[str, Any]]:
    """Rows of the texts, or of their outlines if the content is excluded or unknown."""
    if isinstance(texts, NamedTexts) or (include_texts and not isinstance(texts, TextOutlines)):
        return [t.as_row() for t in texts]
    lengths = np.diff(texts.starts).tolist()
    return [
        {k: v for k, v in t.as_row().items() if k != "text"} | {"bytes": n} for t, n in zip(texts, lengths, strict=True)
    ]


def own_folder(folder: str | Path) -> Path:
    """The folder, after a check that it does not exist or contains only a fit, so that it may be replaced."""
    path = Path(folder)
    if path.exists():
        others = {p.name for p in path.iterdir()} - set(FILES) if path.is_dir() else {path.name}
        if others:
            raise InputError(
                f"{path}: contains {min(others)!r}, which is not part of a fit; give a folder for the fit alone"
            )
    return path


def _read_texts(rows: list[dict[str, Any]], about: dict[str, Any]) -> TextSet:
    """The texts of a fit, or their outlines."""
    if "unit" in rows[0]:
        return NamedTexts.of(Text(text="", **row) for row in rows)
    if "bytes" not in rows[0]:
        return TextSet.of(Text(**row) for row in rows)
    texts = (Text(row["id"], row["source"], "", row.get("answer_start")) for row in rows)
    return TextOutlines(tuple(texts), tuple(row["bytes"] for row in rows), about["texts"])


def _nan(value: Any) -> Any:
    return math.nan if value is None else value


def _task(stored: dict[str, Any]) -> Task:
    answers, members = (tuple(stored.get(k, ())) for k in ("answers", "members"))
    others = {k: stored[k] for k in ("centred", "metric") if k in stored}
    return Task(stored["name"], stored["chance"], tuple(stored["sources"]), answers, members, **others)


def _law(stored: dict[str, Any]) -> SigmoidLaw:
    calibration = stored.get("bend") and MonotoneCalibration(
        **{**stored["bend"], "slopes": tuple(stored["bend"]["slopes"])}
    )
    return SigmoidLaw(**{k: _nan(v) for k, v in stored.items() if k != "bend"}, calibration=calibration)


def _average(stored: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Members:
    members = (
        Member(arrays[f"member.{k}"], _law(row["law"]), row["share"], row["share_of_stronger"])
        for k, row in enumerate(stored["members"])
    )
    return Members(tuple(members), Fade(**stored["fade"]))


def read_parts(path: Path) -> FitParts:
    """Read a fit from a folder; a damaged or invalid fit raises a StudyError."""
    from safetensors import SafetensorError

    try:
        document, blob = read_files(path, ("fit.json", "salience.safetensors"))
        text = json.loads(document.decode())
        _refuse_gone(path, text)
        _check_hashes(path, text, blob)
        parts = _parts(text, blob)
        check_parts(parts)
        return parts
    except FileNotFoundError as error:
        raise StudyError(f"{path}: no fit here; make one with `benchcast fit`") from error
    except OSError as error:
        raise StudyError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise StudyError(f"{path}: damaged fit ({type(error).__name__}: {one_line(error)}); fit again") from error
    except (SafetensorError, InputError) as error:
        raise StudyError(f"{path}: damaged fit ({one_line(error)}); fit again") from error


def _refuse_gone(path: Path, text: dict[str, Any]) -> None:
    """Raise an error for a fit by a method, or from inputs, that older versions had."""
    signals = [name for name in text["reads"] if name in GONE_INPUTS]
    if text["method"] == GONE_METHOD:
        raise StudyError(f"{path}: made by {GONE_METHOD}, which is gone; fit again with another method")
    if signals:
        raise StudyError(f"{path}: made from {', '.join(signals)} of tokens, which are gone; fit again from losses")


def _check_hashes(path: Path, text: dict[str, Any], blob: bytes) -> None:
    """Raise an error for a fit of a newer version, or one that does not match its hashes."""
    if text["format"] > FORMAT:
        raise StudyError(f"{path}: a fit of format {text['format']}, this version reads {FORMAT}; upgrade benchcast")
    if not hash_holds(text):
        raise StudyError(f"{path}: damaged fit (fit.json does not match its hash); fit again")
    if hashlib.sha256(blob).hexdigest() != text["arrays_sha256"]:
        raise StudyError(f"{path}: salience.safetensors does not belong to fit.json; fit again")


def _read_errors(name: str, stored: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> OutOfFoldErrors:
    """Out-of-fold errors; fits of version 0.1.0 have no names, accuracies and distances."""
    known = {k: arrays[f"{name}.{k}"] for k in ERROR_ARRAYS if f"{name}.{k}" in arrays}
    families = np.array(stored["families"], dtype=str)
    return OutOfFoldErrors(arrays[name], families, stored["kind"], tuple(stored.get("models", ())), **known)


def _parts(text: dict[str, Any], blob: bytes) -> FitParts:
    from safetensors.numpy import load as load_arrays

    arrays = load_arrays(blob)
    supported = arrays["supported"]
    need(supported.dtype == np.uint8 and (supported <= 1).all(), "supported has values other than 0 and 1")
    profile = text.get("profile") and LossProfile(
        **{k: arrays[f"profile.{k}"] for k in PROFILE_ARRAYS}, **{k: text["profile"][k] for k in PROFILE_NUMBERS}
    )
    core = TaskFit(
        _task(text["task"]),
        text["method"],
        tuple(map(parse_predictor, text["reads"])),
        arrays["weights"],
        text["unit"],
        _law(text["law"]),
        _read_errors("honest_errors", text["honest"], arrays),
        (_nan(text["range"][0]), _nan(text["range"][1])),
        text["notes"],
        {name.removeprefix("history."): x for name, x in arrays.items() if name.startswith("history.")},
        _read_errors("stronger_errors", text["stronger"], arrays) if "stronger" in text else NO_ERRORS,
        profile,
        _average(text["average"], arrays) if "average" in text else None,
    )
    texts = _read_texts(text["texts"], text["about"])
    return FitParts(core, arrays["salience"], arrays["edges"], supported.astype(bool), texts, text["about"])
