"""The strategy adaptive beside the published policies, against hindsight, on public records.

Cross-fitted: what is known before a job starts was fitted on the records of the other year. The
grid, the semantics and the published costs are those of "Can't Be Late" (NSDI'24) and its
successors; ``tests/replay/test_reference_costs.py`` shows that the engine has the same semantics to
the cent. Each ratio is of mean costs, averaged over the grid's deadlines × overheads; the interval
is a bootstrap over windows (record × start), which every policy shares.
"""

from __future__ import annotations

import csv
import gzip
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.fit_lifetime import fit
from costopt.domain.history import MarketHistory
from costopt.market.lifetime import Lifetimes, Rates
from costopt.replay.rehearsal import rehearse
from costopt.strategies.adaptive import Adaptive
from costopt.strategies.shield import Shielded
from tests.replay.cant_be_late import (
    NoHazard,
    OneMachine,
    OnePower,
    job,
    market,
    policy,
    read_trace,
)

Figure = tuple[str, float, str]
YEARS = ("2022", "2023")
OPTIMUM, OURS = "OMNISCIENT", "adaptive"
PUBLISHED = ("GEPA_board+shield", "LEVI+shield", "UP_no_hyst", "UP_NSDI", "Greedy_NSDI")
EVERY_START = 8
"""Of the sixteen starts of a record, one in so many is run; COSTOPT_EVERY_START=1 runs all."""

RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Case:
    """One run of the grid."""

    record: str
    start_tick: int
    deadline_h: float
    overhead_h: float

    @property
    def window(self) -> tuple[str, int]:
        """What is drawn anew by the bootstrap."""
        return self.record, self.start_tick

    @property
    def configuration(self) -> tuple[float, float]:
        """What is averaged over."""
        return self.deadline_h, self.overhead_h


Costs = Mapping[Case, Mapping[str, float]]


def run() -> Iterator[Figure]:
    """Ratio to the optimum of every policy, and of ours less the best published one's."""
    data = os.environ.get("COSTOPT_DATA")
    if data is None:
        print("  COSTOPT_DATA is unset: adaptive was not compared on the public records")
        return
    costs, late = _costs(Path(data))
    yield "runs", float(len(costs)), ""
    yield "late", float(late), "runs"
    for policy_name in (OURS, *PUBLISHED):
        yield from _ratios(costs, policy_name)
    for published in (PUBLISHED[0], "UP_NSDI"):
        yield from _interval(costs, f"{OURS} less {published}", _less(published))
    for overhead_h in sorted({case.overhead_h for case in costs}):
        at = {case: usd for case, usd in costs.items() if case.overhead_h == overhead_h}
        yield f"{OURS}, overhead {overhead_h:g} h", ratio(at, OURS), "×"


def ratio(costs: Costs, policy_name: str) -> float:
    """Mean over the configurations of the policy's summed costs over the optimum's."""
    sums: dict[tuple[float, float], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for case, usd in costs.items():
        both = sums[case.configuration]
        both[0] += usd[policy_name]
        both[1] += usd[OPTIMUM]
    return fmean(mine / best for mine, best in sums.values())


def _costs(data: Path) -> tuple[dict[Case, dict[str, float]], int]:
    every = int(os.environ.get("COSTOPT_EVERY_START", EVERY_START))
    records = {path.name: read_trace(path) for path in sorted((data / "traces").glob("*.json"))}
    priors = {
        year: fit(record for name, record in records.items() if year not in name) for year in YEARS
    }
    costs, late = {}, 0
    markets = {name: market(up, gap_s) for name, (up, gap_s) in records.items()}
    for case, published in _published(data, every):
        prior = next(priors[year] for year in YEARS if year in case.record)
        usd, on_time = _spend(case, markets[case.record], prior)
        costs[case] = {**published, OURS: usd}
        late += not on_time
    return costs, late


def _published(data: Path, every: int) -> list[tuple[Case, dict[str, float]]]:
    costs: dict[Case, dict[str, float]] = defaultdict(dict)
    with gzip.open(data / "deadline_reference_costs.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            case = Case(
                row["file"],
                int(row["start_tick"]),
                float(row["deadline_h"]),
                float(row["overhead_h"]),
            )
            costs[case][row["policy"]] = float(row["cost_usd"])
    starts: dict[str, set[int]] = defaultdict(set)
    for case in costs:
        starts[case.record].add(case.start_tick)
    kept = {record: sorted(ticks)[::every] for record, ticks in starts.items()}
    return [(case, usd) for case, usd in costs.items() if case.start_tick in kept[case.record]]


def _spend(case: Case, history: MarketHistory, prior: Rates) -> tuple[float, bool]:
    """Dollars, and whether the job was in time. Nothing is known of the pool at its start."""
    grid_s = history.tick_s or 0.0
    done = rehearse(
        job(case.deadline_h, case.overhead_h, start_s=case.start_tick * grid_s),
        policy(OURS),
        history,
        machines=OneMachine(),
        powers=OnePower(),
        hazards=NoHazard(),
        strategy=Shielded(Adaptive(lifetimes=Lifetimes(prior))),
    )
    return done.summary.usd_micros / 1e6, done.summary.on_time is True


def _ratios(costs: Costs, policy_name: str) -> Iterator[Figure]:
    yield from _interval(costs, policy_name, lambda chosen: ratio(chosen, policy_name))


def _less(published: str) -> Callable[[Costs], float]:
    return lambda chosen: ratio(chosen, OURS) - ratio(chosen, published)


def _interval(costs: Costs, label: str, of: Callable[[Costs], float]) -> Iterator[Figure]:
    """A figure and its 90 % interval over windows drawn with replacement."""
    yield label, of(costs), "×"
    low, high = _bootstrap(costs, of)
    yield f"{label}, 90 % interval from", low, "×"
    yield f"{label}, 90 % interval to", high, "×"


def _bootstrap(costs: Costs, of: Callable[[Costs], float]) -> tuple[float, float]:
    by_window: dict[tuple[str, int], list[Case]] = defaultdict(list)
    for case in costs:
        by_window[case.window].append(case)
    windows, draw = list(by_window), random.Random(7)
    figures = sorted(
        of(_again(costs, by_window, draw.choices(windows, k=len(windows))))
        for _ in range(RESAMPLES)
    )
    return figures[RESAMPLES // 20], figures[-RESAMPLES // 20]


def _again(
    costs: Costs,
    by_window: Mapping[tuple[str, int], Sequence[Case]],
    drawn: Sequence[tuple[str, int]],
) -> Costs:
    """The cases of the drawn windows; one that is drawn twice counts twice, under two names."""
    return {
        Case(f"{case.record} {place}", case.start_tick, *case.configuration): costs[case]
        for place, window in enumerate(drawn)
        for case in by_window[window]
    }
