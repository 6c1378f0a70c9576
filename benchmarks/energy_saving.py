"""What dollars buy in kWh and CO2e: plans and backtests of twelve jobs by tolerance.

Each job of ``benchmarks.energy_jobs`` is planned and run by the default strategy under ``then:
[kwh]`` and ``then: [co2e]`` at 5, 10 and 20 % more dollars. The baseline is what the same policy
plans or runs at a tolerance of 0: the least dollars, with both regions, spot, on-demand and power
caps allowed as well. A run's figures are by the ledger's hourly books.

At 5 % each job runs on all its draws, and its dollars are printed as the sum over them, for the
tolerance is kept in expectation, beside those of the run at the 95th percentile and of the worst.
The other tolerances, whose medians over the jobs are printed, are tried on its first ``FEW`` draws.
Beside savings stand the bounds of ``benchmarks.energy_bounds``: what exhaustive choice would save,
of plans if spot were always there, of runs if the market were known beforehand.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import costopt as co
from benchmarks.energy_bounds import always_there, hindsight
from benchmarks.energy_jobs import Case, cases
from benchmarks.trials import Effort
from costopt.api.priced_inputs import read_inputs
from costopt.backtesting.trial import BacktestConfig, Score, Trial, Window
from costopt.catalog import load_catalog
from costopt.controller.forecasts import CatalogModels
from costopt.domain.policy import Limits, Objective, ObjectiveTerm, Policy
from costopt.energy.carbon import RecordedCarbon
from costopt.energy.carbon_csv import import_carbon_csv
from costopt.energy.carbon_files import write_carbon
from costopt.planning.request import plan_job
from costopt.planning.restriction import Restriction

CARBON = "energy/carbon_intensity_hourly_2021-10_2022-12.csv.gz"
TOLERANCES = (0.05, 0.1, 0.2)
AIMS = (ObjectiveTerm.CO2E, ObjectiveTerm.KWH)
UNIT = {ObjectiveTerm.CO2E: "CO2e", ObjectiveTerm.KWH: "kWh"}
SEEN_S = 4 * 24 * 3600.0
"""How much of the market the strategy has watched before it starts."""

TICK_S = 600.0
FEW = 2
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
"""By market and policy."""

Draws = tuple[Case, ...]


def savings(folder: Path) -> Iterator[Figure]:
    """Yield the medians by aim and tolerance beside their bounds, and each job at 5 %."""
    history = import_carbon_csv([folder / CARBON])
    recorded = RecordedCarbon(history, load_catalog().region)
    jobs = tuple(cases(folder, recorded))
    runs, late = _runs(jobs, recorded)
    firsts, few = tuple(draws[:1] for draws in jobs), tuple(draws[:FEW] for draws in jobs)
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "carbon.parquet"
        write_carbon(history, path)
        plans = _plans(firsts, path)
    for aim in AIMS:
        always = [_always_there(draws[0], recorded, aim) for draws in firsts]
        yield from _by_tolerance("plan", aim, firsts, plans, always)
        bounds = [_hindsight(draws, recorded, aim, TOLERANCES) for draws in few]
        yield from _by_tolerance("run", aim, few, runs, bounds)
    for what, of, found in (("plan", firsts, plans), ("run", few, runs)):
        name = _name(ObjectiveTerm.CO2E, 0.05)
        against = [_change(found, draws, name, HOME) for draws in of]
        label = f"{what}, least CO2e at ≤ 5 % more, against the least dollars at home"
        yield f"{label}: $", 100 * median(change.usd for change in against), "%"
        yield f"{label}: CO2e", 100 * median(change.kg for change in against), "%"
    for aim in AIMS:
        for draws in jobs:
            yield from _of_job(aim, draws, runs, recorded)
    yield "late", float(late), "runs"


def _of_job(
    aim: ObjectiveTerm, draws: Draws, runs: Outcomes, recorded: RecordedCarbon
) -> Iterator[Figure]:
    """What all draws together, the 95th percentile and the worst cost at 5 %, and the savings."""
    name = _name(aim, 0.05)
    change = _change(runs, draws, name, CHEAPEST)
    each = sorted(_change(runs, (draw,), name, CHEAPEST).usd for draw in draws)
    (bound,) = _hindsight(draws, recorded, aim, (0.05,))
    label = f"{draws[0].job.name}, {len(draws)} runs, least {UNIT[aim]} at ≤ 5 % more"
    yield f"{label}: $", 100 * change.usd, "%"
    yield f"{label}: $, P95", 100 * each[math.ceil(0.95 * len(each)) - 1], "%"
    yield f"{label}: $, worst", 100 * each[-1], "%"
    yield f"{label}: {UNIT[aim]}", 100 * change.value(aim), "%"
    yield f"{label}: {UNIT[aim]}, bound", 100 * bound, "%"


CHEAPEST, HOME = "cheapest", "cheapest at home"


def _name(aim: ObjectiveTerm, tolerance: float) -> str:
    return f"{aim.value} {tolerance:.0%}"


def _policies(case: Case, *, few: bool = True) -> Iterator[Policy]:
    """All policies, or where there are not few draws those at the least tolerance."""
    plain = Policy(CHEAPEST, limits=Limits(power_caps=True))
    yield plain
    if few:
        home = replace(plain.limits, regions=(case.home.partition("/")[2],))
        yield replace(plain, name=HOME, limits=home)
    for aim in AIMS:
        for tolerance in TOLERANCES if few else TOLERANCES[:1]:
            objective = Objective(then=(aim,), tolerance=tolerance)
            yield replace(plain, name=_name(aim, tolerance), objective=objective)


def _runs(jobs: Sequence[Draws], recorded: RecordedCarbon) -> tuple[Outcomes, int]:
    catalog = load_catalog()
    models = CatalogModels(catalog, recorded)
    each = [case for draws in jobs for case in draws]
    bench = BacktestConfig(
        markets={case.market.name: case.market for case in each},
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
        Trial(Window(case.market.name, case.job), policy)
        for draws in jobs
        for number, case in enumerate(draws)
        for policy in _policies(case, few=number < FEW)
    ]
    scores = list(Effort().of(bench, trials))
    late = sum(not score.on_time for _, score in scores)
    return {(t.window.market, t.label): _of_score(score) for t, score in scores}, late


def _of_score(score: Score) -> Outcome:
    assert score.usd is not None
    assert score.kwh is not None
    assert score.gco2e is not None
    return Outcome(score.usd, score.kwh, score.gco2e / 1000)


def _plans(jobs: Sequence[Draws], carbon: Path) -> Outcomes:
    found: dict[tuple[str, str], Outcome] = {}
    for case in (each for draws in jobs for each in draws):
        market = co.Market(case.market)
        for policy in _policies(case):
            inputs = read_inputs(
                (case.job,), (policy,), market, None, case.job.start_at, carbon, None, Restriction()
            )
            # Plans are compared: what the policy makes of each would differ by chance besides.
            made = plan_job(case.job, policy, inputs.seen, explain=False, followed=True)
            forecast = made.forecast_of(case.job.name)
            assert forecast is not None
            assert forecast.kwh is not None
            assert forecast.gco2e is not None
            outcome = Outcome(forecast.usd_mean, forecast.kwh, forecast.gco2e / 1000)
            found[case.market.name, policy.name] = outcome
    return found


def _total(found: Outcomes, draws: Draws, name: str) -> Outcome:
    each = [found[case.market.name, name] for case in draws]
    return Outcome(sum(o.usd for o in each), sum(o.kwh for o in each), sum(o.kg for o in each))


def _change(found: Outcomes, draws: Draws, name: str, against: str) -> Outcome:
    """Of each figure, as a share."""
    own, other = _total(found, draws, name), _total(found, draws, against)
    return Outcome(own.usd / other.usd - 1, own.kwh / other.kwh - 1, own.kg / other.kg - 1)


def _by_tolerance(
    what: str,
    aim: ObjectiveTerm,
    jobs: Sequence[Draws],
    found: Outcomes,
    bounds: Sequence[Sequence[float]],
) -> Iterator[Figure]:
    """The medians over the jobs, and of their bounds."""
    for number, tolerance in enumerate(TOLERANCES):
        changes = [_change(found, draws, _name(aim, tolerance), CHEAPEST) for draws in jobs]
        label = f"{what}, least {UNIT[aim]} at ≤ {100 * tolerance:.0f} % more"
        yield f"{label}: $", 100 * median(change.usd for change in changes), "%"
        yield f"{label}: {UNIT[aim]}", 100 * median(c.value(aim) for c in changes), "%"
        bound = median(each[number] for each in bounds)
        yield f"{label}: {UNIT[aim]}, bound", 100 * bound, "%"


def _always_there(case: Case, recorded: RecordedCarbon, aim: ObjectiveTerm) -> list[float]:
    """The bound at each tolerance, as a share."""
    return [always_there(case, recorded, aim, each) for each in TOLERANCES]


def _hindsight(
    draws: Draws, recorded: RecordedCarbon, aim: ObjectiveTerm, tolerances: Sequence[float]
) -> list[float]:
    """The same over all draws."""
    each = [hindsight(case, recorded, aim, tolerances) for case in draws]
    least, *by_tolerance = (sum(figures) for figures in zip(*each, strict=True))
    return [figure / least - 1 for figure in by_tolerance]
