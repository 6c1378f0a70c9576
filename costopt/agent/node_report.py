"""From a node's heartbeat to what the controller takes up of its measurements."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from costopt.domain.runtime import NodeReport
from costopt.protocol.messages import Heartbeat, NodeMeasurement

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
        strikes_at=None if beat.strikes_at is None else scale.job_time_ahead(beat.strikes_at),
    )


def _share(value: float | None) -> float | None:
    return value if value is not None and 0.0 <= value <= 1.0 else None


def duration_s(value_s: float | None, speed: float = 1.0) -> float | None:
    """None where it is unknown, or no time that anything takes."""
    return value_s * speed if value_s is not None and 0.0 < value_s <= CENTURY_S else None
