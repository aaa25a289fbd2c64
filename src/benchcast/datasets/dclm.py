"""The model database of DataComp-LM (mlfoundations/dclm): models of 412M to 6.9B on about 170 data recipes.

The file calls its losses perplexities; their values are mean nats per token of the correct answers. Excluded are
models that lack a loss, models with another tokenizer (their losses are not comparable), and repeated evaluations
with the same losses. Models of 7B are test models, all others training models.
"""

from __future__ import annotations

import re
from pathlib import Path

from benchcast.importers.loss_table import PublicStudyTables, column, number, read_rows
from benchcast.records import ModelInfo, Score, Task

FILE = Path("dclm/assets/DCLM_model_database.csv")
PREFIX = "perplexity."
COMMON_TOKENIZER = "neox"  # in the name of the tokenizer that most models share; empty cells mean the same
LARGE = 2e9  # models with more parameters are test models
# Task → chance, and the column with the loss on its correct answers.
TASKS = {
    "hellaswag": (0.25, "hellaswag"),
    "arc_easy": (0.25, "arc_easy"),
    "arc_challenge": (0.25, "arc_challenge"),
    "piqa": (0.5, "piqa"),
    "lambada_openai": (0.0, "lambada_openai"),
    "jeopardy": (0.0, "jeopardy_all"),
    "squad": (0.0, "squad"),
    "coqa": (0.0, "coqa"),
    "bigbench_qa_wikidata": (0.0, "bigbench_qa_wikidata"),
    "winograd": (0.5, "winograd_wsc"),
    "winogrande": (0.5, "winogrande"),
    "openbook_qa": (0.25, "openbook_qa"),
    "copa": (0.5, "copa"),
    "boolq": (0.5, "boolq"),
    "commonsense_qa": (0.2, "commonsense_qa"),
    "mmlu_fewshot": (0.25, "mmlu"),
}
# The first of these that occurs in a recipe's name is its family.
RECIPES = (
    *("pagerank", "dfn", "mix_cc", "refinedweb", "semdedup", "wiki", "dolma", "rpj", "c4", "rw_original", "rw_v2"),
    *("hero", "rw"),
)


def read(raw: Path) -> PublicStudyTables:
    """Read the tables of the database from its file in the folder `raw`."""
    needed = ["Dataset", "model", "params", "tokens", "tokenizer", *TASKS]
    rows = read_rows(raw / FILE, needed)
    losses = [c for c in rows[0] if c.startswith(PREFIX)]
    tokenizers = {r["tokenizer"] for r in rows}
    comparable = {t for t in tokenizers if not t or (COMMON_TOKENIZER in t and "rw_v2" not in t)}
    kept = _named([r for r in rows if all(r[c] for c in losses) and r["tokenizer"] in comparable], losses)
    return PublicStudyTables(
        columns=[column(c.removeprefix(PREFIX), "answers", "nats") for c in losses],
        losses={name: [float(r[c]) for c in losses] for name, r in kept.items()},
        models=[_info(name, r) for name, r in kept.items()],
        scores=[Score(name, task, float(r[task])) for name, r in kept.items() for task in TASKS if r[task]],
        tasks=[Task(task, chance, answers=(loss,)) for task, (chance, loss) in TASKS.items()],
    )


def _named(rows: list[dict[str, str]], losses: list[str]) -> dict[str, dict[str, str]]:
    """Rows by recipe and architecture, without repeated evaluations; a second model with both has the suffix `#2`."""
    by_name: dict[str, dict[str, str]] = {}
    seen: set[tuple[str, ...]] = set()
    counts: dict[str, int] = {}
    for row in rows:
        values = tuple(row[c] for c in losses)
        if values in seen:
            continue
        seen.add(values)
        recipe = row["Dataset"].removesuffix(".json").replace("=", "_")
        name = f"{recipe}/{row['model'].replace('=', '')}"
        counts[name] = counts.get(name, 0) + 1
        by_name[name if counts[name] == 1 else f"{name}#{counts[name]}"] = row
    return by_name


def _info(name: str, row: dict[str, str]) -> ModelInfo:
    params, tokens = number(row["params"]), number(row["tokens"])
    return ModelInfo(
        model=name,
        family=recipe_family(name.rpartition("/")[0]),
        params=params,
        tokens=tokens,
        flops=6 * params * tokens,
        split="test" if params > LARGE else "train",
    )


def recipe_family(recipe: str) -> str:
    """The family of a data recipe: the training data of its quality classifier, else the corpus."""
    if re.search(r"openhermes|(^|_)oh_", recipe.lower()):
        return "openhermes"
    classifier = re.search(r"fasttext_(?:open_)?([a-z0-9]+)", recipe.lower())
    if classifier:
        return f"fasttext-{classifier[1]}"
    return next((name.removesuffix("_cc") for name in RECIPES if name in recipe.lower()), "other")
