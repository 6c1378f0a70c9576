"""Trains the benchmark's model under torchft: one process is one replica.

One all-reduce of a flat vector, since torchft's DDP wrapper crashes on gloo. The quorum is asked
for before each step, so that the batch can be cut by who takes part in it, as the others do.
"""

from __future__ import annotations

import argparse
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import ReduceOp, TCPStore
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo

from benchmarks.elastic_model import (
    SHARDS,
    batch_of,
    finish,
    loss_of,
    model_and_optimizer,
    shards_of,
)
from benchmarks.elastic_steps import own_file, tell
from benchmarks.elastic_trainers import stand_by

COLLECTIVE = timedelta(seconds=1.2)
"""The timeout of a collective with an unreachable peer, which costopt removes after as long."""
HOST = "127.0.0.1"


def main() -> None:
    """Train until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ends", type=Path, required=True, help="folder for when steps ended")
    parser.add_argument("--standby", action="store_true", help="wait for a line before starting")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.standby:
        stand_by()
    _train(options.ends)


def _train(ends: Path) -> None:
    model, optimizer = model_and_optimizer()

    def state() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    def load(saved: dict[str, Any]) -> None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    store = TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    manager = Manager(
        pg=ProcessGroupGloo(timeout=COLLECTIVE),
        load_state_dict=load,
        state_dict=state,
        min_replica_size=1,
        use_async_quorum=False,
        rank=0,
        world_size=1,
        store_addr=HOST,
        store_port=store.port,
        hostname=HOST,
    )
    with own_file(ends) as file:
        while True:
            if _step(manager, model, optimizer):
                tell(file, manager.num_participants())


def _step(manager: Any, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> bool:
    """Whether the step was made."""
    manager.start_quorum()
    rank, size = manager.participating_rank(), manager.num_participants()
    for shard in shards_of(rank, size):
        loss_of(model, batch_of(manager.current_step(), shard)).backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    manager.allreduce(flat, reduce_op=ReduceOp.SUM).wait()
    if not manager.should_commit():
        optimizer.zero_grad(set_to_none=True)
        return False
    parts = torch.split(flat.div_(SHARDS), [gradient.numel() for gradient in gradients])
    for gradient, part in zip(gradients, parts, strict=True):
        gradient.copy_(part.view_as(gradient))
    finish(model, optimizer)
    return True


if __name__ == "__main__":
    main()
