"""Train a small Llama on a CPU with the Hugging Face Trainer, and see in TensorBoard what it will score.

python examples/train_with_forecast.py                  # minutes on a CPU
python examples/train_with_forecast.py --steps 20       # a short one
tensorboard --logdir train-example

The model reads generated stories, questions and programs, and its forecasts come from fits of the embedded
study, whose models it has never met. At the end it sits the real tests, so that forecasts and scores can be compared.
"""

import argparse
import os
import sys
from itertools import islice
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments, set_seed

from benchcast.callbacks import TransformersForecast  # the first of the two lines
from benchcast.datasets import copy_dataset
from benchcast.forecasts.fit import fit_tasks
from benchcast.study.study import Study
from lab.zoo.model import Shape
from lab.zoo.score import Exam
from lab.zoo.skills import SKILLS
from lab.zoo.skills.common import texts

TOKENIZER = ROOT / "tests" / "zoo" / "shipped" / "oak-a-0.5M" / "tokenizer.json"
MIXTURE = {"events": 0.3, "facts": 0.2, "code": 0.2, "chinese": 0.1, "arithmetic": 0.1, "tracking": 0.1}  # of the texts
TESTED = ("events", "facts", "code", "chinese")  # at the end; the others take minutes of generation
CONTEXT, ROWS = 256, 8  # tokens of a row, rows of a step
SHAPE = Shape(vocabulary=3072, layers=4, width=96, rope_theta=10_000.0, tied=True)


class Corpus(Dataset):
    """Generated texts end to end, each between <bos> and <eos>, cut into rows."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, rows: int, seed: str) -> None:
        streams = [(texts(SKILLS[name], seed), round(share * 10)) for name, share in MIXTURE.items()]
        ids: list[int] = []
        while len(ids) < rows * CONTEXT:
            batch = [text for stream, count in streams for text in islice(stream, 20 * count)]
            for own in tokenizer(batch, add_special_tokens=True)["input_ids"]:
                ids += [*own, tokenizer.eos_token_id]
        self.rows = torch.tensor(ids[: rows * CONTEXT]).view(rows, CONTEXT)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


def load_tokenizer() -> PreTrainedTokenizerFast:
    made = Tokenizer.from_file(str(TOKENIZER))
    made.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", made.token_to_id("<bos>"))])
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>")


def fitted_study(folder: Path) -> Path:
    """A copy of the embedded study with its fits; in real life, your own study after `benchcast fit`."""
    if not (folder / "study.toml").exists():
        copy_dataset("zoo", folder)
    study = Study.open(folder)
    if not study.fitted_tasks():
        for fit in fit_tasks(study):
            fit.save(study.fit_folder(fit.task))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--forecasts", type=int, default=4, help="how many, evenly over the run")
    parser.add_argument("--items", type=int, default=500, help="of each test at the end")
    parser.add_argument("--out", type=Path, default=Path("train-example"))
    given = parser.parse_args()
    set_seed(0)
    tokenizer = load_tokenizer()
    study = fitted_study(given.out / "study")
    model = LlamaForCausalLM(LlamaConfig(**SHAPE.config(), attn_implementation="sdpa"))
    trainer = Trainer(
        model,
        TrainingArguments(
            output_dir=str(given.out),
            max_steps=given.steps,
            per_device_train_batch_size=ROWS,
            learning_rate=3e-3,
            lr_scheduler_type="cosine",
            warmup_steps=max(1, given.steps // 25),
            weight_decay=0.1,
            adam_beta2=0.95,
            logging_steps=max(1, given.steps // 100),
            save_strategy="no",
            report_to="tensorboard",
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=Corpus(tokenizer, given.steps * ROWS, "example"),
        processing_class=tokenizer,
        callbacks=[TransformersForecast(study, every=max(1, given.steps // given.forecasts))],  # the second
    )
    trainer.train()
    report(trainer, tokenizer, given.items)


def report(trainer: Trainer, tokenizer: PreTrainedTokenizerFast, items: int) -> None:
    """The last forecast beside real scores, and what forecasts cost."""
    logged = [row for row in trainer.state.log_history if "forecast/seconds" in row]
    seconds = [row["forecast/seconds"] for row in logged]
    run = next(row["train_runtime"] for row in trainer.state.log_history if "train_runtime" in row)
    exam = Exam(Tokenizer.from_file(str(TOKENIZER)), items, "cpu", SKILLS)
    weights = {name: w.detach() for name, w in trainer.model.state_dict().items() if name != "lm_head.weight"}
    print(f"\n{'task':8} {'forecast':>8} {'90% interval':>15} {'measured':>9}   ({items} items each)")
    for task in TESTED:
        right = exam.mark_skill(task, weights, SHAPE)
        last = logged[-1]
        low, high = (last[f"forecast/{task}_{end}"] for end in ("low", "high"))
        print(f"{task:8} {last[f'forecast/{task}']:8.3f} {low:7.3f} – {high:.3f} {right.mean():9.3f}")
    between = run / len(logged)
    print(
        f"\n{len(logged)} forecasts in {run:.0f} s of training: {max(seconds[1:] or seconds):.2f} s each (the first, "
        f"with tokenizing, {seconds[0]:.2f} s), {sum(seconds) / len(seconds) / between:.2%} of the time between them"
    )


if __name__ == "__main__":
    main()
