"""What a training process reports to its agent: progress, goodput and step time.

Without an agent, nothing is reported. ``StepTimer`` accounts for the process' time, ``StepRate``
measures how fast it steps now.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from costopt.checkpoint.writer import process_start_time
from costopt.protocol.trainer_files import (
    RejectedCheckpoint,
    SavedCheckpoint,
    TrainerState,
    TrainerStatus,
)

MIN_INTERVAL_S = 0.2
MAX_REMEMBERED_CHECKPOINTS = 64


class Reporter:
    """Reports to the agent; ``units_per_step`` converts steps to units."""

    def __init__(self, path: Path | None, generation: int) -> None:
        self.units_per_step = 1.0
        self._path = path
        self._status = TrainerStatus(generation, TrainerState.STARTING, at=time.time())
        self._checkpoints: deque[SavedCheckpoint] = deque(maxlen=MAX_REMEMBERED_CHECKPOINTS)
        self._pace = StepRate()
        self._written_at = 0.0
        self._failure = ""
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
        """Report that training resumes at ``step``; only ``saved_step`` is durable (None: all)."""
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

    def guarantees(self, guarantee: str, *, message: str = "") -> None:
        """Report how exact the result is from now on, and with a message why."""
        changes = {"message": message} if message else {}
        self._write_status(guarantee=guarantee, **changes)

    def on_start(self) -> None:
        """Record that a step begins."""
        self._time.begin_step(time.monotonic())

    def on_data_wait(self, wait_s: float) -> None:
        """Record that the step waited ``wait_s`` seconds for data."""
        self._time.wait(wait_s)

    def on_computed(self, microbatches: int) -> None:
        """Record that the step's microbatches are computed; what follows waits for the others."""
        self._time.end_compute(time.monotonic(), microbatches)

    def on_rollback(self, step: int) -> None:
        """Record that training resumes after ``step`` steps; later ones no longer count."""
        self._time.record_rollback(step)
        self._pace.reset()

    def on_step(self, step: int) -> None:
        """Report that ``step`` steps are done."""
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
        """Report that a checkpoint of ``step`` is durable."""
        self._remember(checkpoint)
        units = step * self.units_per_step
        self._write_status(
            state=TrainerState.TRAINING, done_units=units, saved_units=units, message=self._failure
        )

    def on_replica(self, failure: str) -> None:
        """Record the near tiers' failure, "" for none: reported along with the next save."""
        self._failure = failure

    def interval(self, interval_s: float, reason: str) -> None:
        """Report that saves are ``interval_s`` of the job's time apart from now on."""
        self._write_status(interval_s=interval_s, interval_reason=reason)

    def failed(self, message: str) -> None:
        """Report that a save failed; training continues."""
        self._write_status(message=message)

    def warn(self, message: str) -> None:
        """Report that the state is safe for now as ``message`` says, but not in the store."""
        self._write_status(message=message)

    def ended(self, state: TrainerState, step: int) -> None:
        """Report that the loop is over."""
        self._write_status(state=state, done_units=step * self.units_per_step, **self._shares())

    def _shares(self) -> dict[str, float | None]:
        return {
            "data_wait_share": self._time.data_wait_share,
            "microbatch_s": self._time.microbatch_s,
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


WINDOW = 64
"""Steps over which the wait for data is averaged."""
MAX_STEPS = 100_000
"""Rollbacks never reach further back than this many steps."""
BEGAN_AT = "COSTOPT_BEGAN_AT"
"""When a warm process received its script (POSIX seconds): its time before does not count."""


class StepTimer:
    """Accounts for the time of a process, from the begin and end of each step.

    ``now`` is monotonic, in seconds, passed in for tests.
    """

    def __init__(self, began: float | None = None) -> None:
        """``began`` is when this process began, by the monotonic clock; the system's figure by
        default.
        """
        age_s = time.time() - float(os.environ.get(BEGAN_AT) or process_start_time())
        self._began = time.monotonic() - age_s if began is None else began
        self._step_began: float | None = None
        self._waited_s: float | None = None
        self._useful_s = 0.0
        self._useful: deque[tuple[int, float]] = deque(maxlen=MAX_STEPS)
        self._recent: deque[tuple[float, float]] = deque(maxlen=WINDOW)
        self._computed: deque[tuple[float, int]] = deque(maxlen=WINDOW)

    def begin_step(self, now: float) -> None:
        """Begin a step; the time of one that did not end is lost."""
        self._step_began, self._waited_s = now, None

    def wait(self, wait_s: float) -> None:
        """Record that the step waited ``wait_s`` seconds for data."""
        self._waited_s = (self._waited_s or 0.0) + wait_s

    def end_compute(self, now: float, microbatches: int) -> None:
        """Record that this process has computed its ``microbatches`` of the step."""
        if self._step_began is not None and microbatches and len(self._useful) >= WARM_STEPS:
            self._computed.append((now - self._step_began, microbatches))

    def end_step(self, step: int, now: float) -> None:
        """Record that ``step`` steps are done."""
        if self._step_began is None:
            return
        took_s = now - self._step_began
        self._useful_s += took_s
        self._useful.append((step, took_s))
        if self._waited_s is not None:
            self._recent.append((took_s, self._waited_s))
        self._step_began = None

    def record_rollback(self, step: int) -> None:
        """Record that training resumes after ``step`` steps: later ones no longer count."""
        while self._useful and self._useful[-1][0] > step:
            self._useful_s -= self._useful.pop()[1]

    @property
    def data_wait_share(self) -> float | None:
        """Return the share of the last steps' time spent waiting for data; None before any."""
        took_s = sum(took for took, _ in self._recent)
        return sum(waited for _, waited in self._recent) / took_s if took_s else None

    @property
    def microbatch_s(self) -> float | None:
        """Return the mean seconds that a microbatch of the last steps took this process, with the
        wait for data, without that for the gang; None before any."""
        count = sum(microbatches for _, microbatches in self._computed)
        return sum(took_s for took_s, _ in self._computed) / count if count else None

    def goodput(self, now: float) -> float | None:
        """Return the share of time since this process began that went into steps that count.

        Starting, restoring, forming gangs, saving while the loop waits, and steps that were lost
        are the rest. None before the first step.
        """
        if not self._useful:
            return None
        return max(0.0, min(1.0, self._useful_s / max(now - self._began, 1e-9)))


WARM_STEPS = 5
"""A process' first steps compile, reserve memory and start the writer: they do not predict the
steps after them."""
MIN_STEPS = 3
WINDOW_S = 10.0


class StepRate:
    """Steps per second over the last seconds, or over the last steps where those take longer.

    Unknown until enough steps were made after the first ones of this process.
    """

    def __init__(self) -> None:
        self._made = 0
        self._ends: deque[float] = deque()

    def record_step(self, now: float) -> None:
        """Record that a step ended."""
        self._made += 1
        if self._made < WARM_STEPS:
            return
        self._ends.append(now)
        while len(self._ends) > MIN_STEPS + 1 and now - self._ends[0] > WINDOW_S:
            self._ends.popleft()

    def reset(self) -> None:
        """Begin a new series: the next step does not directly follow the last one."""
        self._ends.clear()

    @property
    def step_s(self) -> float | None:
        """Return the seconds per step; None while unknown."""
        if len(self._ends) <= MIN_STEPS:
            return None
        return (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
