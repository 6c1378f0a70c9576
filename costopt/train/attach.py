"""``attach``: builds the training loop around a user's model."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from torch import nn
from torch.optim import Optimizer

from costopt.checkpoint.history import RetentionPolicy
from costopt.checkpoint.manifest import DATA_REVISION
from costopt.domain.errors import CostoptError
from costopt.protocol.trainer_files import TrainerEnv
from costopt.train.all_reduce import AllReduceReduction
from costopt.train.argument_checks import check_optimizer, check_scheduler, whole_number
from costopt.train.batches import ShardWorker, batch_source
from costopt.train.checkpoint_manager import CheckpointManager, SaveInterval
from costopt.train.checkpointer import Checkpointer
from costopt.train.elastic_group import ElasticGroup
from costopt.train.group import RankGroup
from costopt.train.loop import LossMonitor, RollbackPolicy, StopRequest, TrainingLoop
from costopt.train.membership_client import MembershipClient, UnitPlace
from costopt.train.recipe import kernel_choice, run_recipe
from costopt.train.recipe_check import RecipeChange, RecipeCheck
from costopt.train.reduction import GradientLayout, Reduction
from costopt.train.replica_groups import ElasticReplicas, FixedReplicas, Replicas
from costopt.train.reporter import Reporter
from costopt.train.run_state import (
    RECIPE,
    ExactnessGuarantee,
    RunState,
    Stateful,
    TrainingState,
    encode_conditions,
    nondeterministic_kernels,
    runtime_conditions,
)
from costopt.train.sharded_checkpointer import ShardedCheckpointer
from costopt.train.sharded_gradients import CopyReduction, ShardedGradientLayout
from costopt.train.sharded_ranks import CopyRanks
from costopt.train.sharded_run import AttachedShards, ShardedRunState
from costopt.train.sharded_state import ModelMesh, find_mesh
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
    changed: RecipeChange = "refuse",
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

    A model that is sharded already (FSDP2, HSDP, tensor parallel) is found to be so: the processes
    of its mesh hold one copy, and other copies are summed over here. With a membership each copy
    has a torch.distributed world of its own, and joins, leaves and is lost as a whole.

    Give the optimizer and scheduler as they were made: with them the checkpoint's settings are
    compared (learning rates, decay, schedule, clipping, classes, what modules are set to, the
    data's length). Where any differ, ``changed`` decides: "refuse" raises CheckpointError that
    names each, "apply" trains on with the new ones, "keep" with those that were saved. The last two
    void bit-equality.

    ``loop.guarantee`` says "close" and why if bit-equality was voided: other settings, threads,
    kernels, GPUs. Raise CheckpointError if the state cannot be restored, CostoptError if an
    argument is wrong.
    """
    if changed not in get_args(RecipeChange):
        raise CostoptError(
            f"changed={changed!r} is not supported",
            hint=f"choose one of {', '.join(get_args(RecipeChange))}",
        )
    global_batch = whole_number("global_batch", global_batch)
    virtual_shards = whole_number("virtual_shards", virtual_shards)
    seed = whole_number("seed", seed)
    check_optimizer(model, optimizer)
    if scheduler is not None:
        check_scheduler(scheduler)
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
    found["optimizer kernels"] = kernel_choice(optimizer)
    recipe = run_recipe(
        model,
        optimizer,
        scheduler,
        settings={"clip_norm": clip_norm, "data revision": os.environ.get(DATA_REVISION)},
        data=data,
        collate=collate,
    )
    found[RECIPE] = recipe.digest()
    check = RecipeCheck(recipe, changed, optimizer, scheduler, found)
    parts = _AttachArguments(
        model, optimizer, scheduler, env, mode, virtual_shards, found, check, clip_norm
    )
    mesh = find_mesh(model)
    uri = env.checkpoint_uri or checkpoint
    run = (
        _attach_whole(parts, uri, keep) if mesh is None else _attach_shards(parts, mesh, uri, keep)
    )
    if run.checkpointer is not None:
        run.state.check_objects()
    leads = os.environ.get("LOCAL_RANK", "0") == "0"
    reporter = Reporter(env.status_file if leads else None, env.generation)
    stop = StopRequest(env.notice_file)
    cadence = SaveInterval.of_agent(env, interval_s)
    return TrainingLoop(
        model,
        optimizer,
        scheduler,
        group=run.group,
        state=run.state,
        saving=CheckpointManager(
            run.checkpointer,
            cadence,
            reporter,
            run.group,
            run.state.capture,
            overlap=True,
            notice=stop.notice,
        ),
        work=ShardWorker(
            samples,
            run.layout,
            run.reduction,
            seed=seed,
            data_ranks=1 if mesh is None else mesh.data_ranks,
            data_rank=0 if mesh is None else mesh.data_rank,
        ),
        stop=stop,
        reporter=reporter,
        watch=None if rollback is None else LossMonitor(rollback),
        total_units=env.total_units,
        on_formed=lambda generation: _outrank(run.checkpointer, generation),
    )


@dataclass(frozen=True, slots=True)
class _AttachArguments:
    model: nn.Module
    optimizer: Optimizer
    scheduler: Stateful | None
    env: TrainerEnv
    mode: Exactness
    shards: int
    conditions: dict[str, str]
    recipe: RecipeCheck
    clip_norm: float | None


@dataclass(frozen=True, slots=True)
class _AttachedRun:
    group: RankGroup
    state: RunState
    layout: GradientLayout
    reduction: Reduction
    checkpointer: Checkpointer | AttachedShards | None


def _attach_whole(
    parts: _AttachArguments, uri: str | Path | None, keep: int | RetentionPolicy
) -> _AttachedRun:
    env, group = parts.env, _whole_group(parts)
    state = RunState(
        TrainingState(parts.model, parts.optimizer, parts.scheduler),
        group=group,
        guarantee=_guarantee(parts.mode),
        conditions=parts.conditions,
        recipe=parts.recipe,
        clip_norm=parts.clip_norm,
    )
    layout = GradientLayout(parts.model)
    reduction = _REDUCTIONS[parts.mode](group, layout, parts.shards)
    checkpointer = None
    if uri is not None:
        checkpointer = Checkpointer(uri, keep=keep, generation=env.generation, near=env.snapshots)
    return _AttachedRun(group, state, layout, reduction, checkpointer)


def _whole_group(parts: _AttachArguments) -> RankGroup:
    membership = parts.env.membership
    if membership is None:
        return RankGroup()
    expected = os.environ.get("WORLD_SIZE")
    return ElasticGroup(
        lambda store_at: MembershipClient(
            membership,
            store_at=store_at,
            most=parts.shards,
            expected=None if expected is None else int(expected),
            conditions=encode_conditions(parts.conditions),
        )
    )


def _attach_shards(
    parts: _AttachArguments, mesh: ModelMesh, uri: str | Path | None, keep: int | RetentionPolicy
) -> _AttachedRun:
    if parts.shards % mesh.data_ranks:
        raise CostoptError(
            f"{parts.shards} virtual shards cannot be computed {mesh.data_ranks} at a time, as "
            f"the mesh ({mesh.label}) does",
            hint=f"choose virtual_shards as a multiple of {mesh.data_ranks}",
        )
    env, membership = parts.env, parts.env.membership
    found = parts.conditions
    found["mesh"] = mesh.label
    copies = parts.shards // mesh.data_ranks
    ranks = CopyRanks.of(mesh.ranks)

    def join(store_at: Callable[[str], str], unit: UnitPlace) -> MembershipClient:
        conditions = encode_conditions(found)
        return MembershipClient(
            membership or "", store_at=store_at, most=copies, conditions=conditions, unit=unit
        )

    group: Replicas
    if membership is None:
        group = FixedReplicas(ranks.everyone, mesh)
    else:
        group = ElasticReplicas(ranks.everyone, join)
    state = ShardedRunState(
        parts.model,
        parts.optimizer,
        parts.scheduler,
        group=group,
        guarantee=_guarantee(parts.mode),
        conditions=found,
        recipe=parts.recipe,
        clip_norm=parts.clip_norm,
    )
    layout = ShardedGradientLayout(parts.model)
    reduction = CopyReduction(_REDUCTIONS[parts.mode](group, layout, copies), group)
    checkpointer = None
    if uri is not None:
        rest: dict[str, Any] = {}
        saver = ShardedCheckpointer(
            uri,
            parts.model,
            parts.optimizer,
            keep=keep,
            generation=env.generation,
            extra=lambda: rest,
            ranks=ranks,
            near=env.snapshots,
            recipe=parts.recipe,
        )
        checkpointer = AttachedShards(saver, rest)
    return _AttachedRun(group, state, layout, reduction, checkpointer)


def _guarantee(mode: Exactness) -> ExactnessGuarantee:
    reasons = [nondeterministic_kernels()]
    if mode == "close":
        reasons.append("gradients are summed in an order that follows the number of processes")
    return ExactnessGuarantee([reason for reason in reasons if reason is not None])


def _outrank(checkpointer: Checkpointer | AttachedShards | None, generation: int) -> None:
    """Make saves of older gangs fail from now on."""
    if checkpointer is not None:
        checkpointer.set_parent(generation)
