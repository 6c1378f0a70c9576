"""``attach``: builds the training loop around a user's model."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from costopt.checkpoint.history import RetentionPolicy
from costopt.domain.errors import CostoptError
from costopt.protocol.trainer_files import TrainerEnv
from costopt.train.all_reduce import AllReduceReduction
from costopt.train.batches import ShardWorker, batch_source
from costopt.train.checkpoint_manager import CheckpointManager, SaveInterval
from costopt.train.checkpointer import Checkpointer
from costopt.train.elastic_group import ElasticGroup
from costopt.train.group import RankGroup
from costopt.train.loop import LossMonitor, RollbackPolicy, StopRequest, TrainingLoop
from costopt.train.membership_client import MembershipClient
from costopt.train.reduction import GradientLayout, Reduction
from costopt.train.reporter import Reporter
from costopt.train.run_state import (
    ExactnessGuarantee,
    RunState,
    Stateful,
    TrainingState,
    encode_conditions,
    nondeterministic_kernels,
    runtime_conditions,
)
from costopt.train.tree_reduction import TreeReduction

Exactness = Literal["exact", "close"]
_REDUCTIONS: dict[Exactness, Callable[[RankGroup, GradientLayout, int], Reduction]] = {
    "exact": TreeReduction,
    "close": AllReduceReduction,
}


def attach(
    model: nn.Module,
    optimizer: Optimizer,
    scheduler: Stateful | None,
    data: Any,
    *,
    global_batch: int,
    virtual_shards: int,
    mode: Exactness = "exact",
    seed: int = 0,
    collate: Callable[[list[Any]], Any] | None = None,
    checkpoint: str | Path | None = None,
    interval_s: float | None = None,
    keep: int | RetentionPolicy = 3,
    clip_norm: float | None = None,
    rollback: RollbackPolicy | None = None,
) -> TrainingLoop:
    """Restore the newest valid checkpoint into the arguments, and return the loop over it.

    ``scheduler`` is stepped once per step. The agent's settings override ``checkpoint`` (a path or
    URL) and ``interval_s``; without either nothing is saved. ``keep`` is as for ``Checkpointer``;
    checkpoints hold the loss passed to ``observe`` as the label "loss".

    Each step's ``global_batch`` samples are cut into ``virtual_shards``, fixed for the life of the
    job, and any number of processes up to that computes them. ``data`` is a map-style dataset,
    permuted by (seed, epoch), or a function of (step, shard). In mode "exact" weights and losses
    are the same bits whatever the number of processes, however often it changes; "close" sums with
    one all-reduce. ``rollback`` returns to a checkpoint if the loss passed to ``observe`` goes
    wrong.

    Under an agent that names a membership, processes join, leave and are lost while the others
    continue. Otherwise, under torchrun or the agent, the process group is formed here (gloo, or
    NCCL if CUDA is available).

    ``loop.guarantee`` says "close" and why if bit-equality was voided: other threads, kernels,
    GPUs. Raise CheckpointError if the state cannot be restored, CostoptError if an argument is
    wrong.
    """
    if virtual_shards < 1:
        raise CostoptError(
            f"a global batch cannot be cut into {virtual_shards} virtual shards",
            hint="choose at least the maximum number of processes that will ever train",
        )
    samples = batch_source(
        data, seed=seed, global_batch=global_batch, shards=virtual_shards, collate=collate
    )
    env = TrainerEnv.read()
    found = runtime_conditions()
    found |= {"mode": mode, "seed": str(seed), "global batch": str(global_batch)}
    found["virtual shards"] = str(virtual_shards)
    group = _group(env, virtual_shards, found)
    state = RunState(
        TrainingState(model, optimizer, scheduler),
        group=group,
        guarantee=_guarantee(mode),
        conditions=found,
    )
    layout = GradientLayout(model)
    reduction = _REDUCTIONS[mode](group, layout, virtual_shards)
    leads = os.environ.get("LOCAL_RANK", "0") == "0"
    reporter = Reporter(env.status_file if leads else None, env.generation)
    checkpointer = _checkpointer(env, checkpoint, keep)
    stop = StopRequest(env.notice_file)
    cadence = SaveInterval(
        interval_s=env.checkpoint_interval_s or interval_s,
        hazard_per_hour=env.hazard_per_hour,
        noticed_share=env.noticed_share,
        speed=env.speed,
    )
    return TrainingLoop(
        model,
        optimizer,
        scheduler,
        group=group,
        state=state,
        saving=CheckpointManager(
            checkpointer,
            cadence,
            reporter,
            group,
            state.capture,
            overlap=True,
            notice=stop.notice,
        ),
        work=ShardWorker(samples, layout, reduction, seed=seed),
        stop=stop,
        reporter=reporter,
        watch=None if rollback is None else LossMonitor(rollback),
        clip_norm=clip_norm,
        total_units=env.total_units,
        on_formed=lambda generation: _outrank(checkpointer, generation),
    )


def _group(env: TrainerEnv, shards: int, found: dict[str, str]) -> RankGroup:
    """Return an elastic group if there is a membership."""
    membership = env.membership
    if membership is None:
        return RankGroup()
    expected = os.environ.get("WORLD_SIZE")

    def join(store_at: Callable[[str], str]) -> MembershipClient:
        return MembershipClient(
            membership,
            store_at=store_at,
            most=shards,
            expected=None if expected is None else int(expected),
            conditions=encode_conditions(found),
        )

    return ElasticGroup(join)


def _guarantee(mode: Exactness) -> ExactnessGuarantee:
    reasons = [nondeterministic_kernels()]
    if mode == "close":
        reasons.append("gradients are summed in an order that follows the number of processes")
    return ExactnessGuarantee([reason for reason in reasons if reason is not None])


def _checkpointer(
    env: TrainerEnv, uri: str | Path | None, keep: int | RetentionPolicy
) -> Checkpointer | None:
    chosen = env.checkpoint_uri or uri
    if chosen is None:
        return None
    return Checkpointer(chosen, keep=keep, generation=env.generation, near=env.snapshots)


def _outrank(checkpointer: Checkpointer | None, generation: int) -> None:
    """Make saves of older gangs fail from now on."""
    if checkpointer is not None:
        checkpointer.set_parent(generation)
