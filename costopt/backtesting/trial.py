"""A trial of a policy on a window, its score, and the keys under which scores are cached.

A trial is one policy on one window of one market; its score fits on a line. Besides the trial, the
edition of the code and its data decides a score, so it is part of the key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from inspect import getsourcefile
from pathlib import Path
from uuid import uuid4

import costopt
from costopt.backtesting.account_market import account_market
from costopt.backtesting.hindsight import (
    HindsightOptimum,
    HindsightPaths,
    hindsight_optimum,
    hindsight_paths,
)
from costopt.backtesting.known_lifetimes import known_lifetimes
from costopt.backtesting.lifetime_oracle import LifetimeOracle
from costopt.backtesting.regret import measure_regret
from costopt.backtesting.replay import PriorObservation, ReplayResult, replay
from costopt.controller.controller import build_strategy
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.events import Event, ProgressReported, WorkLost
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.domain.ports import (
    CarbonRecord,
    Forecasts,
    HazardModel,
    InstanceCatalog,
    PowerModel,
    Strategy,
)
from costopt.domain.transfers import TransferPrices
from costopt.engine.settings import DEFAULT_COOLDOWN_S
from costopt.ledger.summary import JobSummary
from costopt.strategies.registry import find_factory, is_own, shield

EPOCH = datetime.fromtimestamp(0, UTC)

HINDSIGHT = "hindsight"
ON_DEMAND = "on_demand"
ORACLES: Mapping[str, Callable[[MarketHistory], Strategy]] = {
    "known_lifetimes": known_lifetimes,
    "lifetime_oracle": LifetimeOracle,
}
"""Strategies that know more of a market than a run can; for replays only."""


@dataclass(frozen=True, slots=True)
class Window:
    """A job that begins, has its deadline and its overhead as this window says, on a market.

    Jobs ``beside`` it count in its score only by what they leave it.
    """

    market: str
    job: Job
    beside: tuple[Job, ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """A policy on a window. Beside the strategies: ``hindsight_optimum`` and an oracle."""

    window: Window
    policy: Policy

    @property
    def label(self) -> str:
        """What its figures stand under."""
        return self.policy.name


@dataclass(frozen=True, slots=True)
class BacktestConfig:
    """What every trial is run with; it can be sent to other processes if its models can.

    ``hazards`` and ``forecasts`` make a fresh model each time; without ``forecasts``, policies
    plan as if prices and intensities stayed as they are. Without ``carbon``, CO2e counts by annual
    means. ``markets`` are by name. ``strategies`` make, by name, strategies that policies may name
    besides the installed ones; ``trial_strategy`` makes one for a trial, or returns None; the
    shield wraps them all. ``history_s``: how much of the record before the job's start strategies
    and hazards have watched, 0 for a cold start. ``regret_against`` is the policy of the optimum
    that scores say what was lost against; None: they do not.
    """

    markets: Mapping[str, MarketHistory]
    machines: InstanceCatalog
    powers: Callable[[], PowerModel]
    hazards: Callable[[], HazardModel]
    notice_s: float | None = None
    cooldown_s: float = DEFAULT_COOLDOWN_S
    tick_s: float | None = None
    transfers: TransferPrices | None = None
    forecasts: Callable[[MarketHistory], Forecasts] | None = None
    carbon: CarbonRecord | None = None
    strategies: Mapping[str, Callable[[], Strategy]] = field(default_factory=dict)
    trial_strategy: Callable[[Trial], Strategy | None] | None = None
    account: Account = UNLIMITED
    history_s: float = 0.0
    regret_against: Policy | None = None

    def score(self, trial: Trial) -> Score:
        """Run the trial. Deterministic.

        On demand is undefined where none is offered: nothing was spent because nothing could run.
        """
        if trial.policy.strategy.name == HINDSIGHT:
            paths = self._hindsight(trial.window, trial.policy)
            return score_hindsight(None if paths is None else paths.optimum())
        if trial.policy.strategy.name == ON_DEMAND and not self._offers_on_demand(trial):
            return UNDEFINED
        run = self.rehearse(trial)
        if self.regret_against is None:
            return score_replay(run)
        paths = self._hindsight(trial.window, self.regret_against)
        lost = {} if paths is None else measure_regret(run, trial.window.job, paths)
        return replace(score_replay(run), **lost)

    def optimum(self, trial: Trial) -> HindsightOptimum | None:
        """Return the optimum of hindsight tick by tick; None where it is not defined."""
        window, known = trial.window, self._known_to_hindsight(trial.window)
        return hindsight_optimum(
            window.job, trial.policy, *known, tick_s=self.tick_s, with_moments=True
        )

    def _hindsight(self, window: Window, policy: Policy) -> HindsightPaths | None:
        known = self._known_to_hindsight(window)
        return hindsight_paths(window.job, policy, *known, tick_s=self.tick_s)

    def _known_to_hindsight(
        self, window: Window
    ) -> tuple[MarketHistory, InstanceCatalog, TransferPrices | None]:
        """The market at the account's prices, the machines, and the prices of transfers."""
        market = account_market(self.markets[window.market], self.account.price_terms)
        return market, self.machines, self.transfers

    def rehearse(self, trial: Trial, *, explain: bool = False) -> ReplayResult:
        """The replay behind a trial of a strategy, with all its events."""
        market = self.markets[trial.window.market]
        policy, job = trial.policy, trial.window.job
        strategy, hazards = self._strategy(trial), self.hazards()
        if self.history_s > 0:
            PriorObservation(job, policy, market, self.machines, self.history_s).teach(
                strategy, hazards
            )
        return replay(
            job,
            policy,
            market,
            machines=self.machines,
            powers=self.powers(),
            hazards=hazards,
            strategy=strategy,
            tick_s=self.tick_s,
            notice_s=self.notice_s,
            cooldown_s=self.cooldown_s,
            transfers=self.transfers,
            forecasts=None if self.forecasts is None else self.forecasts(market),
            carbon=self.carbon,
            explain=explain,
            account=self.account,
            beside=trial.window.beside,
        )

    def _offers_on_demand(self, trial: Trial) -> bool:
        """Whether the window's market prices any uninterruptible capacity that the job may use."""
        job, limits = trial.window.job, trial.policy.limits
        return any(
            state is not None and state.price_usd_per_hour and state.nodes_available != 0
            for pool, history in self.markets[trial.window.market].pools.items()
            if pool.capacity_type.is_uninterruptible and limits.rejection_reason(pool) is None
            if (machine := self.machines.instance_type(pool)) is not None
            if job.resources.rejection_reason(machine) is None
            for state in (history.at(job.start_at), *history.between(job.start_at, job.until_at))
        )

    def _strategy(self, trial: Trial) -> Strategy:
        """The policy's own, or one that only a replay can have."""
        policy, market = trial.policy, self.markets[trial.window.market]
        oracle = ORACLES.get(policy.strategy.name)
        if oracle is not None:
            return build_strategy(policy, lambda: shield(oracle(market)))
        own = None if self.trial_strategy is None else self.trial_strategy(trial)
        if own is not None:
            return build_strategy(policy, lambda: shield(own))
        make = self.strategies.get(policy.strategy.name)
        return build_strategy(policy, None if make is None else lambda: shield(make()))


@dataclass(frozen=True, slots=True)
class TrialKeys:
    """Names trials by all that decides their score, so that a score is never taken for another's.

    ``edition`` stands for the code and its data, ``options`` for what the bench's models are made
    from.
    """

    bench: BacktestConfig
    edition: str
    options: Mapping[str, str | bool] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)

    def _strategy(self, trial: Trial) -> str:
        """What stands for the code of a strategy that is not costopt's own: its file's digest."""
        name = trial.policy.strategy.name
        factory: Callable[..., object] | None = self.bench.strategies.get(name)
        if factory is None:
            if name in (HINDSIGHT, *ORACLES) or is_own(name):
                return ""
            factory = find_factory(name)
        if name not in self._digests:
            self._digests[name] = _source_digest(factory)
        return self._digests[name]

    @property
    def _settings(self) -> tuple[object, ...]:
        bench = self.bench
        shared = bench.notice_s, bench.cooldown_s, bench.tick_s, bench.account, bench.history_s
        return shared if bench.regret_against is None else (*shared, bench.regret_against)

    def settings(self, job: Job) -> dict[str, str | float | bool]:
        """What all scores of a backtest of ``job`` depend on, by the names that users know.

        Policies, starts, deadlines and start-up times are not in it: more of them may be tried.
        """
        bench = self.bench
        timeless = replace(job, start_at=EPOCH, deadline_at=EPOCH, startup_s=0.0)
        return {
            "costopt's own code": self.edition,
            **self.options,
            "the job": _digest(_fields_text(timeless)),
            "the account": _digest(repr(bench.account)),
            "--notice": "by provider" if bench.notice_s is None else bench.notice_s,
            "--cooldown": bench.cooldown_s,
            "--history": f"{bench.history_s:g}",
            **{f"the market {name}": self._market(name) for name in bench.markets},
        }

    def _market(self, name: str) -> str:
        if name not in self._digests:
            self._digests[name] = _digest(repr(self.bench.markets[name]))
        return self._digests[name]

    def of(self, trial: Trial) -> str:
        """The key of a trial: the same in every process and on every machine."""
        parts = (
            self.edition,
            self._market(trial.window.market),
            repr((self._settings, self.options)),
            *map(_fields_text, (trial.window.job, *trial.window.beside)),
            repr(trial.policy),
            self._strategy(trial),
        )
        return _digest("\n".join(parts))


def _fields_text(job: Job) -> str:
    return repr([getattr(job, each.name) for each in fields(job)])


def _source_digest(factory: Callable[..., object]) -> str:
    """A digest of the file that defines it; where there is none, as for the cell of a notebook, one
    that is never met again."""
    try:
        file = getsourcefile(factory)
    except TypeError:
        file = None
    if file is None or not Path(file).is_file():
        return uuid4().hex
    return _digest(Path(file).read_text(encoding="utf-8"))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One policy on one window; None is unknown or not defined.

    ``finish_s`` counts from the job's start, None where it never finished. ``lost_s`` are seconds
    that the lost work took. ``low_usd`` is below ``usd`` where an optimum is known by bounds only.
    ``gco2e`` counts by the intensity of the hour for ``hourly_carbon_share`` of the energy, by
    annual means for the rest; ``embodied_gco2e`` is not in it. ``sci_gco2e_per_unit`` is both, per
    unit of work.
    ``strategy_failure`` is why the strategy failed first, so that the shield decided.
    ``regret_usd`` are the dollars above the optimum, where the backtest was to say them; the seven
    after it are what they were lost to (``regret``), and sum to it.
    """

    usd: float | None
    low_usd: float | None = None
    kwh: float | None = None
    gco2e: float | None = None
    hourly_carbon_share: float | None = None
    embodied_gco2e: float | None = None
    sci_gco2e_per_unit: float | None = None
    finish_s: float | None = None
    on_time: bool | None = None
    interruptions: int | None = None
    switches: int | None = None
    lost_s: float | None = None
    strategy_failure: str | None = None
    regret_usd: float | None = None
    waited_usd: float | None = None
    on_demand_too_soon_usd: float | None = None
    on_demand_too_long_usd: float | None = None
    wasted_spot_usd: float | None = None
    wrong_pool_usd: float | None = None
    lost_work_usd: float | None = None
    other_usd: float | None = None

    @property
    def finished(self) -> bool:
        """Whether the work was done, late or not; an optimum's always is."""
        return self.finish_s is not None or self.on_time is True


UNDEFINED = Score(usd=None)
"""Of what is not defined for the job on the market: an optimum, or on-demand without an offer."""


def score_replay(rehearsal: ReplayResult) -> Score:
    """The figures of a replay."""
    summary = rehearsal.summary
    return Score(
        usd=summary.usd,
        low_usd=summary.usd,
        kwh=summary.kwh,
        gco2e=summary.gco2e,
        hourly_carbon_share=summary.hourly_carbon_share,
        embodied_gco2e=summary.embodied_gco2e,
        sci_gco2e_per_unit=summary.sci_gco2e_per_unit,
        finish_s=_finish_s(summary),
        on_time=summary.on_time is True,
        interruptions=summary.interruptions,
        switches=summary.pool_switches,
        lost_s=_lost_s(recorded.event for recorded in rehearsal.events),
        strategy_failure=rehearsal.strategy_failure,
    )


def score_hindsight(best: HindsightOptimum | None) -> Score:
    """Return the score of the optimum, which has only dollars."""
    if best is None:
        return UNDEFINED
    return Score(usd=best.usd, low_usd=best.low_usd, on_time=True)


def _finish_s(summary: JobSummary) -> float | None:
    if summary.finished_at is None or summary.start_at is None:
        return None
    return (summary.finished_at - summary.start_at).total_seconds()


def _lost_s(events: Iterable[Event]) -> float | None:
    """Seconds that the lost work took at the speed reported last before it was lost.

    None where work was lost before any speed was reported.
    """
    lost_s, units_per_s = 0.0, None
    for event in events:
        match event:
            case ProgressReported(units_per_s=reported) if reported:
                units_per_s = reported
            case WorkLost(units=units) if units > 0:
                if units_per_s is None:
                    return None
                lost_s += units / units_per_s
    return lost_s


PACKAGES = ("costopt", "costopt_sim")
EXCLUDED_PACKAGES = frozenset(
    {"__pycache__", "agent", "api", "cli", "client", "daemon", "render", "train"}
)
"""Folders that no replay runs through."""


def code_digest() -> str:
    """A digest of every file that a replay may run or read."""
    digest = hashlib.sha256(costopt.__version__.encode())
    for folder in _folders():
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not EXCLUDED_PACKAGES & set(path.relative_to(folder).parts):
                digest.update(f"{path.relative_to(folder)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _folders() -> Iterator[Path]:
    for name in PACKAGES:
        spec = find_spec(name)
        for place in () if spec is None else spec.submodule_search_locations or ():
            yield Path(place)
