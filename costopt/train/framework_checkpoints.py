"""Checkpoints of a loop that another framework runs, which steps its own optimizer.

``costopt.train.hugging_face`` and ``costopt.train.torchtitan`` are such loops.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from costopt.checkpoint.history import RetentionPolicy
from costopt.protocol.trainer_files import STATUS_FILE, TrainerEnv, TrainerState
from costopt.train.checkpoint_manager import CheckpointManager, SaveInterval
from costopt.train.checkpointer import RestoredCheckpoint
from costopt.train.group import StepVote
from costopt.train.loop import SIGTERM_EXIT, StopRequest, TrainingExit
from costopt.train.recipe import Recipe, run_recipe, schedule_settings
from costopt.train.recipe_check import RecipeChange, RecipeCheck
from costopt.train.replica_groups import FixedReplicas
from costopt.train.reporter import Reporter
from costopt.train.run_state import runtime_conditions
from costopt.train.sharded_checkpointer import ShardedCheckpointer
from costopt.train.sharded_ranks import CopyRanks
from costopt.train.sharded_run import AttachedShards
from costopt.train.sharded_state import ModelMesh
from costopt.train.weight_check import WeightComparison

GUARANTEE = "close: the framework's loop decides how gradients are summed"


class FrameworkCheckpoints:
    """Saves when a save is due, and before the process ends on a notice.

    Made on each rank after the model is sharded, or on one without shards. All ranks call every
    method at the same steps. ``capture`` returns what else a rank saves. The agent's address and
    interval override ``uri`` and ``every_steps``; where neither gives an interval, it is 30 min.
    ``changed`` is as for ``attach``, for the settings of model and optimizer; another ``scheduler``
    is named in the guarantee, which is "close" in any case.
    """

    def __init__(
        self,
        uri: str | Path,
        model: nn.Module,
        optimizer: Optimizer,
        capture: Callable[[], dict[str, Any]],
        *,
        every_steps: int | None = None,
        keep: int | RetentionPolicy = 3,
        scheduler: Any = None,
        changed: RecipeChange = "refuse",
    ) -> None:
        own = run_recipe(model, optimizer)
        # Frameworks make a schedule from the number of steps: more of them is a use of theirs.
        schedule = {} if scheduler is None else schedule_settings(scheduler)
        recipe = Recipe(own.settings, {**own.notes, **schedule})
        self._recipe = RecipeCheck(recipe, changed, optimizer, scheduler, runtime_conditions())
        env = TrainerEnv.read()
        is_asked = env.checkpoint_interval_s is not None or env.hazard_per_hour is not None
        self._every_steps = None if is_asked else every_steps
        self._total_units = env.total_units
        rest: dict[str, Any] = {}
        ranks = CopyRanks.of()
        self._saver = ShardedCheckpointer(
            env.checkpoint_uri or uri,
            model,
            optimizer,
            keep=keep,
            generation=env.generation,
            extra=lambda: rest,
            ranks=ranks,
            near=env.snapshots,
            recipe=self._recipe,
        )
        size = dist.get_world_size() if dist.is_initialized() else 1
        # One copy of the model, of which every process is a member.
        self._group = FixedReplicas(ranks.everyone, ModelMesh(tuple(range(size)), 1, 0, ""))
        self._weights = WeightComparison(model, ranks.everyone)
        self._guarantee = GUARANTEE
        leads = os.environ.get("LOCAL_RANK", "0") == "0"
        self._reporter = Reporter(env.status_file if leads else None, env.generation)
        self._stop = StopRequest(env.notice_file)
        self._saving = CheckpointManager(
            AttachedShards(self._saver, rest),
            SaveInterval.of_agent(env),
            self._reporter,
            self._group,
            capture,
            overlap=True,
            notice=self._stop.notice,
        )

    def restore(self, total_steps: int) -> RestoredCheckpoint | None:
        """Fill model and optimizer from the newest valid checkpoint; None if there is none.

        Its ``state`` is what ``capture`` returned on this rank, or on rank 0 where the number of
        processes was another. Raise CheckpointError if it is of another model.
        """
        found = self._saving.restore()
        if self._total_units is not None:
            self._reporter.units_per_step = self._total_units / total_steps
        step = 0 if found is None else found.manifest.step
        self._guarantee = "; ".join([GUARANTEE, *self._recipe.reasons])
        self._saving.report_restored(step, self._guarantee)
        if step >= total_steps:
            self._reporter.ended(TrainerState.FINISHED, step)
        self._reporter.on_start()
        return found

    @property
    def replaces_schedule(self) -> bool:
        """Whether the scheduler is set already: its settings differ from those that were saved."""
        return self._recipe.replaces_schedule

    def after_step(self, step: int, *, last: bool = False) -> None:
        """Save if that is due, and wait for it after the last step.

        Raise TrainingExit once the state is safe on a notice, CheckpointError after three failed
        saves.
        """
        self._reporter.on_step(step)
        if self._every_steps is not None and step % self._every_steps == 0:
            self._saving.request()
        digest = self._weights.digest(step, self._group.size, whole=last)
        vote = StepVote(self._stop.is_requested(), self._saving.is_due(), weights=digest)
        vote = self._group.share_vote(vote)
        for found in self._weights.find((), vote.unit_weights, step):
            self._guarantee += f"; {found}"
            self._saving.log_error(found)
            self._reporter.guarantees(self._guarantee, message=found)
        if last:
            self._saving.save_or_raise(step)
            self._reporter.ended(TrainerState.FINISHED, step)
        elif vote.stop:
            self._saving.save_on_notice(step)
            self._reporter.ended(TrainerState.STOPPED, step)
            raise TrainingExit(0 if STATUS_FILE in os.environ else SIGTERM_EXIT)
        elif vote.save:
            self._saving.save(step)
        self._reporter.on_start()

    def copied(self) -> None:
        """Wait until the tensors may be changed by other means than an optimizer's step."""
        self._saving.copied()

    def close(self) -> None:
        """Wait for saves in progress."""
        self._saver.close()
