"""The leader's loop: the engine over all jobs, built from the ledger, discarded with the lease."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from costopt.controller.controller import Controller, ControllerSettings
from costopt.controller.late_carbon import LateCarbon
from costopt.controller.site import LiveSite
from costopt.daemon.loop.job_sync import JobSync
from costopt.daemon.loop.mode_gate import ModeGate
from costopt.daemon.loop.payload_preparer import PayloadPreparer
from costopt.daemon.loop.strategy_pool import StrategyPool
from costopt.daemon.loop.tick_budget import TickScheduler
from costopt.daemon.settings import DaemonSettings
from costopt.daemon.shared_state import FleetNode, JobForecast, TickSnapshot
from costopt.daemon.watch.budget_use import budget_uses
from costopt.domain.account import Account
from costopt.domain.control import Registry
from costopt.domain.events import ClockJumped
from costopt.domain.fleet import Node
from costopt.engine.admission import SHARE
from costopt.engine.engine import TickResult
from costopt.ledger.base import DurableLedger
from costopt.ledger.fold_cache import current_summaries
from costopt.provider.base import Provider

SAVE_INTERVAL_S = 30.0
"""Seconds between saves of learned state: a daemon that is killed may lose that much."""


class LeaderLoop:
    """One engine over all jobs, with its mode gate and its job sync."""

    def __init__(
        self,
        site: LiveSite,
        providers: Sequence[Provider],
        registry: Registry,
        ledger: DurableLedger,
        account: Account,
        settings: DaemonSettings,
        readiness: PayloadPreparer,
        forecasts: Callable[[], Mapping[str, JobForecast]],
    ) -> None:
        """Build the engine from the ledger. Raise LedgerError."""
        self._forecasts = forecasts
        self._clock = site.clock
        self._account = account
        self._gate = ModeGate(registry, settings.mode, readiness.is_ready)
        self.engine = Controller(
            replace(site, providers=tuple(providers)),
            ledger,
            ControllerSettings(
                tick_s=settings.tick_s,
                cooldown_s=settings.cooldown_s,
                account=account,
                explain=True,
                patience_s=settings.patience_s,
                launch_s=settings.launch_s,
            ),
            gate=self._gate,
            decider=TickScheduler(settings.decide_s),
            uncontrolled=self._uncontrolled,
        ).engine
        self._gate.serve(self.engine)
        strategies = StrategyPool(settings.state_dir, site.hazards, site.clock.now())
        self.strategies = strategies
        self._late = None if site.carbon is None else LateCarbon(ledger, site.carbon)
        self._roll = JobSync(
            self.engine,
            registry,
            site,
            readiness,
            strategies,
            ledger.jobs(),
            current_summaries(ledger),
        )

    def tick(self) -> TickSnapshot:
        """Run one pass over all jobs and return its snapshot. Raise LedgerError."""
        now = self._clock.now()
        mode = self._gate.begin_tick()
        self._roll.sync(now)
        self._roll.record_mode(mode, now)
        result = self.engine.tick()
        self._roll.retire(result.now)
        self._book_late(result.now)
        self.strategies.save(result.now, every_s=SAVE_INTERVAL_S)
        return self._snapshot(result)

    def record_clock_jump(self, jump_s: float) -> None:
        """Record in each job's ledger that the wall clock was set by so many seconds. Raise
        LedgerError."""
        now, journal = self._clock.now(), self.engine.journal
        journal.write(*(ClockJumped(at=now, job=job, seconds=jump_s) for job in journal.records))

    def _book_late(self, now: datetime) -> None:
        """Record intensities that became known after jobs were over."""
        if self._late is None:
            return
        for fold in self._late.book(self.engine.jobs, now):
            job = fold.account.job
            if job in self._roll.closed:
                self._roll.closed[job] = fold.account.summary(max(now, fold.last_at))

    def close(self) -> None:
        """Save the learned state for the daemon's next start."""
        self.strategies.save(self._clock.now())

    def _uncontrolled(self) -> Iterable[str]:
        return self._roll.uncontrolled()

    def _snapshot(self, result: TickResult) -> TickSnapshot:
        engine = self.engine
        accounts = engine.journal.accounts
        nodes_of: dict[str, list[FleetNode]] = {}
        for node in result.nodes:
            if node.job in engine.jobs:
                nodes_of.setdefault(node.job, []).append(self._fleet_node(node))
        held = {job: why for job, why in result.refused.items() if job not in nodes_of}
        held |= {d.job: d.reason for d in result.desired.decisions if d.rule == SHARE}
        forecasts = self._forecasts()
        uses = budget_uses(engine, self._account, nodes_of, result.now, forecasts)
        last = {name: account.last_decision for name, account in accounts.items()}
        return TickSnapshot(
            now=result.now,
            nodes=tuple(node for nodes in nodes_of.values() for node in nodes),
            nodes_of={name: tuple(nodes) for name, nodes in nodes_of.items()},
            summaries={
                **self._roll.held,
                **self._roll.closed,
                **{name: engine.journal.summary(name, result.now) for name in accounts},
            },
            decisions={name: decision for name, decision in last.items() if decision is not None},
            slacks={
                decision.job: decision.slack_s
                for decision in result.desired.decisions
                if decision.slack_s is not None
            },
            held=held | self._roll.held_jobs(),
            troubles=self._roll.troubles(),
            failing_nodes=engine.failing_nodes,
            guarded=self._guarded(),
            closed=frozenset(self._roll.closed),
            offers=engine.offers,
            budgets=tuple(uses),
            goodputs={name: g for name in accounts if (g := self._goodput(name)) is not None},
            silent=engine.provider_errors,
            views=engine.views,
        )

    def _guarded(self) -> dict[str, str]:
        stops = self.engine.stops
        return {name: stops.reason(name) for name in self.engine.jobs if stops.is_by_guard(name)}

    def _goodput(self, job: str) -> float | None:
        """Return the mean goodput that the job's living nodes reported last, None before any."""
        account = self.engine.journal.accounts[job]
        reports = (account.measured.nodes.get(node) for node in account.fleet.alive)
        known = [each.goodput for each in reports if each is not None and each.goodput is not None]
        return sum(known) / len(known) if known else None

    def _fleet_node(self, node: Node) -> FleetNode:
        record = self.engine.journal.records[node.job]
        unhealthy = record.unhealthy.get(node.node_id)
        return FleetNode(
            node_id=node.node_id,
            job=node.job,
            tenant=self.engine.jobs[node.job].tenant,
            pool=str(node.pool),
            state=node.state,
            launched_at=node.launched_at,
            usd_per_hour=node.usd_per_hour,
            draining=node.node_id in record.draining,
            interrupts_at=record.noticed.get(node.node_id),
            health="" if unhealthy is None else unhealthy.message,
        )
