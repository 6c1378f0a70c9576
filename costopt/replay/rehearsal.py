"""One job, one strategy, one recorded market: the engine on a virtual clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from costopt.controller.controller import Controller, ControllerSettings
from costopt.controller.virtual_site import virtual_site
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import MarketError
from costopt.domain.events import SignalStale
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
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
from costopt.ledger.memory import MemoryLedger
from costopt.ledger.summary import JobSummary

MAX_OVERRUN_RATIO = 3.0

DEFAULT_TICK_S = 300.0
"""Of a replay of event data, which have no grid."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What came of one replay."""

    strategy: str
    summary: JobSummary
    events: tuple[RecordedEvent, ...]
    ticks: int

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
    notice_s: float = 120.0,
    cooldown_s: float = DEFAULT_COOLDOWN_S,
    transfers: TransferPrices | None = None,
    forecasts: Forecasts | None = None,
    carbon: CarbonRecord | None = None,
    explain: bool = False,
    account: Account = UNLIMITED,
) -> ReplayResult:
    """Run ``job`` from its start to its end on ``market``. Deterministic.

    The tick is ``tick_s``, by default that of ``replay_tick_s``. A job that is late is followed to
    three times its deadline or the end of the record, and stopped there. Where the policy's
    strategy raises, the shield decides, as it does live. Data that lie in another region cost what
    ``transfers`` say, in dollars and time. Raises MarketError where the record does not reach to
    the deadline.
    """
    check_coverage(job, market)
    site = virtual_site(
        market,
        job.start_at,
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
    controller.add(job, policy, strategy)
    engine, end_at = controller.engine, _end_at(job, market)
    ticks = 0

    def check(result: TickResult) -> None:
        nonlocal ticks
        ticks += 1
        if engine.unfinished and result.now >= end_at:
            engine.stop(f"not done at {_minute(end_at)}, where the replay ends")

    run_until_done(engine, check)
    summary = engine.journal.accounts[job.name].summary(site.clock.now())
    return ReplayResult(policy.strategy.name, summary, tuple(ledger.events(job.name)), ticks)


def check_coverage(job: Job, market: MarketHistory) -> None:
    """Raises MarketError where the record does not reach from the job's start to its deadline."""
    if job.start_at < market.starts_at or job.deadline_at > market.ends_at:
        raise MarketError(
            f"market {market.name!r} is recorded from {_minute(market.starts_at)} to "
            f"{_minute(market.ends_at)}; job {job.name!r} runs from {_minute(job.start_at)} to "
            f"{_minute(job.deadline_at)}",
            hint="choose another start with --at, or a longer record",
            code="outside_market",
        )


def _end_at(job: Job, market: MarketHistory) -> datetime:
    """A late job is followed for a while, so that its lateness can be told."""
    return min(market.ends_at, job.start_at + MAX_OVERRUN_RATIO * (job.deadline_at - job.start_at))


def _minute(when: datetime) -> str:
    return f"{when:%Y-%m-%d %H:%M} UTC"
