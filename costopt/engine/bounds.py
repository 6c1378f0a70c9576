"""Within what a job's launches stay at one tick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costopt.domain.market import Pool
from costopt.domain.policy import Limits


@dataclass(frozen=True, slots=True)
class LaunchLimits:
    """The limits that hold now, dollars per node-hour of the pools with room, and the jobs that
    the limits bind together."""

    limits: Limits
    prices: Mapping[Pool, float]
    jobs: frozenset[str]
