"""The state of a gang and the measurements of its nodes, from the heartbeats of their agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costopt.controller.command_failures import failure_text, final_failure
from costopt.domain.gpu_health import GpuHealth
from costopt.domain.job import Job
from costopt.domain.progress import GangState
from costopt.domain.runtime import CacheFetchRecord, NodeReport
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import (
    CacheReport,
    Gang,
    Heartbeat,
    NodeActivity,
    NodeMeasurement,
)

TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class GangMember:
    """A node of the gang with its newest heartbeat, None where it sent none in this generation."""

    node_id: str
    heartbeat: Heartbeat | None
    silent: bool


def gang_status(
    mailbox: Mailbox, job: Job, gang: Gang, members: Sequence[GangMember], saved: float
) -> tuple[GangState, str]:
    """What the gang is doing, and a message. ``saved`` are the units of work that are durable.

    A command that keeps failing at the same point has failed for good.
    """
    states = {m.heartbeat.state for m in members if m.heartbeat is not None}
    if NodeActivity.FINISHED in states and _is_complete(job, members, saved):
        return GangState.FINISHED, ""
    if states == {NodeActivity.FINISHED} and _all_heard(members):
        return GangState.FAILED, (
            f"the command ended with {saved:g} of {job.work.amount:g} {job.work.unit.value} saved"
        )
    failures = mailbox.failures()
    failure = final_failure(failures, job, gang)
    if failure is not None:
        count = f"{job.max_failures} times at the same point" if job.max_failures > 1 else "once"
        return (
            GangState.FAILED,
            f"{failure_text(failure)} (failed {count}; log: {failure.log_path})",
        )
    if NodeActivity.FAILED in states:
        why = failure_text(failures[-1]) if failures else "the command failed"
        return GangState.IDLE, f"{why}; a new generation is the next attempt"
    if gang.elastic and NodeActivity.TRAINING in _states_heard(members):
        return GangState.TRAINING, _absent(members)
    stopped = _first(members, NodeActivity.BROKEN, NodeActivity.STOPPED, NodeActivity.GONE)
    if NodeActivity.STOPPING in states:
        return GangState.STOPPING, "saving before a node leaves"
    if stopped is not None:
        return GangState.IDLE, stopped.message or f"{stopped.node_id} {stopped.state.value}"
    silent = [m.node_id for m in members if m.silent and m.heartbeat is not None]
    if silent:
        return GangState.IDLE, f"no heartbeat from {', '.join(silent)}"
    if len(states) == 1 and NodeActivity.TRAINING in states and _all_heard(members):
        return GangState.TRAINING, _message(members)
    return GangState.STARTING, _message(members) or _awaited(members)


def failed_node(mailbox: Mailbox) -> str:
    """Return the node on which the command failed last, "" before any."""
    return next((failure.node_id for failure in reversed(mailbox.failures())), "")


def possible_units(job: Job, units: float) -> float:
    """What the job can have done, of what its nodes report."""
    return min(max(0.0, units), job.work.amount)


def saved_units(mailbox: Mailbox, beats: list[Heartbeat]) -> float:
    """What this generation reports, else the newest checkpoint that was not refused."""
    reported = [beat.saved_units for beat in beats if beat.reported]
    return max(reported) if reported else mailbox.saved_units()


def _is_complete(job: Job, members: Sequence[GangMember], saved: float) -> bool:
    """A trainer that reports nothing is believed when it ends well on every node."""
    beats = [m.heartbeat for m in members if m.heartbeat is not None]
    if any(beat.reported for beat in beats):
        return saved >= job.work.amount * (1 - TOLERANCE)
    return len(beats) == len(members) and all(b.state is NodeActivity.FINISHED for b in beats)


def _first(members: Sequence[GangMember], *states: NodeActivity) -> Heartbeat | None:
    beats = (m.heartbeat for m in members if m.heartbeat is not None)
    return next((beat for beat in beats if beat.state in states), None)


def _states_heard(members: Sequence[GangMember]) -> set[NodeActivity]:
    """Of the members that beat."""
    return {m.heartbeat.state for m in members if m.heartbeat is not None and not m.silent}


def _absent(members: Sequence[GangMember]) -> str:
    """Who of an elastic gang does not train while the others do."""
    absent = [
        m.node_id
        for m in members
        if m.silent or m.heartbeat is None or m.heartbeat.state is not NodeActivity.TRAINING
    ]
    return f"without {', '.join(absent)}" if absent else _message(members)


def _all_heard(members: Sequence[GangMember]) -> bool:
    return all(member.heartbeat is not None for member in members)


def _awaited(members: Sequence[GangMember]) -> str:
    """The members that have yet to join this generation. Another one would wait for them, too."""
    absent = ", ".join(m.node_id for m in members if m.heartbeat is None)
    return f"waits for {absent}" if absent else ""


def _message(members: Sequence[GangMember]) -> str:
    return next((m.heartbeat.message for m in members if m.heartbeat and m.heartbeat.message), "")


CENTURY_S = 100 * 365 * 86400.0


@dataclass(frozen=True, slots=True)
class TimeScale:
    """The job's time ``now`` and the wall's (POSIX seconds) at one instant; it runs ``speed``
    times faster than the wall. A node may say any instant: none is more than a century away."""

    now: datetime
    wall: float
    speed: float

    def job_time(self, wall_at: float) -> datetime:
        """The job's time at an instant of the wall that has passed."""
        return self.now - self._distance(self.wall - wall_at)

    def job_time_ahead(self, wall_at: float) -> datetime:
        """The job's time at an instant of the wall that has not passed."""
        return self.now + self._distance(wall_at - self.wall)

    def _distance(self, wall_s: float) -> timedelta:
        return timedelta(seconds=min(max(0.0, wall_s) * self.speed, CENTURY_S))


def build_node_report(beat: Heartbeat, scale: TimeScale) -> NodeReport:
    """Energy is scaled with time: what a node draws in a second it draws in each."""
    meters = beat.meters or NodeMeasurement(since=beat.at, at=beat.at)
    metered = meters.energy_wh
    return NodeReport(
        node_id=beat.node_id,
        from_at=scale.job_time(meters.since),
        until_at=scale.job_time(meters.at if metered is not None else beat.at),
        metered_wh=None if metered is None else metered * scale.speed,
        parts=meters.parts,
        gpus=meters.gpus,
        training_wh=meters.training_wh * scale.speed,
        training_s=duration_s(meters.training_s, scale.speed) or 0.0,
        final=not beat.state.is_training,
        gpu_utilization=_share(meters.gpu_utilization),
        gpu_memory_share=_share(meters.gpu_memory_share),
        step_s=duration_s(beat.step_s, scale.speed),
        data_wait_share=_share(beat.data_wait_share),
        goodput=_share(beat.goodput),
        interval_s=duration_s(beat.interval_s),
        interval_reason=beat.interval_reason,
        guarantee=beat.guarantee,
        warning=beat.warning,
        interrupts_at=None
        if beat.interrupts_at is None
        else scale.job_time_ahead(beat.interrupts_at),
        microbatch_s=duration_s(beat.microbatch_s, scale.speed),
        gpu_health=_gpu_health(beat.gpu_health, scale.speed),
        cache=_cache(beat.cache, scale.speed),
    )


def _cache(report: CacheReport | None, speed: float) -> CacheFetchRecord | None:
    """The same in the job's time; None where it is impossible."""
    if report is None or min(report.fetched_bytes, report.held_bytes, report.seconds) < 0:
        return None
    seconds = min(report.seconds, CENTURY_S) * speed
    return CacheFetchRecord(report.fetched_bytes / 2**30, report.held_bytes / 2**30, seconds)


def _gpu_health(health: GpuHealth | None, speed: float) -> GpuHealth | None:
    """The same in the job's time; None where it is impossible."""
    if health is None or not 0.0 <= health.busy_s <= health.watched_s <= CENTURY_S:
        return None
    return replace(health, watched_s=health.watched_s * speed, busy_s=health.busy_s * speed)


def _share(value: float | None) -> float | None:
    return value if value is not None and 0.0 <= value <= 1.0 else None


def duration_s(value_s: float | None, speed: float = 1.0) -> float | None:
    """None where it is unknown, or no time that anything takes."""
    return value_s * speed if value_s is not None and 0.0 < value_s <= CENTURY_S else None
