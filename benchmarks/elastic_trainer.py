"""The trainers of benchmarks.elastic: a small GPT, with costopt or without."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
import torch._dynamo  # optimizers import it when they are made
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import costopt.train
from costopt.train.attach import Mode

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "finetune"))
from model import CharacterGpt

SHARDS = 8
SHARD_SIZE = 2
CONTEXT = 64
CHARACTERS = 64
BLOCK = 5
CLIP = 1.0

Step = Callable[[int], None]


def main() -> None:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["elastic", "compare", "alone"])
    parser.add_argument("--times", type=Path, required=True, help="a line for each step's end")
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--standby", action="store_true", help="wait for a line before starting")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.standby:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
    if options.kind == "elastic":
        _elastic(options)
    else:
        _compared(options)


def _elastic(options: argparse.Namespace) -> None:
    with options.times.open("a", buffering=1) as times:
        model, optimizer = _model(options.width)
        job = costopt.train.attach(
            model,
            optimizer,
            None,
            _shard,
            global_batch=SHARDS * SHARD_SIZE,
            virtual_shards=SHARDS,
            clip_norm=CLIP,
        )
        for _ in job.steps(options.steps):
            _attached_step(job, model)
            times.write(f"{time.monotonic()} {job.step} {job.size}\n")


def _compared(options: argparse.Namespace) -> None:
    """Several ways to make the same step take turns, so that all see the same machine."""
    if options.kind == "compare":
        dist.init_process_group("gloo")
    ways: dict[str, Step] = {
        "exact": _attached(options.width, "exact"),
        "close": _attached(options.width, "close"),
        "plain": _plain_step(*_model(options.width)),
    }
    if options.kind == "compare":
        ways["ddp"] = _ddp_step(*_model(options.width))
    with options.times.open("w", buffering=1) as times:
        for block in range(options.steps // BLOCK):
            for name, run in ways.items():
                for step in range(block * BLOCK, (block + 1) * BLOCK):
                    began, spent = time.monotonic(), time.process_time()
                    run(step)
                    wall_s, cpu_s = time.monotonic() - began, time.process_time() - spent
                    times.write(f"{name} {block} {wall_s} {cpu_s}\n")


def _attached(width: int, mode: Mode) -> Step:
    model, optimizer = _model(width)
    job = costopt.train.attach(
        model,
        optimizer,
        None,
        _shard,
        global_batch=SHARDS * SHARD_SIZE,
        virtual_shards=SHARDS,
        mode=mode,
        clip_norm=CLIP,
    )
    steps: Iterator[int] = job.steps(10**9)

    def run(_: int) -> None:
        next(steps)
        _attached_step(job, model)

    return run


def _attached_step(job: costopt.train.TrainingLoop, model: nn.Module) -> None:
    for batch in job.microbatches():
        with job.microbatch(batch):
            _loss(model, batch).backward()  # type: ignore[no-untyped-call]
    job.apply()


def _plain_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    """Accumulate, all-reduce one flat vector, clip, step: what people write by hand."""
    parameters = list(model.parameters())
    flat = torch.zeros(sum(p.numel() for p in parameters))
    size = dist.get_world_size() if dist.is_initialized() else 1
    views = torch.split(flat, [p.numel() for p in parameters])
    slots = [view.view_as(p) for view, p in zip(views, parameters, strict=True)]

    def run(step: int) -> None:
        for shard in _mine():
            _loss(model, _shard(step, shard)).backward()  # type: ignore[no-untyped-call]
        if size > 1:
            for slot, parameter in zip(slots, parameters, strict=True):
                slot.copy_(parameter.grad if parameter.grad is not None else torch.zeros(()))
            dist.all_reduce(flat)
            for slot, parameter in zip(slots, parameters, strict=True):
                parameter.grad = slot
        flat.div_(SHARDS)
        _finish(model, optimizer)

    return run


def _ddp_step(model: nn.Module, optimizer: torch.optim.Optimizer) -> Step:
    wrapped = DistributedDataParallel(model)

    def run(step: int) -> None:
        mine = list(_mine())
        for shard in mine:
            last = shard == mine[-1]
            quiet: AbstractContextManager[None] = nullcontext() if last else wrapped.no_sync()
            with quiet:
                _loss(wrapped, _shard(step, shard)).backward()  # type: ignore[no-untyped-call]
        _finish(model, optimizer)

    return run


def _finish(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _mine() -> range:
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    return range(SHARDS * rank // size, SHARDS * (rank + 1) // size)


def _model(width: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = CharacterGpt(CHARACTERS, context=CONTEXT, width=width, layers=4, heads=4)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def _shard(step: int, shard: int) -> Tensor:
    draw = torch.Generator().manual_seed(step * 1009 + shard)
    return torch.randint(CHARACTERS, (SHARD_SIZE, CONTEXT + 1), generator=draw)


def _loss(model: nn.Module, batch: Tensor) -> Tensor:
    return functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


if __name__ == "__main__":
    main()
