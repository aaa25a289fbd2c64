"""What a run leaves behind, and how all runs travel: few files, each written whole or not at all.

runs/<family>-<size>.npz    one training run: its checkpoints' losses and scores
zoo-small.tar, zoo-medium.tar, zoo-large.tar    the runs by size
tokenizers.tar    every tokenizer used; given back with --have, a fresh machine goes on with the same ones
shipped.tar       smallest final checkpoints of three families as transformers folders
scorer-*.npz      hidden states of the scorer on the validation texts
"""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save

from lab.zoo.model import Shape, Weights
from lab.zoo.recipes import Recipe

GROUPS = {"small": ("0.2M", "0.5M", "1M", "1.6M"), "medium": ("5M", "16M"), "large": ("50M",)}


def write_whole(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".tmp")
    draft.write_bytes(data)
    draft.rename(path)


def save_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_whole(path, buffer.getvalue())


def run_path(work: Path, family: str, size: str) -> Path:
    return work / "runs" / f"{family}-{size}.npz"


def tar_folder(folder: Path, names: list[str], target: Path) -> None:
    """A tar of these entries of a folder, without times or owners, so equal content is equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(p for name in names for p in _files(folder / name)):
            info = tarfile.TarInfo(str(path.relative_to(folder)))
            info.size = path.stat().st_size
            with path.open("rb") as file:
                tar.addfile(info, file)
    write_whole(target, buffer.getvalue())


def _files(path: Path) -> list[Path]:
    return [p for p in path.rglob("*") if p.is_file()] if path.is_dir() else [path]


def export(work: Path, out: Path) -> None:
    """Gather what is finished in the work folder into at most eight files."""
    out.mkdir(parents=True, exist_ok=True)
    for group, sizes in GROUPS.items():
        names = [p.name for size in sizes for p in (work / "runs").glob(f"*-{size}.npz")]
        if names:
            tar_folder(work / "runs", names, out / f"zoo-{group}.tar")
    for folder in ("tokenizers", "shipped"):
        names = [p.name for p in (work / folder).glob("*") if p.suffix != ".tmp"]
        if names:
            tar_folder(work / folder, names, out / f"{folder}.tar")
    for path in work.glob("scorer-*.npz"):
        write_whole(out / path.name, path.read_bytes())


def restore(have: Path, work: Path) -> None:
    """Put earlier results back into the work folder; what is there already stays."""
    for path in sorted(have.rglob("*.tar")):
        folder = work / ("runs" if path.name.startswith("zoo-") else path.stem)
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(path) as tar:
            members = [m for m in tar.getmembers() if not (folder / m.name).exists()]
            tar.extractall(folder, members=members, filter="data")
    for path in have.rglob("scorer-*.npz"):
        write_whole(work / path.name, path.read_bytes())


def save_checkpoint(folder: Path, weights: Weights, shape: Shape, tokenizer: Path) -> None:
    """A transformers folder: bfloat16 weights, configuration and tokenizer."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", **shape.config()}
    special = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>"}
    tokens = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **special}
    tensors = {name: weight.to(torch.bfloat16).cpu().contiguous() for name, weight in weights.items()}
    write_whole(folder / "model.safetensors", save(tensors, metadata={"format": "pt"}))
    write_whole(folder / "config.json", json.dumps(config, indent=1).encode())
    write_whole(folder / "tokenizer_config.json", json.dumps(tokens, indent=1).encode())
    write_whole(folder / "tokenizer.json", tokenizer.read_bytes())


def append_log(path: Path, entry: dict) -> None:
    entries = json.loads(path.read_text()) if path.exists() else []
    write_whole(path, json.dumps([*entries, entry], indent=1).encode())


def fingerprint(recipe: Recipe) -> str:
    """Names everything that training text depends on, so that stale tokens or runs are never taken up."""
    digest = hashlib.sha256(repr((recipe.name, recipe.families, recipe.scorer)).encode())
    here = Path(__file__).parent
    for path in [*sorted((here / "skills").glob("*.py")), here / "background.py", here / "vocab.py", here / "data.py"]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def finished(work: Path, recipe: Recipe) -> set[tuple[str, str]]:
    """The (family, size) pairs whose results are in the work folder."""
    names = {path.stem for path in (work / "runs").glob("*.npz")}
    return {
        (name.removesuffix(f"-{size}"), size) for name in names for size in recipe.sizes if name.endswith(f"-{size}")
    }
