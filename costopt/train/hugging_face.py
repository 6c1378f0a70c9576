"""Checkpoints for Hugging Face's Trainer: of FSDP2 models sharded, of others from all ranks.

    trainer = Trainer(model, arguments, train_dataset=data)
    costopt.train.hugging_face.TrainerCheckpoints(trainer, "s3://bucket/run", every_steps=500)
    trainer.train()                        # goes on where the newest valid checkpoint was made

Trainer asks for a folder to resume from before it has sharded the model. What was saved is known
only afterwards, so two of its private methods are wrapped (transformers 5).
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from transformers import Trainer, TrainerCallback

from costopt.checkpoint.history import RetentionPolicy
from costopt.train.framework_checkpoints import FrameworkCheckpoints
from costopt.train.recipe_check import RecipeChange

PROGRESS = ("global_step", "epoch", "total_flos", "num_input_tokens_seen", "log_history")
"""Of Trainer's state; the rest follows from its arguments."""


class TrainerCheckpoints(TrainerCallback):  # type: ignore[misc]
    """Saves every so many steps, after the last one, and before the process ends on a notice.

    ``uri``, ``every_steps``, ``keep`` and ``changed`` are as for ``FrameworkCheckpoints``.
    Trainer's own checkpoints are not needed: ``save_strategy="no"``. Generators are restored where
    the number of processes is as it was.
    """

    def __init__(
        self,
        trainer: Trainer,
        uri: str | Path,
        *,
        every_steps: int | None = None,
        keep: int | RetentionPolicy = 3,
        changed: RecipeChange = "refuse",
    ) -> None:
        self._trainer = cast("Any", trainer)
        self._changed: RecipeChange = changed
        self._uri, self._every_steps, self._keep = uri, every_steps, keep
        self._saves: FrameworkCheckpoints | None = None
        self._begin_step = 0
        self._generators: dict[str, Any] | None = None
        self._prepare = self._trainer._prepare_for_training
        self._run_epoch = self._trainer._run_epoch
        self._trainer._prepare_for_training = self._prepare_and_restore
        self._trainer._run_epoch = self._run_rest_of_epoch
        self._trainer._load_rng_state = lambda _: self._restore_generators()
        trainer.add_callback(self)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Save if that is due."""
        assert self._saves is not None
        self._saves.after_step(state.global_step, last=state.global_step >= state.max_steps)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Wait for what is still being written."""
        assert self._saves is not None
        self._saves.close()

    def _prepare_and_restore(self, max_steps: int, *rest: Any) -> Any:
        prepared = self._prepare(max_steps, *rest)
        trainer = self._trainer
        self._saves = FrameworkCheckpoints(
            self._uri,
            trainer.model,
            trainer.optimizer.optimizer,
            self._capture,
            every_steps=self._every_steps,
            keep=self._keep,
            scheduler=getattr(trainer.lr_scheduler, "scheduler", trainer.lr_scheduler),
            changed=self._changed,
        )
        restored = self._saves.restore(max_steps)
        if restored is not None:
            if not self._saves.replaces_schedule:
                trainer.lr_scheduler.load_state_dict(restored.state["scheduler"])
            vars(trainer.state).update(restored.state["progress"])
            self._begin_step = trainer.state.global_step
            if restored.manifest.world_size == trainer.args.world_size:
                self._generators = restored.state["generators"]
        return prepared

    def _capture(self) -> dict[str, Any]:
        name, keys, *position = cast("Any", np.random.get_state())
        return {
            "scheduler": self._trainer.lr_scheduler.state_dict(),
            "progress": {key: getattr(self._trainer.state, key) for key in PROGRESS},
            "generators": {
                "python": random.getstate(),
                "numpy": (name, keys.tolist(), *position),
                "torch": torch.get_rng_state(),
                "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
            },
        }

    def _run_rest_of_epoch(self, **given: Any) -> None:
        """Run an epoch as Trainer does when it resumes from a folder; skip those that are over."""
        first, steps = divmod(self._begin_step, given["num_update_steps_per_epoch"])
        if given["epoch"] < first or self._begin_step >= self._trainer.state.max_steps:
            return
        if self._begin_step and given["epoch"] == first:
            given |= {
                "resume_from_checkpoint": str(self._uri),
                "epochs_trained": first,
                "steps_trained_in_current_epoch": steps
                * self._trainer.args.gradient_accumulation_steps,
            }
        self._run_epoch(**given)

    def _restore_generators(self) -> None:
        if self._generators is None:
            return
        random.setstate(self._generators["python"])
        np.random.set_state(self._generators["numpy"])
        torch.set_rng_state(self._generators["torch"])
        if self._generators["cuda"] is not None:
            torch.cuda.set_rng_state(self._generators["cuda"])
