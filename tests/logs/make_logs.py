"""Write the evaluation logs of `fixtures/` again: real runs of lm-evaluation-harness on the tiny models.

    PYTHON=environment/bin/python          with lm_eval[hf]; FOLDER is a scratch folder
    python tests/logs/make_logs.py FOLDER $PYTHON lm-eval-0.4.13 pond,pond_last,pond_write
    python tests/logs/make_logs.py FOLDER $PYTHON lm-eval-0.4.13-prose pond_prose reed-c
    python tests/logs/make_logs.py FOLDER $PYTHON lm-eval-0.4.4 pond,pond_last,pond_write reed-c
    TASKS=pond_sums,pond_frogs,pond_last,pond_write,pond_prose
    python tests/logs/make_logs.py FOLDER $PYTHON lm-eval-0.4.0 $TASKS reed-c

The last words are the folder below `fixtures/`, the tasks and the models; without models all are run. Only the keys of
the results that describe the machine are taken out.

`lm-eval-0.4.0` and `lm-eval-0.4.4` (one model) were made with torch 2.13.0, transformers 4.44.2, datasets 2.21.0,
pyarrow below 20 and numpy 1.26; 0.4.0 fetches the metric `exact_match` from a hub when it is imported, so one is
written beside the models. `lm-eval-0.4.13` (all models) was made with torch 2.13.0, transformers 5.23.0 and
datasets 5.2.0. `models/reed-a` is the smallest of the models, as `make_models.py` saved it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from make_models import MODELS

HERE = Path(__file__).parent
METRIC = """
import datasets
import evaluate

class ExactMatch(evaluate.Metric):
    def _info(self):
        text = datasets.Value("string")
        features = datasets.Features({"predictions": text, "references": text})
        return evaluate.MetricInfo(description="", citation="", features=features)

    def _compute(self, predictions, references, **settings):
        return {"exact_match": sum(p == r for p, r in zip(predictions, references)) / len(predictions)}
"""
MACHINE = ("configs", "pretty_env_info", "git_hash", "upper_git_hash", "date", "start_time", "end_time", "task_hashes")
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def evaluate(root: Path, python: str, model: str, tasks: str, out: Path) -> None:
    """Run the harness on one model."""
    command = [python, "-m", "lm_eval", "--model", "hf", "--device", "cpu", "--batch_size", "8", "--log_samples"]
    settings = ["--model_args", f"pretrained=models/{model},dtype=float32", "--tasks", tasks]
    places = ["--include_path", "tasks", "--output_path", str(out)]
    subprocess.run([*command, *settings, *places], cwd=root, env={**os.environ, **OFFLINE}, check=True)


def without_machine(path: Path) -> None:
    """Take out of a results file what describes the machine."""
    document = json.loads(path.read_text(encoding="utf-8"))
    kept = {key: value for key, value in document.items() if key not in MACHINE}
    path.write_text(json.dumps(kept, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Make the models if they are not there, run them, and copy the logs."""
    root, python, version, tasks, *models = Path(sys.argv[1]), *sys.argv[2:]
    root.mkdir(parents=True, exist_ok=True)
    if not (root / "models").is_dir():
        subprocess.run([python, str(HERE / "make_models.py"), str(root)], check=True)
    (root / "exact_match").mkdir(exist_ok=True)
    (root / "exact_match" / "exact_match.py").write_text(METRIC, encoding="utf-8")
    for task in (HERE / "tasks").glob("*.yaml"):
        shutil.copy(task, root / "tasks")
    out = HERE / "fixtures" / version
    shutil.rmtree(out, ignore_errors=True)
    for model in models or MODELS:
        evaluate(root, python, model, tasks, out)
    for path in out.rglob("results*.json"):
        without_machine(path)


if __name__ == "__main__":
    main()
