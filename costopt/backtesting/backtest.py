"""Backtests of many policies on many windows of recorded markets, beside the hindsight optimum.

Gaps of a recorded market are never filled in. A window that touches a gap would be scored on a
guess: whether a node survived it, whether another could have been launched in it. So windows lie
where every pool that the job may use was observed from their start to their deadline.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

from costopt.backtesting.replay import replay_tick_s
from costopt.backtesting.results_file import ResultsFile
from costopt.backtesting.trial import (
    HINDSIGHT,
    ORACLES,
    BacktestConfig,
    Score,
    Trial,
    TrialKeys,
    Window,
    code_digest,
)
from costopt.catalog import load_catalog
from costopt.controller.forecasts import CatalogModels
from costopt.domain.account import Account
from costopt.domain.errors import MarketError
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.policy import Limits, Policy, StrategySpec
from costopt.domain.ports import Strategy
from costopt.domain.transfers import with_root_volumes
from costopt.energy.carbon import RecordedCarbon
from costopt.energy.carbon_files import read_carbon

BASELINES = ("on_demand", "greedy_spot", "uniform_progress")
OPTIMUM = "hindsight optimum"
ORACLE_LABELS = {name.replace("_", " "): name for name in ORACLES}

Runner = Callable[[BacktestConfig, Sequence[Trial]], Iterable[tuple[Trial, Score]]]
"""How trials are run: in this process, in several, or on a cluster; scores come in any order."""


def window_starts(
    job: Job, market: MarketHistory, starts: int, coverage: RecordCoverage
) -> tuple[datetime, ...]:
    """``starts`` starting times spread evenly over what was observed, with room for the deadline.

    They are a tick of the replay or more apart, so there may be fewer. On a grid they lie on grid
    points. Raises MarketError where the record is too short, or too full of gaps.
    """
    if not coverage.starts:
        raise _no_room(job, market, coverage)
    room = sum((end - begin for begin, end in coverage.starts), timedelta(0))
    starts = min(starts, room // timedelta(seconds=replay_tick_s(market)) + 1)
    steps = max(1, starts - 1)
    times = (_place(room * index / steps, coverage, market) for index in range(starts))
    return tuple(dict.fromkeys(times))


def windows(
    job: Job, market: str, starts_at: Iterable[datetime], overheads_s: Sequence[float]
) -> tuple[Window, ...]:
    """The job from every start, with every start-up time."""
    return tuple(
        Window(market, replace(shift_job(job, start_at), startup_s=overhead_s))
        for start_at in starts_at
        for overhead_s in overheads_s
    )


def with_baselines(policies: Iterable[Policy], first: Policy) -> tuple[Policy, ...]:
    """The baselines under the first policy's objective, then the policies themselves.

    A policy that is a baseline takes its place, so that nothing is tried twice.
    """
    chosen = tuple(policies)
    baselines = (_baseline(first, name, name) for name in BASELINES)
    return (
        *(each for each in baselines if not any(_stands_for(policy, each) for policy in chosen)),
        *chosen,
    )


def hindsight_policy(first: Policy) -> Policy:
    """The optimum of hindsight, as free in its choice of capacity as the baselines."""
    return _baseline(first, OPTIMUM, HINDSIGHT)


def oracle_policies(first: Policy) -> tuple[Policy, ...]:
    """Return the strategies that know the record's lifetimes, as free as the baselines."""
    return tuple(_baseline(first, label, name) for label, name in ORACLE_LABELS.items())


def with_deadline(job: Job, deadline_s: float) -> Job:
    """The same job, due so many seconds after its start."""
    return replace(job, deadline_at=job.start_at + timedelta(seconds=deadline_s))


def backtest(
    bench: BacktestConfig,
    trials: Sequence[Trial],
    run: Runner,
    results: ResultsFile | None = None,
    keys: TrialKeys | None = None,
) -> Iterator[tuple[Trial, Score]]:
    """A score per trial: first those that ``results`` knows, then the others as they come.

    The scores are the same whatever runs them. Each new one is added to ``results`` at once.
    """
    if results is None or keys is None:
        yield from run(bench, trials)
        return
    missing = []
    for trial in trials:
        known = results.known.get(keys.of(trial))
        if known is None:
            missing.append(trial)
        else:
            yield trial, known
    for trial, score in run(bench, missing):
        results.add(keys.of(trial), score)
        yield trial, score


def shift_job(job: Job, start_at: datetime) -> Job:
    """The same job, begun at another time."""
    return replace(job, start_at=start_at, deadline_at=start_at + (job.until_at - job.start_at))


def _stands_for(policy: Policy, baseline: Policy) -> bool:
    """Whether a policy of the baseline's name does what it does, where it does."""
    return (
        policy.name.replace("-", "_") == baseline.name
        and policy.strategy == baseline.strategy
        and policy.objective == baseline.objective
        and policy.limits.providers == baseline.limits.providers
        and policy.limits.regions == baseline.limits.regions
    )


def _baseline(first: Policy, name: str, strategy: str) -> Policy:
    unlimited = replace(first.limits, capacity_types=Limits().capacity_types)
    return replace(first, name=name, limits=unlimited, strategy=StrategySpec(strategy))


def _place(offset: timedelta, coverage: RecordCoverage, market: MarketHistory) -> datetime:
    """The start that lies ``offset`` into the spans, laid end to end."""
    for begin, end in coverage.starts[:-1]:
        if offset < end - begin:
            return _on_grid(begin + offset, begin, market)
        offset -= end - begin
    begin, _ = coverage.starts[-1]
    return _on_grid(begin + offset, begin, market)


def _on_grid(time: datetime, earliest: datetime, market: MarketHistory) -> datetime:
    if market.tick_s is None:
        return time
    tick = timedelta(seconds=market.tick_s)
    time -= (time - market.starts_at) % tick
    return time if time >= earliest else time + tick


def _no_room(job: Job, market: MarketHistory, coverage: RecordCoverage) -> MarketError:
    span = job.until_at - job.start_at
    held = market.ends_at - market.starts_at
    if held < span:
        return MarketError(
            f"market {market.name!r} holds {_hours(held)} and job {job.name!r} takes up to "
            f"{_hours(span)}",
            hint="take a longer record or an earlier deadline",
            code="market_too_short",
        )
    return MarketError(
        f"market {market.name!r} has no {_hours(span)} without a gap: "
        f"{coverage.gap_s / 3600:.1f} h of {_hours(held)} were not observed in every pool",
        hint="take another record, or count a gap as no capacity with --over-gaps",
        code="gaps",
    )


def _hours(span: timedelta) -> str:
    return f"{span.total_seconds() / 3600:.1f} h"


def backtest_config(
    markets: Mapping[str, MarketHistory],
    *,
    notice_s: float | None,
    cooldown_s: float,
    price_forecasts: bool,
    carbon: Path | None,
    account: Account,
    past_s: float,
    strategies: Mapping[str, Callable[[], Strategy]] | None = None,
) -> BacktestConfig:
    """Return what trials are run with, on the catalog's machines.

    ``strategies`` make, by name, strategies that policies may name besides the installed ones.
    Raises SignalError for a bad carbon file.
    """
    catalog = load_catalog()
    recorded = None if carbon is None else RecordedCarbon(read_carbon(carbon), catalog.region)
    models = CatalogModels(catalog, recorded, price_forecasts)
    return BacktestConfig(
        markets=markets,
        machines=catalog,
        powers=models.powers,
        hazards=models.hazards,
        notice_s=notice_s,
        cooldown_s=cooldown_s,
        transfers=with_root_volumes(catalog.transfer, account.providers),
        account=account,
        history_s=past_s,
        forecasts=models.forecasts,
        carbon=recorded,
        strategies=strategies or {},
    )


def trial_keys(bench: BacktestConfig, *, price_forecasts: bool, carbon: Path | None) -> TrialKeys:
    """Keys that change with the code, its data and what the forecasts are made from."""
    digest = "" if carbon is None else hashlib.sha256(carbon.read_bytes()).hexdigest()
    return TrialKeys(bench, code_digest(), {"--forecasts": price_forecasts, "--carbon": digest})


Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class RecordCoverage:
    """Of one market and windows of ``span_s``.

    ``starts`` are the spans, ends included, in which a window may begin. ``gap_s`` is the time in
    which some pool was not observed; ``unobserved`` pools never were, and do not count.
    """

    market: str
    span_s: float
    recorded_s: float
    gap_s: float
    starts: tuple[Span, ...]
    unobserved: tuple[Pool, ...]
    usable_share: float


def record_coverage(
    market: MarketHistory, pools: Collection[Pool], span: timedelta, *, over_gaps: bool = False
) -> RecordCoverage:
    """Where windows of ``span`` can begin; ``over_gaps`` lets them lie anywhere in the record."""
    unobserved = tuple(p for p in pools if not any(map(_known, market.pools[p].states)))
    observed = [market.pools[pool] for pool in pools if pool not in unobserved]
    whole = (market.starts_at, market.ends_at)
    gaps = _union(gap for history in observed for gap in _gaps(history, whole))
    latest = market.ends_at - span
    starts = _starts(() if over_gaps else gaps, market.starts_at, latest, span)
    room_s = max(0.0, (latest - market.starts_at).total_seconds())
    usable_s = sum((end - begin).total_seconds() for begin, end in starts)
    return RecordCoverage(
        market=market.name,
        span_s=span.total_seconds(),
        recorded_s=(whole[1] - whole[0]).total_seconds(),
        gap_s=sum((end - begin).total_seconds() for begin, end in gaps),
        starts=starts,
        unobserved=unobserved,
        usable_share=usable_s / room_s if room_s else float(bool(starts)),
    )


def _known(state: MarketState) -> bool:
    return state.nodes_available is not None and state.price_usd_per_hour is not None


def _gaps(history: PoolHistory, whole: Span) -> Iterator[Span]:
    ends = [state.starts_at for state in history.states[1:]] + [history.ends_at]
    for state, end in zip(history.states, ends, strict=True):
        begin, until = max(state.starts_at, whole[0]), min(end, whole[1])
        if begin < until and not _known(state):
            yield begin, until


def _union(spans: Iterator[Span]) -> tuple[Span, ...]:
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return tuple(joined)


def _starts(
    gaps: Sequence[Span], earliest: datetime, latest: datetime, span: timedelta
) -> tuple[Span, ...]:
    """Return the spans between the gaps that are long enough for a window."""
    starts: list[Span] = []
    begin = earliest
    for gap_begin, gap_end in gaps:
        if begin <= gap_begin - span:
            starts.append((begin, gap_begin - span))
        begin = gap_end
    if begin <= latest:
        starts.append((begin, latest))
    return tuple(starts)
