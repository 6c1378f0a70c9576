"""Trainers of a sharded model under ``attach``, forked: several hold one copy of it."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.forked_trainers import take_time

STEPS = 8
SHARDS = 12
BATCH = 24
WIDTH = 20


def shard(step: int, number: int) -> Any:
    """Inputs and targets of one virtual shard."""
    import torch

    draw = torch.Generator().manual_seed(step * 1009 + number)
    inputs = torch.randn(BATCH // SHARDS, WIDTH, generator=draw)
    return inputs, inputs.roll(1, dims=1).tanh()


def build(kind: str, seed: int) -> Any:
    """The model on a mesh: "fsdp" over all processes, copies of "N" ("2" in a world of 4), "hsdp"
    or "tp".
    """
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    torch.manual_seed(seed)
    layers = [
        nn.Sequential(nn.Linear(WIDTH, 34), nn.GELU(), nn.Dropout(0.1), nn.Linear(34, WIDTH))
        for _ in range(2)
    ]
    model = nn.Sequential(*layers, nn.LayerNorm(WIDTH))
    world = dist.get_world_size()
    if kind == "fsdp":
        mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("dp",))
    elif kind == "tp":
        whole = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("dp", "tp"))
        plan = {"0.0": ColwiseParallel(), "0.3": RowwiseParallel()}
        parallelize_module(model, whole["tp"], plan)
        mesh = whole["dp"]
    else:
        size = 2 if kind == "hsdp" else int(kind)
        names = ("copy", "dp")
        whole = init_device_mesh("cpu", (world // size, size), mesh_dim_names=names)
        mesh = whole if kind == "hsdp" else whole["dp"]
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _flip(job: Any, model: Any, options: dict[str, Any]) -> None:
    """Change a bit of one weight before the step "flip", as faulty memory does; on all processes of
    the copy, or on the one that "flips".
    """
    if job.step + 1 == options.get("flip") and options["rank"] == options.get(
        "flips", options["rank"]
    ):
        import torch

        weight = next(iter(model.parameters()))
        weight._local_tensor.view(torch.int32)[0, 0] ^= 1


def train(options: dict[str, Any]) -> None:
    """One process: holds before steps until there is a file go-<step> beside its output.

    With the addresses of "near" tiers each process is on a node of its own; the last one finds
    notices in the file "notice".
    """
    import os

    import torch
    import torch.distributed as dist
    from torch.distributed.tensor import DTensor

    import costopt.train

    torch.set_num_threads(1)
    rank, size = options["rank"], options["size"]
    if "near" in options:
        os.environ["COSTOPT_SNAPSHOTS"] = options["near"][rank]
        costopt.train.sharded_ranks._machine = lambda: str(rank)
    if rank == size - 1:
        os.environ["COSTOPT_NOTICE_FILE"] = options.get("notice", "")
    meeting = Path(options["meeting"]).as_uri() if "meeting" in options else "env://"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
    # The copies of one world begin alike; those of a membership take up the first one's state.
    model = build(options["kind"], options.get("seed", 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.get("lr", 0.01), fused=True)
    total = options.get("total", STEPS)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    job = costopt.train.attach(
        model,
        optimizer,
        scheduler,
        shard,
        global_batch=BATCH,
        virtual_shards=SHARDS,
        clip_norm=0.5,
        seed=7,
        mode=options.get("mode", "exact"),
        checkpoint=options.get("checkpoint"),
        interval_s=options.get("interval_s", 1e9),
        changed=options.get("changed", "refuse"),
    )
    optimizer.register_step_post_hook(lambda *_: _flip(job, model, options))
    output = Path(options["output"])
    losses: dict[int, float] = {}
    for step in job.steps(total):
        take_time(step, options)
        while step in options.get("hold", ()) and not output.with_name(f"go-{step}").exists():
            time.sleep(0.005)
        first, copies = options.get("full", (total, 0))
        while step >= first and job.size < copies and not job._group.is_join_pending():
            time.sleep(0.005)
        for batch in job.microbatches():
            with job.microbatch(batch):
                inputs, targets = batch
                loss = (model(inputs) - targets).square().mean()
                loss.backward()
                job.observe(loss)
        job.apply()
        if job.step == step + 1 and job.loss is not None:
            losses[step] = job.loss
        output.with_suffix(".step").write_text(f"{job.step} {job.size}")
    digest = hashlib.sha256()
    for value in model.state_dict(keep_vars=True).values():
        for _, tensor in [("", value), *sorted(optimizer.state.get(value, {}).items())]:
            whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            digest.update(whole.detach().contiguous().numpy().tobytes())
    regrouped = [[r.generation, r.size, r.step, r.pause_s, r.why] for r in job.regrouped]
    found = {"state": digest.hexdigest(), "losses": losses, "guarantee": job.guarantee}
    output.write_text(json.dumps({**found, "regrouped": regrouped, "pid": os.getpid()}))


if __name__ == "__main__":
    train(json.loads(sys.argv[1]))
