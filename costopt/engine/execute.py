"""Carries actions out: intent first, then the call, then the outcome."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from costopt.domain.errors import ProviderError, ProviderUnavailableError
from costopt.domain.events import (
    DrainIntended,
    GuardTripped,
    LaunchFailed,
    LaunchIntended,
    TerminateIntended,
)
from costopt.domain.fleet import Action, Drain, Launch, LaunchRequest, Node, Terminate
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.policy import Limits
from costopt.domain.view import Desired
from costopt.engine.bounds import Bounds
from costopt.engine.fleet import launched
from costopt.engine.gate import Gate
from costopt.engine.guards import MICROS, Guards
from costopt.engine.journal import Journal
from costopt.engine.refusal import Refusal
from costopt.engine.settings import Settings
from costopt.engine.tally import Tally
from costopt.engine.world import World


class Executor:
    """Turns actions into provider calls, each announced in the ledger before it is made."""

    def __init__(
        self,
        world: World,
        journal: Journal,
        settings: Settings,
        guards: Guards,
        jobs: Mapping[str, Job],
        gate: Gate,
    ) -> None:
        self._world = world
        self._journal = journal
        self._settings = settings
        self._guards = guards
        self._jobs = jobs
        self._gate = gate
        self._asked_to_drain: set[str] = set()

    def execute(
        self,
        actions: Iterable[Action],
        nodes: Sequence[Node],
        bounds: Mapping[str, Bounds],
        now: datetime,
    ) -> tuple[tuple[Node, ...], frozenset[Pool]]:
        """The nodes that were launched, and the pools that refused.

        ``bounds`` are by job; only in pools that have a price there anything is launched.
        A job that was refused a launch drains nothing: it decides again first. Nor does one that a
        guard refused a launch which it would refuse without the job's other nodes too.
        """
        new: list[Node] = []
        refused: set[Pool] = set()
        refused_jobs: set[str] = set()
        tally = self._guards.quotas.tally(nodes)
        began_s = time.monotonic()
        for action in actions:
            match action:
                case Launch() if new and self._is_late(began_s):
                    refused_jobs.add(action.job)
                case Launch():
                    started = self._launch(action, tally, bounds[action.job], now)
                    new += started or ()
                    self._guards.quotas.take(tally, started or ())
                    if started is None:
                        refused.add(action.pool)
                        refused_jobs.add(action.job)
                    elif not started and self._is_in_vain(action, nodes, bounds, now):
                        refused_jobs.add(action.job)
                case Drain() if action.job not in refused_jobs:
                    self._drain(action, now)
                case Terminate():
                    self.release(action.job, action.node_id, action.reason, now)
        return tuple(new), frozenset(refused)

    def ask_again(
        self, desired: Desired, bounds: Mapping[str, Bounds], now: datetime
    ) -> tuple[tuple[Node, ...], frozenset[Pool]]:
        """Repeat the launches that were never answered and are still wanted, under their own keys.

        A launch that did happen gives the same nodes; one that did not, happens now. Gives the
        nodes that are new, and the pools that refused. While launches are halted none is repeated.
        """
        if self._gate.halt() is not None:
            return (), frozenset()
        new: list[Node] = []
        refused: set[Pool] = set()
        for decision in desired.decisions:
            wanted = {str(target.pool) for target in decision.targets}
            intents = self._journal.records[decision.job].intents
            limits = bounds[decision.job].limits
            for intent in [i for i in intents.values() if i.pool in wanted]:
                started = self._call(intent, now)
                if started is not None:
                    started = self._at_realized_price(started, intent, limits, now)
                if started is None:
                    refused.add(Pool.parse(intent.pool))
                new += started or ()
        return tuple(new), frozenset(refused)

    def release(self, job: str, node_id: str, reason: str, now: datetime) -> None:
        """Give a node back. The provider's listing confirms it later."""
        record = self._journal.records[job]
        if node_id not in record.releasing:
            self._journal.write(TerminateIntended(at=now, job=job, node_id=node_id, reason=reason))
        pool = Pool.parse(record.live[node_id].pool)
        try:
            self._world.provider_of(pool).terminate(node_id)
        except ProviderError:
            return

    def release_drained(self, now: datetime) -> None:
        """Give back the nodes that have finished draining, or taken too long over it.

        A release that the provider did not take is asked for again.
        """
        timeout = timedelta(seconds=self._settings.drain_timeout_s)
        for name, record in self._journal.records.items():
            leaving = [n for n in record.draining if n in record.live]
            if not leaving:
                continue
            self._ask_to_drain(name, leaving)
            drained = self._world.runtime.drained(self._jobs[name])
            for node_id in leaving:
                late = now - record.draining[node_id] >= timeout
                # A member of the gang before this one may still be saving.
                idle = node_id not in record.trainers
                if node_id in drained or idle or late or node_id in record.releasing:
                    self.release(name, node_id, "drained" if not late else "drain timed out", now)

    def _drain(self, drain: Drain, now: datetime) -> None:
        self._journal.write(
            DrainIntended(at=now, job=drain.job, node_id=drain.node_id, reason=drain.reason)
        )
        self._ask_to_drain(drain.job, [drain.node_id])

    def _ask_to_drain(self, job: str, node_ids: Iterable[str]) -> None:
        """Ask those that were not asked yet, by this engine: another may have died before."""
        unasked = [n for n in node_ids if n not in self._asked_to_drain]
        if unasked:
            self._world.runtime.drain(self._jobs[job], unasked)
            self._asked_to_drain.update(unasked)

    def _launch(
        self,
        launch: Launch,
        tally: Tally,
        bounds: Bounds,
        now: datetime,
    ) -> tuple[Node, ...] | None:
        """The launched nodes, () while the answer is unknown or a guard refuses, None on a no."""
        planned = bounds.prices.get(launch.pool)
        if planned is None:
            return None
        refusal = self._gate.halt() or self._guards.launch_refusal(
            launch, planned, tally, bounds, now
        )
        if refusal is not None:
            self.trip(launch.job, refusal, now)
            return ()
        record = self._journal.records[launch.job]
        intent = LaunchIntended(
            at=now,
            job=launch.job,
            key=self._settings.new_key(launch.job, record.launch_count + 1),
            pool=str(launch.pool),
            nodes=launch.nodes,
            planned_micros_per_hour=round(planned * MICROS),
        )
        self._journal.write(intent)
        started = self._call(intent, now)
        if started is None:
            return None
        return self._at_realized_price(started, intent, bounds.limits, now)

    def _is_late(self, began_s: float) -> bool:
        """Whether the nodes that run need the next tick more than new ones do this one."""
        most_s = self._settings.launch_s
        return most_s is not None and time.monotonic() - began_s >= most_s

    def _is_in_vain(
        self, launch: Launch, nodes: Sequence[Node], bounds: Mapping[str, Bounds], now: datetime
    ) -> bool:
        """Whether a guard forbids the launch even after what runs for the job elsewhere is gone."""
        mine = bounds[launch.job]
        planned = mine.prices.get(launch.pool)
        if planned is None or self._gate.halt() is not None:
            return True
        others = tuple(n for n in nodes if n.job != launch.job or n.pool == launch.pool)
        tally = self._guards.quotas.tally(others)
        return self._guards.launch_refusal(launch, planned, tally, mine, now) is not None

    def _call(self, intent: LaunchIntended, now: datetime) -> tuple[Node, ...] | None:
        """The nodes, () while the answer is unknown, None on a no."""
        pool = Pool.parse(intent.pool)
        request = LaunchRequest(self._settings.owner, intent.job, pool, intent.nodes, intent.key)
        try:
            started = self._world.provider_of(pool).launch(request)
        except ProviderUnavailableError:
            return ()
        except ProviderError as error:
            self._record_failure(intent, error, now)
            return None
        known = self._journal.records[intent.job].known
        fresh = tuple(node for node in started if node.node_id not in known)
        self._journal.write(*(launched(self._world, node, now) for node in fresh))
        return fresh

    def _record_failure(self, intent: LaunchIntended, error: ProviderError, now: datetime) -> None:
        self._journal.write(
            LaunchFailed(
                at=now,
                job=intent.job,
                key=intent.key,
                pool=intent.pool,
                error=type(error).__name__.removesuffix("Error"),
                message=error.message,
            )
        )

    def _at_realized_price(
        self, started: tuple[Node, ...], intent: LaunchIntended, limits: Limits, now: datetime
    ) -> tuple[Node, ...] | None:
        """The nodes, or None where they came out so much dearer that they are given back."""
        planned = intent.planned_micros_per_hour / MICROS
        most = None if limits.max_price_ratio is None else planned * limits.max_price_ratio
        dear = [n for n in started if most is not None and n.usd_per_hour > most]
        if not dear:
            return started
        message = (
            f"{dear[0].pool} was planned at ${planned:.4f}/h and came out at "
            f"${dear[0].usd_per_hour:.4f}/h; its nodes are given back"
        )
        self.trip(intent.job, Refusal("max_price_ratio", message, intent.pool), now)
        for node in started:
            self.release(node.job, node.node_id, "dearer than planned", now)
        return None

    def trip(self, job: str, refusal: Refusal, now: datetime) -> None:
        """Record that a guard said no; once for as long as it goes on."""
        if self._journal.records[job].guard != refusal.guard:
            self._journal.write(
                GuardTripped(
                    at=now,
                    job=job,
                    guard=refusal.guard,
                    message=refusal.message,
                    pool=refusal.pool,
                )
            )
