"""Sharded checkpoints for torchtitan: a checkpoint manager, chosen in the configuration.

config.checkpoint = costopt.train.torchtitan.TorchtitanCheckpoints.Config(
    enable=True, folder="s3://bucket/run", interval=500
)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn
from torchtitan.components.checkpointer import (
    DATALOADER,
    LR_SCHEDULER,
    TRAIN_STATE,
    BaseCheckpointManager,
)
from torchtitan.tools import filesystem

from costopt.domain.errors import CheckpointError, CostoptError
from costopt.train.framework_checkpoints import FrameworkCheckpoints
from costopt.train.recipe_check import RecipeChange

UNSUPPORTED = (
    "initial_load_path",
    "initial_load_in_hf",
    "last_save_in_hf",
    "create_seed_checkpoint",
    "load_only",
)


class TorchtitanCheckpoints(BaseCheckpointManager):  # type: ignore[misc]
    """Saves every ``interval`` steps, after the last one, and before the process ends on a notice.

    All of the state is saved each time (``last_save_model_only`` and ``export_dtype`` do not
    count): ``costopt checkpoints export`` writes the weights alone. A data loader is restored where
    torchtitan allows it: on the same number of processes.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseCheckpointManager.Config):  # type: ignore[misc]
        """torchtitan's own settings; ``folder`` may be an address, as in s3://bucket/run.

        ``changed`` is as for ``FrameworkCheckpoints``.
        """

        changed: RecipeChange = "refuse"

    def __init__(
        self,
        config: Config,
        *,
        dataloader: Any,
        model_parts: list[nn.Module],
        optimizers: Any,
        lr_schedulers: Any,
        states: dict[str, Any],
        sd_adapter: Any = None,  # noqa: ARG002
        base_folder: str = "",
    ) -> None:
        """Raise CostoptError for a setting, a pipeline or optimizers that are not supported."""
        self.enable = False
        self.save_future = None
        if not config.enable:
            return
        asked = [name for name in UNSUPPORTED if getattr(config, name)]
        if asked:
            raise CostoptError(
                f"checkpoint.{asked[0]} is not supported",
                hint="import weights with `costopt checkpoints import`, export them with `export`",
            )
        if len(model_parts) > 1 or len(optimizers) > 1:
            raise CostoptError(
                f"{len(model_parts)} model parts with {len(optimizers)} optimizers on a process "
                "cannot be saved",
                hint="use one optimizer, and no pipeline",
            )
        self._excluded = config.exclude_from_loading
        self._states = {**states, DATALOADER: dataloader, LR_SCHEDULER: lr_schedulers}
        self._saves = FrameworkCheckpoints(
            filesystem.join(base_folder, config.folder),
            model_parts[0],
            next(iter(optimizers)),
            self._capture,
            every_steps=config.interval,
            keep=config.keep_latest_k or 1_000_000,
            scheduler=lr_schedulers,
            changed=config.changed,
        )
        self.enable = True

    def __del__(self) -> None:
        self.close()

    def _load(self, step: int = -1) -> bool:
        trainer = self._states[TRAIN_STATE]
        restored = self._saves.restore(trainer.config.training.steps)
        if restored is None:
            return False
        if step not in (-1, restored.manifest.step):
            raise CheckpointError(
                f"the newest checkpoint is of step {restored.manifest.step}, not of {step}",
                hint="make it the newest with `costopt checkpoints rollback`",
            )
        skipped = {*self._excluded, *([LR_SCHEDULER] if self._saves.replaces_schedule else [])}
        for name, part in self._states.items():
            if part is not None and name not in skipped:
                part.load_state_dict(restored.state[name])
        return True

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        self._saves.after_step(curr_step, last=last_step)
        return True

    def _capture(self) -> dict[str, Any]:
        return {n: part.state_dict() for n, part in self._states.items() if part is not None}

    def _maybe_wait_for_staging(self) -> None:
        self._saves.copied()

    def _wait_for_saving(self) -> None:
        """Do nothing: ``save_future`` is never set, and the next save waits without it."""

    def _close(self) -> None:
        self.enable = False
        self._saves.close()
