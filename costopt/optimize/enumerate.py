"""From offers to the table of configurations of one job, with a reason for every offer left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import timedelta

from costopt.domain.job import Job
from costopt.domain.market import InstanceType, Offer
from costopt.domain.plan import Rejection
from costopt.domain.power import NodePower
from costopt.market.screen import screen_for_job, screen_offers
from costopt.optimize.caps import lowers_energy, with_caps
from costopt.optimize.configuration import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.fetch import fetch_to
from costopt.optimize.limits import apply_limits, gang_limits
from costopt.optimize.request import PlanRequest
from costopt.optimize.rows import rows_of
from costopt.optimize.speeds import stage_speeds
from costopt.optimize.table import table_of

HOPELESS = 1e6
"""Paid hours per useful hour beyond which a configuration is said never to get the work done."""


def enumerate_configurations(
    request: PlanRequest, demand: Demand
) -> tuple[ConfigurationTable, tuple[Rejection, ...]]:
    """Every configuration that the job, the policy and the quotas allow, alone, at any time.

    Rejection codes besides those of ``costopt.market.screen``: ``hazard_unknown``,
    ``hazard_invalid``, ``hazard_too_high``, ``power_unknown``, ``power_invalid``,
    ``carbon_unknown``, ``transfer_unknown``, ``dated`` (its time is over, or does not meet the
    job's), ``gang_size``, ``capacity`` (a reservation too small), ``zone_share``, ``quota`` and
    ``limit``.
    """
    offers, rejections = _screen(request, demand)
    rows = with_caps(rows_of(offers, request, demand), offers, request)
    rows, refused = apply_limits(rows, offers, gang_limits(offers, rows, request, demand))
    table = table_of(offers, rows, request, demand)
    hopeful = table.paid_units_per_hour * HOPELESS > table.speed * 3600
    lost = set(table.offer.tolist()) - set(table.offer[hopeful].tolist()) - {-1}
    hopeless = tuple(
        Rejection(
            offers[i].pool, "hazard_too_high", "interrupted so often that the work never gets done"
        )
        for i in sorted(lost)
    )
    kept = hopeful & lowers_energy(table, rows, [request.powers[offer.pool] for offer in offers])
    return table.take(kept), rejections + refused + hopeless


def _screen(
    request: PlanRequest, demand: Demand
) -> tuple[tuple[Offer, ...], tuple[Rejection, ...]]:
    priced, unpriced = screen_offers(request.offers, request.policy, request.now, check_age=False)
    fitting, unfit = screen_for_job(priced, demand.job, request.machines)
    needs_carbon = request.policy.objective.usd_per_tonne_co2e > 0
    usable: list[Offer] = []
    rejections = [*unpriced, *unfit]
    strange = _strangers((request.machines[offer.pool] for offer in fitting), demand)
    for offer in fitting:
        unknown = (
            _hazard_fault(offer)
            or _power_fault(request.powers.get(offer.pool), needs_carbon)
            or _transfer_fault(offer, request, demand.job)
            or _date_fault(offer, request, demand)
            or (strange.get(request.machines[offer.pool]) if strange else None)
        )
        if unknown is None:
            usable.append(offer)
        else:
            rejections.append(Rejection(offer.pool, *unknown))
    return tuple(usable), tuple(rejections)


def _hazard_fault(offer: Offer) -> tuple[str, str] | None:
    hazard = offer.hazard_per_hour
    if hazard is None:
        if offer.pool.capacity_type.interruptible:
            return "hazard_unknown", "nothing is known of how often this pool is interrupted"
        return None
    if not (math.isfinite(hazard.high) and hazard.low >= 0):
        return "hazard_invalid", f"a hazard of {hazard.value:g} per hour is no rate"
    return None


def _power_fault(power: NodePower | None, needs_carbon: bool) -> tuple[str, str] | None:
    if power is None:
        return "power_unknown", "the power of this instance type is unknown"
    if not all(math.isfinite(w) and w >= 0 for w in (power.idle_w, power.busy_w, power.pue)):
        return "power_invalid", "the power figures are not finite numbers from 0 up"
    carbon = power.gco2e_per_kwh
    if carbon is None or not math.isfinite(carbon):
        unknown = "the carbon intensity of the region is unknown and the policy weighs carbon"
        return ("carbon_unknown", unknown) if needs_carbon else None
    return None


def _transfer_fault(offer: Offer, request: PlanRequest, job: Job) -> tuple[str, str] | None:
    machine = request.machines[offer.pool]
    if fetch_to(offer.pool, machine, job, request.transfers) is not None:
        return None
    here = f"{offer.pool.provider}/{offer.pool.region}"
    return (
        "transfer_unknown",
        f"the price of moving the job's data or checkpoints to {here} is unknown",
    )


def _date_fault(offer: Offer, request: PlanRequest, demand: Demand) -> tuple[str, str] | None:
    release_at = request.now + timedelta(hours=demand.release_h)
    if offer.until_at is not None and offer.until_at <= release_at:
        return "dated", f"ends at {offer.until_at:%Y-%m-%d %H:%M} UTC, before the job may use it"
    if offer.from_at is not None and offer.from_at >= demand.job.deadline_at:
        return "dated", f"begins at {offer.from_at:%Y-%m-%d %H:%M} UTC, after the job's deadline"
    return None


def _strangers(
    machines: Iterable[InstanceType], demand: Demand
) -> Mapping[InstanceType, tuple[str, str]]:
    """The machines on which no stage that is left has a known speed.

    Without phases that have their own, the screen has looked at it.
    """
    if not any(phase.throughput for phase in demand.job.phases):
        return {}
    reason = "no phase that is left has a known speed on it"
    return {
        machine: ("throughput_unknown", reason)
        for machine in set(machines)
        if not any(stage_speeds(machine, machine.gpu_count, demand))
    }
