"""Divides a tick's time between tenants and jobs; jobs without a turn keep their nodes until the
next.

A first decision may take seconds, as it plans the whole time to a far deadline, and a daemon that
takes over hundreds of jobs must look after their nodes meanwhile.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, zip_longest

from costopt.daemon.loop.strategy_pool import StrategyGroup
from costopt.domain.market import Pool
from costopt.domain.view import Decision, JobView, View
from costopt.engine.cohort import StrategyRequest
from costopt.strategies.fault_isolation import shield_or_keep
from costopt.strategies.remaining_time import is_running, keep_current
from costopt.strategies.shield import slack_s

PACE = "pace"
URGENT_ROUNDS = 3.0
"""Every second decision is for an urgent job, so each of those is decided within two rounds."""
CRITICAL_TICKS = 3.0
DECISION_TIME_SHARE = 0.8
"""Share of a tick's time that is for decisions. In the rest, the slack of new jobs that must wait
is computed."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A job to be decided, with the group that decides it."""

    family: StrategyGroup
    view: View
    job_view: JobView

    @property
    def name(self) -> str:
        return self.job_view.job.name

    @property
    def tenant(self) -> str:
        return self.job_view.job.tenant


class TickScheduler:
    """Lets the groups of all tenants decide, within ``within_s`` seconds of the wall clock
    together.

    A tick decides for at least one job. Of the tenants whose jobs wait, the one that was charged
    the least time goes first. Every second turn of a tenant is for its urgent jobs: those whose
    slack may end within ``URGENT_ROUNDS`` of the time in which all of its jobs have their turn. The
    other turns are for those that have lost a node since they were decided, and then, as among the
    urgent ones, for the longest waiting. Where slack ends within ``CRITICAL_TICKS``, the shield
    checks what a job keeps, so that none is late for its turn. A strategy without a group is not
    limited.
    """

    def __init__(self, within_s: float, stopwatch_s: Callable[[], float] = time.monotonic) -> None:
        self._within_s = within_s
        self._stopwatch_s = stopwatch_s
        self._now: datetime | None = None
        self._spent_s = 0.0
        self._fair = FairScheduler()
        self._round_s: dict[str, float] = {}
        self._last: dict[str, Decision] = {}
        self._had: dict[str, frozenset[str]] = {}
        self._turns: dict[str, int] = {}
        self._decided_at: dict[str, datetime] = {}
        self._due_s: dict[str, float] = {}
        self._turn = 0

    def decide(self, asked: Sequence[StrategyRequest]) -> list[Decision]:
        """Return one decision per job, in the order of the views.

        Called again at the same instant, it lets only jobs that cannot have what they chose decide
        again, in the remaining time.
        """
        families = [(each, view) for each, view in asked if isinstance(each, StrategyGroup)]
        self._forget(families)
        open_ = [job for family, view in families for job in self._open(family, view)]
        decided = self._in_turn(open_)
        self._compute_slack(job for job in open_ if job.name not in decided)
        decisions: list[Decision] = []
        for strategy, view in asked:
            if isinstance(strategy, StrategyGroup):
                decisions += [decided.get(j.job.name) or self._kept(view, j) for j in view.jobs]
            else:
                decisions += strategy.decide(view).decisions
        return decisions

    def _open(self, family: StrategyGroup, view: View) -> list[_Open]:
        room = {offer.pool: offer.nodes_available for offer in view.offers}
        jobs = (jv for jv in view.jobs if not self._stands(jv, room, view.now))
        return [_Open(family, view, job_view) for job_view in jobs]

    def _stands(self, job_view: JobView, room: Mapping[Pool, int | None], now: datetime) -> bool:
        """Return whether the job was decided at this instant, and each pool has the nodes that it
        lacks."""
        name = job_view.job.name
        if self._decided_at.get(name) != now:
            return False
        there = Counter(node.pool for node in job_view.nodes)
        for target in self._last[name].targets:
            free, missing = room.get(target.pool, 0), target.nodes - there[target.pool]
            if missing > 0 and free is not None and free < missing:
                return False
        return True

    def _in_turn(self, open_: Sequence[_Open]) -> dict[str, Decision]:
        """Return the decisions for which there is time, by job."""
        if open_ and open_[0].view.now != self._now:
            self._now, self._spent_s = open_[0].view.now, 0.0
        queues = {t: deque(self._ordered(jobs)) for t, jobs in _by_tenant(open_).items()}
        decided: dict[str, Decision] = {}
        while queues and self._spent_s < DECISION_TIME_SHARE * self._within_s:
            tenant = self._fair.next(queues)
            job = queues[tenant].popleft()
            began_s = self._stopwatch_s()
            decided[job.name] = self._decide(job)
            took_s = self._stopwatch_s() - began_s
            self._spent_s += took_s
            self._fair.charge(tenant, took_s)
            if not queues[tenant]:
                del queues[tenant]
        self._fair.close(queues)
        self._note_rounds(open_, decided)
        return decided

    def _decide(self, job: _Open) -> Decision:
        name, decision = job.name, job.family.decide_one(job.view, job.job_view)
        self._last[name], self._decided_at[name] = decision, job.view.now
        self._due_s[name] = _due_s(job.view, job.job_view, decision)
        self._had[name] = _node_ids(job.job_view)
        self._turn += 1
        self._turns[name] = self._turn
        return decision

    def _note_rounds(self, open_: Sequence[_Open], decided: Mapping[str, Decision]) -> None:
        """Record in what time all jobs of each tenant have their turn."""
        done = Counter(job.tenant for job in open_ if job.name in decided)
        wanted = Counter(job.tenant for job in open_)
        for tenant, count in done.items():
            ticks = max(wanted[tenant] / count, len(open_) / len(decided))
            self._round_s[tenant] = math.ceil(ticks) * open_[0].view.tick_s

    def _ordered(self, jobs: Sequence[_Open]) -> list[_Open]:
        """Return a tenant's urgent jobs and its others alternately, an urgent one first."""
        first = jobs[0]
        rounds_s = URGENT_ROUNDS * self._round_s.get(first.tenant, math.inf)
        until_s = first.view.now.timestamp() + rounds_s
        near, far = list[_Open](), list[_Open]()
        for job in jobs:
            self._turns.setdefault(job.name, self._turn)
            (near if self._due_s.get(job.name, -math.inf) < until_s else far).append(job)
        near.sort(key=self._urgency)
        far.sort(key=self._share_used)
        return [job for job in chain(*zip_longest(near, far)) if job is not None]

    def _compute_slack(self, waiting: Iterable[_Open]) -> None:
        """Compute, as far as there is time, the slack of waiting jobs that are new, or that have
        lost uninterruptible nodes."""
        began_s = self._stopwatch_s()
        for job in waiting:
            if self._stopwatch_s() - began_s >= (1.0 - DECISION_TIME_SHARE) * self._within_s:
                return
            due_s = self._due_s.get(job.name)
            if due_s is None or (due_s == math.inf and self._has_lost(job.job_view)):
                self._due_s[job.name] = _first_due_s(job.view, job.job_view)

    def _urgency(self, job: _Open) -> tuple[int, float, bool]:
        by_then_s = job.job_view.job.until_at.timestamp()
        return self._turns[job.name], self._due_s.get(job.name, by_then_s), not job.job_view.nodes

    def _share_used(self, job: _Open) -> tuple[bool, int, bool]:
        lost = self._has_lost(job.job_view)
        return not lost, self._turns[job.name], not job.job_view.nodes

    def _has_lost(self, job_view: JobView) -> bool:
        """Return whether the job has lost a node since it was decided."""
        return bool(self._had.get(job_view.job.name, frozenset()) - _node_ids(job_view))

    def _kept(self, view: View, job_view: JobView) -> Decision:
        name = job_view.job.name
        why = "keeps what it has until it is its turn"
        stands = last = self._last.get(name) or Decision(name, keep_current(job_view), why, PACE)
        if last.slack_s is not None:  # at least: what was trained since is not counted
            elapsed_s = (view.now - self._decided_at[name]).total_seconds()
            stands = replace(last, slack_s=last.slack_s - elapsed_s)
        critical_s = view.now.timestamp() + CRITICAL_TICKS * view.tick_s
        if self._due_s.get(name, math.inf) > critical_s or self._decided_at.get(name) == view.now:
            return stands
        held = shield_or_keep(view, job_view, stands)
        if held.targets != stands.targets:
            self._last[name] = replace(held, slack_s=last.slack_s)
        return held

    def _forget(self, families: Sequence[tuple[StrategyGroup, View]]) -> None:
        """Forget jobs and tenants that are not in these views."""
        jobs, tenants = set[str](), set[str]()
        for family, view in families:
            names = {job_view.job.name for job_view in view.jobs}
            family.forget(names)
            jobs |= names
            tenants |= {job_view.job.tenant for job_view in view.jobs}
        for known in (self._last, self._had, self._turns, self._decided_at, self._due_s):
            for name in known.keys() - jobs:
                del known[name]
        for tenant in self._round_s.keys() - tenants:
            del self._round_s[tenant]


def _by_tenant(open_: Iterable[_Open]) -> dict[str, list[_Open]]:
    theirs: dict[str, list[_Open]] = {}
    for job in open_:
        theirs.setdefault(job.tenant, []).append(job)
    return theirs


def _first_due_s(view: View, job_view: JobView) -> float:
    """Return when an undecided job is due, POSIX time: its deadline if its slack cannot be
    computed."""
    try:
        slack = slack_s(view, job_view)
    except Exception:  # noqa: BLE001 - reported when the job is decided
        slack = None
    return _end_s(view, job_view, slack)


def _due_s(view: View, job_view: JobView, decision: Decision) -> float:
    """Return the POSIX time at which slack ends without further action; infinite if the job runs on
    uninterruptible capacity."""
    interruptible = any(target.pool.capacity_type.is_interruptible for target in decision.targets)
    if is_running(job_view, decision.targets) and not interruptible:
        return math.inf
    return _end_s(view, job_view, decision.slack_s)


def _end_s(view: View, job_view: JobView, slack: float | None) -> float:
    if slack is None:
        return job_view.job.until_at.timestamp()
    return view.now.timestamp() + slack


def _node_ids(job_view: JobView) -> frozenset[str]:
    return frozenset(node.node_id for node in job_view.nodes)


class FairScheduler:
    """Of the waiting, the one that was charged the least time goes first.

    Charges count from the least served of those that were still waiting at the last close, so that
    none has a claim from a time in which it requested nothing. Among equals, the longest waiting
    goes first.
    """

    def __init__(self) -> None:
        self._taken_s: dict[str, float] = {}
        self._since: dict[str, int] = {}
        self._count = 0

    def next(self, waiting: Collection[str]) -> str:
        """Return the name whose turn it is."""

        def order(name: str) -> tuple[float, int, str]:
            return self._taken_s.get(name, 0.0), self._since.get(name, self._count), name

        return min(waiting, key=order)

    def charge(self, name: str, seconds: float) -> None:
        """Charge so much time to one."""
        self._taken_s[name] = self._taken_s.get(name, 0.0) + seconds

    def close(self, waiting: Collection[str]) -> None:
        """Record which are still waiting when the time is over."""
        min_s = min((self._taken_s.get(name, 0.0) for name in waiting), default=math.inf)
        self._taken_s = {n: s - min_s for n, s in self._taken_s.items() if s > min_s}
        self._since = {name: self._since.get(name, self._count) for name in waiting}
        self._count += 1
