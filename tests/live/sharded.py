"""Sharded models in training loops without a framework; started by torchrun: `sharded.py STUDY OUT KIND…`.

Leaves for each kind what each rank found (KIND-RANK.json), and the weights at that time, gathered (KIND.pt).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
from small import TOKENIZER, Rows, leave, small_model, tokenizer_with_bos
from torch import distributed
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from benchcast.training.live import Reader, read_fits
from benchcast.training.memory_backend import bare, sharded


def wrapped(kind: str) -> Any:
    """The small model under one kind of parallelism."""
    model = small_model()
    if kind.startswith("fsdp1"):
        policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
        return FullyShardedDataParallel(
            model, auto_wrap_policy=policy, use_orig_params=kind == "fsdp1", device_id=torch.device("cpu")
        )
    if kind == "tp":
        mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
        plan = {"gate_proj": ColwiseParallel(), "up_proj": ColwiseParallel(), "down_proj": RowwiseParallel()}
        for layer in model.model.layers:
            parallelize_module(layer.mlp, mesh, plan)
        return model
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    return model


ZERO_3 = {
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},  # 0: small parameters are split, too
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
    "zero_force_ds_cpu_optimizer": False,
}


def prepared(kind: str) -> tuple[Any, Callable[[Any], None]]:
    """The model, and a function that makes one step of training from a loss."""
    if kind == "zero3":
        import deepspeed

        model = small_model()
        engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=ZERO_3)[0]

        def descend(loss: Any) -> None:
            engine.backward(loss)
            engine.step()

        return engine, descend
    model = wrapped(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def follow(loss: Any) -> None:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, follow


def train(model: Any, count: int, follow: Callable[[Any], None], part: int) -> None:
    """Train on one part of the rows."""
    model.train()
    rows = Rows(64).ids[part :: distributed.get_world_size()]
    for turn in range(count):
        ids = rows[4 * turn : 4 * turn + 4]
        follow(model(input_ids=ids, labels=ids).loss)


def local(model: Any) -> list[Any]:
    """This rank's part of the weights."""
    if hasattr(next(model.parameters()), "ds_tensor"):  # ZeRO-3
        return [p.ds_tensor.clone() for p in model.parameters()]
    return [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]


def gathered(model: Any) -> dict[str, Any]:
    """All weights, on every rank."""
    if isinstance(model, FullyShardedDataParallel):  # its full state dict ends in a crash of torch 2.13 on a CPU
        with FullyShardedDataParallel.summon_full_params(model, writeback=False):
            return {
                n.replace("_fsdp_wrapped_module.", ""): p.detach().clone() for n, p in model.module.named_parameters()
            }
    if hasattr(next(model.parameters()), "ds_id"):  # ZeRO-3
        import deepspeed

        with deepspeed.zero.GatheredParameters(list(model.parameters())):
            return {name: p.detach().clone() for name, p in model.module.named_parameters()}
    return get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))


def run(kind: str, reader: Reader, out: Path) -> dict[str, Any]:
    """Train twice, with and without a forecast in between."""
    ends = []
    results: dict[str, Any] = {}
    part = 0 if kind == "tp" else distributed.get_rank()  # under tensor parallelism all ranks see the same rows
    for watched in (False, True):
        model, follow = prepared(kind)
        torch.manual_seed(5 + part)  # of dropout
        train(model, 2, follow, part)
        if watched:
            results["nats"] = reader.losses(model).nats.tolist()
            results["capability"] = {task: f.capability for task, f in reader.forecast(model).items()}
            results["sharded"] = sharded(bare(model))
            weights = gathered(model)
            if distributed.get_rank() == 0:
                torch.save(weights, out / f"{kind}.pt")
        train(model, 2, follow, part)
        ends.append(local(model))
    results["same training"] = all(torch.equal(a, b) for a, b in zip(*ends, strict=True))
    return results


def main(study: str, out: Path, kinds: list[str]) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", timeout=timedelta(seconds=60))
    reader = Reader.of(tokenizer_with_bos(TOKENIZER), read_fits(study))
    for kind in kinds:
        results = run(kind, reader, out)
        (out / f"{kind}-{distributed.get_rank()}.json").write_text(json.dumps(results))
    distributed.barrier()
    distributed.destroy_process_group()
    leave()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
