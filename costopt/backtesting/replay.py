"""One job and strategy on a recorded market, or several: the engine on a virtual clock.

Learning strategies first observe the recorded market before the job's start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costopt.controller.controller import Controller, ControllerSettings, build_strategy
from costopt.controller.virtual_site import virtual_site
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import MarketError
from costopt.domain.events import SignalStale
from costopt.domain.history import MarketHistory, MarketState
from costopt.domain.job import Job
from costopt.domain.market import Offer, Pool
from costopt.domain.policy import Policy
from costopt.domain.ports import (
    CarbonRecord,
    Forecasts,
    HazardModel,
    InstanceCatalog,
    PowerModel,
    RecordedEvent,
    Strategy,
)
from costopt.domain.transfers import TransferPrices
from costopt.engine.engine import TickResult
from costopt.engine.failures import STRATEGY
from costopt.engine.loop import run_until_done
from costopt.engine.settings import DEFAULT_COOLDOWN_S, deterministic_key
from costopt.ledger.base import MemoryLedger
from costopt.ledger.summary import JobSummary
from costopt.market.lifetime import LifetimeModel, lifetime_key
from costopt.strategies.fault_isolation import lifetime_model

MAX_OVERRUN_RATIO = 3.0

DEFAULT_TICK_S = 300.0
"""Of a replay of event data, which have no grid."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What came of one replay; ``beside`` of the jobs that ran beside it, in their order."""

    strategy: str
    summary: JobSummary
    events: tuple[RecordedEvent, ...]
    ticks: int
    beside: tuple[ReplayResult, ...] = ()

    @property
    def strategy_failure(self) -> str | None:
        """Why the strategy failed first, so that the shield decided; None where it never did."""
        for recorded in self.events:
            match recorded.event:
                case SignalStale(source=source, message=message) if source == STRATEGY:
                    return message
        return None


def replay_tick_s(market: MarketHistory) -> float:
    """Seconds between two decisions: the record's grid, and of event data ``DEFAULT_TICK_S``."""
    return market.tick_s or DEFAULT_TICK_S


def replay(
    job: Job,
    policy: Policy,
    market: MarketHistory,
    *,
    machines: InstanceCatalog,
    powers: PowerModel,
    hazards: HazardModel,
    strategy: Strategy | None = None,
    tick_s: float | None = None,
    notice_s: float | None = None,
    cooldown_s: float = DEFAULT_COOLDOWN_S,
    transfers: TransferPrices | None = None,
    forecasts: Forecasts | None = None,
    carbon: CarbonRecord | None = None,
    explain: bool = False,
    account: Account = UNLIMITED,
    beside: Sequence[Job] = (),
) -> ReplayResult:
    """Run ``job`` from its start to its end on ``market``, and others ``beside`` it, which share
    its policy, its limits and the account's. Deterministic.

    The tick is ``tick_s``, by default that of ``replay_tick_s``. A job that is late is followed to
    three times its deadline or the end of the record, and stopped there. Where the policy's
    strategy raises, the shield decides, as it does live. The notice of an interruption is
    ``notice_s``, by default what the pool's provider gives. Data that lie in another region cost
    what ``transfers`` say, in dollars and time. Raises MarketError where the record does not reach
    to the deadline.
    """
    jobs = (job, *beside)
    for each in jobs:
        check_coverage(each, market)
    site = virtual_site(
        market,
        min(each.start_at for each in jobs),
        machines=machines,
        powers=powers,
        hazards=hazards,
        notice_s=notice_s,
        transfers=transfers,
        forecasts=forecasts,
        carbon=carbon,
    )
    ledger = MemoryLedger()
    settings = ControllerSettings(
        tick_s=tick_s or replay_tick_s(market),
        cooldown_s=cooldown_s,
        account=account,
        explain=explain,
        new_key=deterministic_key,
    )
    controller = Controller(site, ledger, settings)
    # Jobs that share a strategy share the policy's limits.
    strategy = strategy or build_strategy(policy)
    for each in jobs:
        controller.add(each, policy, strategy)
    engine, end_at = controller.engine, max(_end_at(each, market) for each in jobs)
    ticks = 0

    def check(result: TickResult) -> None:
        nonlocal ticks
        ticks += 1
        if engine.unfinished and result.now >= end_at:
            engine.stop(f"not done at {_minute(end_at)}, where the replay ends")

    run_until_done(engine, check)
    first, *others = (
        ReplayResult(
            policy.strategy.name,
            engine.journal.accounts[each.name].summary(site.clock.now()),
            tuple(ledger.events(each.name)),
            ticks,
        )
        for each in jobs
    )
    return replace(first, beside=tuple(others))


def check_coverage(job: Job, market: MarketHistory) -> None:
    """Raises MarketError where the record does not reach from the job's start to its deadline."""
    if job.start_at < market.starts_at or job.until_at > market.ends_at:
        raise MarketError(
            f"market {market.name!r} is recorded from {_minute(market.starts_at)} to "
            f"{_minute(market.ends_at)}; job {job.name!r} runs from {_minute(job.start_at)} to "
            f"{_minute(job.until_at)}",
            hint="choose another start with --at, or a longer record",
            code="outside_market",
        )


def _end_at(job: Job, market: MarketHistory) -> datetime:
    """Return the end of the replay: a late job is followed for a while to measure its lateness."""
    return min(market.ends_at, job.start_at + MAX_OVERRUN_RATIO * (job.until_at - job.start_at))


def _minute(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M} UTC"


OBSERVATION_INTERVAL_S = 300.0
"""Seconds between two observations of a recorded market without a grid."""


class PriorObservation:
    """The record of a market in the ``past_s`` before a job's start, looked at tick by tick.

    Seen are spot pools that the policy allows and the job can use, by what a run at the time could
    have seen: where the record has a gap, nothing. ``past_s`` may be infinite: from the first
    recorded instant.
    """

    def __init__(
        self,
        job: Job,
        policy: Policy,
        market: MarketHistory,
        machines: InstanceCatalog,
        past_s: float,
    ) -> None:
        self._job = job
        self._market = market
        recorded_s = (job.start_at - market.starts_at).total_seconds()
        look_s = market.tick_s or OBSERVATION_INTERVAL_S
        self._looks = max(0, int(min(past_s, recorded_s) / look_s + 1e-6))
        self._look = timedelta(seconds=look_s)
        self._nodes = {
            pool: counts
            for pool in market.pools
            if pool.capacity_type.is_interruptible and policy.limits.rejection_reason(pool) is None
            if (counts := _node_counts(job, pool, machines))
        }

    def teach(self, strategy: Strategy, hazards: HazardModel) -> None:
        """Have both learn from it; a strategy that learns nothing stays as it is."""
        lifetimes = lifetime_model(strategy)
        for now, states in self._states():
            hazards.observe([_offer(pool, state) for pool, state in states.items()], now)
            if lifetimes is not None:
                self._feed_lifetimes(lifetimes, states, now)

    def _feed_lifetimes(
        self, lifetimes: LifetimeModel, states: dict[Pool, MarketState], now: datetime
    ) -> None:
        for pool, state in states.items():
            for nodes in self._nodes[pool]:
                up = (state.nodes_available or 0) >= nodes
                region = f"{pool.provider}/{pool.region}"
                lifetimes.observe(lifetime_key(self._job.name, pool, nodes), region, up, now)

    def _states(self) -> Iterator[tuple[datetime, dict[Pool, MarketState]]]:
        """Instants before the start, in order, with the pools that were observed then."""
        for look in range(self._looks, 0, -1):
            now = self._job.start_at - look * self._look
            pools = ((pool, self._market.pools[pool].at(now)) for pool in self._nodes)
            yield (
                now,
                {pool: state for pool, state in pools if state is not None and _is_observed(state)},
            )


def _is_observed(state: MarketState) -> bool:
    return state.nodes_available is not None and state.price_usd_per_hour is not None


def _offer(pool: Pool, state: MarketState) -> Offer:
    return Offer(pool, None, None, state.nodes_available)


def _node_counts(job: Job, pool: Pool, machines: InstanceCatalog) -> tuple[int, ...]:
    """Gang sizes that some phase of the job allows in the pool; none where it cannot be used."""
    machine = machines.instance_type(pool)
    if machine is None or job.resources.rejection_reason(machine) is not None:
        return ()
    return tuple(
        nodes
        for nodes in job.gang_sizes(machine)
        if any(phase.min_nodes <= nodes <= phase.max_nodes for phase in job.phases)
    )
