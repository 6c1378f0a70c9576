"""Trains the benchmark's model with DDP under torchrun, from the newest torch.save on."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.elastic_model import ddp_step, model_and_optimizer, shards_of
from benchmarks.elastic_steps import own_file, tell

SAVE_EACH_STEPS = 20


def main() -> None:
    """Train until killed, or until a peer is lost."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ends", type=Path, required=True, help="folder for when steps ended")
    parser.add_argument("--saved", type=Path, required=True, help="file to save to")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model, optimizer = model_and_optimizer()
    begin = _restore(options.saved, model, optimizer)
    run = ddp_step(model, optimizer, shards_of(dist.get_rank(), dist.get_world_size()))
    with own_file(options.ends) as file:
        for step in range(begin, 10**9):
            run(step)
            tell(file, dist.get_world_size())
            if step % SAVE_EACH_STEPS == 0 and dist.get_rank() == 0:
                _save(options.saved, model, optimizer, step)


def _restore(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """The step to begin with."""
    if not path.exists():
        return 0
    saved = torch.load(path, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return int(saved["step"]) + 1


def _save(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


if __name__ == "__main__":
    main()
