"""The one composition root: every engine, live or in a backtest, is assembled here.

``costopt run`` controls one job of a site, the daemon many, a backtest one on a virtual site. They
differ in what they pass, never in how it is put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from costopt.controller.site import Site
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.domain.ports import Ledger, Strategy
from costopt.engine.billing import OtherJobs
from costopt.engine.cohort import DecisionScheduler, JobTerms
from costopt.engine.engine import Engine
from costopt.engine.gate import Gate
from costopt.engine.settings import (
    DEFAULT_COOLDOWN_S,
    DEFAULT_PATIENCE_S,
    DEFAULT_TICK_S,
    EngineSettings,
    World,
    random_key,
)
from costopt.strategies import build
from costopt.strategies.fault_isolation import FaultIsolatedStrategy

DRAIN_TIMEOUT_S = 300.0
DRAIN_TIMEOUT_WALL_S = 30.0
"""Trainers save by the wall, however fast the site's clock runs."""
REPORT_TIMEOUT_S = 600.0
REPORT_TIMEOUT_WALL_S = 60.0
"""So do agents start."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """How jobs are controlled; seconds are the site's clock's unless they say otherwise.

    ``cooldown_s``: how long a pool is left alone after it refused or took a node. ``account``: the
    quotas, tenants and guards that plans and launches keep to. ``explain``: whether decisions are
    recorded with the alternatives that were weighed. ``patience_s``, ``launch_s`` (of the wall) and
    ``new_key`` are those of ``EngineSettings``.
    """

    tick_s: float = DEFAULT_TICK_S
    cooldown_s: float = DEFAULT_COOLDOWN_S
    account: Account = UNLIMITED
    explain: bool = False
    patience_s: float = DEFAULT_PATIENCE_S
    launch_s: float | None = None
    new_key: Callable[[str, int], str] = random_key


class Controller:
    """One engine over jobs of a site, which begins without any.

    ``gate`` and ``decider`` stand for those of a daemon; without them, what is decided is done, and
    strategies are asked one after the other. ``uncontrolled`` returns jobs of the ledger whose cost
    counts beside that of the controller's own; they are read again at each tick.
    """

    def __init__(
        self,
        site: Site,
        ledger: Ledger,
        settings: ControllerSettings,
        *,
        gate: Gate | None = None,
        decider: DecisionScheduler | None = None,
        uncontrolled: Callable[[], Iterable[str]] | None = None,
    ) -> None:
        """Raises LedgerError."""
        world = World(
            providers=site.providers,
            runtime=site.runtime,
            ledger=ledger,
            clock=site.clock,
            machines=site.machines,
            powers=site.powers,
            hazards=site.hazards,
            transfers=site.transfers,
            forecasts=site.forecasts,
            carbon=site.carbon,
        )
        self.engine = Engine(world, _engine_settings(site, settings), gate, decider)
        if uncontrolled is not None:
            self.engine.spending.include(OtherJobs(ledger, uncontrolled).bills)

    def add(self, job: Job, policy: Policy, strategy: Strategy | None = None) -> None:
        """Control a job under ``policy``, going on from what the ledger holds of it.

        ``strategy`` decides for it, or that of the policy. Raises LedgerError, and SpecError for an
        unknown strategy.
        """
        self.engine.add(job, JobTerms(policy, strategy or build_strategy(policy)))


def build_strategy(policy: Policy, make: Callable[[], Strategy] | None = None) -> Strategy:
    """The policy's strategy, or that of ``make`` in its place; where it raises for a job, the
    shield decides. Raises SpecError for an unknown name or parameter."""
    return FaultIsolatedStrategy(make or (lambda: build(policy.strategy)))


def _engine_settings(site: Site, settings: ControllerSettings) -> EngineSettings:
    speed = site.clock.speed
    return EngineSettings(
        owner=site.owner,
        tick_s=settings.tick_s,
        cooldown_s=settings.cooldown_s,
        drain_timeout_s=max(DRAIN_TIMEOUT_S, DRAIN_TIMEOUT_WALL_S * speed),
        report_timeout_s=max(REPORT_TIMEOUT_S, REPORT_TIMEOUT_WALL_S * speed),
        account=settings.account,
        explain=settings.explain,
        patience_s=settings.patience_s,
        launch_s=settings.launch_s,
        new_key=settings.new_key,
    )
