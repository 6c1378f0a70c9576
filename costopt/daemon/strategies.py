"""One strategy for all jobs that follow the same policy, with what it has learned."""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path

from costopt.domain.policy import Policy
from costopt.engine.cohort import Terms
from costopt.market.hazard import LearnedHazard
from costopt.session.learned import Learned
from costopt.strategies import build
from costopt.strategies.learner import lifetimes_of

FOLDER = "learned"
HAZARDS = "hazards.json"


class Strategies:
    """Keeps what was learned in files of ``folder``, one of hazards and one for each policy."""

    def __init__(self, folder: Path, hazards: LearnedHazard, now: datetime) -> None:
        self._folder = folder / FOLDER
        self._folder.mkdir(parents=True, exist_ok=True)
        self._by_text: dict[str, Terms] = {}
        self._learned = [Learned(self._folder / HAZARDS, None, hazards)]
        self._learned[0].recall(now)

    def terms(self, policy: Policy, document: str, priority: int, now: datetime) -> Terms:
        """What a job with this policy, whose text is ``document``, follows."""
        known = self._by_text.get(document)
        if known is None:
            known = Terms(policy, build(policy.strategy))
            self._by_text[document] = known
            lifetimes = lifetimes_of(known.strategy)
            if lifetimes is not None:
                name = hashlib.sha256(document.encode()).hexdigest()[:16]
                path = self._folder / f"{name}.json"
                learned = Learned(path, lifetimes, LearnedHazard({}))
                learned.recall(now)
                self._learned.append(learned)
        return Terms(known.policy, known.strategy, priority)

    def keep(self, now: datetime) -> tuple[str, ...]:
        """Write what was learned. What went wrong, each told once for as long as it goes on."""
        told = (learned.keep(now) for learned in self._learned)
        return tuple(problem for problem in told if problem is not None)
