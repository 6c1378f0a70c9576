"""Executes actions: the intent is recorded first, then the call made, then its outcome recorded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from costopt.domain.array import max_task_s
from costopt.domain.events import DrainIntended
from costopt.domain.fleet import Action, Drain, Launch, Node, Terminate
from costopt.domain.job import Job
from costopt.engine.failures import JobFailures
from costopt.engine.gate import Releases
from costopt.engine.guards import LaunchLimits
from costopt.engine.journal import Journal
from costopt.engine.launcher import Launcher, LaunchResults
from costopt.engine.owned_room import OwnedRoom
from costopt.engine.settings import EngineSettings, World


class Executor:
    """Turns actions into provider calls, each recorded in the ledger before it is made."""

    def __init__(
        self,
        world: World,
        journal: Journal,
        settings: EngineSettings,
        jobs: Mapping[str, Job],
        launcher: Launcher,
        releases: Releases,
        troubles: JobFailures,
    ) -> None:
        self._world = world
        self._journal = journal
        self._settings = settings
        self._jobs = jobs
        self._launcher = launcher
        self._releases = releases
        self._troubles = troubles
        self._asked_to_drain: set[str] = set()

    def execute(
        self,
        actions: Sequence[Action],
        nodes: Sequence[Node],
        bounds: Mapping[str, LaunchLimits],
        now: datetime,
    ) -> LaunchResults:
        """Execute the actions. ``nodes`` are all living ones. Launches come first, so that running
        nodes are retained where a launch is refused; on owned nodes they come last, once gangs that
        shrink have left."""
        launches = [action for action in actions if isinstance(action, Launch)]
        owned = [each for each in launches if self._settings.account.owns(each.pool)]
        rented = [each for each in launches if each not in owned] if owned else launches
        done = self._launcher.launch(rented, nodes, bounds, now)
        drains = (a for a in actions if isinstance(a, Drain) and a.job not in done.held)
        for job, reasons in _reasons(drains).items():
            self._drain(job, reasons, now)
        for job, reasons in _reasons(a for a in actions if isinstance(a, Terminate)).items():
            self._releases.release(job, reasons, now)
        if owned:
            self._launch_where_room_is(owned, nodes, bounds, done, now)
        return done

    def _launch_where_room_is(
        self,
        launches: Sequence[Launch],
        nodes: Sequence[Node],
        bounds: Mapping[str, LaunchLimits],
        done: LaunchResults,
        now: datetime,
    ) -> None:
        """Launch on owned nodes what fits beside the gangs that have not left yet; the rest waits
        for the next tick."""
        self.terminate_drained(now)
        room = OwnedRoom(self._world, {launch.pool.provider for launch in launches}, now)
        gone = frozenset(n for r in self._journal.records.values() for n in r.releasing)
        there = [node for node in (*nodes, *done.nodes) if node.node_id not in gone]
        placed = self._launcher.launch(
            [each for each in launches if room.take(each)], there, bounds, now
        )
        done.nodes += placed.nodes
        done.refusing |= placed.refusing
        done.refused |= placed.refused

    def terminate_drained(self, now: datetime, stopping: Collection[str] = ()) -> None:
        """Terminate the nodes that have finished draining, or exceeded the drain timeout.

        Nodes of an array may finish their tasks, unless the job is ``stopping``. A termination that
        the provider did not accept is requested again.
        """
        records = self._journal.records
        self._asked_to_drain.intersection_update(n for r in records.values() for n in r.draining)
        for name, record in records.items():
            leaving = [n for n in record.draining if n in record.live]
            if not leaving:
                continue
            patience_s = 0.0 if name in stopping else 2 * max_task_s(self._jobs[name])
            timeout = timedelta(seconds=max(self._settings.drain_timeout_s, patience_s))
            drained: frozenset[str] = frozenset()
            with self._troubles.isolate(name, now):
                self._ask_to_drain(name, leaving)
                drained = self._world.runtime.is_drained(self._jobs[name])
            reasons: dict[str, str] = {}
            for node_id in leaving:
                late = now - record.draining[node_id] >= timeout
                # A member of the previous gang may still be saving.
                idle = node_id not in record.trainers
                if node_id in drained or idle or late or node_id in record.releasing:
                    reasons[node_id] = "drained" if not late else "drain timed out"
            self._releases.release(name, reasons, now)

    def _drain(self, job: str, reasons: Mapping[str, str], now: datetime) -> None:
        self._journal.write(
            *(
                DrainIntended(at=now, job=job, node_id=node_id, reason=reason)
                for node_id, reason in reasons.items()
            )
        )
        with self._troubles.isolate(job, now):
            self._ask_to_drain(job, reasons)

    def _ask_to_drain(self, job: str, node_ids: Iterable[str]) -> None:
        """Ask those that this engine has not asked yet: an earlier one may have died before it."""
        unasked = [n for n in node_ids if n not in self._asked_to_drain]
        if unasked:
            self._world.runtime.drain(self._jobs[job], unasked)
            self._asked_to_drain.update(unasked)


def _reasons(actions: Iterable[Drain | Terminate]) -> Mapping[str, Mapping[str, str]]:
    """Return the reasons by job and node."""
    reasons: dict[str, dict[str, str]] = {}
    for action in actions:
        reasons.setdefault(action.job, {})[action.node_id] = action.reason
    return reasons
