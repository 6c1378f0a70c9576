"""Measurements that nodes report of themselves: recorded, and fed back into planning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from costopt.domain import events as ev
from costopt.domain.cached_data import GIGABITS_PER_GIB
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.power import NodePower
from costopt.domain.runtime import NodeReport
from costopt.engine.fleet import notice_news
from costopt.engine.journal import Journal
from costopt.engine.settings import World

REPORT_EVERY = timedelta(minutes=10)
FINAL_EVERY = timedelta(seconds=30)
MIN_TRAINING_S = 60.0
"""Shorter training is not representative of a node's power."""
INTERVAL_CHANGE_SHARE = 0.05
MIN_SHARE = 0.5
MAX_SHARE = 2.0
"""A measured power is credible from ``MIN_SHARE`` of the node's modelled idle power up to
``MAX_SHARE`` of its modelled busy power."""
EXACT = "exact"


class MeasurementObserver:
    """Reads the reports of every gang's nodes."""

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._journal = journal
        self.reports: dict[str, tuple[NodeReport, ...]] = {}

    def observe(self, job: Job, now: datetime) -> None:
        """Record new measurements."""
        live = self._journal.records[job.name].live
        reports = tuple(r for r in self._world.runtime.node_reports(job) if r.node_id in live)
        self.reports[job.name] = reports
        news: list[ev.Event] = [*self._interval_news(job, reports, now)]
        news += self._guarantee_news(job, reports, now)
        for report in reports:
            news += self._warning_news(job, report, now)
            news += notice_news(self._journal.records[job.name], live[report.node_id], report, now)
            news += self._cache_news(job, report, now)
            news += self._measured_news(job, live[report.node_id], report, now)
        self._journal.write(*news)

    def powers(self, modelled: Mapping[Pool, NodePower]) -> Mapping[Pool, NodePower]:
        """Return power by pool, as measured by its nodes in training; the rest as modelled."""
        measured_w: dict[Pool, list[float]] = {}
        for job, account in self._journal.accounts.items():
            limits = self._journal.records[job].power_limits
            for node_id, event in account.measured.nodes.items():
                node, limit = account.node(node_id), limits.get(node_id)
                capped = limit is not None and limit.cap_w is not None
                if node is not None and event.busy_w is not None and not capped:
                    alone_w = event.busy_w / node.communication_factor
                    measured_w.setdefault(node.pool, []).append(alone_w)
        known = {
            pool: power.measured(_mean(watts), f"measured in training on {len(watts)} nodes")
            for pool, watts in measured_w.items()
            if (power := modelled.get(pool)) is not None and power.busy_w > 0
        }
        return {**modelled, **known} if known else modelled

    def _interval_news(
        self, job: Job, reports: Iterable[NodeReport], now: datetime
    ) -> Iterable[ev.Event]:
        said = next((r for r in reports if r.interval_s is not None and r.interval_reason), None)
        last = self._journal.accounts[job.name].measured.interval
        if said is None or said.interval_s is None:
            return
        moved = 1.0 if last is None else abs(said.interval_s / last.interval_s - 1.0)
        if moved > INTERVAL_CHANGE_SHARE:
            yield ev.CheckpointIntervalChanged(
                at=now, job=job.name, interval_s=said.interval_s, reason=said.interval_reason
            )

    def _guarantee_news(
        self, job: Job, reports: Iterable[NodeReport], now: datetime
    ) -> Iterable[ev.Event]:
        """Yield changes of the exactness guarantee: the weakest of any node's."""
        guarantees = [report.guarantee for report in reports if report.guarantee]
        said = next((each for each in guarantees if each != EXACT), EXACT)
        if guarantees and said != self._journal.accounts[job.name].measured.guarantee:
            yield ev.GuaranteeChanged(at=now, job=job.name, guarantee=said)

    def _warning_news(self, job: Job, report: NodeReport, now: datetime) -> Iterable[ev.Event]:
        last = self._journal.accounts[job.name].measured.expected.get(report.node_id, "")
        if report.warning != last:
            yield ev.InterruptionExpected(
                at=now, job=job.name, node_id=report.node_id, message=report.warning
            )

    def _cache_news(self, job: Job, report: NodeReport, now: datetime) -> Iterable[ev.Event]:
        """Yield how a node got the cache, once."""
        cache, node_id = report.cache, report.node_id
        if cache is not None and node_id not in self._journal.records[job.name].cached:
            yield ev.CacheFetched(
                at=now,
                job=job.name,
                node_id=node_id,
                gib=cache.gib,
                held_gib=cache.held_gib,
                seconds=cache.seconds,
            )

    def _measured_news(
        self, job: Job, node: ev.NodeLaunched, report: NodeReport, now: datetime
    ) -> Iterable[ev.Event]:
        last = self._journal.accounts[job.name].measured.nodes.get(report.node_id)
        event = self._measured(job, node, report, now)
        if event is None:
            return
        if last is not None and event.from_at < last.until_at:
            event = replace(event, from_at=last.from_at)
        reported_until = node.launched_at if last is None else last.until_at
        if event.until_at - reported_until < (FINAL_EVERY if report.final else REPORT_EVERY):
            return
        if report.final and event.wh is None and last is not None:
            return
        yield event

    def _measured(
        self, job: Job, node: ev.NodeLaunched, report: NodeReport, now: datetime
    ) -> ev.NodeMeasured | None:
        """Return the node's measurements, or None where it has none."""
        figures = report.step_s, report.data_wait_share, report.goodput, report.gpu_utilization
        if report.metered_wh is None and all(figure is None for figure in figures):
            return None
        hours = (report.until_at - report.from_at).total_seconds() / 3600
        training_hours = report.training_s / 3600
        trained = report.training_s >= MIN_TRAINING_S
        busy_wh = self._plug_wh(node, report, report.training_wh, training_hours)
        return ev.NodeMeasured(
            at=now,
            job=job.name,
            node_id=report.node_id,
            from_at=report.from_at,
            until_at=min(report.until_at, now),
            wh=self._plug_wh(node, report, report.metered_wh, hours),
            parts=report.parts,
            busy_w=busy_wh / training_hours if trained and busy_wh is not None else None,
            gpu_utilization=report.gpu_utilization,
            gpu_memory_share=report.gpu_memory_share,
            step_s=report.step_s,
            data_wait_share=report.data_wait_share,
            goodput=report.goodput,
        )

    def _plug_wh(
        self, node: ev.NodeLaunched, report: NodeReport, metered_wh: float | None, hours: float
    ) -> float | None:
        """Return the watt-hours at the plug. None where not every GPU of the node was read, as a
        part is not a figure of the node, and where the node cannot draw that much: it would count
        for other jobs on its pool, too."""
        pool = Pool.parse(node.pool)
        machine, power = (
            self._world.machines.instance_type(pool),
            self._world.powers.node_power(pool),
        )
        if metered_wh is None or machine is None or power is None:
            return None
        if "node" not in report.parts and report.gpus != machine.gpu_count:
            return None
        plug_wh = power.plug_wh(metered_wh, report.parts, hours)
        min_w, max_w = MIN_SHARE * power.idle_w, MAX_SHARE * power.busy_w
        believed = plug_wh is not None and min_w * hours <= plug_wh <= max_w * hours
        return plug_wh if believed else None


def with_measured_cache(job: Job, cached: Iterable[ev.CacheFetched]) -> Job:
    """Return the job with the speed at which its nodes fetched its cache, where any did."""
    fetches = [each for each in cached if each.gib > 0 and each.seconds > 0]
    if not fetches:
        return job
    gib, seconds = sum(each.gib for each in fetches), sum(each.seconds for each in fetches)
    gbps = gib * GIGABITS_PER_GIB / seconds
    return replace(job, cache=tuple(replace(item, gbps=gbps) for item in job.cache))


def with_measured_saves(job: Job, gbps: float | None) -> Job:
    """Return the job with what a node of its gang sent to the store, where its times follow from
    that and the newest save reported it."""
    saves = job.checkpoint
    if gbps is None or not (saves.auto_save or saves.auto_restore):
        return job
    return replace(job, checkpoint=replace(saves, gbps=gbps))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
