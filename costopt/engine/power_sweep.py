"""Sweeps of power limits: a job measures itself under a few limits where its GPU has no known caps.

Each limit is a probe of some minutes while training goes on; what it measured is an event, so that
a controller that restarts goes on where the last one ended. A job is swept once for each GPU model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from costopt.domain.events import PowerLimitProbed
from costopt.domain.market import InstanceType, Pool
from costopt.domain.power import NodePower, PowerCap
from costopt.domain.power_sweep import MAX_LIMITS, PowerProbe, measured_caps, next_limit_w
from costopt.domain.runtime import PowerProbeRecord
from costopt.domain.view import Decision, JobView, View
from costopt.engine.journal import Journal
from costopt.engine.settings import World

PROBE_S = 120.0
"""Of a probe in the job's time: some hundred steps, and readings of the slowest meter."""


MIN_PROBE_S = PROBE_S / 2
"""Nodes report the job's time by their own clocks; a shorter one is not credible."""


class PowerSweeper:
    """Asks gangs for the next probe of their sweep, and records what they measured."""

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._journal = journal

    def advance(self, decision: Decision, view: View, now: datetime) -> None:
        """Record the probe that is over, if any, and ask for the next one if that is allowed."""
        sweep = self._sweep(decision, view)
        if sweep is None:
            return
        job_view = next(each for each in view.jobs if each.job.name == decision.job)
        number = sum(e.generation == sweep.generation for e in sweep.events) + 1
        records = self._world.runtime.power_probes(job_view.job)
        event = sweep.completed([r for r in records if r.number == number], now)
        if event is not None:
            self._journal.write(event)
            return
        if not is_over(sweep.events, sweep.generation) and _is_allowed(
            decision, view, job_view, MAX_LIMITS + 2 - number
        ):
            self._world.runtime.probe_power_limit(job_view.job, number, sweep.next_w, PROBE_S)

    def _sweep(self, decision: Decision, view: View) -> _Sweep | None:
        """Return the sweep of the gang that trains; None where its GPU's caps are known, or it is
        under one."""
        record = self._journal.records[decision.job]
        nodes = {m: Pool.parse(record.live[m].pool) for m in record.members if m in record.live}
        if not record.training or not nodes or len(nodes) < len(record.members):
            return None
        machine = self._world.machines.instance_type(next(iter(nodes.values())))
        powers = {pool: view.powers.get(pool) for pool in nodes.values()}
        modelled = [self._world.powers.node_power(pool) for pool in powers]
        if machine is None or any(each is None or each.caps for each in modelled):
            return None
        capped = any(target.power_cap_w is not None for target in decision.targets)
        if capped or record.uncappable & powers.keys():
            return None
        events = self._journal.accounts[decision.job].measured.probes.get(machine.gpu.model, [])
        known = {pool: power for pool, power in powers.items() if power is not None}
        return _Sweep(decision.job, record.generation, machine, nodes, known, events)


def _is_allowed(decision: Decision, view: View, job_view: JobView, probes: int) -> bool:
    """Return whether the policy allows a sweep, the job's speed is known, and its slack is longer
    than all of the remaining probes."""
    limits, slack_s = view.policy.limits, decision.slack_s
    if not (limits.power_caps and limits.power_sweep) or slack_s is None:
        return False
    warm = job_view.progress.measured_units_per_s is not None
    return warm and slack_s >= probes * (1.5 * PROBE_S + view.tick_s)


class _Sweep:
    """The probes of one job on one GPU model, and the gang that is to do the next."""

    def __init__(
        self,
        job: str,
        generation: int,
        machine: InstanceType,
        nodes: Mapping[str, Pool],
        powers: Mapping[Pool, NodePower],
        events: Sequence[PowerLimitProbed],
    ) -> None:
        self.generation = generation
        self.events = events
        self._job = job
        self._machine = machine
        self._nodes = nodes
        self._powers = powers

    @property
    def next_w(self) -> float | None:
        """Return the next limit; None for the probe without one, which comes first."""
        probes = to_probes(self.events, self.generation)
        return next_limit_w(probes) if probes else None

    def completed(
        self, records: Sequence[PowerProbeRecord], now: datetime
    ) -> PowerLimitProbed | None:
        """Return what the gang measured, once all its nodes have reported, or why one could not."""
        event = PowerLimitProbed(
            at=now, job=self._job, generation=self.generation, gpu_model=self._machine.gpu.model
        )
        records = [record for record in records if record.node_id in self._nodes]
        failed = [f"{r.node_id}: {r.message}" for r in records if r.message]
        if failed:
            return replace(event, message=failed[0])
        if len(records) < len(self._nodes):
            return None
        node_w = [self._plug_w(record) for record in records]
        speeds = [r.units / r.seconds if r.seconds >= MIN_PROBE_S else 0.0 for r in records]
        known_w = [watts for watts in node_w if watts is not None and watts > 0]
        if len(known_w) < len(records) or min(speeds) <= 0:
            return replace(event, message="no speed, or not every GPU's energy, was measured")
        gpus = len(records) * self._machine.gpu_count
        return replace(
            event,
            cap_w=max((r.cap_w for r in records if r.cap_w is not None), default=None),
            units_per_s=sum(speeds) / len(speeds),
            node_w=sum(known_w) / len(known_w),
            gpu_w=sum(r.metered_w for r in records) / gpus,
            min_w=max(r.min_w for r in records),
            limit_w=min(r.limit_w for r in records),
        )

    def _plug_w(self, record: PowerProbeRecord) -> float | None:
        power = self._powers.get(self._nodes[record.node_id])
        whole = "node" in record.parts or record.gpus == self._machine.gpu_count
        if power is None or not whole or record.metered_w <= 0:
            return None
        return power.plug_wh(record.metered_w, record.parts, 1.0)


def to_probes(events: Iterable[PowerLimitProbed], generation: int) -> list[PowerProbe]:
    """Return what a generation measured, in order."""
    return [
        PowerProbe(e.cap_w, e.units_per_s, e.node_w, e.gpu_w, e.min_w, e.limit_w)
        for e in events
        if e.generation == generation
        and e.units_per_s is not None
        and e.node_w is not None
        and e.gpu_w is not None
        and e.min_w is not None
        and e.limit_w is not None
    ]


def is_over(events: Sequence[PowerLimitProbed], generation: int) -> bool:
    """Return whether a job's sweep of one GPU model is over, at the present generation.

    A gang that was formed again goes through it from the beginning, but only where no limit was
    measured before.
    """
    if any(event.message for event in events):
        return True
    if events and events[-1].generation != generation and events[-1].cap_w is not None:
        return True
    probes = to_probes(events, generation)
    return bool(probes) and next_limit_w(probes) is None


def with_swept_caps(
    powers: Mapping[Pool, NodePower],
    machines: Mapping[Pool, InstanceType],
    probed: Mapping[str, Sequence[PowerLimitProbed]],
    generation: int,
) -> Mapping[Pool, NodePower]:
    """Return power by pool, with the caps that a job's sweeps found where none are known."""
    swept = {
        pool: replace(power, caps=caps)
        for pool, power in powers.items()
        if not power.caps
        and pool in machines
        and (caps := swept_caps(probed.get(machines[pool].gpu.model, ()), power, generation))
    }
    return {**powers, **swept} if swept else powers


def swept_caps(
    events: Sequence[PowerLimitProbed], power: NodePower, generation: int
) -> tuple[PowerCap, ...]:
    """Return the caps of a job's sweep on one GPU model, none before its end."""
    if not events or not is_over(events, generation):
        return ()
    of = max((e.generation for e in events if e.cap_w is not None), default=0)
    probes = to_probes(events, of)
    if not probes or probes[0].cap_w is not None:
        return ()
    return measured_caps(probes, power, f"measured on this job, {events[-1].at:%Y-%m-%d}")
