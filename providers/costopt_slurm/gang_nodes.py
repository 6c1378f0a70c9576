"""The nodes of a batch job: their state, and how and when they ended."""

from __future__ import annotations

from datetime import datetime, timedelta

from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.market import Interruption, Pool
from costopt_slurm.batch_script import REPEATED, WARNING_S
from costopt_slurm.gang_tags import GangTags, node_id
from costopt_slurm.records import RUNNING_STATES, STARTING_STATES, BatchJob

HARDWARE = frozenset({"NODE_FAIL", "BOOT_FAIL"})
TIME_OVER = frozenset({"TIMEOUT", "DEADLINE"})


def gang_nodes(job: BatchJob, tags: GangTags) -> tuple[Node, ...]:
    """Return the nodes of a job, ended ones too. The nodes of a gang cost until the job ends."""
    return tuple(_node(job, tags, number) for number in range(tags.nodes))


def _node(job: BatchJob, tags: GangTags, number: int) -> Node:
    state = _state(job, number in tags.released)
    began_at = job.started_at if job.has_run else None
    launched_at = began_at or job.submitted_at
    cause, message = None, job.reason if state is NodeState.WAITING else ""
    if state is NodeState.ENDED:
        cause, message = _end(job, number in tags.released)
    host = job.hosts[number] if number < len(job.hosts) else ""
    return Node(
        node_id=node_id(job.job_id, number),
        owner=tags.owner,
        job=tags.job,
        pool=Pool.parse(tags.pool),
        key=tags.key,
        state=state,
        launched_at=launched_at,
        usd_per_hour=tags.usd_per_hour,
        ended_at=max(launched_at, job.ends_at or launched_at) if cause is not None else None,
        end_cause=cause,
        message=message or host,
    )


def _state(job: BatchJob, is_released: bool) -> NodeState:
    if job.is_over:
        return NodeState.ENDED
    if job.is_waiting:
        return NodeState.WAITING
    if is_released:
        return NodeState.STOPPING
    if job.state in STARTING_STATES:
        return NodeState.PENDING
    return NodeState.RUNNING if job.state in RUNNING_STATES else NodeState.STOPPING


def _end(job: BatchJob, is_released: bool) -> tuple[EndCause, str]:
    """Return the cause and a message for users. The script ends as soon as its agents
    have saved on a notice: the job is then COMPLETED or FAILED although it was preempted."""
    said = f"Slurm job {job.job_id} is {job.state}"
    if is_released:
        return EndCause.RELEASED, said
    if not job.has_run:
        return EndCause.NO_CAPACITY, f"{said}; it never ran{job.reason and f': {job.reason}'}"
    if job.preempted_at is not None or job.state == "PREEMPTED":
        return EndCause.INTERRUPTED, f"{said}: preempted"
    if job.state in HARDWARE:
        return EndCause.INTERRUPTED, f"{said}: a node failed"
    if job.state in TIME_OVER or _reached_limit(job):
        return EndCause.INTERRUPTED, f"{said}: its time limit was reached"
    if job.exit_code == REPEATED:
        return EndCause.INTERRUPTED, f"{said}: Slurm had started it before and lost it"
    if job.state == "CANCELLED":
        return EndCause.FAILED, f"{said}: by its user or an administrator"
    return EndCause.FAILED, f"{said} with exit code {job.exit_code}: its agents ended"


def _reached_limit(job: BatchJob) -> bool:
    """Return whether agents left on the warning before the time limit."""
    if job.time_limit_s is None or job.started_at is None or job.ends_at is None:
        return False
    limit_at = job.started_at + timedelta(seconds=job.time_limit_s)
    return limit_at - job.ends_at <= timedelta(seconds=WARNING_S)


def announced_ends(
    job: BatchJob, tags: GangTags, grace_s: float, now: datetime
) -> tuple[Interruption, ...]:
    """Return the interruptions of a running job's nodes, by a preemption or its time limit."""
    if job.state not in RUNNING_STATES | STARTING_STATES:
        return ()
    if job.preempted_at is not None:
        noticed_at = job.preempted_at
        interrupts_at = noticed_at + timedelta(seconds=grace_s)
    elif job.ends_at is not None and job.ends_at - now <= timedelta(seconds=WARNING_S):
        interrupts_at = job.ends_at
        noticed_at = interrupts_at - timedelta(seconds=WARNING_S)
    else:
        return ()
    return tuple(
        Interruption(node.node_id, node.pool, noticed_at, interrupts_at)
        for node in gang_nodes(job, tags)
        if node.state in (NodeState.RUNNING, NodeState.PENDING)
    )
