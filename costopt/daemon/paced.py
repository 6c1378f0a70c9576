"""Decides for as many jobs as a tick has time for; the others keep what they have until their turn.

A first decision may take seconds, as it looks over the whole time to a far deadline, and a daemon
that takes over hundreds of jobs must see to their nodes meanwhile.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain, zip_longest

from costopt.domain.market import Pool
from costopt.domain.ports import Strategy
from costopt.domain.view import Decision, Desired, JobView, View
from costopt.market.lifetime import Lifetimes
from costopt.strategies.kept import kept
from costopt.strategies.learner import learn_with, lifetimes_of
from costopt.strategies.reserve import is_running
from costopt.strategies.shield import slack_s
from costopt.strategies.steady import held_safe

PACE = "pace"
NEAR_ROUNDS = 3.0
"""Every second decision is of a job that is near, so each of them is decided within two rounds."""
CRITICAL_TICKS = 3.0


class Paced:
    """One strategy per job, as ``make`` makes it; they share what they learn and solve.

    A tick decides at least one, and begins none after ``within_s`` of the wall. Every second turn
    is for those that are near: whose slack may end within ``NEAR_ROUNDS`` of the time in which all
    have their turn. The other turns are for those that have lost a node since they were decided,
    and then, as among those that are near, for who has waited longest. Where slack ends within
    ``CRITICAL_TICKS``, the shield looks at what a job keeps, so that none is late for its turn.
    """

    def __init__(
        self,
        make: Callable[[], Strategy],
        within_s: float,
        stopwatch_s: Callable[[], float] = time.monotonic,
        kin: Paced | None = None,
    ) -> None:
        """It learns and solves together with its ``kin``, whose strategies are made alike."""
        self._make = make
        self._within_s = within_s
        self._stopwatch_s = stopwatch_s
        self._strategies: dict[str, Strategy] = {}
        self._last: dict[str, Decision] = {}
        self._had: dict[str, frozenset[str]] = {}
        self._turns: dict[str, int] = {}
        self._decided_at: dict[str, datetime] = {}
        self._due_s: dict[str, float] = {}
        self._round_s = math.inf
        self._turn = 0
        self._first = make()
        if kin is not None:
            learn_with(self._first, kin._first)
        self.lifetimes: Lifetimes | None = lifetimes_of(self._first)

    def decide(self, view: View) -> Desired:
        """One decision per job, in the order of the view.

        Asked again at the same instant, only jobs that cannot have what they chose decide anew.
        """
        self._forget({job_view.job.name for job_view in view.jobs})
        room = {offer.pool: offer.nodes_available for offer in view.offers}
        open_ = [jv for jv in view.jobs if not self._stands(jv, room, view.now)]
        began_s = self._stopwatch_s()
        decided: dict[str, Decision] = {}
        for job_view in self._ordered(view, open_):
            if decided and self._stopwatch_s() - began_s >= self._within_s:
                break
            decided[job_view.job.name] = self._decide(view, job_view)
        if decided:
            self._round_s = math.ceil(len(open_) / len(decided)) * view.tick_s
        self._reckon(view, (jv for jv in open_ if jv.job.name not in decided))
        return Desired(tuple(decided.get(jv.job.name) or self._kept(view, jv) for jv in view.jobs))

    def _stands(self, job_view: JobView, room: Mapping[Pool, int | None], now: datetime) -> bool:
        """Whether the job was decided at this instant, and each pool has what it lacks there."""
        name = job_view.job.name
        if self._decided_at.get(name) != now:
            return False
        there = Counter(node.pool for node in job_view.nodes)
        for target in self._last[name].targets:
            free, missing = room.get(target.pool, 0), target.nodes - there[target.pool]
            if missing > 0 and free is not None and free < missing:
                return False
        return True

    def _decide(self, view: View, job_view: JobView) -> Decision:
        name = job_view.job.name
        if name not in self._strategies:
            self._strategies[name] = self._make()
            learn_with(self._strategies[name], self._first)
        (decision,) = self._strategies[name].decide(replace(view, jobs=(job_view,))).decisions
        self._last[name], self._decided_at[name] = decision, view.now
        self._due_s[name] = _due_s(view, job_view, decision)
        self._had[name] = _node_ids(job_view)
        self._turn += 1
        self._turns[name] = self._turn
        return decision

    def _ordered(self, view: View, jobs: Sequence[JobView]) -> list[JobView]:
        """Those that are near and the others in turn, a near one first."""
        until_s = view.now.timestamp() + NEAR_ROUNDS * self._round_s
        near, far = list[JobView](), list[JobView]()
        for job_view in jobs:
            name = job_view.job.name
            self._turns.setdefault(name, self._turn)
            (near if self._due_s.get(name, -math.inf) < until_s else far).append(job_view)
        near.sort(key=self._haste)
        far.sort(key=self._claim)
        return [jv for jv in chain(*zip_longest(near, far)) if jv is not None]

    def _reckon(self, view: View, waiting: Iterable[JobView]) -> None:
        """The slack of jobs that are new, or have lost what nobody was to take away, and that must
        wait; of as many as there is time for."""
        began_s = self._stopwatch_s()
        for job_view in waiting:
            if self._stopwatch_s() - began_s >= self._within_s:
                return
            due_s = self._due_s.get(job_view.job.name)
            if due_s is None or (due_s == math.inf and self._has_lost(job_view)):
                self._due_s[job_view.job.name] = _first_due_s(view, job_view)

    def _haste(self, job_view: JobView) -> tuple[int, float, bool]:
        name, by_then_s = job_view.job.name, job_view.job.deadline_at.timestamp()
        return self._turns[name], self._due_s.get(name, by_then_s), not job_view.nodes

    def _claim(self, job_view: JobView) -> tuple[bool, int, bool]:
        turn = self._turns[job_view.job.name]
        return not self._has_lost(job_view), turn, not job_view.nodes

    def _has_lost(self, job_view: JobView) -> bool:
        """A node since it was decided."""
        return bool(self._had.get(job_view.job.name, frozenset()) - _node_ids(job_view))

    def _kept(self, view: View, job_view: JobView) -> Decision:
        name = job_view.job.name
        why = "keeps what it has until it is its turn"
        stands = self._last.get(name) or Decision(name, kept(job_view), why, PACE)
        critical_s = view.now.timestamp() + CRITICAL_TICKS * view.tick_s
        if self._due_s.get(name, math.inf) > critical_s or self._decided_at.get(name) == view.now:
            return stands
        held = held_safe(view, job_view, stands)
        if held.targets != stands.targets:
            self._last[name] = held
        return held

    def _forget(self, wanted: set[str]) -> None:
        for known in (
            self._strategies,
            self._last,
            self._had,
            self._turns,
            self._decided_at,
            self._due_s,
        ):
            for name in known.keys() - wanted:
                del known[name]


def _first_due_s(view: View, job_view: JobView) -> float:
    """Of a job that was not decided; where nothing can be reckoned, when the deadline is."""
    try:
        slack = slack_s(view, job_view)
    except Exception:  # noqa: BLE001 - what is wrong with it is told when it is decided
        slack = None
    return _end_s(view, job_view, slack)


def _due_s(view: View, job_view: JobView, decision: Decision) -> float:
    """POSIX time at which slack ends if nothing is done from now on; never for what nobody takes
    away."""
    interruptible = any(target.pool.capacity_type.interruptible for target in decision.targets)
    if is_running(job_view, decision.targets) and not interruptible:
        return math.inf
    return _end_s(view, job_view, decision.slack_s)


def _end_s(view: View, job_view: JobView, slack: float | None) -> float:
    if slack is None:
        return job_view.job.deadline_at.timestamp()
    return view.now.timestamp() + slack


def _node_ids(job_view: JobView) -> frozenset[str]:
    return frozenset(node.node_id for node in job_view.nodes)
