"""Many policies over many windows of a recorded market, beside the optimum of hindsight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costopt.domain.errors import MarketError
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.policy import Limits, Policy, StrategyChoice
from costopt.domain.ports import Forecasts, HazardModel, Machines, PowerModel
from costopt.domain.transfer import TransferPrices
from costopt.replay.hindsight import hindsight_usd
from costopt.replay.rehearsal import Rehearsal, rehearse

BASELINES = ("on_demand", "greedy_spot", "uniform_progress")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy on one window. ``hindsight_usd`` is None where the optimum is not defined."""

    label: str
    start_at: datetime
    rehearsal: Rehearsal
    hindsight_usd: float | None


@dataclass(frozen=True, slots=True)
class Bench:
    """What every window of a backtest is run with.

    ``hazards`` and ``forecasts`` make a fresh model each time; without ``forecasts``, policies
    plan as if prices and intensities stayed as they are.
    """

    machines: Machines
    powers: Callable[[Policy], PowerModel]
    hazards: Callable[[], HazardModel]
    notice_s: float = 120.0
    tick_s: float | None = None
    transfers: TransferPrices | None = None
    forecasts: Callable[[Policy], Forecasts] | None = None


def windows(job: Job, market: MarketHistory, starts: int) -> tuple[datetime, ...]:
    """``starts`` starting times spread evenly over the record, each with room for the deadline.

    On a grid they lie on grid points. Raises MarketError where the record is too short.
    """
    span = job.deadline_at - job.start_at
    latest = market.ends_at - span
    if latest < market.starts_at:
        raise MarketError(
            f"market {market.name!r} holds {_hours(market.ends_at - market.starts_at)} and job "
            f"{job.name!r} takes up to {_hours(span)}",
            hint="take a longer record or an earlier deadline",
        )
    room, steps = latest - market.starts_at, max(1, starts - 1)
    times = (market.starts_at + room * index / steps for index in range(starts))
    return tuple(dict.fromkeys(_on_grid(time, market) for time in times))


def with_baselines(policies: Iterable[Policy], first: Policy) -> tuple[Policy, ...]:
    """The baselines under the first policy's objective, then the policies themselves."""
    unlimited = replace(first.limits, capacity_types=Limits().capacity_types)
    baselines = tuple(
        replace(first, name=name, limits=unlimited, strategy=StrategyChoice(name))
        for name in BASELINES
    )
    return (*baselines, *policies)


def backtest(
    job: Job,
    policies: Sequence[Policy],
    market: MarketHistory,
    starts: Sequence[datetime],
    bench: Bench,
) -> Iterator[Outcome]:
    """One outcome per window and policy, as they come. Deterministic."""
    for start_at in starts:
        shifted = shift(job, start_at)
        best = hindsight_usd(shifted, policies[0], market, bench.machines)
        for policy in policies:
            rehearsal = rehearse(
                shifted,
                policy,
                market,
                machines=bench.machines,
                powers=bench.powers(policy),
                hazards=bench.hazards(),
                tick_s=bench.tick_s,
                notice_s=bench.notice_s,
                transfers=bench.transfers,
                forecasts=None if bench.forecasts is None else bench.forecasts(policy),
            )
            yield Outcome(policy.name, start_at, rehearsal, best)


def shift(job: Job, start_at: datetime) -> Job:
    """The same job, begun at another time."""
    return replace(job, start_at=start_at, deadline_at=start_at + (job.deadline_at - job.start_at))


def _on_grid(time: datetime, market: MarketHistory) -> datetime:
    if market.tick_s is None:
        return time
    return time - (time - market.starts_at) % timedelta(seconds=market.tick_s)


def _hours(span: timedelta) -> str:
    return f"{span.total_seconds() / 3600:.1f} h"
