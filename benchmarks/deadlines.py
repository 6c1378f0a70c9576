"""The public "Can't Be Late" benchmark: published costs reproduced, and ours beside them.

48 h of work on one V100, due after 52, 60, 72 or 92 h, with 0.02, 0.1 or 0.3 h per restart, from
16 starts on each of twelve recorded traces. No strategy has seen the pool before the job starts,
and ours has its prior from traces of the other year and of other zones, but for the two that say
so: with the prior that is shipped, fitted on all traces, and with what was recorded of the pool.
The engine replays on demand, greedy and Uniform Progress (Wu et al., NSDI'24) itself and must come
to the published cents, as must the omniscient bound; the others are the published costs of the
same windows. A figure is the mean, over the configurations, of mean cost over mean bound; an
interval is of the summed costs over the summed bound, and paired where two policies are compared.

At 0.05 h per restart nothing is published: there the policies that are replayed stand beside the
bound of hindsight, and are not counted among all configurations.

``--sample N`` takes N of the 192 windows (0: all), each with all sixteen configurations.
"""

from __future__ import annotations

import csv
import gzip
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from benchmarks.deadline_contenders import BOUND, OURS, OWN, REPRODUCED, cross_fitted
from benchmarks.trials import Effort, bench_of
from costopt.backtesting.ranking import ratio_interval
from costopt.backtesting.trial import Trial, Window
from tests.support.cant_be_late import job, market, read_trace

REFERENCE = "deadline_reference_costs.csv.gz"
RIVALS = ("GEPA_board+shield", "UP_NSDI")
"""The best published policy and the one of NSDI'24, which ours is compared with in pairs."""

UNPUBLISHED_OVERHEAD_H = 0.05
"""An overhead of the public leaderboard that the published costs lack."""

Figure = tuple[str, float, str]
Costs = dict[str, float]


@dataclass(frozen=True, slots=True, order=True)
class Case:
    """One window in one configuration."""

    trace: str
    start_tick: int
    deadline_h: float
    overhead_h: float

    @property
    def configuration(self) -> tuple[float, float]:
        """Deadline and overhead, in hours."""
        return self.deadline_h, self.overhead_h


def run(effort: Effort | None = None) -> Iterable[Figure]:
    """Cents off the published costs, then ratios to the bound; nothing without data."""
    folder = os.environ.get("COSTOPT_DATA")
    if folder is None:
        print("  COSTOPT_DATA is unset: the published costs were not reproduced")
        return
    effort = effort or Effort()
    published = _sampled(published_costs(Path(folder) / REFERENCE), effort.sample)
    more = {replace(case, overhead_h=UNPUBLISHED_OVERHEAD_H) for case in published}
    found, late = replay_cases(Path(folder), [*published, *sorted(more)], effort)
    yield "configurations replayed", float(len(published)), "of 2304"
    for name in (each.name for each in REPRODUCED):
        off = max(abs(found[case][name] - published[case][name]) for case in published)
        yield f"{name}: farthest from its published cost", 100 * off, "cents"
    everything = {case: {**found[case], **published[case]} for case in published}
    yield from _ratios("all configurations", everything)
    everything |= {case: found[case] for case in more}
    for overhead_h in sorted({case.overhead_h for case in everything}):
        at = {case: each for case, each in everything.items() if case.overhead_h == overhead_h}
        yield from _ratios(f"overhead {overhead_h:g} h", at)
    yield "ours: late", float(late), "runs"


def published_costs(path: Path) -> dict[Case, Costs]:
    """Return the published dollars by case and policy."""
    costs: dict[Case, Costs] = defaultdict(dict)
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file):
            case = Case(
                row["file"],
                int(row["start_tick"]),
                float(row["deadline_h"]),
                float(row["overhead_h"]),
            )
            costs[case][row["policy"]] = float(row["cost_usd"])
    return costs


def _sampled(costs: Mapping[Case, Costs], sample: int) -> dict[Case, Costs]:
    """All configurations of some windows."""
    every = sorted({(case.trace, case.start_tick) for case in costs})
    chosen = set(random.Random(0).sample(every, sample) if 0 < sample < len(every) else every)
    kept = (case for case in costs if (case.trace, case.start_tick) in chosen)
    return {case: costs[case] for case in sorted(kept)}


def replay_cases(
    data: Path, cases: Iterable[Case], effort: Effort
) -> tuple[dict[Case, Costs], int]:
    """Dollars by case and name, and how many of our runs were late."""
    grids: dict[str, float] = {}
    markets = {}
    trials: list[Trial] = []
    case_of: dict[Window, Case] = {}
    for case in cases:
        if case.trace not in markets:
            up, grids[case.trace] = read_trace(data / "traces" / case.trace)
            markets[case.trace] = market(up, grids[case.trace])
        start_s = case.start_tick * grids[case.trace]
        window = Window(case.trace, job(case.deadline_h, case.overhead_h, start_s=start_s))
        case_of[window] = case
        trials += [Trial(window, each) for each in (*REPRODUCED, *OWN)]
    found: dict[Case, Costs] = defaultdict(dict)
    late = 0
    bench = bench_of(markets, cross_fitted(data / "traces", markets))
    for trial, score in effort.of(bench, trials):
        assert score.usd is not None
        found[case_of[trial.window]][trial.label] = score.usd
        late += trial.policy in OWN and score.on_time is not True
    return found, late


def _ratios(label: str, costs: Mapping[Case, Costs]) -> Iterator[Figure]:
    """From the lowest up; ours with its interval, by paired bootstrap over the windows."""
    names = next(iter(costs.values()))
    ratios = {name: fmean(_by_configuration(costs, name)) for name in names}
    for name, ratio in sorted(ratios.items(), key=lambda pair: pair[1]):
        yield f"{label}: {name}", ratio, "×"
    yield from _interval(f"{label}: {OURS}", costs, lambda each: each[OURS])
    for other in (rival for rival in RIVALS if rival in names):
        less = f"{label}: {OURS}, less {other}"
        yield from _interval(less, costs, _less(other))


def _interval(
    label: str, costs: Mapping[Case, Costs], usd: Callable[[Costs], float]
) -> Iterator[Figure]:
    """By bootstrap over windows, all configurations and policies of a window together."""
    interval = ratio_interval(_by_window(costs, usd), _by_window(costs, _bound), seed=0)
    if interval is not None:
        yield f"{label}, by bootstrap from", interval[0], "×"
        yield f"{label}, by bootstrap to (95 %)", interval[1], "×"


def _by_configuration(costs: Mapping[Case, Costs], name: str) -> list[float]:
    groups: dict[tuple[float, float], list[Costs]] = defaultdict(list)
    for case, each in costs.items():
        groups[case.configuration].append(each)
    return [
        fmean(each[name] for each in group) / fmean(each[BOUND] for each in group)
        for group in groups.values()
    ]


def _by_window(costs: Mapping[Case, Costs], usd: Callable[[Costs], float]) -> list[float]:
    sums: dict[tuple[str, int], float] = defaultdict(float)
    for case, each in costs.items():
        sums[case.trace, case.start_tick] += usd(each)
    return list(sums.values())


def _less(other: str) -> Callable[[Costs], float]:
    return lambda costs: costs[OURS] - costs[other]


def _bound(costs: Costs) -> float:
    return costs[BOUND]
