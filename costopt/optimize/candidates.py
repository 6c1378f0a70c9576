"""The candidates of a plan: every pool evaluated alone, and why it was not chosen.

A candidate is what the whole job would cost on one pool alone, at the mean prices that each of its
configurations would pay over the job's time. ``judge_candidates`` returns them with the reason for
which each was rejected; where nothing excludes a candidate, ``RejectionExplainer`` finds why it
could have been chosen and was not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from costopt.domain.estimate import Estimate
from costopt.domain.market import Pool
from costopt.domain.plan import Candidate, Forecast, Rejection
from costopt.domain.policy import Policy
from costopt.formatting import percent_text, probability_text
from costopt.optimize.colgen.solve import planning_slots
from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.demand import Demand
from costopt.optimize.fallback import choose_fallback_row
from costopt.optimize.planned_job import PlannedJob
from costopt.optimize.pruning import (
    can_run_stage,
    single_held_h,
    single_score,
    single_work_units,
    usable_h,
)
from costopt.optimize.rates import Array
from costopt.optimize.request import PlanRequest
from costopt.optimize.segments import Segment
from costopt.optimize.sensitivity import EnteringPrice
from costopt.optimize.simulation import forecast_rows
from costopt.optimize.slot_costs import ForecastTable, SlotCosts
from costopt.optimize.slots import AVAILABILITY_HORIZON_H
from costopt.optimize.speeds import stage_speeds

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReferencePlan:
    """The plan that candidates are compared with: empty ``segments`` where there is none.

    ``part`` is the job as it was solved, which may hold back less time than the policy's risk asks
    of a single configuration; ``forecast`` and ``score_usd`` are the plan's.
    """

    part: PlannedJob
    segments: Sequence[Segment]
    score_usd: float
    forecast: Forecast | None


def judge_candidates(
    request: PlanRequest, part: PlannedJob, made: ReferencePlan
) -> tuple[Candidate, ...]:
    """Return one candidate per pool, and per spread over zones where the policy asks for spreads.

    Each is at its best gang size and at the prices of the hours that it would run; chosen ones are
    as in the plan. They are sorted by the objective, those that would be late or too risky last.
    The codes of the rejections are those of ``RejectionExplainer``.
    """
    demand = part.demand
    table = with_mean_prices(request, part.table, demand)
    chosen = {segment.row for segment in made.segments}
    spreads = request.policy.limits.max_zone_share is not None
    rows = _best_rows(table, demand, chosen, spreads=spreads)
    if not len(rows):
        return ()
    forecasts = forecast_rows(table, rows, demand, request.now)
    scores = single_score(table, demand)[rows]
    why_not = _why_not(request, table, part, made)
    built = [
        _candidate(
            table,
            int(row),
            made.forecast if made.forecast is not None and {int(row)} == chosen else forecast,
            None if row in chosen else why_not.rejection(int(row), forecast),
            request,
            demand,
        )
        for row, forecast in zip(rows, forecasts, strict=True)
    ]
    order = sorted(
        range(len(built)),
        key=lambda i: (_misses(built[i]), scores[i], built[i].pool, built[i].nodes),
    )
    return tuple(built[i] for i in order)


def _why_not(
    request: PlanRequest, table: ConfigurationTable, part: PlannedJob, made: ReferencePlan
) -> RejectionExplainer:
    policy, demand = request.policy, part.demand
    if not made.segments:
        return RejectionExplainer.against(table, demand, policy, None)
    constant = table is part.table
    solved = made.part.table if constant else table
    entering = EnteringPrice.of(
        solved, made.part.demand, policy.objective, made.score_usd, mixes=constant
    )
    return RejectionExplainer.against(table, demand, policy, made.score_usd, entering)


def _best_rows(
    table: ConfigurationTable, demand: Demand, chosen: set[int], *, spreads: bool
) -> Rows:
    """For each pool or spread the cheapest gang size that ends in time alone, else the fastest."""
    in_every_stage = np.ones(len(table), dtype=bool)
    for number, stage in enumerate(demand.stages):
        in_every_stage &= can_run_stage(table, stage, number)
    in_first = can_run_stage(table, demand.stages[0], 0)
    fits = in_every_stage if in_every_stage.any() else in_first
    plain = np.flatnonzero(fits & ((table.offer >= 0) | spreads))
    place = np.where(table.offer >= 0, table.offer, len(table.offers) + table.first())
    held_h, score = single_held_h(table, demand)[plain], single_score(table, demand)[plain]
    late = held_h > usable_h(table, demand)[plain]
    order = plain[np.lexsort((np.where(late, held_h, score), late, place[plain]))]
    _, first_of = np.unique(place[order], return_index=True)
    replaced = {int(place[row]) for row in chosen}
    best = [row for row in order[first_of].tolist() if int(place[row]) not in replaced]
    return np.array(sorted([*best, *chosen]), dtype=np.int64)


def _candidate(
    table: ConfigurationTable,
    row: int,
    forecast: Forecast,
    rejection: Rejection | None,
    request: PlanRequest,
    demand: Demand,
) -> Candidate:
    parts = table.spread[row] or ((int(table.offer[row]), int(table.nodes[row])),)
    offers = [table.offers[number] for number, _ in parts]
    prices = [offer.price_usd_per_hour for offer in offers]
    known = [(p, nodes) for p, (_, nodes) in zip(prices, parts, strict=True) if p is not None]
    ages = [age for price, _ in known if (age := price.age_s(request.now)) is not None]
    nodes, machine = int(table.nodes[row]), request.machines[offers[0].pool]
    speeds = stage_speeds(machine, machine.gpu_count * nodes, demand)
    pace = table.pace[0, row]
    value, low, high = (
        float(each[row] * pace) for each in (table.speed, table.speed_low, table.speed_high)
    )
    known_speed = next(speed for speed in speeds if speed is not None)
    return Candidate(
        pool=offers[0].pool,
        nodes=nodes,
        price_usd_per_hour=sum(price.value * count for price, count in known) / nodes,
        price_age_s=max(ages, default=None),
        speed=Estimate(value, low, high, known_speed.basis, known_speed.source),
        forecast=forecast,
        chosen=rejection is None,
        rejection=rejection,
        spread=table.parts(row) if table.spread[row] else (),
        price_source="; ".join(dict.fromkeys(price.source for price, _ in known)),
    )


def _misses(candidate: Candidate) -> bool:
    return candidate.rejection is not None and candidate.rejection.code in ("late", "risk")


LIKELY = 0.5
"""From this probability on the change to the fallback makes a candidate's figures."""


@dataclass(frozen=True, slots=True)
class RejectionExplainer:
    """Compares the rows of a job's table with the plan, whose objective is ``plan_score_usd``.

    Codes: ``throughput_unknown`` (of a phase); ``late``; ``dated`` (the capacity is there for too
    short a time); ``risk`` (not sure enough, or sure only by way of the fallback); ``budget``;
    ``further_aims`` (cheaper, and within the tolerance the plan is better in the objective's
    further aims); ``fallback`` (cheaper than the plan if all goes well, but not on average);
    ``costs_more`` (more expensive than the plan); ``unplanned`` (admissible, but there is no plan).
    """

    table: ConfigurationTable
    demand: Demand
    policy: Policy
    plan_score_usd: float | None
    held_h: Array
    usable_h: Array
    units: Array
    score_usd: Array
    has_fallback: bool
    entering: EnteringPrice | None

    @classmethod
    def against(
        cls,
        table: ConfigurationTable,
        demand: Demand,
        policy: Policy,
        plan_score_usd: float | None,
        entering: EnteringPrice | None = None,
    ) -> Self:
        """Return an explainer that compares with a plan's objective, None where there is no plan.

        ``entering`` finds the entering prices.
        """
        return cls(
            table,
            demand,
            policy,
            plan_score_usd,
            single_held_h(table, demand),
            usable_h(table, demand),
            single_work_units(table, demand),
            single_score(table, demand),
            choose_fallback_row(table, demand) is not None,
            entering,
        )

    def rejection(self, row: int, forecast: Forecast) -> Rejection:
        """Return the first reason against the row."""
        pool, _ = self.table.parts(row)[0]
        found = self._phase(row) or self._time(row, forecast) or self._budget(forecast)
        if found is not None:
            return Rejection(pool, *found)
        if self.plan_score_usd is None:
            return Rejection(pool, "unplanned", "no plan was made")
        return self._more_expensive(pool, row, self.plan_score_usd)

    def _phase(self, row: int) -> tuple[str, str] | None:
        """Whether nothing is known of a phase's speed on the row."""
        unknown = [
            stage.name
            for number, stage in enumerate(self.demand.stages)
            if self.table.pace[number, row] <= 0
        ]
        if not unknown:
            return None
        return "throughput_unknown", f"the speed of phase {unknown[0]} on it is unknown"

    def _time(self, row: int, forecast: Forecast) -> tuple[str, str] | None:
        asked = self.policy.risk.on_time
        late_h = (forecast.finish_p50_at - self.demand.job.until_at).total_seconds() / 3600
        if late_h > 0:
            return "late", f"finishes {late_h:,.1f} h late{_saved_in_vain(forecast)}"
        if forecast.on_time.value < asked and forecast.on_time.high < 1:
            likely = f"P(on time) {probability_text(forecast.on_time)}"
            return "risk", f"{likely}, {asked:g} is required{_saved_in_vain(forecast)}"
        if self._held_too_short(row):
            return "dated", f"can be used for {max(0.0, self.usable_h[row]):,.1f} h only"
        saved = self.has_fallback and not self.table.firm[row]
        if saved and self._expected_h(row) > self.demand.hours_left:
            return "risk", "too slow: on time only by changing to uninterrupted capacity"
        if not saved and self.held_h[row] > self.demand.hours_left:
            return "risk", "leaves no time for the reserve and for what may go wrong"
        return None

    def _held_too_short(self, row: int) -> bool:
        """Whether the whole job fits the job's own time, but not the time of a dated offer."""
        usable = float(self.usable_h[row])
        return usable < self.demand.hours_left and self._expected_h(row) > usable

    def _expected_h(self, row: int) -> float:
        table = self.table
        paid_h = float(self.units[row]) / float(table.paid_units_per_hour[row])
        return paid_h * float(table.calendar[row]) + float(table.start_h[row])

    def _budget(self, forecast: Forecast) -> tuple[str, str] | None:
        budget = self.demand.job.budget
        if budget.max_usd is not None and forecast.usd_p50 > budget.max_usd:
            return "budget", (
                f"costs {forecast.usd_p50:,.2f} $, the budget is {budget.max_usd:,.2f} $"
            )
        kwh = forecast.kwh
        if budget.max_kwh is not None and kwh is not None and kwh > budget.max_kwh:
            return "budget", f"takes {kwh:,.1f} kWh, the budget is {budget.max_kwh:,.1f} kWh"
        return None

    def _more_expensive(self, pool: Pool, row: int, plan_score_usd: float) -> Rejection:
        objective = self.policy.objective
        only_usd = objective.usd_per_kwh == 0 and objective.usd_per_tonne_co2e == 0
        figure = "cost" if only_usd else "weighted cost"
        score_usd = float(self.score_usd[row])
        if plan_score_usd <= 0 < score_usd:
            return Rejection(pool, "costs_more", f"{figure} {score_usd:,.2f}, the chosen nothing")
        ratio = score_usd / max(plan_score_usd, 1e-12)
        if ratio < 1 and objective.then:
            aims = ", ".join(objective.then)
            return Rejection(
                pool, "further_aims", f"cheaper, but the next aim ({aims}) speaks for the plan"
            )
        if ratio < 1:
            reason = "cheaper if all goes well, but relies more on the costlier fallback"
            return Rejection(pool, "fallback", reason)
        more = f"{ratio:.1f}× the {figure}"
        if ratio < 1.1:
            more = f"{figure} {percent_text(ratio - 1)} higher"
        return Rejection(pool, "costs_more", more, self._enters_below_usd_per_hour(row))

    def _enters_below_usd_per_hour(self, row: int) -> float | None:
        if self.entering is None or self.table.offer[row] < 0:
            return None
        return self.entering.usd_per_hour(int(self.table.offer[row]))


def _saved_in_vain(forecast: Forecast) -> str:
    """Said where the figures are rather those of the fallback."""
    return (
        ", even by changing to uninterrupted capacity"
        if forecast.falls_back.value >= LIKELY
        else ""
    )


def with_mean_prices(
    request: PlanRequest, table: ConfigurationTable, demand: Demand
) -> ConfigurationTable:
    """Return the table with the mean prices and carbon intensities of the hours each row would run.

    These are the hours from the earliest that the row may begin to its expected end, at the latest
    the job's due time. A start is paid at the prices of the first of them. Where nothing is
    forecast it is the table itself.
    """
    slots = planning_slots(request, [demand])
    outlook = ForecastTable.of(request, slots)
    if outlook.constant or not slots or not len(table):
        return table
    rows = np.arange(len(table))
    tariff = SlotCosts.of(outlook, table, request.policy.objective)
    weight = _shares(table, demand, outlook)
    first = (weight > 0).argmax(axis=0)
    return replace(
        table,
        usd_per_hour=(weight * tariff.usd_per_hour(rows)).sum(axis=0),
        usd_per_start=tariff.usd_per_start(rows)[first, rows],
        score_per_hour=(weight * tariff.score_per_hour(rows)).sum(axis=0),
        start_score=tariff.start_score(rows)[first, rows],
        gco2e_per_kwh=(weight * tariff.gco2e_per_kwh(rows)).sum(axis=0),
    )


def _shares(table: ConfigurationTable, demand: Demand, outlook: ForecastTable) -> Array:
    """(T, rows): the share of each row's hours that lies in each slot."""
    usable_now = table.now | table.running
    begin_h = np.maximum(np.where(usable_now, 0.0, AVAILABILITY_HORIZON_H), demand.release_h)
    begin_h = np.minimum(np.maximum(begin_h, table.from_h), demand.due_h)
    paid_h = single_work_units(table, demand) / table.paid_units_per_hour
    takes_h = np.minimum(table.start_h + paid_h * table.calendar, demand.due_h - begin_h)
    end_h = begin_h + np.maximum(takes_h, 1e-6)
    start = np.array([slot.start_h for slot in outlook.slots])[:, None]
    end = np.array([slot.end_h for slot in outlook.slots])[:, None]
    inside = np.maximum(np.minimum(end_h, end) - np.maximum(begin_h, start), 0.0)
    inside[-1, inside.sum(axis=0) <= 0] = 1.0
    shares: Array = inside / inside.sum(axis=0)
    return shares
