"""Prices of the limits that jobs share, for a strategy that decides its jobs one by one.

Where the jobs together could ask for more than a quota, a limit or a budget allows, all of them
are planned together over time (``costopt.optimize``). The plan's prices of the limits then count in
each job's own program as if they were paid (``View.limit_prices``): a job that can wait leaves what
is short to those that cannot. In hours in which the plan runs the job it pays nothing, so that jobs
for which two hours are worth the same do not all choose the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from costopt.domain.errors import InfeasibleError, SolverError
from costopt.domain.estimate import Series
from costopt.domain.limits import Resource
from costopt.domain.market import Pool
from costopt.domain.money import to_micros
from costopt.domain.plan import Allocation, HourlyPlan
from costopt.domain.view import JobView, View
from costopt.strategies.gang_options import GangOption, gang_options

if TYPE_CHECKING:
    from costopt.optimize.limits import SharedLimit
    from costopt.optimize.request import PlanRequest

MAX_JOBS = 40
"""Of more jobs a plan takes longer than a tick may."""
PLAN_S, GAP = 2.0, 0.02
REPLAN = timedelta(hours=1)
MAX_HOURS = 14 * 24
HOUR = timedelta(hours=1)


class SharedLimits:
    """Plans the jobs of a view together where they compete, hourly and when one comes or goes."""

    def __init__(self) -> None:
        self._seen_at: datetime | None = None
        self._planned_at: datetime | None = None
        self._names: frozenset[str] = frozenset()
        self._tolls: dict[str, Mapping[Pool, Series]] = {}
        self._plans: dict[str, HourlyPlan] = {}

    def observe(self, view: View) -> None:
        """Plan again where that is due; a second view of the same instant changes nothing."""
        if view.now == self._seen_at:
            return
        self._seen_at = view.now
        names = frozenset(each.job.name for each in view.jobs)
        planned_at = self._planned_at
        if planned_at and names == self._names and view.now < planned_at + REPLAN:
            return
        self._planned_at, self._names = view.now, names
        self._tolls, self._plans = {}, {}
        if 1 < len(view.jobs) <= MAX_JOBS:
            self._plan(view)

    def priced(self, view: View, job: str) -> View:
        """Return the view with the prices that count for the job; the same one without any."""
        tolls = self._tolls.get(job)
        return replace(view, limit_prices=tolls) if tolls else view

    def plan_of(self, job: str) -> HourlyPlan | None:
        """Return what the present plan holds for the job; None where no limit is short."""
        return self._plans.get(job)

    def _plan(self, view: View) -> None:
        from costopt.optimize.colgen.limit_prices import limit_prices, node_tolls
        from costopt.optimize.colgen.warm_start import WarmStart
        from costopt.optimize.planner import plan
        from costopt.optimize.request import build_request

        request, warm = build_request(view), WarmStart()
        if not _compete(view, request):
            return
        try:
            made = plan(request, time_limit_s=PLAN_S, gap=GAP, explain=False, warm=warm)
        except (SolverError, InfeasibleError):
            return
        chosen = warm.chosen_plan
        if chosen is None or not (prices := limit_prices(chosen)):
            return
        for number in range(len(chosen.menus)):
            name = chosen.menus[number].part.demand.job.name
            own = [each for each in made.allocations if each.job == name]
            self._tolls[name] = node_tolls(chosen, number)
            self._plans[name] = hourly_plan(view, own, prices)


def _compete(view: View, request: PlanRequest) -> bool:
    """Whether the jobs, each on its largest gang, exceed a limit together, or on their cheapest
    safe one a budget."""
    from costopt.optimize.limits import shared_limits, total_limits

    options = [(each, gang_options(view, each)) for each in view.jobs]
    for limit in shared_limits(request):
        if not limit.near:
            largest = (
                max((_load(view, limit, option) for option in own), default=0.0)
                for each, own in options
                if limit.tenant in (None, each.job.tenant)
            )
            if sum(largest) > limit.most:
                return True
    return any(
        sum(_safe_usd(each, own) for each, own in options if total.counts(each.job)) > total.max_usd
        for total in total_limits(request)
    )


def _load(view: View, limit: SharedLimit, option: GangOption) -> float:
    pool, machine = option.pool, view.machines[option.pool]
    if limit.resource.per_machine is not None:
        return option.nodes * limit.node_load(pool, machine)
    if limit.quota is not None and not limit.quota.matches(pool, machine):
        return 0.0
    if limit.resource is Resource.USD_PER_HOUR:
        return option.usd_per_hour
    power = view.powers.get(pool)
    return 0.0 if power is None else option.nodes * power.kwh(0.0, 3600.0)


def _safe_usd(job_view: JobView, options: Iterable[GangOption]) -> float:
    units = max(0.0, job_view.job.work.amount - job_view.progress.done_units)
    safe = (o for o in options if o.is_uninterruptible)
    return min((o.usd_per_hour * units / o.units_per_s / 3600 for o in safe), default=0.0)


def hourly_plan(
    view: View, allocations: Iterable[Allocation], prices: Mapping[str, Series]
) -> HourlyPlan:
    """Return the dollars and energy of a job's allocations, at forecast prices and modelled power,
    and the limits' prices, by hour of the clock until the last of them ends."""
    allocations = tuple(allocations)
    begin = view.now.replace(minute=0, second=0, microsecond=0)
    end = max((each.end_at for each in allocations), default=view.now)
    count = min(MAX_HOURS, max(1, -((begin - end) // HOUR)))
    hours = [(max(view.now, begin + n * HOUR), begin + (n + 1) * HOUR) for n in range(count)]
    return HourlyPlan(
        begin,
        tuple(to_micros(sum(_usd(view, each, *hour) for each in allocations)) for hour in hours),
        tuple(_wh(view, allocations, *hour) for hour in hours),
        tuple(
            (name, tuple(round(series.mean(*hour), 6) for hour in hours))
            for name, series in sorted(prices.items())
        ),
    )


def _held_h(each: Allocation, begin: datetime, end: datetime) -> float:
    return max(0.0, (min(each.end_at, end) - max(each.start_at, begin)) / HOUR)


def _usd(view: View, each: Allocation, begin: datetime, end: datetime) -> float:
    hours = _held_h(each, begin, end)
    forecast = view.price_forecasts.get(each.pool)
    if not hours:
        return 0.0
    if forecast is not None:
        return each.nodes * hours * forecast.mean(max(each.start_at, begin), min(each.end_at, end))
    prices = (o.price_usd_per_hour for o in view.offers if o.pool == each.pool)
    return each.nodes * hours * sum(price.value for price in prices if price is not None)


def _wh(
    view: View, allocations: Iterable[Allocation], begin: datetime, end: datetime
) -> float | None:
    total = 0.0
    for each in allocations:
        hours, power = _held_h(each, begin, end), view.powers.get(each.pool)
        if hours and power is None:
            return None
        if hours and power is not None:
            capped = power.capped(each.power_cap_w)
            total += each.nodes * 1000 * capped.kwh(0.0, 3600 * hours)
    return round(total, 3)
