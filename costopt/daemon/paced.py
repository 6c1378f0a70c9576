"""Decides for as many jobs as a tick has time for; the others keep what they have until their turn.

A first decision may take seconds, as it looks over the whole time to a far deadline, and a daemon
that takes over hundreds of jobs must see to their nodes meanwhile.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from costopt.domain.market import Pool
from costopt.domain.ports import Strategy
from costopt.domain.view import Decision, Desired, JobView, View
from costopt.market.lifetime import Lifetimes
from costopt.strategies.kept import kept
from costopt.strategies.learner import learn_with, lifetimes_of

PACE = "pace"


class Paced:
    """One strategy per job, as ``make`` makes it; they share what they learn and solve.

    Those that have lost a node since they were decided go first, then those that have waited
    longest; a tick decides at least one, and begins none after ``within_s`` of the wall.
    """

    def __init__(
        self,
        make: Callable[[], Strategy],
        within_s: float,
        stopwatch_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._within_s = within_s
        self._stopwatch_s = stopwatch_s
        self._strategies: dict[str, Strategy] = {}
        self._last: dict[str, Decision] = {}
        self._had: dict[str, frozenset[str]] = {}
        self._turns: dict[str, int] = {}
        self._decided_at: dict[str, datetime] = {}
        self._turn = 0
        self._first = make()
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
        for job_view in sorted(open_, key=self._urgency):
            if decided and self._stopwatch_s() - began_s >= self._within_s:
                break
            decided[job_view.job.name] = self._decide(view, job_view)
        return Desired(tuple(decided.get(jv.job.name) or self._kept(jv) for jv in view.jobs))

    def _stands(
        self, job_view: JobView, room: Mapping[Pool, int | None], now: datetime
    ) -> bool:  # fmt: skip
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
        self._had[name] = _node_ids(job_view)
        self._turn += 1
        self._turns[name] = self._turn
        return decision

    def _urgency(self, job_view: JobView) -> tuple[bool, int, bool]:
        name = job_view.job.name
        lost = self._had.get(name, frozenset()) - _node_ids(job_view)
        return not lost, self._turns.setdefault(name, self._turn), not job_view.nodes

    def _kept(self, job_view: JobView) -> Decision:
        last = self._last.get(job_view.job.name)
        if last is not None:
            return last
        why = "keeps what it has until it is its turn"
        return Decision(job_view.job.name, kept(job_view), why, PACE)

    def _forget(self, wanted: set[str]) -> None:
        for known in (self._strategies, self._last, self._had, self._turns, self._decided_at):
            for name in known.keys() - wanted:
                del known[name]


def _node_ids(job_view: JobView) -> frozenset[str]:
    return frozenset(node.node_id for node in job_view.nodes)
