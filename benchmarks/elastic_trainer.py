"""Trains the benchmark's model with costopt, or step by step in several ways to compare them."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import costopt.train
from benchmarks.elastic_model import (
    CLIP,
    SHARD_SIZE,
    SHARDS,
    WIDTH,
    Step,
    batch_of,
    ddp_step,
    finish,
    loss_of,
    model_and_optimizer,
    shards_of,
)
from benchmarks.elastic_steps import own_file, tell
from benchmarks.elastic_trainers import stand_by
from costopt.train.attach import Exactness

BLOCK = 5


def main() -> None:
    """Train until killed, or compare where there is a file for the times."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ends", type=Path, help="folder for when steps ended")
    parser.add_argument("--standby", action="store_true", help="wait for a line before starting")
    parser.add_argument("--times", type=Path, help="for how long each step of each way took")
    parser.add_argument("--steps", type=int, help="of each way that is compared")
    parser.add_argument("--width", type=int, default=WIDTH)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.standby:
        stand_by()
    if options.times is None:
        _train(options.ends)
    else:
        _compare(options)


def _train(ends: Path) -> None:
    job, model = _attached(WIDTH, "exact")
    with own_file(ends) as file:
        for _ in job.steps(10**9):
            _attached_step(job, model)
            tell(file, job.size)


def _compare(options: argparse.Namespace) -> None:
    """Several ways to make the same step take turns, so that all see the same machine."""
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if size > 1:
        dist.init_process_group("gloo")
    mine = shards_of(rank, size)
    ways: dict[str, Step] = {
        "exact": _runtime_step(options.width, "exact"),
        "close": _runtime_step(options.width, "close"),
        "plain": _plain_step(*model_and_optimizer(options.width), mine, size),
    }
    if size > 1:
        ways["ddp"] = ddp_step(*model_and_optimizer(options.width), mine)
    with options.times.open("w", buffering=1) as times:
        for block in range(options.steps // BLOCK):
            for name, run in ways.items():
                for step in range(block * BLOCK, (block + 1) * BLOCK):
                    began, spent = time.monotonic(), time.process_time()
                    run(step)
                    wall_s, cpu_s = time.monotonic() - began, time.process_time() - spent
                    times.write(f"{name} {block} {wall_s} {cpu_s}\n")


def _runtime_step(width: int, mode: Exactness) -> Step:
    job, model = _attached(width, mode)
    steps: Iterator[int] = job.steps(10**9)

    def run(_: int) -> None:
        next(steps)
        _attached_step(job, model)

    return run


def _attached(width: int, mode: Exactness) -> tuple[costopt.train.TrainingLoop, nn.Module]:
    model, optimizer = model_and_optimizer(width)
    job = costopt.train.attach(
        model,
        optimizer,
        None,
        batch_of,
        global_batch=SHARDS * SHARD_SIZE,
        virtual_shards=SHARDS,
        mode=mode,
        clip_norm=CLIP,
    )
    return job, model


def _attached_step(job: costopt.train.TrainingLoop, model: nn.Module) -> None:
    for batch in job.microbatches():
        with job.microbatch(batch):
            loss_of(model, batch).backward()  # type: ignore[no-untyped-call]
    job.apply()


def _plain_step(model: nn.Module, optimizer: torch.optim.Optimizer, mine: range, size: int) -> Step:
    """Accumulate, all-reduce one flat vector, clip, step: what people write by hand."""
    parameters = list(model.parameters())
    flat = torch.zeros(sum(p.numel() for p in parameters))
    views = torch.split(flat, [p.numel() for p in parameters])
    slots = [view.view_as(p) for view, p in zip(views, parameters, strict=True)]

    def run(step: int) -> None:
        for shard in mine:
            loss_of(model, batch_of(step, shard)).backward()  # type: ignore[no-untyped-call]
        if size > 1:
            for slot, parameter in zip(slots, parameters, strict=True):
                slot.copy_(parameter.grad if parameter.grad is not None else torch.zeros(()))
            dist.all_reduce(flat)
            for slot, parameter in zip(slots, parameters, strict=True):
                parameter.grad = slot
        flat.div_(SHARDS)
        finish(model, optimizer)

    return run


if __name__ == "__main__":
    main()
