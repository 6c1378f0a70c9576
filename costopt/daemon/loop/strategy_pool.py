"""The strategies of all tenants and policies.

The jobs of a tenant that follow one policy share a strategy group. A group shares what it learns of
the market with other tenants' groups for that policy, and what it solves with all groups.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from weakref import WeakValueDictionary

from costopt.controller.controller import build_strategy
from costopt.controller.learned_state import LearnedState
from costopt.domain.control import Submission
from costopt.domain.policy import Policy
from costopt.domain.ports import Strategy
from costopt.domain.view import Decision, Desired, JobView, View
from costopt.engine.cohort import JobTerms
from costopt.market.hazard import LearnedHazard
from costopt.market.lifetime import LifetimeModel
from costopt.strategies import is_joint, joins_tenants
from costopt.strategies.adaptive.program import ProgramCache
from costopt.strategies.fault_isolation import (
    lifetime_model,
    share_lifetimes,
    share_programs,
    shared_limits,
)

FOLDER = "learned"
HAZARDS = "hazards.json"
ALL_TENANTS = ""


class StrategyPool:
    """Stores what was learned in files of ``folder``: one for hazards, and one for each strategy.

    A strategy that no job follows is dropped from memory; its file stays.
    """

    def __init__(self, folder: Path, hazards: LearnedHazard, now: datetime) -> None:
        self._folder = folder / FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        self._kept_s: float | None = None
        self._followed: WeakValueDictionary[tuple[str, str], Strategy] = WeakValueDictionary()
        self._programs = ProgramCache()
        self._learned: dict[str, LearnedState] = {}
        self._hazards = LearnedState(self._folder / HAZARDS, None, hazards)
        self._hazards.load(now)

    def terms(self, policy: Policy, submission: Submission, now: datetime) -> JobTerms:
        """Return the terms of a job with this policy. Its limits do not apply to other tenants'
        jobs, unless one strategy decides for all tenants."""
        tenant = ALL_TENANTS if joins_tenants(policy.strategy.name) else submission.tenant
        key = tenant, submission.policy_document
        strategy = self._followed.get(key)
        if strategy is None:
            strategy = self._followed[key] = self._strategy(policy, key[1], now)
        return JobTerms(policy, strategy, submission.priority)

    def lifetimes(self) -> tuple[LifetimeModel, ...]:
        """Return what was learned of how long capacity lasts, once for each policy."""
        groups = [each for each in self._followed.values() if isinstance(each, StrategyGroup)]
        models = {id(each.lifetimes): each.lifetimes for each in groups if each.lifetimes}
        return tuple(models.values())

    def save(self, now: datetime, *, every_s: float = 0.0) -> tuple[str, ...]:
        """Write what was learned, unless that was done less than ``every_s`` seconds of the wall
        clock ago.

        Return what went wrong, each failure once while it lasts.
        """
        if self._kept_s is not None and time.monotonic() - self._kept_s < every_s:
            return ()
        self._kept_s = time.monotonic()
        problems = [learned.save(now) for learned in (self._hazards, *self._learned.values())]
        followed = {document for _, document in self._followed}
        self._learned = {d: learned for d, learned in self._learned.items() if d in followed}
        return tuple(problem for problem in problems if problem is not None)

    def _strategy(self, policy: Policy, document: str, now: datetime) -> Strategy:
        if is_joint(policy.strategy.name):
            return build_strategy(policy)
        kin = self._kin(document)
        family = StrategyGroup(lambda: build_strategy(policy), kin, self._programs)
        if kin is None and family.lifetimes is not None:
            self._recall(document, family.lifetimes, now)
        return family

    def _kin(self, document: str) -> StrategyGroup | None:
        """Return another tenant's strategies for the policy, or None."""
        for (_, followed), strategy in self._followed.items():
            if followed == document and isinstance(strategy, StrategyGroup):
                return strategy
        return None

    def _recall(self, document: str, lifetimes: LifetimeModel, now: datetime) -> None:
        if (before := self._learned.get(document)) is not None:
            before.save(now)
        name = hashlib.sha256(document.encode()).hexdigest()[:16]
        learned = LearnedState(self._folder / f"{name}.json", lifetimes, LearnedHazard({}))
        learned.load(now)
        self._learned[document] = learned


class StrategyGroup:
    """One strategy for each job, constructed by ``make``; they share what they learn and solve."""

    def __init__(
        self,
        make: Callable[[], Strategy],
        peer: StrategyGroup | None = None,
        programs: ProgramCache | None = None,
    ) -> None:
        """The group learns together with its ``kin``, whose strategies are constructed alike, and
        shares solutions with all groups that have the same ``programs``."""
        self._make = make
        self._of_job: dict[str, Strategy] = {}
        self._first = make()
        if programs is not None:
            share_programs(self._first, programs)
        if peer is not None:
            share_lifetimes(self._first, peer._first)
        self.lifetimes: LifetimeModel | None = lifetime_model(self._first)
        self._limits = shared_limits(self._first)

    def decide(self, view: View) -> Desired:
        """Return one decision per job, in the order of the view."""
        return Desired(tuple(self.decide_one(view, job_view) for job_view in view.jobs))

    def decide_one(self, view: View, job_view: JobView) -> Decision:
        """Return the decision of the job's own strategy; the view is of all its jobs."""
        if self._limits is not None:
            self._limits.observe(view)
        name = job_view.job.name
        if name not in self._of_job:
            self._of_job[name] = self._make()
            share_lifetimes(self._of_job[name], self._first)
        (decision,) = self._of_job[name].decide(replace(view, jobs=(job_view,))).decisions
        return decision

    def forget(self, wanted: Collection[str]) -> None:
        """Forget the strategies of all jobs but these."""
        for name in self._of_job.keys() - set(wanted):
            del self._of_job[name]
