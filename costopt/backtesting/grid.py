"""The grid of a backtest: markets × starts × deadlines × start-up times × policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from costopt.backtesting.backtest import (
    RecordCoverage,
    hindsight_policy,
    oracle_policies,
    record_coverage,
    window_starts,
    windows,
    with_baselines,
    with_deadline,
)
from costopt.backtesting.replay import replay_tick_s
from costopt.backtesting.trial import BacktestConfig, Trial, Window
from costopt.domain.errors import InfeasibleError, SpecError
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.market import Offer, Pool
from costopt.domain.policy import Policy
from costopt.domain.ports import InstanceCatalog
from costopt.formatting import seconds_text
from costopt.market.screening import screen_for_job


@dataclass(frozen=True, slots=True)
class BacktestGrid:
    """``coverages`` has one entry per market and deadline; ``windows`` of all of them.

    ``notes`` are sentences on where there are fewer windows than asked for.
    """

    job: Job
    policies: tuple[Policy, ...]
    windows: tuple[Window, ...]
    coverages: tuple[RecordCoverage, ...]
    notes: tuple[str, ...] = ()

    @property
    def trials(self) -> list[Trial]:
        """Every policy on every window."""
        return [Trial(window, policy) for window in self.windows for policy in self.policies]

    @property
    def labels(self) -> list[str]:
        """Names of the policies, in the order of the table."""
        return [policy.name for policy in self.policies]

    @property
    def spans_h(self) -> list[float]:
        """The deadlines, in hours after the start."""
        return list(dict.fromkeys(c.span_s / 3600 for c in self.coverages))


def build_grid(
    job: Job,
    chosen: Sequence[Policy],
    bench: BacktestConfig,
    *,
    starts: int,
    deadlines_s: Sequence[float],
    startups_s: Sequence[float],
    bounds: bool,
    over_gaps: bool,
) -> BacktestGrid:
    """Return the windows and policies of a backtest; no deadlines or start-ups: the job's own.

    Raises InfeasibleError where no pool of a market can do the job in time, MarketError where a
    record has no room for a window, and SpecError for policies of one name.
    """
    first = chosen[0]
    oracles = oracle_policies(first) if bounds else ()
    policies = [*with_baselines(chosen, first), *oracles, hindsight_policy(first)]
    _check_names(policies)
    found: list[Window] = []
    coverages: list[RecordCoverage] = []
    notes: list[str] = []
    for name, history in bench.markets.items():
        for task in _due(job, deadlines_s):
            usable = _usable_pools(task, history, bench.machines, startups_s)
            allowed = [
                p for p in usable if hindsight_policy(first).limits.rejection_reason(p) is None
            ]
            span = _span(task)
            covered = record_coverage(history, allowed or usable, span, over_gaps=over_gaps)
            covered = replace(covered, market=name)
            times = window_starts(task, history, starts, covered)
            if len(times) < starts:
                notes.append(_fewer(name, len(times), starts, replay_tick_s(history)))
            found += windows(task, name, times, startups_s or (task.startup_s,))
            coverages.append(covered)
    return BacktestGrid(job, tuple(policies), tuple(found), tuple(coverages), tuple(notes))


def _fewer(market: str, windows: int, asked: int, tick_s: float) -> str:
    return (
        f"{windows:,} windows of {market} in place of {asked:,}: "
        f"they begin on different ticks, which are {seconds_text(tick_s)} apart"
    )


def _due(job: Job, deadlines_s: Sequence[float]) -> Iterator[Job]:
    if not deadlines_s:
        yield job
        return
    for deadline_s in dict.fromkeys(deadlines_s):
        yield with_deadline(job, deadline_s)


def _span(job: Job) -> timedelta:
    return job.until_at - job.start_at


def _check_names(policies: Sequence[Policy]) -> None:
    """Scores are distinguished by the policy's name."""
    for name, count in Counter(policy.name for policy in policies).items():
        if count > 1:
            raise SpecError(
                f"{count} policies, baselines included, are named {name!r}",
                hint="give each a name of its own",
            )


def _usable_pools(
    job: Job, history: MarketHistory, machines: InstanceCatalog, startups_s: Sequence[float]
) -> list[Pool]:
    """Pools that can run the job. Raises InfeasibleError where none ever can in time."""
    offers = [Offer(pool, None, None, None) for pool in history.pools]
    usable, rejections = screen_for_job(offers, job, machines)
    if not usable:
        raise InfeasibleError(
            f"no pool of market {history.name!r} can run job {job.name!r}: {rejections[0].reason}",
            hint="costopt market show lists its pools",
        )
    startup_s = max(startups_s or (job.startup_s,))
    fastest_s = min(job.work.amount / speed for speed in _speeds(usable, job, machines))
    span_s = _span(job).total_seconds()
    if fastest_s + startup_s > span_s:
        raise InfeasibleError(
            f"no pool of market {history.name!r} finishes job {job.name!r} in time: the fastest "
            f"takes {seconds_text(fastest_s + startup_s)}, "
            f"its deadline leaves {seconds_text(span_s)}",
            hint="give it a later deadline or more nodes",
        )
    return [offer.pool for offer in usable]


def _speeds(offers: Iterable[Offer], job: Job, machines: InstanceCatalog) -> Iterator[float]:
    """Units per second of the gangs that are compared for the job."""
    for machine in {machines.instance_type(offer.pool) for offer in offers}:
        assert machine is not None
        for nodes in job.gang_sizes(machine):
            speed = job.gang_units_per_s(machine, nodes)
            if speed is not None:
                yield speed.high


def _market_of(window: Window) -> str:
    return window.market


def _deadline_of(window: Window) -> str:
    return seconds_text(_span(window.job).total_seconds())


def _startup_of(window: Window) -> str:
    return seconds_text(window.job.startup_s)


def _everything(_: Window) -> str:
    return "all"


GROUPS: Mapping[str, Callable[[Window], str]] = {
    "all": _everything,
    "market": _market_of,
    "deadline": _deadline_of,
    "startup": _startup_of,
}
