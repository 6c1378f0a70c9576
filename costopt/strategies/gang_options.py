"""The gangs on which a job could run now, and their speed under a decision's power caps."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from costopt.domain.array import parallel_tasks
from costopt.domain.checkpoint_interval import explained_interval
from costopt.domain.job import CheckpointSpec, Job, Phase
from costopt.domain.market import InstanceType, Offer, Pool
from costopt.domain.policy import energy_term
from costopt.domain.transfers import region_key
from costopt.domain.view import JobView, Target, View
from costopt.optimize.offer_columns import TransferCosts, transfer_costs

EXPECTED_HAZARD_PER_HOUR = 0.39
"""Interruptions per hour of capacity in the public records that the prior of lifetimes is fitted
on, 2,247 in 5,832 h; it says how much work there may be between two saves."""

MIN_WORK_H = 0.25
"""A fetch is not spread over less work than this, however near the end is."""


@dataclass(frozen=True, slots=True)
class PhaseSpeed:
    """The speed of one phase of the job in a pool: on this many nodes, up to these units."""

    until_units: float
    nodes: int
    units_per_s: float


@dataclass(frozen=True, slots=True)
class GangOption:
    """A whole gang. Rates are the gang's; ``score`` is the policy's objective.

    It is in one pool, or has ``parts`` in several zones (``costopt.strategies.spread_gangs``), of
    which ``pool`` is the largest.

    The score holds what moving data to and from the pool's region costs, spread over the hours of
    remaining work.

    ``units_per_s`` is the lower end of what is known of the speed, so that time is never
    under-estimated. ``running`` says that the gang exists already; ``free`` that the pool, as far
    as is known, has the missing nodes. ``stretches`` are all phases of the job in this pool: the
    present one with this gang, the others with the gang nearest to it that they allow.
    ``start_s`` is from a launch until new work is done: start-up, restore and the transfer of data
    from another region, and the longest wait for capacity. ``wait_s`` is that wait, None where a
    launch does not wait or the gang runs; ``waited_s`` of it are behind a launch that waits now.
    ``lasting`` tells that the pool can be used until the deadline. Figures are those under
    ``power_cap_w``, the limit of each GPU. ``checkpoint`` has the times of this gang's saves, None:
    the job's; ``save_paid_s`` is for how long it could train for the dollars of one.
    """

    pool: Pool
    nodes: int
    units_per_s: float
    usd_per_hour: float
    score_usd_per_hour: float
    free: bool
    running: bool
    stretches: tuple[PhaseSpeed, ...]
    start_s: float
    lasting: bool
    wait_s: float | None = None
    waited_s: float = 0.0
    power_cap_w: float | None = None
    parallel_tasks: int | None = None
    checkpoint: CheckpointSpec | None = None
    parts: tuple[Target, ...] = ()
    save_paid_s: float = 0.0

    def units_to_last(self, units: float) -> float:
        """Return the units; of an array, with what idle nodes could do until its last task ends.

        Work W on S at once ends by W / S + (1 - 1 / S) tasks (Graham 1966, doi:10.1002/
        j.1538-7305.1966.tb01709.x), and once the last S run, by the longest of their rests.
        """
        at_once = self.parallel_tasks
        if at_once is None:
            return units
        return units + at_once - 1 if units > at_once else at_once * min(1.0, units)

    def work_left(self, done_units: float) -> Iterable[tuple[int, float]]:
        """Return the (nodes, seconds) of training by phase, from ``done_units`` to the end."""
        for stretch in self.stretches:
            if stretch.until_units > done_units:
                yield stretch.nodes, (stretch.until_units - done_units) / stretch.units_per_s
                done_units = stretch.until_units

    @property
    def is_uninterruptible(self) -> bool:
        """Return whether a deadline may rest on it: not interrupted, and its launch does not wait.

        A flex-start gang that runs already is as good as any.
        """
        capacity_type = self.pool.capacity_type
        return capacity_type.is_uninterruptible or (
            self.running and not capacity_type.is_interruptible
        )

    @property
    def score_usd_per_unit(self) -> float:
        """Return the objective in dollars per unit of work."""
        return self.score_usd_per_hour / (3600 * self.units_per_s)

    @property
    def targets(self) -> tuple[Target, ...]:
        """Return this gang as a decision's targets."""
        return self.parts or (Target(self.pool, self.nodes, self.power_cap_w),)

    @property
    def place(self) -> str:
        """Return the name under which its capacity is known: of parts, the zones of the region."""
        return str(replace(self.pool, zone="*") if self.parts else self.pool)


def gang_options(view: View, job_view: JobView) -> tuple[GangOption, ...]:
    """Return every gang size of every offer that the job, its hourly budget and its phase allow.

    While a launch waits for capacity there is no other to wait for: the wait would restart.
    """
    if id(job_view) not in view.memo:
        view.memo[id(job_view)] = job_view, tuple(_options(view, job_view))
    found: tuple[GangOption, ...] = view.memo[id(job_view)][1]
    return found


def _options(view: View, job_view: JobView) -> Iterable[GangOption]:
    job, progress = job_view.job, job_view.progress
    phase = job.phase_at(progress.done_units)
    mine: dict[Pool, int] = {}
    for node in job_view.nodes:
        mine[node.pool] = mine.get(node.pool, 0) + 1
    queued = {node.pool for node in job_view.waiting}
    # Far fewer machines than offers: what a job does on each is asked once.
    paces: dict[int, tuple[_Pace, ...]] = {}
    for offer in view.offers:
        machine = view.machines.get(offer.pool)
        if machine is None or not _open(offer, view.now):
            continue
        if offer.pool not in view.powers and _counts_energy(view, job, offer.pool, machine):
            continue
        if queued and offer.wait_s > 0 and offer.pool not in queued | mine.keys():
            continue
        if id(machine) not in paces:
            paces[id(machine)] = tuple(_paces(job_view, phase, machine))
        for pace in paces[id(machine)]:
            running = mine.get(offer.pool, 0) if mine else 0
            option = _option(view, job_view, offer, machine, pace, running)
            if option is not None:
                yield option


def _counts_energy(view: View, job: Job, pool: Pool, machine: InstanceType) -> bool:
    quotas = view.account.limits
    return energy_term(view.policy, job, quotas, pool, machine) is not None


@dataclass(frozen=True, slots=True)
class _Pace:
    """How fast a gang of so many nodes is in the present phase, and what it does in each.

    ``job`` has the times of its starts and saves.
    """

    job: Job
    nodes: int
    units_per_s: float
    stretches: tuple[PhaseSpeed, ...]


def _paces(job_view: JobView, phase: Phase, machine: InstanceType) -> Iterable[_Pace]:
    """The gang sizes of ``machine`` that the job and the phase allow, where a speed is known."""
    job = job_view.job
    if job.resources.rejection_reason(machine) is not None:
        return
    for nodes in job.gang_sizes(machine, (len(job_view.nodes),)):
        if phase.min_nodes <= nodes <= phase.max_nodes:
            speed = _units_per_s(job_view, machine, nodes, phase)
            if speed is not None:
                stretches = _stretches(job_view, machine, nodes, speed)
                yield _Pace(job.on_gang(machine, nodes), nodes, speed, stretches)


def _option(
    view: View, job_view: JobView, offer: Offer, machine: InstanceType, pace: _Pace, running: int
) -> GangOption | None:
    job, nodes, speed = pace.job, pace.nodes, pace.units_per_s
    fetch = transfer_costs(offer.pool, machine, job, view.transfers)
    if fetch is None or offer.price_usd_per_hour is None:
        return None
    usd = offer.price_usd_per_hour.value * nodes
    if usd > (math.inf if job.budget.max_usd_per_hour is None else job.budget.max_usd_per_hour):
        return None
    paid_s = 3600 * fetch.save_usd / usd if usd > 0 else 0.0
    missing = max(0, nodes - running)
    available = offer.nodes_available
    queued = sum(1 for node in job_view.waiting if node.pool == offer.pool)
    wait_s = offer.wait_s if missing and offer.wait_s > 0 else None
    return GangOption(
        pool=offer.pool,
        nodes=nodes,
        units_per_s=speed,
        usd_per_hour=usd,
        score_usd_per_hour=_score_usd_per_hour(view, job, offer.pool, nodes, usd)
        + _moving_usd_per_hour(view, job_view, offer.pool, fetch, pace, missing, paid_s),
        free=available is None or available >= missing - queued,
        running=running >= nodes,
        stretches=pace.stretches,
        start_s=job.overhead_s + 3600 * fetch.hours + offer.wait_s,
        lasting=offer.until_at is None or offer.until_at >= job.until_at,
        wait_s=wait_s,
        waited_s=_waited_s(offer, job_view, view.now) if missing else 0.0,
        parallel_tasks=parallel_tasks(job, machine, nodes),
        checkpoint=None if job is job_view.job else job.checkpoint,
        save_paid_s=paid_s,
    )


def _waited_s(offer: Offer, job_view: JobView, now: datetime) -> float:
    since = [node.launched_at for node in job_view.waiting if node.pool == offer.pool]
    return min((now - max(since)).total_seconds(), offer.wait_s) if since else 0.0


def _open(offer: Offer, now: datetime) -> bool:
    """Whether a dated offer can be used now."""
    begun = offer.from_at is None or offer.from_at <= now
    return begun and (offer.until_at is None or now < offer.until_at)


def _stretches(
    job_view: JobView, machine: InstanceType, nodes: int, speed: float
) -> tuple[PhaseSpeed, ...]:
    """A phase for which the machine has no gang, or no known speed, is done as the present one."""
    job = job_view.job
    if len(job.phases) == 1:
        return (PhaseSpeed(job.work.amount, nodes, speed),)
    sizes = job.gang_sizes(machine, (nodes,))
    stretches = []
    share = 0.0
    for phase in job.phases:
        share += phase.share
        allowed = [n for n in sizes if phase.min_nodes <= n <= phase.max_nodes]
        size = min(allowed, key=lambda n: abs(n - nodes), default=nodes)
        known = _units_per_s(job_view, machine, size, phase)
        until_units = job.work.amount * (1.0 if phase is job.phases[-1] else share)
        stretches.append(PhaseSpeed(until_units, size if known else nodes, known or speed))
    return tuple(stretches)


def _units_per_s(
    job_view: JobView, machine: InstanceType, nodes: int, phase: Phase
) -> float | None:
    speed = job_view.job.gang_units_per_s(machine, nodes, phase)
    if speed is None:
        return None
    if job_view.speed_factor != 1.0:
        return speed.value * job_view.speed_factor
    return speed.low


def _score_usd_per_hour(
    view: View, job: Job, pool: Pool, nodes: int, usd: float, cap_w: float | None = None
) -> float:
    toll = view.limit_prices.get(pool)
    shared_usd = 0.0 if toll is None else nodes * toll.value(view.now)
    power = view.powers.get(pool)
    if power is None:
        return view.policy.objective.score_usd(usd, 0.0, 0.0) + shared_usd
    efficiency = job.scaling_efficiency(view.machines[pool], nodes)
    kwh = nodes * power.in_gang(efficiency).capped(cap_w).kwh(0.0, 3600.0)
    carbon = view.carbon_forecasts.get(f"{pool.provider}/{pool.region}")
    gco2e = power.gco2e(kwh) or 0.0 if carbon is None else kwh * carbon.value(view.now)
    return view.policy.objective.score_usd(usd, kwh, gco2e) + shared_usd


def _moving_usd_per_hour(
    view: View,
    job_view: JobView,
    pool: Pool,
    fetch: TransferCosts,
    pace: _Pace,
    new_nodes: int,
    paid_s: float,
) -> float:
    """One fetch over the work that is left, that of each new node, what saves send, and storage.

    A region in which nodes of the job live has the data. That a gang may be lost there and fetch
    again is left out: spread over all the work, one fetch keeps waiting from looking cheaper.
    """
    job = pace.job
    left = job.work.amount - job_view.progress.done_units
    hours = max(left / pace.units_per_s / 3600, MIN_WORK_H)
    there = any(region_key(node.pool) == region_key(pool) for node in job_view.nodes)
    interval_s = save_interval_s(job.checkpoint, paid_s=paid_s)
    saves = fetch.save_usd * 3600 / max(interval_s, view.tick_s)
    fetched_usd = (0.0 if there else fetch.usd) + new_nodes * fetch.node_usd
    stored = fetch.hour_usd + pace.nodes * fetch.node_hour_usd
    return view.policy.objective.usd * (fetched_usd / hours + saves + stored)


def unsaved_s(checkpoint: CheckpointSpec) -> float:
    """Return the seconds of work that an interruption may take where no interval is chosen yet."""
    return save_interval_s(checkpoint) + checkpoint.durable_s - checkpoint.save_s


def save_interval_s(
    checkpoint: CheckpointSpec,
    hazard_per_hour: float = EXPECTED_HAZARD_PER_HOUR,
    paid_s: float = 0.0,
) -> float:
    """Return the seconds between saves, at this hazard where the job leaves them open.

    ``paid_s`` is for how long the gang could train for the dollars of a save; 0 where what counts
    is the deadline.
    """
    chosen = explained_interval(
        hazard_per_hour=hazard_per_hour,
        blocking_save_s=checkpoint.save_s,
        persist_s=checkpoint.durable_s,
        paid_s=paid_s,
    )
    return checkpoint.interval_s or chosen.interval_s


def uninterruptible_options(all_options: Iterable[GangOption]) -> list[GangOption]:
    """Return the options that a deadline may rest on, cheapest work first."""
    chosen = [o for o in all_options if o.is_uninterruptible and o.free and o.lasting]
    return sorted(chosen, key=lambda o: (o.score_usd_per_unit, str(o.pool), o.nodes))


def spot_options(all_options: Iterable[GangOption]) -> list[GangOption]:
    """Return the options on spot that are available now, cheapest work first."""
    chosen = [o for o in all_options if o.pool.capacity_type.is_interruptible and o.free]
    return sorted(chosen, key=lambda o: (o.score_usd_per_unit, str(o.pool), o.nodes))


def without_power_caps(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Return the same gang without power limits."""
    return tuple(replace(target, power_cap_w=None) for target in targets)


def with_power_caps(view: View, option: GangOption, targets: Iterable[Target]) -> GangOption:
    """Return the option at the speed under the targets' power caps; nothing else changes."""
    share = min((_speed(view, target) for target in targets), default=1.0)
    if share == 1.0:
        return option
    stretches = tuple(replace(s, units_per_s=s.units_per_s * share) for s in option.stretches)
    return replace(option, units_per_s=option.units_per_s * share, stretches=stretches)


def with_best_cap(view: View, job: Job, option: GangOption) -> GangOption:
    """Return the option under the power cap with which its work costs least, if any costs less."""
    power = view.powers.get(option.pool)
    caps = () if power is None else power.caps
    return min(
        (option, *(_with_cap(view, job, option, cap.cap_w) for cap in caps)),
        key=lambda each: each.score_usd_per_unit,
    )


def _with_cap(view: View, job: Job, option: GangOption, cap_w: float) -> GangOption:
    figures = view, job, option.pool, option.nodes, option.usd_per_hour
    saved = _score_usd_per_hour(*figures) - _score_usd_per_hour(*figures, cap_w)
    capped = with_power_caps(view, option, (Target(option.pool, option.nodes, cap_w),))
    score = option.score_usd_per_hour - saved
    return replace(capped, score_usd_per_hour=score, power_cap_w=cap_w)


def _speed(view: View, target: Target) -> float:
    """The share of speed under the target's cap; a cap without a measurement is never set."""
    power = view.powers.get(target.pool)
    caps = () if power is None or target.power_cap_w is None else power.caps
    return next((cap.speed for cap in caps if cap.cap_w == target.power_cap_w), 1.0)
