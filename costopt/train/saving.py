"""What the loop does to save and to restore: when, how often it tries, and what it tells."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from costopt.agent.status import SavedCheckpoint
from costopt.domain.errors import CheckpointError
from costopt.train.cadence import Cadence
from costopt.train.checkpointer import Checkpointer, Restored
from costopt.train.group import Group
from costopt.train.outcome import Outcome, SaveFailed
from costopt.train.reporter import Reporter

FAILED_SAVES_ALLOWED = 2

Capture = Callable[[], dict[str, Any]]
"""The whole state on rank 0, an empty dictionary elsewhere. Every rank must call it together."""


class Saving:
    """Saves of one loop. Without a checkpointer every save succeeds and nothing is written.

    Saves while training goes on are begun here and become durable later; ``is_due``, which is
    asked at every step, hears of it. With ``overlap`` their copy goes on as well, until the loop
    calls ``copied`` before the optimizer steps. Rank 0 writes; which process that is may change
    when the group forms anew. A call that a lost peer cut short can be repeated: at worst a step is
    saved twice, in two directories.
    """

    def __init__(
        self,
        checkpointer: Checkpointer | None,
        cadence: Cadence,
        reporter: Reporter,
        group: Group,
        capture: Capture,
        *,
        overlap: bool = False,
    ) -> None:
        self._checkpointer = checkpointer
        self._cadence = cadence
        self._reporter = reporter
        self._group = group
        self._capture = capture
        self._overlap = overlap
        self._blocked_s = 0.0
        self._begun_step: int | None = None
        self._delayed_by: int | None = None
        self._saved_step: int | None = None
        self._failed_saves = 0
        self._restored: Restored | None = None

    def is_due(self) -> bool:
        """Whether to save after this step; what rank 0 says counts.

        A save that is due waits while one is in flight, and that is told once. Raises
        CheckpointError where saves have failed three times in a row.
        """
        if self._checkpointer is None:
            return False
        for outcome in self._checkpointer.poll():
            self._hear(outcome)
        if not self._cadence.is_due():
            return False
        if self._begun_step is not None:
            self._tell_delay()
            return False
        return True

    def save(self, step: int) -> None:
        """Begin a save. Collective: every rank calls it at the same step.

        A failure is told and counted, and the third in a row raises CheckpointError.
        """
        if self._checkpointer is None:
            return
        began = time.monotonic()
        state = self._capture()
        if self._group.rank != 0:
            return
        try:
            begun = self._checkpointer.begin(
                step, state, world_size=self._group.size, overlap=self._overlap
            )
        except CheckpointError as error:
            self._fail(error)
            return
        if not begun:
            self._tell_delay()
            return
        self._begun_step = step
        self._blocked_s = time.monotonic() - began
        self._cadence.begun()

    def copied(self) -> None:
        """Wait until the state may change: before the optimizer steps."""
        if self._begun_step is not None and self._checkpointer is not None:
            began = time.monotonic()
            self._checkpointer.copied()
            self._blocked_s += time.monotonic() - began

    def save_for_certain(self, step: int) -> None:
        """Save, trying as often as is allowed; every rank waits until the state is safe."""
        while not self._group.broadcast(self._save_and_wait(step)):
            continue
        self._saved_step = step

    def has_saved(self, step: int) -> bool:
        """Whether the state after ``step`` steps is safe; the same on every rank."""
        return self._saved_step == step

    def restore(self) -> Restored | None:
        """Rank 0 chooses the newest valid checkpoint; the others read the same one."""
        if self._checkpointer is None:
            return None
        if self._group.rank == 0:
            for outcome in self._checkpointer.wait():
                self._hear(outcome)
            self._restored = self._checkpointer.restore()
            self._checkpointer.claim(wait=False)
        name = self._group.broadcast(None if self._restored is None else self._restored.name)
        if name is not None and self._group.rank != 0:
            self._restored = self._checkpointer.load(name)
        if self._restored is not None:
            self._saved_step = self._restored.manifest.step
        return self._restored

    def tell_restored(self, step: int, guarantee: str) -> None:
        """Report at which step training goes on, from what, and what was passed over."""
        restored = None
        if self._restored is not None and self._checkpointer is not None:
            restored = self._checkpointer.describe(self._restored)
        refused = () if self._checkpointer is None else self._checkpointer.refused
        for refusal in refused:
            self.complain(f"checkpoint {refusal.name} refused: {refusal.message}")
        self._restored = None
        self._reporter.resumed(step, restored, refused, guarantee)

    def complain(self, message: str) -> None:
        """Say something to who reads the trainer's log."""
        print(f"costopt: {message}", file=sys.stderr, flush=True)  # noqa: T201

    def _save_and_wait(self, step: int) -> bool:
        if self._checkpointer is None:
            return True
        began = time.monotonic()
        state = self._capture()
        if self._group.rank != 0:
            return True
        try:
            saved = self._checkpointer.save(step, state, world_size=self._group.size)
        except CheckpointError as error:
            self._fail(error)
            return False
        for outcome in self._checkpointer.poll():
            self._hear(outcome)
        self._succeed(step, saved)
        self._time(time.monotonic() - began)
        return True

    def _hear(self, outcome: Outcome) -> None:
        """A save that was begun has ended."""
        step, self._begun_step = self._begun_step, None
        if isinstance(outcome, SaveFailed):
            self._fail(outcome.error)
            return
        self._succeed(int(outcome.units) if step is None else step, outcome)
        self._time(self._blocked_s, outcome.save_s)

    def _time(self, blocked_s: float, persist_s: float | None = None) -> None:
        """A save took so long: how often to save follows from it, and is told."""
        self._cadence.saved(blocked_s, persist_s)
        self._reporter.interval(self._cadence.interval_s, self._cadence.reason)

    def _succeed(self, step: int, saved: SavedCheckpoint) -> None:
        self._failed_saves = 0
        self._delayed_by = None
        self._reporter.saved(step, saved)

    def _tell_delay(self) -> None:
        if self._delayed_by != self._begun_step:
            self._delayed_by = self._begun_step
            self.complain(
                f"a save is due while that of step {self._begun_step} is still being written: it "
                "waits until then; saves take longer than the checkpoint interval"
            )

    def _fail(self, error: CheckpointError) -> None:
        self._failed_saves += 1
        self.complain(str(error))
        self._reporter.failed(error.message)
        self._cadence.failed()
        if self._failed_saves > FAILED_SAVES_ALLOWED:
            raise error
