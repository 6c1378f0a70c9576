"""Jobs that follow one policy by one strategy: they are decided together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from costopt.domain.policy import Policy
from costopt.domain.ports import Strategy


@dataclass(frozen=True, slots=True)
class JobTerms:
    """What a job follows. Where there is not room for all, a higher ``priority`` goes first."""

    policy: Policy
    strategy: Strategy
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Cohort:
    """The jobs of one strategy; the limits of its policy bind them together."""

    policy: Policy
    strategy: Strategy
    jobs: tuple[str, ...]


def group_into_cohorts(terms: Iterable[tuple[str, JobTerms]]) -> tuple[Cohort, ...]:
    """Jobs with their terms, parted by strategy, in the order of the first job of each."""
    found: dict[int, tuple[JobTerms, list[str]]] = {}
    for job, followed in terms:
        found.setdefault(id(followed.strategy), (followed, []))[1].append(job)
    return tuple(
        Cohort(first.policy, first.strategy, tuple(names)) for first, names in found.values()
    )
