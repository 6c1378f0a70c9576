"""How the training loop saves and restores: when, with how many retries, and what it reports.

``SaveInterval`` says when the next checkpoint is due. ``broadcast_restored`` sends every rank what
rank 0 restored from a tier that only it can reach.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from costopt.checkpoint.history import LOSS
from costopt.checkpoint.manifest import Manifest
from costopt.checkpoint.replicas.snapshot import Replica, Tier
from costopt.domain.checkpoint_interval import LOSS_BUDGET_S, explained_interval
from costopt.domain.errors import CheckpointError
from costopt.protocol.trainer_files import SavedCheckpoint, StopNotice, TrainerEnv
from costopt.train.checkpointer import Checkpointer, RestoredCheckpoint
from costopt.train.group import RankGroup, broadcast_state
from costopt.train.reporter import Reporter
from costopt.train.save_queue import FailedSave, SaveOutcome
from costopt.train.sharded_run import AttachedShards
from costopt.train.state_layout import StateLayout

MAX_FAILED_SAVES = 2
NOTICE_MARGIN_S = 2.0
"""Time to copy, hash and commit, beside the upload itself; in the job's time, as notices are."""

Capture = Callable[[], dict[str, Any]]
"""Returns the whole state; its tensors may be read until ``copied``."""


class CheckpointManager:
    """The saves of one loop. Without a checkpointer every save succeeds and nothing is written.

    Saves during training begin here and become durable later; ``is_due``, which is called at every
    step, collects the outcome. With ``overlap`` their copy continues as well, until the loop calls
    ``copied`` before the optimizer steps. Rank 0 writes; which process that is may change when the
    group forms again. A call that a lost peer interrupted can be repeated: at worst a step is saved
    twice, in two directories.
    """

    def __init__(
        self,
        checkpointer: Checkpointer | AttachedShards | None,
        cadence: SaveInterval,
        reporter: Reporter,
        group: RankGroup,
        capture: Capture,
        *,
        overlap: bool = False,
        notice: Callable[[], StopNotice | None] = lambda: None,
    ) -> None:
        self._checkpointer = checkpointer
        self._cadence = cadence
        self._reporter = reporter
        self._group = group
        self._capture = capture
        self._overlap = overlap
        self._notice = notice
        self._owed = False
        self._blocked_s = 0.0
        self._begun_step: int | None = None
        self._delayed_by: int | None = None
        self._saved_step: int | None = None
        self._failed_saves = 0
        self._restored: RestoredCheckpoint | None = None
        self._failures: dict[Tier, str] = {}

    def is_due(self) -> bool:
        """Whether to save after this step; rank 0 decides.

        A save that is due waits while one is in progress, which is reported once. Raise
        CheckpointError if saves have failed three times in a row.
        """
        if self._checkpointer is None:
            return False
        ended = self._checkpointer.poll()
        self._hear_kept()
        for outcome in ended:
            self._hear(outcome)
        if not (self._owed or self._cadence.is_due()):
            return False
        if self._begun_step is not None:
            self._report_delay()
            return False
        return True

    def request(self) -> None:
        """Make a save due, whatever the interval: it begins once none is in progress."""
        self._owed = True

    def save(self, step: int) -> None:
        """Begin a save, on rank 0.

        A failure is reported and counted; the third in a row raises CheckpointError.
        """
        if self._checkpointer is None or self._group.rank != 0:
            return
        began, state = time.monotonic(), self._capture()
        try:
            begun = self._checkpointer.begin(
                step,
                state,
                world_size=self._group.size,
                labels=_labels(state),
                overlap=self._overlap,
            )
        except CheckpointError as error:
            self._fail(error)
            return
        if not begun:
            self._report_delay()
            return
        self._owed = False
        self._begun_step = step
        self._blocked_s = time.monotonic() - began
        self._cadence.begun()

    def copied(self) -> None:
        """Wait until the state may change: before the optimizer steps."""
        if self._begun_step is not None and self._checkpointer is not None:
            began = time.monotonic()
            self._checkpointer.copied()
            self._blocked_s += time.monotonic() - began

    def save_or_raise(self, step: int) -> None:
        """Save, with as many retries as are allowed; every rank waits until the state is safe."""
        while not self._group.broadcast(self._save_and_wait(step)):
            continue
        self._saved_step = step

    def save_on_notice(self, step: int) -> None:
        """As ``save_or_raise``, but limited by the notice period.

        If the upload cannot end before the node does, the state is safe enough in a peer's memory,
        and as much as possible of what has changed since the newest checkpoint is uploaded.
        """
        while not self._group.broadcast(self._save_and_wait(step, on_notice=True)):
            continue
        self._saved_step = step

    def has_saved(self, step: int) -> bool:
        """Whether the state after ``step`` steps is safe; the same on every rank."""
        return self._saved_step == step

    def restore(self) -> RestoredCheckpoint | None:
        """Restore the newest valid checkpoint that rank 0 chooses, on every rank.

        If it is not in the store, the others receive it from rank 0, and a save of it is due at
        once.
        """
        if self._checkpointer is None:
            return None
        if self._group.rank == 0:
            for outcome in self._checkpointer.wait():
                self._hear(outcome)
            self._restored = self._checkpointer.restore()
        chosen = self._group.broadcast(_in_short(self._restored))
        is_sharded = isinstance(self._checkpointer, AttachedShards)
        if chosen is not None and (is_sharded or chosen[1] != Tier.STORE):
            self._restored = broadcast_restored(self._group, self._restored)
        elif chosen is not None and self._group.rank != 0:
            self._restored = self._loaded(chosen[0])
        if self._restored is not None:
            self._owed = not self._restored.durable
            self._saved_step = self._restored.manifest.step if self._restored.durable else None
        return self._restored

    def claim(self) -> None:
        """Supersede who saves here, once what was restored is accepted."""
        if self._checkpointer is not None and self._group.rank == 0:
            self._checkpointer.claim(wait=False)

    def report_restored(self, step: int, guarantee: str) -> None:
        """Report the step and source from which training resumes, and what was rejected."""
        found, saved, saved_step, message = self._restored, None, None, ""
        if found is not None and self._checkpointer is not None:
            if found.tier is not Tier.STORE:
                message = f"restored step {found.manifest.step} from {found.describe_source}"
                self.log_error(message)
            if found.durable:
                saved = self._checkpointer.describe(found)
            else:
                saved_step = found.durable_step or 0
        refused = () if self._checkpointer is None else self._checkpointer.refused
        for refusal in refused:
            self.log_error(f"checkpoint {refusal.name} rejected: {refusal.message}")
        self._restored = None
        self._reporter.resumed(
            step, saved, refused, guarantee, saved_step=saved_step, message=message
        )

    def log_error(self, message: str) -> None:
        """Print a message to the trainer's log."""
        print(f"costopt: {message}", file=sys.stderr, flush=True)  # noqa: T201

    def _loaded(self, name: str) -> RestoredCheckpoint:
        """A process that was suspended may find that the others removed it: raise PeerLostError."""
        assert isinstance(self._checkpointer, Checkpointer)
        try:
            return self._checkpointer.load(name)
        except CheckpointError:
            self._group.fence()
            raise

    def _save_and_wait(self, step: int, *, on_notice: bool = False) -> bool:
        if self._checkpointer is None or self._group.rank != 0:
            return True
        began, state = time.monotonic(), self._capture()
        late = self._what_is_late(state) if on_notice else None
        save = self._checkpointer.save if late is None else self._checkpointer.save_for_notice
        if late is not None:
            self._warn(
                f"{late}: a peer stores step {step}, and the changes since the newest "
                "checkpoint are uploaded"
            )
        try:
            saved = save(step, state, world_size=self._group.size, labels=_labels(state))
        except CheckpointError as error:
            self._fail(error)
            return False
        self._owed = False
        self._hear_kept()
        if isinstance(saved, Replica):
            self._warn(
                f"{late}: step {step} is in {saved}, and the upload continues without this process"
            )
            return True
        for outcome in self._checkpointer.poll():
            self._hear(outcome)
        if late is not None:
            sent_mb = (saved.size_bytes or 0) / 1e6
            self.log_error(f"step {step} is in the store, {sent_mb:.0f} MB of it uploaded just now")
        self._succeed(step, saved)
        self._time(time.monotonic() - began)
        return True

    def _what_is_late(self, state: dict[str, Any]) -> str | None:
        """Return why an upload is not worth waiting for; None if it may finish in time."""
        if isinstance(self._checkpointer, AttachedShards):
            return self._checkpointer.late_reason(self._late_reason)
        return self._late_reason(StateLayout.of(state).tensor_bytes)

    def _late_reason(self, size_bytes: int) -> str | None:
        notice, now = self._notice(), time.time()
        spare_s = NOTICE_MARGIN_S / self._cadence.speed
        if notice is None or notice.allows(size_bytes, now, spare_s=spare_s) is not False:
            return None
        speed, left_s = notice.upload_bytes_per_s or 0.0, (notice.deadline_at or now) - now
        return (
            f"{size_bytes / 1e6:.0f} MB at {speed / 1e6:.1f} MB/s do not reach the store in the "
            f"remaining {max(0.0, left_s):.0f} s"
        )

    def _warn(self, message: str) -> None:
        self.log_error(message)
        self._reporter.warn(message)

    def _hear_kept(self) -> None:
        """Report the results of the near tiers; each failure once."""
        assert self._checkpointer is not None
        for kept in self._checkpointer.pop_replicas():
            failure = f"no copy in the {kept.tier} tier: {kept.complaint}" if kept.complaint else ""
            if failure and self._failures.get(kept.tier) != failure:
                self.log_error(failure)
            self._failures[kept.tier] = failure
            self._reporter.on_replica("; ".join(filter(None, self._failures.values())))

    def _hear(self, outcome: SaveOutcome) -> None:
        """Record the outcome of a save."""
        step, self._begun_step = self._begun_step, None
        if isinstance(outcome, FailedSave):
            self._fail(outcome.error)
            return
        self._succeed(int(outcome.units) if step is None else step, outcome)
        self._time(self._blocked_s, outcome.save_s)

    def _time(self, blocked_s: float, persist_s: float | None = None) -> None:
        """Record how long a save took; recompute and report the interval that follows from it."""
        self._cadence.saved(blocked_s, persist_s)
        self._reporter.interval(self._cadence.interval_s, self._cadence.reason)

    def _succeed(self, step: int, saved: SavedCheckpoint) -> None:
        self._failed_saves, self._delayed_by = 0, None
        self._reporter.saved(step, saved)

    def _report_delay(self) -> None:
        if self._delayed_by != self._begun_step:
            self._delayed_by = self._begun_step
            self.log_error(
                f"a save is due while that of step {self._begun_step} is still being written: it "
                "waits until then; saves take longer than the checkpoint interval"
            )

    def _fail(self, error: CheckpointError) -> None:
        """Raise PeerLostError, and count nothing, if this process was suspended: the others
        continued and superseded it, which is not a failure of the store.
        """
        self._group.fence()
        self._failed_saves += 1
        self.log_error(str(error))
        self._reporter.failed(error.message)
        self._cadence.failed()
        if self._failed_saves > MAX_FAILED_SAVES:
            raise error


def _labels(state: dict[str, Any]) -> dict[str, str]:
    """Return the labels that lists of checkpoints show and retention policies use."""
    loss = state.get("loss")
    return {} if loss is None else {LOSS: f"{loss:.6g}"}


def _in_short(restored: RestoredCheckpoint | None) -> tuple[str, str] | None:
    """Return what every rank must know of what rank 0 restored."""
    return None if restored is None else (restored.name, restored.tier.value)


DEFAULT_INTERVAL_S = 1800.0
RETRY_S = 30.0
SMOOTHING = 0.3


class SaveInterval:
    """When to save; intervals are in the job's time, ``speed`` times faster than the wall.

    With ``hazard_per_hour`` (of the whole gang) the interval follows from the measured blocking
    time of a save and its dollars, which pay for ``paid_s`` of training, and is no shorter than a
    save takes to become durable; without, it is ``interval_s``, or half an hour if that is None.
    ``reason`` says what a measured interval follows from; it is "" until one was measured.
    """

    def __init__(
        self,
        *,
        interval_s: float | None = None,
        hazard_per_hour: float | None = None,
        noticed_share: float = 0.0,
        paid_s: float = 0.0,
        speed: float = 1.0,
        loss_budget_s: float = LOSS_BUDGET_S,
    ) -> None:
        self._loss_budget_s = loss_budget_s
        self.interval_s = DEFAULT_INTERVAL_S if interval_s is None else interval_s
        self.reason = ""
        self._hazard_per_hour = hazard_per_hour
        self._noticed_share = noticed_share
        self._paid_s = paid_s
        self.speed = speed
        self._save_s: float | None = None
        self._persist_s: float | None = None
        self._due_at = time.monotonic() + self.interval_s / speed

    @classmethod
    def of_agent(cls, env: TrainerEnv, interval_s: float | None = None) -> SaveInterval:
        """Return the interval that the agent asked for, ``interval_s`` where it named none."""
        return cls(
            interval_s=env.checkpoint_interval_s or interval_s,
            hazard_per_hour=env.hazard_per_hour,
            noticed_share=env.noticed_share,
            paid_s=env.save_paid_s,
            speed=env.speed,
            # Where every interruption is announced, the interval asked for is what may be lost.
            loss_budget_s=(env.noticed_share >= 1.0 and env.checkpoint_interval_s) or LOSS_BUDGET_S,
        )

    def is_due(self) -> bool:
        """Whether to save now."""
        return time.monotonic() >= self._due_at

    def begun(self) -> None:
        """Record that a save began: the next interval starts now."""
        self._due_at = time.monotonic() + self.interval_s / self.speed

    def saved(self, save_s: float, persist_s: float | None = None) -> None:
        """Record that a save blocked training for ``save_s`` of wall time; the next interval
        starts.

        It was durable after ``persist_s``; None if training waited for that.
        """
        self._save_s = _smoothed(self._save_s, save_s)
        self._persist_s = _smoothed(self._persist_s, save_s if persist_s is None else persist_s)
        if self._hazard_per_hour is not None:
            chosen = explained_interval(
                hazard_per_hour=self._hazard_per_hour,
                blocking_save_s=self._save_s * self.speed,
                noticed_share=self._noticed_share,
                persist_s=self._persist_s * self.speed,
                paid_s=self._paid_s,
                loss_budget_s=self._loss_budget_s,
            )
            self.interval_s, self.reason = chosen.interval_s, chosen.reason
        self.begun()

    def failed(self) -> None:
        """Record that a save failed: retry soon, but not at each step."""
        self._due_at = time.monotonic() + min(RETRY_S, self.interval_s) / self.speed


def _smoothed(past: float | None, value: float) -> float:
    return value if past is None else past + SMOOTHING * (value - past)


def broadcast_restored(group: RankGroup, restored: RestoredCheckpoint | None) -> RestoredCheckpoint:
    """Return rank 0's checkpoint on every rank, tensors on the CPU. Collective.

    Raise PeerLostError if a peer is lost.
    """
    if group.size == 1 and restored is not None:
        return restored
    described = group.broadcast(None if group.rank != 0 else _described(restored))
    state = broadcast_state(group, restored.state if group.rank == 0 and restored else None, 0)
    if group.rank == 0 and restored is not None:
        return restored
    name, manifest, tier, node, durable, durable_step = described
    return replace(
        RestoredCheckpoint(name, Manifest.decode(manifest), _on_cpu(state)),
        tier=Tier(tier),
        node=node,
        durable=durable,
        durable_step=durable_step,
    )


def _described(restored: RestoredCheckpoint | None) -> tuple[Any, ...]:
    assert restored is not None
    return (
        restored.name,
        restored.manifest.encode(),
        restored.tier.value,
        restored.node,
        restored.durable,
        restored.durable_step,
    )


def _on_cpu(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.cpu()
    if isinstance(value, dict):
        return {key: _on_cpu(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_on_cpu(item) for item in value])
    return value
