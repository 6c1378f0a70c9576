"""Puts the pieces around a user's model."""

from __future__ import annotations

import os
from pathlib import Path

from torch import nn
from torch.optim import Optimizer

from costopt.agent.trainer_env import TrainerEnv
from costopt.train.cadence import Cadence
from costopt.train.checkpointer import Checkpointer
from costopt.train.group import Group
from costopt.train.loop import TrainingLoop
from costopt.train.notice import StopRequest
from costopt.train.reporter import Reporter
from costopt.train.state import Stateful


def attach(
    model: nn.Module,
    optimizer: Optimizer,
    scheduler: Stateful | None = None,
    data: Stateful | None = None,
    *,
    checkpoint: str | Path | None = None,
    interval_s: float | None = None,
    keep: int = 3,
    clip_norm: float | None = None,
) -> TrainingLoop:
    """Restore the newest valid checkpoint into what is given, and return the loop over it.

    ``scheduler`` is stepped once per step. ``data`` is anything whose position can be saved; a
    batch that is a pure function of (seed, step, rank) needs none. ``checkpoint`` (a path or
    file:// URI) and ``interval_s`` yield to what the agent says; without either nothing is saved.
    Under torchrun or the agent the process group is formed here (gloo, NCCL where there is CUDA)
    and every rank begins with rank 0's weights.

    The resume is exact at the same world size, thread count and hardware; ``loop.guarantee`` says
    "close" and why where the world size changed. Raises CheckpointError.
    """
    env = TrainerEnv.read()
    stop = StopRequest(env.notice_file)
    uri = env.checkpoint_uri or checkpoint
    group = Group()
    leads = os.environ.get("LOCAL_RANK", "0") == "0"
    reporter = Reporter(env.status_file if leads else None, env.generation)
    return TrainingLoop(
        model,
        optimizer,
        scheduler,
        data,
        group=group,
        checkpointer=(
            None if uri is None else Checkpointer(uri, keep=keep, generation=env.generation)
        ),
        cadence=Cadence(
            interval_s=env.checkpoint_interval_s or interval_s,
            hazard_per_hour=env.hazard_per_hour,
            noticed_share=env.noticed_share,
            speed=env.speed,
        ),
        stop=stop,
        reporter=reporter,
        clip_norm=clip_norm,
        total_units=env.total_units,
    )
