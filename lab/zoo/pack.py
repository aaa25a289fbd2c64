"""Turn the zoo's result files into a study: texts, models, scores, losses and the scorer's features.

    python -m lab.zoo.pack RESULTS STUDY [CURVES.csv]      the embedded study; `python -m lab zoo` makes the others

RESULTS is the folder with zoo-*.tar and scorer-*.npz. Needs benchcast; no device, no torch.
"""

import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchcast.records import ModelInfo, Score, Task, Text, TextSet, TokenLosses
from benchcast.study.loss_files import LossRows, lay_out
from benchcast.study.study import Study
from lab.zoo.data import validation
from lab.zoo.recipes import EMBEDDED, Recipe

DIMS = 64


def read_runs(folder: Path) -> Iterator[tuple[dict, dict[str, np.ndarray]]]:
    """What each run says about itself, and its arrays; the scorer's own run is left out."""
    for path in sorted(folder.glob("zoo-*.tar")):
        with tarfile.open(path) as tar:
            for member in tar.getmembers():
                with np.load(io.BytesIO(tar.extractfile(member).read())) as file:
                    arrays = {name: file[name] for name in file.files}
                about = json.loads(arrays["about"].tobytes())
                if about["family"] != "scorer":
                    yield about, arrays


def model_name(about: dict, tokens: int) -> str:
    trained = f"{tokens / 1e6:.1f}M" if tokens >= 1e5 else f"{tokens}"  # a dry run has few
    return f"{about['family']}-{about['size']}@{trained}"


def losses_of(about: dict, arrays: dict[str, np.ndarray], checkpoint: int, texts: TextSet) -> TokenLosses:
    """Losses of one checkpoint."""
    model = model_name(about, arrays["tokens"].tolist()[checkpoint])
    counts = arrays["counts"]
    bounds = np.split(arrays["bounds"].astype(np.int64), np.cumsum(counts + 1)[:-1])
    nats = np.split(arrays["nats"][checkpoint].astype(np.float64), np.cumsum(counts)[:-1])
    origin = {
        "tokenizer": about["tokenizer"],
        "bos": "one in front",
        "backend": "zoo",
        "backend_version": f"torch {about['torch']}",
        "dtype": "float32 from bfloat16 weights",
    }
    return lay_out(LossRows.of(model, model, [t.id for t in texts], bounds=bounds, nats=nats), texts, origin)


def reduced_features(folder: Path, texts: TextSet) -> tuple[np.ndarray, np.ndarray, float]:
    """Main directions of the scorer's standardised hidden states, their edges, and the variance they keep."""
    parts = [np.load(path) for path in sorted(folder.glob("scorer-*.npz"))]
    states = np.concatenate([part["features"] for part in parts]).astype(np.float64)
    counts, bounds = parts[0]["counts"], parts[0]["bounds"].astype(np.int64)
    ends = np.delete(bounds, np.concatenate([[0], np.cumsum(counts + 1)[:-1]]))
    edges = np.concatenate([[0], ends + np.repeat(texts.starts[:-1], counts)])
    states = (states - states.mean(axis=0)) / states.std(axis=0)
    values, vectors = np.linalg.eigh(states.T @ states)
    return (states @ vectors[:, : -DIMS - 1 : -1]).astype(np.float16), edges, float(values[-DIMS:].sum() / values.sum())


def pack(results: Path, root: Path, recipe: Recipe = EMBEDDED) -> Study:
    """Write the study; refuses results that were scored on other texts than the generators write today."""
    rows = validation(recipe)
    written = hashlib.sha256(json.dumps(rows, ensure_ascii=False).encode()).hexdigest()
    texts = TextSet.of(Text(**{**row, "id": str(row["id"])}) for row in rows)
    tasks = [
        Task(name, skill.chance, (name, f"{name}-cot") if name in recipe.worked else (name,))
        for name, skill in recipe.skills.items()
    ]
    study = Study.create(root, texts, tasks=tasks)
    models, scores, losses = [], [], []
    tokenizers: dict[str, str] = {}
    for about, arrays in read_runs(results):
        tokenizer = tokenizers.setdefault(about["family"], about["tokenizer_sha256"])
        assert tokenizer == about["tokenizer_sha256"], f"{about['family']} has two tokenizers"
        assert about["texts_sha256"] == written, f"{about['family']}-{about['size']} saw other texts"
        for i, tokens in enumerate(arrays["tokens"].tolist()):
            name = model_name(about, tokens)
            models.append(ModelInfo(name, about["family"], about["params"], tokens, float(f"{arrays['flops'][i]:.6g}")))
            losses.append(losses_of(about, arrays, i, texts))
            for task, right, even in zip(about["skills"], arrays["right"][i], arrays["right_even"][i], strict=True):
                accuracy = float(right) / about["items"]
                scores.append(Score(name, task, accuracy, about["items"], "zoo", "1", "0", float(even)))
    study.add_models(models)
    study.add_losses(losses, half=True)
    study.add_scores(scores)
    if any(results.glob("scorer-*.npz")):  # missing while the scorer is not trained
        features, edges, kept = reduced_features(results, texts)
        scorer = f"zoo-scorer-{recipe.scorer_size}"
        study.add_features(scorer, features, edges, about={"reduced_to": DIMS, "kept_variance": round(kept, 4)})
    return study


def write_curves(results: Path, path: Path) -> None:
    """Training loss of every run, every twentieth step."""
    lines = ["run,tokens,loss"]
    for about, arrays in read_runs(results):
        curve = arrays["curve"][3::4]
        tokens = np.linspace(0, arrays["tokens"][-1], len(arrays["curve"]) + 1)[4::4]
        lines += [f"{about['family']}-{about['size']},{t:.0f},{x:.4f}" for t, x in zip(tokens, curve, strict=True)]
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    print(pack(Path(sys.argv[1]), Path(sys.argv[2])).root)
    if len(sys.argv) > 3:
        write_curves(Path(sys.argv[1]), Path(sys.argv[3]))
