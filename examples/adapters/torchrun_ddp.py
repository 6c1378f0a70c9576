"""DistributedDataParallel under torchrun as it was, with costopt's Checkpointer alone.

torchrun --nproc-per-node=2 torchrun_ddp.py
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from costopt.train import Checkpointer, load_optimizer_state

SEED = 20
SAVE_EVERY = 25


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's part of the step's batch: a pure function of (seed, step, rank)."""
    draw = torch.Generator().manual_seed((SEED * 1_000_003 + step) * 1009 + dist.get_rank())
    points = torch.randn(32, 2, generator=draw)
    return points, (points[:, 1] > points[:, 0].sin()).long()


def main() -> None:
    """Train for ``--steps``, from the newest checkpoint that is whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--checkpoint", default="output/ddp")
    options = parser.parse_args()
    place: dict[str, Any] = {}
    if "RANK" not in os.environ:  # without torchrun
        place = {"init_method": "tcp://127.0.0.1:0", "rank": 0, "world_size": 1}
    dist.init_process_group("gloo", **place)
    asked = _Asked()

    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    checkpointer = Checkpointer(
        os.environ.get("COSTOPT_CHECKPOINT_URI", options.checkpoint),
        generation=int(os.environ.get("COSTOPT_GENERATION", "0")),
    )
    # Every rank reads, so that all hold the same; only rank 0 writes.
    restored = checkpointer.restore()
    step = 0
    if restored is not None:
        model.load_state_dict(restored.state["model"])
        # Unlike load_state_dict, it casts nothing to the weights' dtype.
        load_optimizer_state(optimizer, restored.state["optimizer"])
        step = restored.state["step"]
    wrapped = DistributedDataParallel(model)

    while step < options.steps:
        points, sides = batch(step)
        functional.cross_entropy(wrapped(points), sides).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        stop = torch.tensor(float(asked.to_leave))
        dist.all_reduce(stop)
        if dist.get_rank() == 0 and (stop or step % SAVE_EVERY == 0 or step == options.steps):
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            checkpointer.save(step, state, world_size=dist.get_world_size())
            print(f"saved step {step}", flush=True)
        if stop:
            break
    dist.barrier()
    del wrapped  # before the group: where DDP is the last to hold it, gloo may hang
    dist.destroy_process_group()
    sys.exit(143 if asked.to_leave else 0)


class _Asked:
    """Whether SIGTERM has come: a handler does no more than note it."""

    def __init__(self) -> None:
        self.to_leave = False
        signal.signal(signal.SIGTERM, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.to_leave = True


if __name__ == "__main__":
    main()
