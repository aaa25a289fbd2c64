"""Write `fixtures/lighteval-0.13.0` again: real runs of lighteval on two of the tiny models.

    python tests/logs/make_lighteval.py FOLDER SCRIPT

FOLDER is the scratch folder of `make_logs.py`, SCRIPT the `lighteval` of an environment with lighteval 0.13.0. Made
with torch 2.13.0, transformers 4.57.6, datasets 4.8.5, huggingface_hub 0.36.2 and xxhash 3.5; this version fetches a
file for the task tinyBenchmarks when it starts, so an empty one was put at its place (lighteval/tasks/tasks/).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from make_logs import HERE, OFFLINE

MODELS = ("reed-c", "sedge-c")


def main() -> None:
    """Run both models and copy the results and details."""
    root, script = Path(sys.argv[1]), sys.argv[2]
    for name in ("sums", "frogs"):
        (root / "light" / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(root / "tasks" / f"{name}.jsonl", root / "light" / name / "test.jsonl")
    shutil.copy(HERE / "lighteval_tasks.py", root)
    out = HERE / "fixtures" / "lighteval-0.13.0"
    shutil.rmtree(out, ignore_errors=True)
    for model in MODELS:
        settings = [f"model_name=models/{model},dtype=float32,batch_size=4", "sums|0,frogs|1", "--save-details"]
        places = ["--custom-tasks", "lighteval_tasks.py", "--output-dir", str(out)]
        environment = {**os.environ, **OFFLINE}
        subprocess.run([script, "accelerate", *settings, *places], cwd=root, env=environment, check=True)
    for path in out.rglob("results_*.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        for task in document["config_tasks"].values():
            task.pop("metrics", None)  # long and not read
        path.write_text(json.dumps(document) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
