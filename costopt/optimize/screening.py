"""Screening: which offers a job may use, with a reason for each of the others.

Checks that do not depend on the job are done once for all jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from costopt.domain.estimate import Series
from costopt.domain.job import Job
from costopt.domain.market import InstanceType, Offer
from costopt.domain.plan import Rejection
from costopt.domain.policy import energy_term
from costopt.domain.power import NodePower
from costopt.domain.transfers import mean_kept_checkpoints
from costopt.market.screening import screen_for_job, screen_offers
from costopt.optimize.demand import Demand
from costopt.optimize.limits import all_quotas
from costopt.optimize.offer_columns import Stored, TransferCosts, stored_locations, transfer_costs
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.speeds import stage_speeds

OfferFault = tuple[str, str]
"""(code, reason) of a rejection."""


@dataclass(frozen=True, slots=True)
class ScreenResult:
    """The numbers of the usable offers of ``OfferScreen.offers``, and the others' rejections."""

    usable: NDArray[np.int64]
    rejections: tuple[Rejection, ...]


class OfferScreen:
    """The check of a request's offers for each job.

    ``offers`` are those that the policy allows and whose price and machine are known.
    """

    def __init__(self, request: PlanRequest) -> None:
        self._request = request
        self._priced, self._unpriced = screen_offers(
            request.offers, request.policy, request.now, check_age=False
        )
        kinds: dict[InstanceType | None, int] = {}
        kind = [kinds.setdefault(request.machines.get(o.pool), len(kinds)) for o in self._priced]
        self._kind = np.array(kind, dtype=np.int64)
        self._machines = tuple(kinds)
        known = np.flatnonzero(self._kind != kinds.get(None, -1))
        self.offers = tuple([self._priced[number] for number in known.tolist()])
        self._machine = self._kind[known]
        self._lasting = self._lasting_faults()
        self._unpowered = [n for n, o in enumerate(self.offers) if o.pool not in request.powers]
        self._dated = [n for n, o in enumerate(self.offers) if o.from_at or o.until_at]
        self._way, self._ways = _ways(self.offers, self._machine.tolist())
        self._fetches: dict[tuple[Stored, object, float], list[TransferCosts | None]] = {}

    def screen(self, demand: Demand) -> ScreenResult:
        """Return the offers that the job may use, and the rejections of the others."""
        unfit = self._unfit(demand.job)
        fits = np.array([fault is None for fault in unfit], dtype=bool)[self._machine]
        faults = self._faults_for(demand) | self._lasting
        wrong = [number for number in sorted(faults) if fits[number]]
        rejections = [
            *self._unpriced,
            *self._misfits(unfit),
            *(Rejection(self.offers[number].pool, *faults[number]) for number in wrong),
        ]
        fits[wrong] = False
        return ScreenResult(np.flatnonzero(fits), tuple(rejections))

    def fetched(self, job: Job) -> Iterator[Array]:
        """Yield each figure of ``TransferCosts``, shape (offers,), NaN where a price is unknown."""
        nowhere = TransferCosts(*[math.nan] * len(fields(TransferCosts)))
        known = [nowhere if one is None else one for one in self._fetch(job)]
        for field in fields(TransferCosts):
            yield np.array([getattr(one, field.name) for one in known], dtype=float)[self._way]

    def _unfit(self, job: Job) -> list[OfferFault | None]:
        """What is wrong with each machine, by the screen's judgement of one of its offers."""
        _, found = np.unique(self._kind, return_index=True)
        samples = [self._priced[number] for number in found.tolist()]
        _, refused = screen_for_job(samples, job, self._request.machines)
        reasons = {rejection.pool: (rejection.code, rejection.reason) for rejection in refused}
        return [reasons.get(sample.pool) for sample in samples]

    def _misfits(self, unfit: list[OfferFault | None]) -> list[Rejection]:
        wrong = np.array([fault is not None for fault in unfit], dtype=bool)
        return [
            Rejection(self._priced[number].pool, *fault)
            for number in np.flatnonzero(wrong[self._kind]).tolist()
            if (fault := unfit[int(self._kind[number])]) is not None
        ]

    def _lasting_faults(self) -> dict[int, OfferFault]:
        """Of the offers that no job can use."""
        powers = self._request.powers
        needs_carbon = self._request.policy.objective.usd_per_tonne_co2e > 0
        faults: dict[int, OfferFault] = {}
        for number, offer in enumerate(self.offers):
            fault = (
                _hazard_fault(offer)
                or _power_fault(powers.get(offer.pool), needs_carbon)
                or _forecast_fault(offer, self._request, needs_carbon)
            )
            if fault is not None:
                faults[number] = fault
        return faults

    def _faults_for(self, demand: Demand) -> dict[int, OfferFault]:
        """Of the offers that this job cannot use: prices of ways, dates, power, speeds."""
        faults = {**self._strangers(demand), **self._power_faults(demand.job)}
        for number in self._dated:
            fault = _date_fault(self.offers[number], self._request, demand)
            if fault is not None:
                faults[number] = fault
        unknown = np.array([one is None for one in self._fetch(demand.job)], dtype=bool)
        for number in np.flatnonzero(unknown[self._way]).tolist():
            faults[number] = _transfer_fault(self.offers[number])
        return faults

    def _power_faults(self, job: Job) -> dict[int, OfferFault]:
        """Of the offers of unknown power whose energy the job or what limits it counts."""
        request, faults = self._request, dict[int, OfferFault]()
        quotas = all_quotas(request) if self._unpowered else ()
        for number in self._unpowered:
            pool = self.offers[number].pool
            term = energy_term(request.policy, job, quotas, pool, request.machines[pool])
            if term is not None:
                unknown = "the power of this instance type is unknown"
                faults[number] = ("power_unknown", f"{unknown}, and {term}")
        return faults

    def _fetch(self, job: Job) -> list[TransferCosts | None]:
        """By the number of the way: region × machine."""
        what = (
            stored_locations(job),
            (job.cache, job.checkpoint.across_zones),
            mean_kept_checkpoints(job),
        )
        if what not in self._fetches:
            self._fetches[what] = [
                transfer_costs(
                    offer.pool, self._request.machines[offer.pool], job, self._request.transfers
                )
                for offer in (self.offers[number] for number in self._ways)
            ]
        return self._fetches[what]

    def _strangers(self, demand: Demand) -> dict[int, OfferFault]:
        """The offers of machines on which no stage that is left has a known speed.

        Without phases that have their own, the screen has looked at it.
        """
        if not any(phase.throughput for phase in demand.job.phases):
            return {}
        strange = np.array(
            [
                machine is not None and not any(stage_speeds(machine, machine.gpu_count, demand))
                for machine in self._machines
            ],
            dtype=bool,
        )
        fault = ("throughput_unknown", "no phase that is left has a known speed on it")
        return dict.fromkeys(np.flatnonzero(strange[self._machine]).tolist(), fault)


def _ways(
    offers: tuple[Offer, ...], machines: list[int]
) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """The number of each offer's region × machine, and an offer of each."""
    numbers: dict[tuple[str, str, int], int] = {}
    way = [
        numbers.setdefault((offer.pool.provider, offer.pool.region, machine), len(numbers))
        for offer, machine in zip(offers, machines, strict=True)
    ]
    found = np.array(way, dtype=np.int64)
    return found, tuple(np.unique(found, return_index=True)[1].tolist())


def _forecast_fault(offer: Offer, request: PlanRequest, needs_carbon: bool) -> OfferFault | None:
    pool = offer.pool
    prices = request.price_forecasts.get(pool)
    if prices is not None and not _is_figure(prices):
        return "forecast_invalid", "its price forecast contains an invalid price"
    carbon = request.carbon_forecasts.get(f"{pool.provider}/{pool.region}")
    if needs_carbon and carbon is not None and not _is_figure(carbon):
        return "forecast_invalid", "the carbon forecast of its region contains an invalid intensity"
    return None


def _is_figure(series: Series) -> bool:
    """Whether every value is a finite number from 0 up."""
    return all(math.isfinite(value) and value >= 0 for value in series.values)


def _hazard_fault(offer: Offer) -> OfferFault | None:
    hazard = offer.hazard_per_hour
    if hazard is None:
        if offer.pool.capacity_type.is_interruptible:
            return "hazard_unknown", "nothing is known of how often this pool is interrupted"
        return None
    if not (math.isfinite(hazard.high) and hazard.low >= 0):
        return "hazard_invalid", f"a hazard of {hazard.value:g} per hour is not a valid rate"
    return None


def _power_fault(power: NodePower | None, needs_carbon: bool) -> OfferFault | None:
    if power is None:
        return None
    if not all(math.isfinite(w) and w >= 0 for w in (power.idle_w, power.busy_w, power.pue)):
        return "power_invalid", "the power figures are not finite numbers from 0 up"
    carbon = power.gco2e_per_kwh
    if carbon is None or not math.isfinite(carbon):
        unknown = "the carbon intensity of the region is unknown and the policy weighs carbon"
        return ("carbon_unknown", unknown) if needs_carbon else None
    return None


def _transfer_fault(offer: Offer) -> OfferFault:
    here = f"{offer.pool.provider}/{offer.pool.region}"
    return (
        "transfer_unknown",
        f"the price of moving the job's data, cache or checkpoints to {here} is unknown",
    )


def _date_fault(offer: Offer, request: PlanRequest, demand: Demand) -> OfferFault | None:
    release_at = request.now + timedelta(hours=demand.release_h)
    if offer.until_at is not None and offer.until_at <= release_at:
        return "dated", f"ends at {offer.until_at:%Y-%m-%d %H:%M} UTC, before the job may use it"
    if offer.from_at is not None and offer.from_at >= demand.job.until_at:
        return "dated", f"begins at {offer.from_at:%Y-%m-%d %H:%M} UTC, after the job's deadline"
    return None
