"""One strategy for all jobs of a tenant that follow the same policy.

What it learns of the market, and solves, it shares with those of other tenants for that policy.
"""

from __future__ import annotations

import hashlib
import time
from datetime import datetime
from pathlib import Path

from costopt.daemon.paced import Paced
from costopt.domain.policy import Policy
from costopt.domain.ports import Strategy
from costopt.domain.submission import Submission
from costopt.engine.cohort import Terms
from costopt.market.hazard import LearnedHazard
from costopt.session.learned import Learned
from costopt.strategies import build
from costopt.strategies.steady import Steady

FOLDER = "learned"
HAZARDS = "hazards.json"
JOINT = ("milp",)
"""Strategies that plan all jobs together and hold themselves to a time limit."""


class Strategies:
    """Keeps what was learned in files of ``folder``: one of hazards, one for each strategy."""

    def __init__(
        self, folder: Path, hazards: LearnedHazard, now: datetime, decide_s: float
    ) -> None:  # fmt: skip
        """``decide_s``: how long, by the wall, a tick may decide on jobs of one strategy."""
        self._folder = folder / FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        self._decide_s = decide_s
        self._kept_s: float | None = None
        self._terms: dict[tuple[str, str], Terms] = {}
        self._first: dict[str, Paced] = {}
        self._learned = [Learned(self._folder / HAZARDS, None, hazards)]
        self._learned[0].recall(now)

    def terms(self, policy: Policy, submission: Submission, now: datetime) -> Terms:
        """What a job with this policy follows. The limits bind no other tenant's jobs."""
        key = submission.tenant, submission.policy_document
        known = self._terms.get(key)
        if known is None:
            strategy = self._strategy(policy, submission.policy_document, now)
            known = self._terms[key] = Terms(policy, strategy)
        return Terms(known.policy, known.strategy, submission.priority)

    def _strategy(self, policy: Policy, document: str, now: datetime) -> Strategy:
        if policy.strategy.name in JOINT:
            return Steady(lambda: build(policy.strategy))
        first = self._first.get(document)
        paced = Paced(lambda: Steady(lambda: build(policy.strategy)), self._decide_s, kin=first)
        self._first.setdefault(document, paced)
        if first is None and paced.lifetimes is not None:
            name = hashlib.sha256(document.encode()).hexdigest()[:16]
            path = self._folder / f"{name}.json"
            learned = Learned(path, paced.lifetimes, LearnedHazard({}))
            learned.recall(now)
            self._learned.append(learned)
        return paced

    def keep(self, now: datetime, *, every_s: float = 0.0) -> tuple[str, ...]:
        """Write what was learned, unless that was done less than ``every_s`` of the wall ago.

        What went wrong, each told once for as long as it goes on.
        """
        if self._kept_s is not None and time.monotonic() - self._kept_s < every_s:
            return ()
        self._kept_s = time.monotonic()
        told = (learned.keep(now) for learned in self._learned)
        return tuple(problem for problem in told if problem is not None)
