"""What the engine controls in place of a job that cannot be built: it saves and releases its nodes.

A version of costopt may refuse what an older one accepted, and a strategy's package may be gone.
"""

from __future__ import annotations

from costopt.controller.controller import build_strategy
from costopt.domain.control import Submission
from costopt.domain.events import JobSubmitted
from costopt.domain.job import CheckpointSpec, Job, Phase, Resources, WorkAmount, WorkUnit
from costopt.domain.policy import Policy, StrategySpec
from costopt.domain.throughput import Throughput
from costopt.engine.cohort import JobTerms

HELD_POLICY = Policy("held", strategy=StrategySpec("on_demand"))
MAX_NODES = 1000
"""More members than a gang has that the runtime should believe in."""


def held_job(submission: Submission, begun: JobSubmitted) -> Job:
    """Return a job with the name, the work and the times that the ledger holds."""
    return Job(
        name=submission.name,
        work=WorkAmount(begun.work_units, WorkUnit(begun.unit)),
        start_at=begun.start_at,
        deadline_at=begun.deadline_at,
        resources=Resources(max_nodes=MAX_NODES),
        throughput=Throughput(),
        # Where the trainers save is in the message that formed their gang.
        checkpoint=CheckpointSpec(uri="", interval_s=0.0),
        phases=(Phase("held", 1.0, 1, MAX_NODES),),
        workdir=submission.workdir,
        tenant=submission.tenant,
    )


def held_terms(submission: Submission) -> JobTerms:
    """Return terms under which nothing is launched once the job is stopped."""
    return JobTerms(HELD_POLICY, build_strategy(HELD_POLICY), submission.priority)
