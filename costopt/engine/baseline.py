"""What the job would have cost on the cheapest on-demand gang that is in time."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from costopt.domain.events import JobSubmitted
from costopt.domain.job import Job, Progress
from costopt.domain.market import InstanceType, Pool
from costopt.domain.move import region_key
from costopt.domain.policy import Policy
from costopt.domain.power import NodePower
from costopt.domain.view import JobView, View
from costopt.strategies.option import gang_options, uninterruptible_options
from costopt.strategies.reserve import seconds_to_finish
from costopt.strategies.shield import choose_fallback


def job_submitted_event(job: Job, policy: Policy, view: View, now: datetime) -> JobSubmitted:
    """The event that begins a run; without an on-demand offer the baseline is unknown, and its
    energy where the power of the pool is."""
    fresh = JobView(job, Progress())
    chosen = choose_fallback(
        view, fresh, uninterruptible_options(gang_options(view, fresh)), job.work.amount
    )
    facts = JobSubmitted(
        at=now,
        job=job.name,
        work_units=job.work.amount,
        unit=job.work.unit.value,
        start_at=job.start_at,
        deadline_at=job.deadline_at,
        policy=policy.name,
        strategy=policy.strategy.name,
        tenant=job.tenant,
    )
    if chosen is None:
        return facts
    at_worst = tuple(chosen.work_left(0.0))
    machine = view.machines[chosen.pool]
    work = tuple((nodes, _expected_s(job, machine, nodes, s)) for nodes, s in at_worst)
    needed_s = seconds_to_finish(chosen, job, job.work.amount) - chosen.start_s
    saves_s = needed_s - sum(seconds for _, seconds in at_worst)
    # Saves and the starts between phases are spread over the phases by their length.
    stretch = 1.0 + saves_s / sum(seconds for _, seconds in work)
    busy_node_s = sum(nodes * seconds for nodes, seconds in work) * stretch
    idle_node_s = work[0][0] * job.startup_s
    power = view.powers.get(chosen.pool)
    usd_per_node_s = chosen.usd_per_hour / chosen.nodes / 3600
    facts = replace(
        facts,
        baseline_pool=str(chosen.pool),
        baseline_usd_micros=round(usd_per_node_s * (idle_node_s + busy_node_s) * 1_000_000),
        baseline_startup_usd_micros=round(usd_per_node_s * idle_node_s * 1_000_000),
    )
    if power is None:
        return facts
    kwh = power.kwh(idle_node_s, busy_node_s)
    return replace(
        facts,
        baseline_wh=kwh * 1000,
        baseline_startup_wh=power.kwh(idle_node_s, 0.0) * 1000,
        baseline_gco2e=_gco2e(view, chosen.pool, power, kwh, chosen.start_s + needed_s),
    )


def _gco2e(view: View, pool: Pool, power: NodePower, kwh: float, lasts_s: float) -> float | None:
    """At the mean of what is forecast for as long as it lasts from now, else the annual mean."""
    series = view.carbon_forecasts.get(region_key(pool))
    if series is None:
        return power.gco2e(kwh)
    return kwh * series.mean(view.now, view.now + timedelta(seconds=lasts_s))


def _expected_s(job: Job, machine: InstanceType, nodes: int, seconds: float) -> float:
    """The same work at the speed that is expected, not at its lower end: savings stay honest."""
    speed = job.gang_units_per_s(machine, nodes)
    return seconds if speed is None else seconds * speed.low / speed.value
