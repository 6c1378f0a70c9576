"""A model sharded by fully_shard (FSDP2): checkpoints that any number of processes can take up.

torchrun --nproc-per-node=4 fsdp2.py, then the same with 2 or 3: the state is gathered on rank 0's
CPU, saved whole, and sharded again when it is restored. Bit-equality does not outlast a change of
the number of processes ("close"); a state that does not fit one host's memory needs sharded files.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from costopt.train import Checkpointer

SEED = 20
SAVE_EVERY = 10


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of the step's batch."""
    draw = torch.Generator().manual_seed((SEED * 1_000_003 + step) * 1009 + dist.get_rank())
    points = torch.randn(32, 2, generator=draw)
    return points, (points[:, 1] > points[:, 0].sin()).long()


def restore(checkpointer: Checkpointer, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Every rank reads the whole state and keeps its part. Returns the step."""
    restored = checkpointer.restore()
    if restored is None:
        return 0
    set_state_dict(
        model,
        optimizer,
        model_state_dict=restored.state["model"],
        optim_state_dict=restored.state["optimizer"],
        options=StateDictOptions(full_state_dict=True),
    )
    return int(restored.state["step"])


def save(
    checkpointer: Checkpointer, model: nn.Module, optimizer: torch.optim.Optimizer, step: int
) -> None:
    """Collective: gather the whole state on rank 0, which writes it."""
    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, moments = get_state_dict(model, optimizer, options=whole)
    if dist.get_rank() == 0:
        state = {"model": weights, "optimizer": moments, "step": step}
        checkpointer.save(step, state, world_size=dist.get_world_size())
        print(f"saved step {step} of {dist.get_world_size()} processes", flush=True)


def main() -> None:
    """Train for ``--steps``, from the newest checkpoint that is whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--checkpoint", default="output/fsdp2")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    mesh = init_device_mesh(device, (dist.get_world_size(),))

    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 64), nn.Linear(64, 2))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    checkpointer = Checkpointer(options.checkpoint)
    step = restore(checkpointer, model, optimizer)
    if dist.get_rank() == 0:
        print(f"begins at step {step}", flush=True)

    while step < options.steps:
        points, sides = batch(step)
        functional.cross_entropy(model(points), sides).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        if step % SAVE_EVERY == 0 or step == options.steps:
            save(checkpointer, model, optimizer, step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
