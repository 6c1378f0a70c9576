"""What no choice can undercut: least kWh or CO2e for so many dollars.

``always_there`` bounds plans: every pool, gang size, power cap and mix of two at the prices of the
start, if spot had capacity at all hours and no start cost anything; of CO2e in the cleanest hours
that the deadline leaves time for. ``hindsight`` bounds runs: the linear program over half hours of
the prices, the capacity and the intensities that came, again without the cost of starts. Both are
shares of what the least dollars take in the same model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations

from benchmarks.energy_jobs import Case
from costopt.catalog import load_catalog
from costopt.domain.market import Pool
from costopt.domain.policy import CarbonSignal, ObjectiveTerm
from costopt.energy import NodePowerModel
from costopt.energy.carbon import HOUR, RecordedCarbon
from costopt.optimize.solver import LinearModel

STEP = timedelta(minutes=30)
SOLVE_S = 60.0


@dataclass(frozen=True, slots=True)
class _Gang:
    """A gang of a pool under a cap: hours and kWh of the whole job, at a constant pace."""

    pool: Pool
    nodes: int
    hours: float
    kwh: float

    @property
    def region(self) -> str:
        """Return "provider/region"."""
        return f"{self.pool.provider}/{self.pool.region}"


def always_there(
    case: Case, recorded: RecordedCarbon, aim: ObjectiveTerm, tolerance: float
) -> float:
    """Return how much less of the aim's figure any choice could have, as a negative share."""
    choices = list(_choices(case, recorded, aim))
    cheapest_usd, figure = min(choices)
    limit_usd = cheapest_usd * (1 + tolerance)
    least = min(each for usd, each in choices if usd <= limit_usd)
    for (low_usd, cheap), (high_usd, dear) in combinations(sorted(choices), 2):
        if low_usd < limit_usd < high_usd:
            share = (limit_usd - low_usd) / (high_usd - low_usd)
            least = min(least, cheap + share * (dear - cheap))
    return least / figure - 1


def _choices(
    case: Case, recorded: RecordedCarbon, aim: ObjectiveTerm
) -> Iterator[tuple[float, float]]:
    """Dollars and the aim's figure of every gang that would be in time."""
    start_at = case.job.start_at
    for gang in _gangs(case):
        state = case.market.pools[gang.pool].at(start_at)
        if state is None or state.price_usd_per_hour is None:
            continue
        if gang.hours > (case.job.until_at - start_at) / HOUR:
            continue
        per_kwh = 1.0 if aim is ObjectiveTerm.KWH else _cleanest(recorded, case, gang)
        yield gang.nodes * state.price_usd_per_hour * gang.hours, gang.kwh * per_kwh


def _gangs(case: Case) -> Iterator[_Gang]:
    job, catalog = case.job, load_catalog()
    powers = NodePowerModel(catalog)
    for pool in case.market.pools:
        machine, power = catalog.instance_type(pool), powers.node_power(pool)
        if machine is None or power is None:
            continue
        for nodes in job.gang_sizes(machine):
            speed = job.gang_units_per_s(machine, nodes)
            if speed is None:
                continue
            own = power.in_gang(job.scaling_efficiency(machine, nodes))
            for cap_w, share in ((None, 1.0), *((cap.cap_w, cap.speed) for cap in own.caps)):
                seconds = job.work.amount / (speed.value * share)
                kwh = nodes * own.capped(cap_w).kwh(0.0, seconds)
                yield _Gang(pool, nodes, seconds / 3600, kwh)


def _cleanest(recorded: RecordedCarbon, case: Case, gang: _Gang) -> float:
    """Mean intensity of the cleanest hours until the deadline that are enough for the work."""
    start_at = case.job.start_at
    hours = (case.job.until_at - start_at) // HOUR
    known = (
        recorded.intensity(gang.region, start_at + timedelta(hours=n), CarbonSignal.AVERAGE)
        for n in range(hours)
    )
    values = sorted(each.value for each in known if each is not None)
    count = min(len(values), math.ceil(gang.hours))
    return sum(values[:count]) / count


@dataclass(frozen=True, slots=True)
class _Cell:
    """Half an hour of a gang: the share of the work that it does, dollars and the aim's figure."""

    step: int
    work: float
    usd: float
    figure: float


def hindsight(
    case: Case, recorded: RecordedCarbon, aim: ObjectiveTerm, tolerances: Sequence[float]
) -> tuple[float, ...]:
    """Return the aim's figure, in kWh or kg, of the least dollars, and the least by tolerance."""
    cells = tuple(_cells(case, recorded, aim))
    usd, figure = _solve(cells, [cell.usd for cell in cells], math.inf)
    figures = [cell.figure for cell in cells]
    return figure, *(_solve(cells, figures, usd * (1 + each))[1] for each in tolerances)


def _solve(cells: Sequence[_Cell], costs: Sequence[float], limit_usd: float) -> tuple[float, float]:
    """Dollars and the aim's figure of the least cost; one gang runs at a time."""
    model = LinearModel("hindsight")
    steps: dict[int, dict[int, float]] = {}
    for cell, cost in zip(cells, costs, strict=True):
        steps.setdefault(cell.step, {})[model.variable(1.0, cost=cost)] = 1.0
    for each in steps.values():
        model.at_most(each, 1.0)
    model.at_least({i: cell.work for i, cell in enumerate(cells)}, 1.0)
    if math.isfinite(limit_usd):
        model.at_most({i: cell.usd for i, cell in enumerate(cells)}, limit_usd)
    found = model.solve(time_limit_s=SOLVE_S, gap=1e-4).values
    pairs = tuple(zip(cells, found, strict=True))
    return sum(c.usd * x for c, x in pairs), sum(c.figure * x for c, x in pairs)


def _cells(case: Case, recorded: RecordedCarbon, aim: ObjectiveTerm) -> Iterator[_Cell]:
    start_at, hours = case.job.start_at, STEP / HOUR
    for gang in _gangs(case):
        history = case.market.pools[gang.pool]
        for step in range(math.ceil((case.job.until_at - start_at) / STEP)):
            at = start_at + step * STEP
            state = history.at(at)
            if state is None or state.price_usd_per_hour is None:
                continue
            intensity = recorded.intensity(gang.region, at, CarbonSignal.AVERAGE)
            if (state.nodes_available or 0) < gang.nodes or intensity is None:
                continue
            kwh = gang.kwh * hours / gang.hours
            figure = kwh if aim is ObjectiveTerm.KWH else kwh * intensity.value / 1000
            usd = gang.nodes * state.price_usd_per_hour * hours
            yield _Cell(step, hours / gang.hours, usd, figure)
