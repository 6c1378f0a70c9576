"""What dollars buy in kWh and CO2e: plans and backtests of twelve jobs by tolerance.

Each job of ``benchmarks.energy_jobs`` is planned and run by the default strategy under the least
dollars and under ``then: [kwh]`` and ``then: [co2e]`` at 5, 10 and 20 %; figures are medians
against the least dollars, those of runs by the ledger's hourly books. "Were spot always there" is
what exhaustive choice gives within the tolerance over all pools, gang sizes, power caps and mixes
of two at the prices of the start, if spot had capacity at all hours and no start cost anything; of
CO2e in the cleanest hours that the deadline leaves time for.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import combinations
from pathlib import Path
from statistics import median

import costopt as co
from benchmarks.energy_jobs import START_AT, Case, cases
from benchmarks.trials import Effort
from costopt.backtesting.trial import BacktestConfig, Score, Trial, Window
from costopt.catalog import load_catalog
from costopt.controller.forecasts import CatalogModels
from costopt.domain.policy import CarbonSignal, Limits, Objective, ObjectiveTerm, Policy
from costopt.energy import NodePowerModel
from costopt.energy.carbon import HOUR, RecordedCarbon
from costopt.energy.carbon_files import import_carbon_csv, write_carbon

CARBON = "energy/carbon_intensity_hourly_2021-10_2022-12.csv.gz"
TOLERANCES = (0.05, 0.1, 0.2)
AIMS = (ObjectiveTerm.CO2E, ObjectiveTerm.KWH)
UNIT = {ObjectiveTerm.CO2E: "CO2e", ObjectiveTerm.KWH: "kWh"}
SEEN_S = 4 * 24 * 3600.0
"""How much of the market the strategy has watched before it starts."""

TICK_S = 600.0
Figure = tuple[str, float, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Dollars, kWh and kg CO2e of a plan or a run."""

    usd: float
    kwh: float
    kg: float

    def value(self, aim: ObjectiveTerm) -> float:
        """Return the figure of an aim."""
        return self.kg if aim is ObjectiveTerm.CO2E else self.kwh


Outcomes = Mapping[tuple[str, str], Outcome]
"""By job and policy."""


def savings(folder: Path) -> Iterator[Figure]:
    """Yield the medians by aim and tolerance, the bounds, and each job at 5 %."""
    jobs = tuple(cases(folder))
    history = import_carbon_csv(folder / CARBON, CarbonSignal.AVERAGE)
    recorded = RecordedCarbon(history, load_catalog().region)
    runs, late = _runs(jobs, recorded)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "carbon.parquet"
        write_carbon(history, path)
        plans = _plans(jobs, path)
    for aim in AIMS:
        for tolerance in TOLERANCES:
            under = f"least {UNIT[aim]} at ≤ {100 * tolerance:.0f} % more"
            for what, found in (("plans", plans), ("runs", runs)):
                yield from _medians(f"{under}: {what}", jobs, found, _name(aim, tolerance))
            bounds = [_bound(case, recorded, aim, tolerance) for case in jobs]
            yield f"{under}: were spot always there, {UNIT[aim]}, median", 100 * median(bounds), "%"
    for what, found in (("plans", plans), ("runs", runs)):
        against = [_change(found, case, _name(ObjectiveTerm.CO2E, 0.05), HOME) for case in jobs]
        label = f"least CO2e at ≤ 5 % more, against home alone: {what}"
        yield f"{label}, $, median", 100 * median(change.usd for change in against), "%"
        yield f"{label}, CO2e, median", 100 * median(change.kg for change in against), "%"
    for aim in AIMS:
        for case in jobs:
            change = _change(runs, case, _name(aim, 0.05), CHEAPEST)
            label = f"{case.job.name}, run, least {UNIT[aim]} at ≤ 5 % more"
            yield f"{label}: $", 100 * change.usd, "%"
            yield f"{label}: {UNIT[aim]}", 100 * change.value(aim), "%"
            bound = 100 * _bound(case, recorded, aim, 0.05)
            yield f"{label}: {UNIT[aim]}, were spot always there", bound, "%"
    yield "late", float(late), "runs"


CHEAPEST, HOME = "cheapest", "cheapest at home"


def _name(aim: ObjectiveTerm, tolerance: float) -> str:
    return f"{aim.value} {tolerance:.0%}"


def _policies(case: Case) -> Iterator[Policy]:
    plain = Policy(CHEAPEST, limits=Limits(power_caps=True))
    yield plain
    home = replace(plain.limits, regions=(case.home.partition("/")[2],))
    yield replace(plain, name=HOME, limits=home)
    for aim in AIMS:
        for tolerance in TOLERANCES:
            objective = Objective(then=(aim,), tolerance=tolerance)
            yield replace(plain, name=_name(aim, tolerance), objective=objective)


def _runs(jobs: Sequence[Case], recorded: RecordedCarbon) -> tuple[Outcomes, int]:
    catalog = load_catalog()
    models = CatalogModels(catalog, recorded)
    bench = BacktestConfig(
        markets={case.job.name: case.market for case in jobs},
        machines=catalog,
        powers=models.powers,
        hazards=models.hazards,
        tick_s=TICK_S,
        transfers=catalog.transfer,
        forecasts=models.forecasts,
        carbon=recorded,
        history_s=SEEN_S,
    )
    trials = [
        Trial(Window(case.job.name, case.job), policy)
        for case in jobs
        for policy in _policies(case)
    ]
    scores = list(Effort().of(bench, trials))
    late = sum(not score.on_time for _, score in scores)
    return {(t.window.job.name, t.label): _of_score(score) for t, score in scores}, late


def _of_score(score: Score) -> Outcome:
    assert score.usd is not None
    assert score.kwh is not None
    assert score.gco2e is not None
    return Outcome(score.usd, score.kwh, score.gco2e / 1000)


def _plans(jobs: Sequence[Case], carbon: Path) -> Outcomes:
    found: dict[tuple[str, str], Outcome] = {}
    for case in jobs:
        market = co.Market(case.market)
        for policy in _policies(case):
            made = co.plan(
                case.job, policy, market=market, at=START_AT, carbon=carbon, explain=False
            )
            forecast = made.forecast
            assert forecast is not None
            assert forecast.kwh is not None
            assert forecast.gco2e is not None
            outcome = Outcome(forecast.usd_p50, forecast.kwh, forecast.gco2e / 1000)
            found[case.job.name, policy.name] = outcome
    return found


def _change(found: Outcomes, case: Case, name: str, against: str) -> Outcome:
    """Of each figure, as a share."""
    own, other = found[case.job.name, name], found[case.job.name, against]
    return Outcome(own.usd / other.usd - 1, own.kwh / other.kwh - 1, own.kg / other.kg - 1)


def _medians(label: str, jobs: Sequence[Case], found: Outcomes, name: str) -> Iterator[Figure]:
    changes = [_change(found, case, name, CHEAPEST) for case in jobs]
    yield f"{label}, $, median", 100 * median(change.usd for change in changes), "%"
    yield f"{label}, kWh, median", 100 * median(change.kwh for change in changes), "%"
    yield f"{label}, CO2e, median", 100 * median(change.kg for change in changes), "%"


@dataclass(frozen=True, slots=True)
class _Choice:
    """A gang of a pool under a cap: dollars and the aim's figure of the whole job."""

    usd: float
    figure: float


def _bound(case: Case, recorded: RecordedCarbon, aim: ObjectiveTerm, tolerance: float) -> float:
    """Return how much less of the aim's figure any choice could have, as a negative share."""
    choices = list(_choices(case, recorded, aim))
    cheapest = min(choices, key=lambda choice: (choice.usd, choice.figure))
    limit_usd = cheapest.usd * (1 + tolerance)
    affordable = [each for each in choices if each.usd <= limit_usd]
    least = min(each.figure for each in affordable)
    for cheap, dear in combinations(sorted(choices, key=lambda each: each.usd), 2):
        if cheap.usd < limit_usd < dear.usd:
            share = (limit_usd - cheap.usd) / (dear.usd - cheap.usd)
            least = min(least, cheap.figure + share * (dear.figure - cheap.figure))
    return least / cheapest.figure - 1


def _choices(case: Case, recorded: RecordedCarbon, aim: ObjectiveTerm) -> Iterator[_Choice]:
    """Every gang that would be in time, at the prices of the start."""
    job, catalog = case.job, load_catalog()
    powers = NodePowerModel(catalog)
    window_s = (job.deadline_at - job.start_at).total_seconds()
    for pool, history in case.market.pools.items():
        machine, power, state = (
            catalog.instance_type(pool),
            powers.node_power(pool),
            history.at(START_AT),
        )
        if machine is None or power is None or state is None or state.price_usd_per_hour is None:
            continue
        for nodes in job.gang_sizes(machine):
            speed = job.gang_units_per_s(machine, nodes)
            own = power.in_gang(job.scaling_efficiency(machine, nodes))
            for cap_w, share in ((None, 1.0), *((cap.cap_w, cap.speed) for cap in own.caps)):
                seconds = math.inf if speed is None else job.work.amount / (speed.value * share)
                if seconds > window_s:
                    continue
                kwh = nodes * own.capped(cap_w).kwh(0.0, seconds)
                usd = nodes * state.price_usd_per_hour * seconds / 3600
                region = f"{pool.provider}/{pool.region}"
                per_kwh = 1.0
                if aim is ObjectiveTerm.CO2E:
                    per_kwh = _cleanest(recorded, region, case, seconds)
                yield _Choice(usd, kwh * per_kwh)


def _cleanest(recorded: RecordedCarbon, region: str, case: Case, seconds: float) -> float:
    """Mean intensity of the cleanest hours until the deadline that are enough for the work."""
    hours = (case.job.deadline_at - START_AT) // HOUR
    known = (
        recorded.intensity(region, START_AT + timedelta(hours=n), CarbonSignal.AVERAGE)
        for n in range(hours)
    )
    values = sorted(each.value for each in known if each is not None)
    count = min(len(values), math.ceil(seconds / 3600))
    return sum(values[:count]) / count
