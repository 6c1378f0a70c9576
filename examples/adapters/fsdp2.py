"""A model sharded by fully_shard (FSDP2): checkpoints that any number of processes can take up.

torchrun --nproc-per-node=4 fsdp2.py, then the same with 2 or 3: each process writes its own shards,
and reads those that it needs. Bit-equality does not outlast a change of the number of processes
("close").
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from costopt.train import ShardedCheckpointer

SEED = 20
SAVE_EVERY = 10


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of the step's batch."""
    draw = torch.Generator().manual_seed((SEED * 1_000_003 + step) * 1009 + dist.get_rank())
    points = torch.randn(32, 2, generator=draw)
    return points, (points[:, 1] > points[:, 0].sin()).long()


def main() -> None:
    """Train for ``--steps``, from the newest checkpoint that is whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--checkpoint", default="output/fsdp2")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    place: dict[str, Any] = {}
    if "RANK" not in os.environ:  # without torchrun
        place = {"init_method": "tcp://127.0.0.1:0", "rank": 0, "world_size": 1}
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, **place)
    mesh = init_device_mesh(device, (dist.get_world_size(),))

    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 64), nn.Linear(64, 2))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    checkpointer = ShardedCheckpointer(options.checkpoint, model, optimizer)
    restored = checkpointer.restore()
    step = 0 if restored is None else restored.step
    if dist.get_rank() == 0:
        print(f"begins at step {step}", flush=True)

    while step < options.steps:
        points, sides = batch(step)
        functional.cross_entropy(model(points), sides).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step == options.steps:
            saved = checkpointer.save(step)
            if dist.get_rank() == 0:
                print(f"saved step {step} of {dist.get_world_size()} processes as {saved.name}")
        elif step % SAVE_EVERY == 0:
            checkpointer.begin(step)  # training goes on meanwhile
    checkpointer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
