"""Power limits of the gangs' GPUs: those that decisions request, and those that nodes report."""

from __future__ import annotations

from datetime import datetime

from costopt.domain.events import NodeLaunched, PowerLimitReported
from costopt.domain.fleet import Node
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.power import PowerCap
from costopt.domain.runtime import PowerLimitRecord
from costopt.domain.view import Decision
from costopt.engine.journal import Journal
from costopt.engine.power_sweep import swept_caps
from costopt.engine.settings import World
from costopt.ledger.job_record import JobRecord


class PowerCapManager:
    """Requests power caps of gangs, and records which nodes apply them."""

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._journal = journal
        self._asked: dict[str, float | None] = {}

    def wanted(self, job: Job, decision: Decision, members: tuple[Node, ...]) -> PowerCap | None:
        """Return the cap for a gang that is about to be formed, and remember it as requested."""
        cap = self._cap_of(decision, members)
        self._asked[job.name] = None if cap is None else cap.cap_w
        return cap

    def forget(self, job: str) -> None:
        """Drop the state of a job that is no longer controlled."""
        self._asked.pop(job, None)

    def change(
        self, job: Job, decision: Decision, members: tuple[Node, ...], now: datetime
    ) -> None:
        """Request another cap, or none, of the gang that trains, without restarting it."""
        before = self._asked.get(job.name, NOT_REQUESTED)
        cap = self.wanted(job, decision, members)
        if before != self._asked[job.name]:
            self._world.runtime.cap_power(job, cap)
            self.observe(job, now)

    def observe(self, job: Job, now: datetime) -> None:
        """Record what the nodes report, where it has changed."""
        record = self._journal.records[job.name]
        for report in self._world.runtime.power_limits(job):
            node = record.live.get(report.node_id)
            if node is not None and _is_news(record, report):
                self._journal.write(
                    PowerLimitReported(
                        at=now,
                        job=job.name,
                        node_id=report.node_id,
                        cap_w=report.cap_w,
                        busy_w=self._busy_w(job.name, node, report.cap_w),
                        message=report.message,
                        asked_w=report.asked_w,
                    )
                )

    def speed(self, job: Job) -> float:
        """Return the gang's share of its uncapped speed under the limits in force."""
        record = self._journal.records[job.name]
        shares = [
            cap.speed
            for member in record.members
            if (limit := record.power_limits.get(member)) is not None
            and (node := record.live.get(member)) is not None
            and (cap := self._known(job.name, Pool.parse(node.pool), limit.cap_w)) is not None
        ]
        return min(shares, default=1.0)

    def is_probing(self, job: Job) -> bool:
        """Return whether a node of the job has a limit whose effect is unknown."""
        record = self._journal.records[job.name]
        return any(
            limit.cap_w is not None
            and (node := record.live.get(node_id)) is not None
            and self._known(job.name, Pool.parse(node.pool), limit.cap_w) is None
            for node_id, limit in record.power_limits.items()
        )

    def _cap_of(self, decision: Decision, members: tuple[Node, ...]) -> PowerCap | None:
        """Return the cap of the decision's targets, all of one machine type, by the power model."""
        asked = {t.power_cap_w for t in decision.targets if t.power_cap_w is not None}
        return self._known(decision.job, members[0].pool, min(asked)) if asked else None

    def _busy_w(self, job: str, node: NodeLaunched, cap_w: float | None) -> float | None:
        cap = self._known(job, Pool.parse(node.pool), cap_w)
        return node.busy_w if cap is None else cap.busy_w

    def _known(self, job: str, pool: Pool, cap_w: float | None) -> PowerCap | None:
        """Return the cap as the catalog has it, else as the job measured it."""
        power = None if cap_w is None else self._world.powers.node_power(pool)
        machine = self._world.machines.instance_type(pool)
        if power is None or machine is None:
            return None
        probed = self._journal.accounts[job].measured.probes.get(machine.gpu.model, ())
        generation = self._journal.records[job].generation
        caps = power.caps or swept_caps(probed, power, generation)
        return next((cap for cap in caps if cap.cap_w == cap_w), None)


NOT_REQUESTED = -1.0
"""In place of the requested cap: this controller has not requested one yet."""


def _is_news(record: JobRecord, report: PowerLimitRecord) -> bool:
    last = record.power_limits.get(report.node_id)
    if last is None:
        return True
    before = last.asked_w, last.cap_w, last.message
    return before != (report.asked_w, report.cap_w, report.message)
