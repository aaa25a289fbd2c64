"""Every file that benchcast reads: how to spoil it, how it is used, and what must come out of it.

A target is used on a copy of a small study. What it returns must be what the whole file gives where the file is
protected by a hash or a checksum; any other file may say something else, as long as the study stays readable.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import mutations as m
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import benchcast as bc
from benchcast.collection.model_list import read_models_list as read_list
from benchcast.collection.shards import ShardStore
from benchcast.forecasts import registration
from benchcast.forecasts.fit import fit_tasks
from benchcast.forecasts.status import status
from benchcast.importers.scores import ImportOptions, gather
from benchcast.study.atomic import hashed
from benchcast.study.feature_files import read_features
from benchcast.study.loss_files import read_losses
from benchcast.study.study import Study
from benchcast.study.tables import read_models, read_texts
from synthetic import Plan, make_world, write_study

SETTINGS = {"a": "b"}
BACKEND_LINE = json.dumps({"about": {}, "context": 9})


def workplace() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory where there is one: thousands of small files are written."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)


@dataclass(frozen=True)
class Target:
    """One kind of file."""

    name: str
    file: str  # below the sandbox
    use: Callable[[Path], Any]  # the sandbox → what is compared
    ways: list[m.Mutation]
    protected: bool = False


class Sandbox:
    """A small study with fits, and files to import beside it; copied for every mutation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.world = make_world(Plan(seed=1, families=4, sizes=2, checkpoints=1, tasks=1, texts_per_source=3))
        study = write_study(self.world, folder / "study")
        self.model = self.world.models[0].model
        for fit in fit_tasks(study, method="all-token"):
            fit.save(study.fit_folder(fit.task))
        self._losses(study)
        self._scores()
        self._rest(study)

    @cached_property
    def counts(self) -> np.ndarray:
        return np.array([3, 2, 4])

    def _losses(self, study: Study) -> None:
        stored = study.losses(self.model)
        ends = np.cumsum(stored.counts)
        rows = [
            {"text_id": t.id, "bounds": b.tolist(), "nats": stored.nats[end - n : end].tolist()}
            for t, b, n, end in zip(
                study.texts, stored.text_bounds(study.texts.starts), stored.counts, ends, strict=True
            )
        ]
        (self.folder / "new.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
        pq.write_table(pa.Table.from_pylist(rows), self.folder / "new.parquet")
        wide = [",".join(["model", *(t.id for t in study.texts)])]
        wide += [",".join([f"wide{i}", *["0.8"] * len(study.texts)]) for i in range(2)]
        (self.folder / "wide.csv").write_text("\n".join(wide) + "\n")

    def _scores(self) -> None:
        table = "\n".join(["model,task,accuracy,n_items", "new,task0,0.5,100", "newer,task0,0.25,100"])
        (self.folder / "scores.csv").write_text(table + "\n")
        results = {
            "results": {"task0": {"acc,none": 0.5, "acc_stderr,none": 0.05, "sample_len": 100}, "g": {"acc": 0.1}},
            "group_subtasks": {"g": ["task0"]},
            "n-samples": {"task0": {"original": 100, "effective": 100}},
            "versions": {"task0": 1.0},
            "n-shot": {"task0": 5},
            "higher_is_better": {"task0": {"acc": True}},
            "config": {"model": "hf", "model_args": "pretrained=me/new,dtype=float16", "limit": None},
            "model_name": "me/new",
        }
        (self.folder / "results_1.json").write_text(json.dumps(results))
        v1 = {
            "config_general": {"model_name": "me/new"},
            "results": {"harness|task0|5": {"acc": 0.5, "acc_stderr": 0.01}},
            "versions": {"harness|task0|5": 1},
        }
        (self.folder / "results_v1.json").write_text(json.dumps(v1))
        summary = "dataset,version,metric,mode,new,newer\ntask0,abc,accuracy,gen,50.0,25.0\n"
        (self.folder / "summary_1.csv").write_text(summary)
        board = "fullname,task0 Raw,IFEval,MUSR\nme/new,0.5,10,20\nme/newer,0.25,11,21\n"
        (self.folder / "board.csv").write_text(board)
        models = "model,family,params,tokens,flops,split\nnew,f,7B,1e12,,train\nnewer,g,1e6,2e9,3e20,test\n"
        (self.folder / "models.csv").write_text(models)

    def _rest(self, study: Study) -> None:
        stored = study.features()
        assert stored is not None
        values, edges = stored.values, stored.edges
        starts = study.texts.starts
        within = [edges[(edges >= a) & (edges <= b)] - a for a, b in pairwise(starts)]
        counts = np.array([len(x) - 1 for x in within])
        np.savez(self.folder / "f.npz", features=np.asarray(values), bounds=np.concatenate(within), counts=counts)
        shard_store = ShardStore(self.folder / "collecting", SETTINGS, self.counts)
        shard_store.take(BACKEND_LINE, {i: np.arange(n, dtype=np.float32) + i for i, n in enumerate(self.counts)})
        shard_store.flush()
        (shard,) = (self.folder / "collecting").glob("*.npz")
        shard.rename(shard.with_name("shard.npz"))
        fits = [bc.load(study.fit_folder("task0"))]
        losses = study.losses(self.model)
        registration.write(
            self.folder / "said.json", registration.document(fits, losses, [f.predict(losses) for f in fits])
        )
        listed = '[[models]]\nmodel = "hf"\nname = "a"\nfamily = "f"\n[models.model_args]\npretrained = "x"\n'
        (self.folder / "models.toml").write_text(listed)

    # ---- what is done with the files

    def readable(self, root: Path) -> Any:
        """All tables of a study, which must read after any import."""
        study = Study.open(root)
        return study.tasks, len(study.texts), study.models(), study.scores(), study.models_with_losses()

    def stored(self, here: Path) -> Any:
        """Every number a study holds."""
        study = Study.open(here / "study")
        losses = [study.losses(name) for name in study.models_with_losses()]
        return [(x.model, _digest(x.counts, x.edges, np.nan_to_num(x.nats, nan=-1))) for x in losses]

    def features(self, here: Path) -> Any:
        features = Study.open(here / "study").features()
        return features and (_digest(np.asarray(features.values), features.edges), features.scorer)

    def predict(self, here: Path) -> Any:
        losses = Study.open(self.folder / "study").losses(self.model)
        fit = bc.load(here / "study" / "fits" / "task0")
        return replace(fit.predict(losses), remark=""), fit.digest

    def import_losses(self, name: str) -> Callable[[Path], Any]:
        def use(here: Path) -> Any:
            study = Study.open(here / "study")
            study.add_losses(read_losses(here / name, study.texts, unit="bits-per-byte"))
            return self.readable(study.root), self.stored(here)

        return use

    def import_scores(self, name: str) -> Callable[[Path], Any]:
        def use(here: Path) -> Any:
            study = Study.open(here / "study")
            known = [x.model for x in study.models()]
            choices = ImportOptions(allow_mixed=True, add_tasks=("mmlu*",))
            gathered = gather([here / name], study.tasks, known, study.scores(), choices)
            study.add_tasks(gathered.new_tasks).add_scores(gathered.scores)
            return self.readable(study.root)

        return use

    def import_models(self, here: Path) -> Any:
        study = Study.open(here / "study")
        study.add_models(read_models(here / "models.csv"))
        return self.readable(study.root)

    def import_features(self, here: Path) -> Any:
        study = Study.open(here / "study")
        values, edges = read_features(here / "f.npz", study.texts)
        study.add_features("synthetic", values, edges)
        return self.features(here)

    def start_study(self, here: Path) -> Any:
        Study.create(here / "another", read_texts(here / "study" / "texts.jsonl"))
        return self.readable(here / "another")

    def all_tables(self, here: Path) -> Any:
        return self.readable(here / "study"), self.stored(here)

    def work(self, here: Path) -> Any:
        """What people do with a study: look at it, fit, forecast."""
        study = Study.open(here / "study")
        status(study)
        fits = [fit_tasks(study, method=method)[0] for method in ("constant", "compute", "all-token")]
        return [fit.predict(study.losses(self.model)) for fit in fits]

    def shards(self, here: Path) -> Any:
        shard_store = ShardStore(here / "collecting", SETTINGS, self.counts)
        stored = {i: rows.tolist() for i, rows in shard_store.results()}
        whole = {i: (np.arange(n) + i).tolist() for i, n in enumerate(self.counts)}
        assert set(stored) == shard_store.done
        return all(whole[i] == rows for i, rows in stored.items())  # what is not found is done again

    def targets(self) -> list[Target]:
        """All of them."""
        text = [*m.BYTES]
        fit, features, losses = "study/fits/task0", "study/features/synthetic", f"study/losses/{self._losses_file}"
        return [
            Target("study.toml", "study/study.toml", self.all_tables, [*text, m.toml_value, m.toml_value]),
            Target("texts.jsonl of a study", "study/texts.jsonl", self.all_tables, [*text, m.jsonl_value]),
            Target("texts to start with", "study/texts.jsonl", self.start_study, [*text, m.jsonl_value, m.jsonl_value]),
            Target("models.csv of a study", "study/models.csv", self.all_tables, [*text, m.csv_cell]),
            Target("scores.csv of a study", "study/scores.csv", self.all_tables, [*text, m.csv_cell]),
            *(
                Target(f"{n} at work", f"study/{n}", self.work, [m.csv_cell, m.csv_cell, m.change_byte])
                for n in ("models.csv", "scores.csv")
            ),
            Target("study.toml at work", "study/study.toml", self.work, [m.toml_value, m.change_byte]),
            Target("models to import", "models.csv", self.import_models, [*text, *[m.csv_cell] * 4]),
            Target("scores to import", "scores.csv", self.import_scores("scores.csv"), [*text, *[m.csv_cell] * 4]),
            Target("lm-eval", "results_1.json", self.import_scores("results_1.json"), [*text, *[m.json_value] * 20]),
            Target(
                "leaderboard v1", "results_v1.json", self.import_scores("results_v1.json"), [*text, *[m.json_value] * 8]
            ),
            Target("leaderboard v2", "board.csv", self.import_scores("board.csv"), [*text, *[m.csv_cell] * 4]),
            Target("OpenCompass", "summary_1.csv", self.import_scores("summary_1.csv"), [*text, *[m.csv_cell] * 4]),
            Target("losses JSONL", "new.jsonl", self.import_losses("new.jsonl"), [*text, *[m.jsonl_value] * 8]),
            Target("losses Parquet", "new.parquet", self.import_losses("new.parquet"), text),
            Target("losses wide CSV", "wide.csv", self.import_losses("wide.csv"), [*text, *[m.csv_cell] * 4]),
            Target("features npz", "f.npz", self.import_features, [*text, *[m.npz_array] * 8]),
            Target(
                "list of models",
                "models.toml",
                lambda here: read_list(here / "models.toml"),
                [*text, *[m.toml_value] * 3],
            ),
            Target("stored losses", losses, self.stored, text, protected=True),
            *(
                Target(f"features {n}", f"{features}/{n}", self.features, text, protected=True)
                for n in ("features.npy", "edges.npy", "meta.json")
            ),
            *(
                Target(f"fit {n}", f"{fit}/{n}", self.predict, text, protected=True)
                for n in ("fit.json", "salience.safetensors")
            ),
            Target("features made by hand", f"{features}/meta.json", self.features, [m.craft_text]),
            Target("fit made by hand", f"{fit}/fit.json", self.predict, [m.craft_text]),
            Target("fit arrays made by hand", f"{fit}/salience.safetensors", self.crafted, [m.craft_arrays]),
            Target("shard", "collecting/shard.npz", self.shards, text, protected=True),
            Target("shard made by hand", "collecting/shard.npz", self.shards, [m.npz_array]),
            Target("mark of shards", "collecting/settings.json", self.shards, [*text, m.json_value]),
            Target(
                "registered forecast",
                "said.json",
                lambda here: registration.read(here / "said.json"),
                text,
                protected=True,
            ),
        ]

    @property
    def _losses_file(self) -> str:
        return Study.open(self.folder / "study").losses_path(self.model).name

    def crafted(self, here: Path) -> Any:
        """Changed arrays under hashes that are right."""
        folder = here / "study" / "fits" / "task0"
        said = json.loads((folder / "fit.json").read_text())
        said["arrays_sha256"] = hashlib.sha256((folder / "salience.safetensors").read_bytes()).hexdigest()
        (folder / "fit.json").write_text(json.dumps(hashed(said)))
        return self.predict(here)

    def copy(self, place: Path) -> Path:
        """A sandbox of its own for one mutation."""
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(self.folder, place)
        return place


def _digest(*arrays: np.ndarray) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in arrays)).hexdigest()
