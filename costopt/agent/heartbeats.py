"""When a node's heartbeat is due, and what it contains."""

from __future__ import annotations

import time
from dataclasses import dataclass

from costopt.agent.attempt import Attempt
from costopt.agent.power_limit import PowerLimiter
from costopt.agent.tasks import TaskRunner
from costopt.domain.gpu_health import GpuHealth
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import (
    CacheReport,
    Heartbeat,
    NodeActivity,
    NodeMeasurement,
    PowerProbeReport,
)
from costopt.protocol.trainer_files import TrainerFigures


@dataclass(frozen=True, slots=True)
class AgentState:
    """The agent's own part of a heartbeat: its activity, what the provider announced for the node,
    the address at which the node accepts snapshots, its GPUs' health, None if it is not read, and
    what the cache took, None before it is there.
    """

    activity: NodeActivity
    message: str
    noticed: bool
    warning: str
    interrupts_at: float | None = None
    snapshots: str = ""
    gpu_health: GpuHealth | None = None
    cache: CacheReport | None = None


class HeartbeatSender:
    """Posts a heartbeat every ``every_s`` seconds of wall time, and at once if its content is
    urgent.
    """

    def __init__(self, mailbox: Mailbox, node_id: str, every_s: float) -> None:
        self._mailbox = mailbox
        self._node_id = node_id
        self._every_s = every_s
        self._beat = 0
        self._beaten_at = -1e9
        self._sent: tuple[object, ...] = ()

    def is_due(self) -> bool:
        """Whether the next regular heartbeat is due."""
        return time.monotonic() - self._beaten_at >= self._every_s

    def send_if_due(
        self,
        standing: AgentState,
        attempt: Attempt | TaskRunner | None,
        power: PowerLimiter,
        probe: PowerProbeReport | None,
        meters: NodeMeasurement,
    ) -> None:
        """Post a heartbeat if one is due or if the node's activity differs from the last one sent.

        Raise StoreError if the store does not answer.
        """
        news = (
            standing.activity,
            standing.noticed,
            standing.warning,
            power.cap_w,
            power.message,
            probe,
            standing.cache,
        )
        if not self.is_due() and news == self._sent:
            return
        self._sent = news
        self._beaten_at = time.monotonic()
        self._beat += 1
        self._mailbox.post_heartbeat(self._heartbeat(standing, attempt, power, probe, meters))

    def _heartbeat(
        self,
        standing: AgentState,
        attempt: Attempt | TaskRunner | None,
        power: PowerLimiter,
        probe: PowerProbeReport | None,
        meters: NodeMeasurement,
    ) -> Heartbeat:
        status = None if attempt is None else attempt.status
        figures = TrainerFigures() if status is None else status
        return Heartbeat(
            **figures.figures(),
            node_id=self._node_id,
            generation=0 if attempt is None else attempt.gang.generation,
            state=standing.activity,
            at=time.time(),
            beat=self._beat,
            reported=status is not None,
            exit_code=None if attempt is None else attempt.exit_code,
            message=standing.message,
            log_path="" if attempt is None else attempt.log_path,
            notice=standing.noticed,
            meters=meters,
            warning=standing.warning,
            interrupts_at=standing.interrupts_at,
            upload_bytes_per_s=None if attempt is None else attempt.upload_bytes_per_s,
            restarts=0 if attempt is None else attempt.restarts,
            power_asked_w=power.asked_w,
            power_cap_w=power.cap_w,
            power_message=power.message,
            probe=probe,
            snapshots=standing.snapshots,
            resumed_units=None if attempt is None else attempt.resumed_units,
            started=attempt is not None and attempt.started,
            gpu_health=standing.gpu_health,
            cache=standing.cache,
        )
