"""Tells the agent how far the training is; silent where there is no agent."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from costopt.protocol.trainer_files import (
    RejectedCheckpoint,
    SavedCheckpoint,
    TrainerState,
    TrainerStatus,
)
from costopt.train.pace import StepRate
from costopt.train.time_use import StepTimer

MIN_INTERVAL_S = 0.2
MAX_REMEMBERED_CHECKPOINTS = 64


class Reporter:
    """Steps in, units out: ``units_per_step`` converts."""

    def __init__(self, path: Path | None, generation: int) -> None:
        self.units_per_step = 1.0
        self._path = path
        self._status = TrainerStatus(generation, TrainerState.STARTING, at=time.time())
        self._checkpoints: deque[SavedCheckpoint] = deque(maxlen=MAX_REMEMBERED_CHECKPOINTS)
        self._pace = StepRate()
        self._written_at = 0.0
        self._trouble = ""
        self._time = StepTimer()

    def resumed(
        self,
        step: int,
        restored: SavedCheckpoint | None,
        refused: Sequence[RejectedCheckpoint],
        guarantee: str,
        *,
        saved_step: int | None = None,
        message: str = "",
    ) -> None:
        """Training goes on at ``step``; only ``saved_step`` is durable, None: ``step`` itself."""
        if restored is not None:
            self._remember(restored)
        saved = step if saved_step is None else saved_step
        self._write_status(
            done_units=step * self.units_per_step,
            resumed_units=step * self.units_per_step,
            saved_units=saved * self.units_per_step,
            refused=tuple(refused),
            guarantee=guarantee,
            message=message,
        )

    def guarantees(self, guarantee: str) -> None:
        """How exact the result is from here on."""
        self._write_status(guarantee=guarantee)

    def on_start(self) -> None:
        """A step begins."""
        self._time.begin_step(time.monotonic())

    def on_data_wait(self, wait_s: float) -> None:
        """So long of the step went by waiting for data."""
        self._time.wait(wait_s)

    def on_rollback(self, step: int) -> None:
        """Training goes on after ``step`` steps, whatever was done beyond."""
        self._time.record_rollback(step)
        self._pace.reset()

    def on_step(self, step: int) -> None:
        """``step`` steps are done."""
        now = time.monotonic()
        self._time.end_step(step, now)
        self._pace.record_step(now)
        if now - self._written_at >= MIN_INTERVAL_S:
            self._write_status(
                state=TrainerState.TRAINING,
                done_units=step * self.units_per_step,
                units_per_s=self._speed(),
                step_s=self._pace.step_s,
                **self._shares(),
            )

    def saved(self, step: int, checkpoint: SavedCheckpoint) -> None:
        """A checkpoint of ``step`` is durable."""
        self._remember(checkpoint)
        units = step * self.units_per_step
        self._write_status(
            state=TrainerState.TRAINING,
            done_units=units,
            saved_units=units,
            message=self._trouble,
        )

    def on_replica(self, trouble: str) -> None:
        """What near tiers could not do, "" where nothing: told along with the next save."""
        self._trouble = trouble

    def interval(self, interval_s: float, reason: str) -> None:
        """Saves come every ``interval_s`` of the job's time from here on."""
        self._write_status(interval_s=interval_s, interval_reason=reason)

    def failed(self, message: str) -> None:
        """A save failed; training goes on."""
        self._write_status(message=message)

    def warn(self, message: str) -> None:
        """The state is safe for now where ``message`` says, and not in the store."""
        self._write_status(message=message)

    def ended(self, state: TrainerState, step: int) -> None:
        """The loop is over."""
        self._write_status(state=state, done_units=step * self.units_per_step, **self._shares())

    def _shares(self) -> dict[str, float | None]:
        return {
            "data_wait_share": self._time.data_wait_share,
            "goodput": self._time.goodput(time.monotonic()),
        }

    def _remember(self, checkpoint: SavedCheckpoint) -> None:
        units = checkpoint.units * self.units_per_step
        self._checkpoints.append(replace(checkpoint, units=units))

    def _speed(self) -> float | None:
        step_s = self._pace.step_s
        return self.units_per_step / step_s if step_s else None

    def _write_status(self, **changes: object) -> None:
        self._status = replace(
            self._status,
            at=time.time(),
            checkpoints=tuple(self._checkpoints),
            **changes,  # type: ignore[arg-type]
        )
        self._written_at = time.monotonic()
        if self._path is not None:
            self._status.write(self._path)
