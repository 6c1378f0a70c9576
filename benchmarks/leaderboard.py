"""Windows of the public leaderboards, which the user fetches: this project has no copy of them.

``python -m benchmarks leaderboard --traces FOLDER``: a folder in which were unpacked the files
real_traces.tar.gz of research/problems/cant_be_late/common of github.com/FrontierCS/Frontier-CS
(one zone: 180 windows of 2022, each in six configurations, 48 h of work) and of
examples/ADRS/cant-be-late-multi/simulator of github.com/UCB-ADRS/ADRS (several zones: 34 windows
of 2023 in six scenarios, 48 h of work in 52 h, 0.2 h for each launch; also in copies of it, such
as mert-cemri/autoevolve). What is missing there is left out.

The score is the leaderboard's: the share of what on-demand costs above spot that is saved, of work
alone. In several zones a tick costs the price of its own zone at the start of the window, where
the published simulator charges the whole run at the price of the zone in which it ends; and a zone
reports its capacity before a node is launched there, as in that simulator. With the public
records in ``COSTOPT_DATA`` the prior of `adaptive` is fitted on records of the other year.
``--sample N`` takes every so many windows that there are N (0: all).
"""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.fit_lifetime import fit
from benchmarks.results import Figure
from benchmarks.trials import Effort, bench_of
from benchmarks.zones import OURS, Ours
from costopt.backtesting.backtest import OPTIMUM, hindsight_policy
from costopt.backtesting.trial import Trial, Window
from costopt.domain.history import MarketHistory
from tests.support.cant_be_late import ON_DEMAND_USD, SPOT_USD, job, market, policy, read_trace

ONE_ZONE = "real/ddl=search+task=48+overhead=0.02/real"
ZONES = (
    "us-west-2a_k80_8",
    "us-west-2b_k80_1",
    "us-west-2b_k80_8",
    "us-west-2a_v100_1",
    "us-west-2a_v100_8",
    "us-west-2b_v100_1",
)
WINDOWS_IN_A_ZONE = 30
STARTS_H = (0.02, 0.05, 0.1)
CONFIGURATIONS = tuple(
    (deadline, start) for deadline in (52.0, 70.0) for start in (0.02, 0.05, 0.1)
)
"""Hours to the deadline, and hours that a start takes."""

SEVERAL_ZONES = "converted_multi_region_aligned"
SEVERAL_ZONES_CONFIGURATION = (52.0, 0.2)
SCENARIOS: Mapping[str, tuple[Sequence[str], int]] = {
    "two zones of a region": (("east-1a", "east-1c"), 8),
    "two regions": (("east-2a", "west-2a"), 8),
    "three regions": (("east-1a", "east-2b", "west-2c"), 6),
    "three zones of a region": (("east-1a", "east-1c", "east-1d"), 6),
    "five zones": (("east-1a", "east-1f", "west-2a", "west-2b", "east-2b"), 4),
    "nine zones": (
        (
            "east-2a", "west-2c", "east-1d", "east-2b", "west-2a",
            "east-1f", "east-1a", "west-2b", "east-1c",
        ),
        2,
    ),
}  # fmt: skip
"""Zones of each scenario, and its windows."""

WORK_H = 48.0
POLICIES = tuple(map(policy, (OURS, "uniform_progress", "greedy_spot")))


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """Windows by what they are counted with, each with the hours of its deadline and start."""

    markets: Mapping[str, MarketHistory]
    cases: Sequence[tuple[str, str, tuple[float, float]]]
    ours: Ours | None

    def costs(self, effort: Effort) -> Iterator[tuple[str, str, float, bool]]:
        """Group, policy, dollars and whether it was in time, of every run."""
        groups: dict[Window, str] = {}
        trials = []
        for group, name, (deadline_h, start_h) in self.cases:
            window = Window(name, job(deadline_h, start_h))
            groups[window] = group
            trials += [Trial(window, each) for each in (hindsight_policy(POLICIES[0]), *POLICIES)]
        for trial, score in effort.of(bench_of(self.markets, self.ours), trials):
            assert score.usd is not None
            yield groups[trial.window], trial.label, score.usd, score.on_time is True


def run(folder: Path | None, effort: Effort | None = None) -> Iterator[Figure]:
    """Scores and ratios to the optimum in one zone, mean dollars in several; none without data."""
    if folder is None:
        print("  --traces is not given: the leaderboards' windows were not run", file=sys.stderr)
        return
    effort = effort or Effort()
    if (folder / ONE_ZONE).is_dir():
        yield from _one_zone(_in_one_zone(folder / ONE_ZONE, effort.sample), effort)
    if (folder / SEVERAL_ZONES).is_dir():
        yield from _several_zones(_in_several_zones(folder / SEVERAL_ZONES, effort.sample), effort)


def _in_one_zone(folder: Path, sample: int) -> Leaderboard:
    markets = {}
    for zone in ZONES:
        for path in _spread(sorted((folder / zone / "traces/random_start").glob("*.json"))):
            markets[f"{zone} {path.stem}"] = _market(json.loads(path.read_text()), "us-west-2a")
    markets = _sampled(markets, sample)
    cases = [
        (f"{deadline_h:g} h, {start_h:g} h", name, (deadline_h, start_h))
        for name in markets
        for deadline_h, start_h in CONFIGURATIONS
    ]
    return Leaderboard(markets, cases, _fitted_on("2023"))


def _spread(paths: Sequence[Path]) -> list[Path]:
    """As many as are run in a zone, evenly, as the leaderboard takes them."""
    last = len(paths) - 1
    return [paths[round(j * last / (WINDOWS_IN_A_ZONE - 1))] for j in range(WINDOWS_IN_A_ZONE)]


def _in_several_zones(folder: Path, sample: int) -> Leaderboard:
    markets = {}
    for scenario, (zones, count) in SCENARIOS.items():
        for number in range(count):
            traces = {f"us-{zone}": folder / f"us-{zone}_v100_1/{number}.json" for zone in zones}
            parts = [_market(json.loads(path.read_text()), zone) for zone, path in traces.items()]
            pools = {pool: known for part in parts for pool, known in part.pools.items()}
            markets[f"{scenario} {number}"] = replace(parts[0], name=scenario, pools=pools)
    markets = _sampled(markets, sample)
    cases = [(name.rsplit(" ", 1)[0], name, SEVERAL_ZONES_CONFIGURATION) for name in markets]
    return Leaderboard(markets, cases, _fitted_on("2022"))


def _market(trace: Mapping[str, Any], zone: str) -> MarketHistory:
    """A trace of the simulators, in which 1 is a tick without capacity."""
    up = [int(not lost) for lost in trace["data"]]
    usd = trace.get("prices", [SPOT_USD])[0]
    return market(up, float(trace["metadata"]["gap_seconds"]), zone, usd)


def _sampled(markets: Mapping[str, MarketHistory], sample: int) -> dict[str, MarketHistory]:
    count = sample if 0 < sample < len(markets) else len(markets)
    every = list(markets.items())
    return dict(every[at * len(every) // count] for at in range(count))


def _fitted_on(year: str) -> Ours | None:
    """With the prior of the records of a year; None for the prior that is shipped."""
    data = os.environ.get("COSTOPT_DATA")
    if data is None:
        print("  COSTOPT_DATA is not set: with the prior that is shipped", file=sys.stderr)
        return None
    paths = sorted((Path(data) / "traces").glob(f"*{year}*.json"))
    return Ours(fit(read_trace(path) for path in paths))


def _one_zone(windows: Leaderboard, effort: Effort) -> Iterator[Figure]:
    costs, late = _by_policy_and_group(windows, effort)
    yield "one zone: runs of each policy", float(len(windows.cases)), "runs"
    saved_usd = WORK_H * (ON_DEMAND_USD - SPOT_USD)
    for name, groups in costs.items():
        mean_usd = fmean(usd for group in groups.values() for usd in group)
        yield f"one zone: {name}: score", 100 * (WORK_H * ON_DEMAND_USD - mean_usd) / saved_usd, "%"
        yield f"one zone: {name}: late", float(late[name]), "runs"
    yield from _ratios(costs)


def _several_zones(windows: Leaderboard, effort: Effort) -> Iterator[Figure]:
    costs, late = _by_policy_and_group(windows, effort)
    for name, groups in costs.items():
        means = {group: fmean(found) for group, found in groups.items()}
        for group, usd in means.items():
            yield f"{group}: {name}", usd, "$"
        yield f"several zones, mean of scenarios: {name}", fmean(means.values()), "$"
        yield f"several zones: {name}: late", float(late[name]), "runs"


def _ratios(costs: Mapping[str, Mapping[str, list[float]]]) -> Iterator[Figure]:
    best = {group: fmean(found) for group, found in costs[OPTIMUM].items()}
    for name, groups in costs.items():
        for group, found in groups.items():
            yield f"one zone, {group}: {name}", fmean(found) / best[group], "×"


def _by_policy_and_group(
    windows: Leaderboard, effort: Effort
) -> tuple[dict[str, dict[str, list[float]]], dict[str, int]]:
    costs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    late: dict[str, int] = defaultdict(int)
    for group, name, usd, is_in_time in windows.costs(effort):
        costs[name][group].append(usd)
        late[name] += not is_in_time
    return costs, late
