"""Engines over ports that a test made; product code assembles its own in the controller."""

from __future__ import annotations

from collections.abc import Iterable

from costopt.domain.job import Job
from costopt.domain.policy import Policy
from costopt.domain.ports import Strategy
from costopt.engine.cohort import JobTerms
from costopt.engine.engine import Engine
from costopt.engine.gate import Gate
from costopt.engine.settings import EngineSettings, World


def start_engine(
    jobs: Iterable[Job],
    policy: Policy,
    strategy: Strategy,
    world: World,
    settings: EngineSettings,
    gate: Gate | None = None,
) -> Engine:
    """An engine that controls ``jobs``, all under ``policy`` by ``strategy``."""
    engine = Engine(world, settings, gate)
    for job in jobs:
        engine.add(job, JobTerms(policy, strategy))
    return engine
