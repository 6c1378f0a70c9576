"""Checkpoints, exact resume, elasticity and stopping on notice for a PyTorch training loop.

    job = costopt.train.attach(
        model, optimizer, scheduler, data, global_batch=256, virtual_shards=8
    )
    for step in job.steps(total):            # restores, forms gangs, stops on notice
        for batch in job.microbatches():     # the shards that this process owns now
            with job.microbatch(batch):
                loss_fn(model, batch).backward()
        job.apply()                          # exact reduction, clip, step, snapshot

The same script runs under the agent, under torchrun and as plain Python. A loop that steps its own
way can use ``Checkpointer`` alone, or ``ShardedCheckpointer`` for a model that is sharded.
docs/training.md says what is guaranteed.
"""

from typing import TYPE_CHECKING

from costopt.checkpoint.history import RetentionPolicy
from costopt.domain.errors import MissingExtraError, install_hint
from costopt.protocol.trainer_files import SavedCheckpoint

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        "costopt.train needs PyTorch, which is not installed", hint=install_hint("train")
    ) from error

from costopt.train.attach import attach
from costopt.train.checkpointer import Checkpointer, RestoredCheckpoint
from costopt.train.loop import RegroupEvent, RollbackPolicy, TrainingExit, TrainingLoop
from costopt.train.optimizer_state import load_optimizer_state
from costopt.train.save_queue import FailedSave
from costopt.train.sharded_checkpointer import RestoredShards, ShardedCheckpointer
from costopt.train.stream import Stream

if TYPE_CHECKING:
    from costopt.train.dcp_storage import StorageReader, StorageWriter

__all__ = [
    "Checkpointer",
    "FailedSave",
    "RegroupEvent",
    "RestoredCheckpoint",
    "RestoredShards",
    "RetentionPolicy",
    "RollbackPolicy",
    "SavedCheckpoint",
    "ShardedCheckpointer",
    "StorageReader",
    "StorageWriter",
    "Stream",
    "TrainingExit",
    "TrainingLoop",
    "attach",
    "load_optimizer_state",
]


def __getattr__(name: str) -> object:
    """Import ``StorageReader`` or ``StorageWriter``: torch.distributed.checkpoint takes long."""
    if name not in ("StorageReader", "StorageWriter"):
        raise AttributeError(f"module 'costopt.train' has no attribute {name!r}")
    from costopt.train import dcp_storage

    return getattr(dcp_storage, name)
