"""The sums and frogs of `make_models.py` as custom tasks of lighteval 0.13; read by `make_lighteval.py`."""

from lighteval.metrics.metrics import Metrics
from lighteval.tasks.lighteval_task import LightevalTaskConfig
from lighteval.tasks.requests import Doc


def sum_prompt(line, task_name=None):
    """A question with three options."""
    options = [f" {choice}" for choice in line["choices"]]
    return Doc(
        task_name=task_name,
        query=f"{line['a']} plus {line['b']} is",
        choices=options,
        gold_index=line["answer"],
    )


def frog_prompt(line, task_name=None):
    """A question with two options."""
    options = [f" {choice}" for choice in line["choices"]]
    return Doc(task_name=task_name, query=line["question"], choices=options, gold_index=line["answer"])


def _task(name, prompt):
    return LightevalTaskConfig(
        name=name,
        prompt_function=prompt,
        hf_repo=f"light/{name}",
        hf_subset="default",
        hf_avail_splits=["test"],
        evaluation_splits=["test"],
        few_shots_split="test",
        few_shots_select="sequential",
        metrics=[Metrics.loglikelihood_acc],
        generation_size=-1,
        stop_sequence=[],
        version=1,
    )


TASKS_TABLE = [_task("sums", sum_prompt), _task("frogs", frog_prompt)]
