"""The small GPT that every way of benchmarks.elastic trains, and what a step of it is made of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
import torch._dynamo  # optimizers import it when they are made
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "finetune"))
from model import CharacterGpt

SHARDS = 8
SHARD_SIZE = 2
CONTEXT = 64
CHARACTERS = 64
CLIP = 1.0
WIDTH = 96
"""About half a million parameters."""

Step = Callable[[int], None]


def model_and_optimizer(width: int = WIDTH) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The same weights in every process."""
    torch.manual_seed(1)
    model = CharacterGpt(CHARACTERS, context=CONTEXT, width=width, layers=4, heads=4)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def batch_of(step: int, shard: int) -> Tensor:
    """One of the SHARDS parts of a step's batch."""
    draw = torch.Generator().manual_seed(step * 1009 + shard)
    return torch.randint(CHARACTERS, (SHARD_SIZE, CONTEXT + 1), generator=draw)


def shards_of(rank: int, size: int) -> range:
    """What a rank computes of each step."""
    return range(SHARDS * rank // size, SHARDS * (rank + 1) // size)


def loss_of(model: nn.Module, batch: Tensor) -> Tensor:
    """Of the next character."""
    return functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def finish(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """What follows when the gradients are there."""
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def ddp_step(model: nn.Module, optimizer: torch.optim.Optimizer, mine: range) -> Step:
    """A step under DistributedDataParallel, which reduces with the last shard."""
    wrapped = DistributedDataParallel(model)

    def run(step: int) -> None:
        for shard in mine:
            last = shard == mine[-1]
            quiet: AbstractContextManager[None] = nullcontext() if last else wrapped.no_sync()
            with quiet:
                loss_of(wrapped, batch_of(step, shard)).backward()  # type: ignore[no-untyped-call]
        finish(model, optimizer)

    return run
