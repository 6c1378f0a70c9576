"""How long a gang may take without a sign of progress, by what is known of its job. Pure."""

from __future__ import annotations

from costopt.domain.cached_data import GIGABITS_PER_GIB
from costopt.domain.job import Job
from costopt.domain.market import InstanceType
from costopt.ledger.job_record import JobRecord

START_FACTOR = 2.0
"""Times what a start is expected to take. Declared figures are estimates, and the first step may
compile."""
START_FLOOR = 2.0
"""Times the policy's ``idle_after``, also where a start is declared to be quick."""
PAUSE_FACTOR = 3.0
"""Times the declared pauses between two steps."""


def start_limit_s(
    job: Job,
    record: JobRecord,
    machine: InstanceType | None,
    idle_after_s: float,
    planned_units_per_s: float | None,
) -> float:
    """Return for how long a gang that has yet to make its first step may report nothing new.

    A start is expected to take what the job declares, with the cache at the speed of the
    ``machine``'s network, but at least as long as nodes of the gang's pool took, and as the newest
    checkpoint takes at the speed of its save; and the time of a unit of work.
    """
    started_s = 0.0 if record.gang_pool is None else record.longest_start_s.get(record.gang_pool, 0)
    restore_s = job.checkpoint.restore_s
    if record.save_gbps and record.members:
        gigabits = job.checkpoint.size_gib * GIGABITS_PER_GIB
        restore_s = max(restore_s, gigabits / record.save_gbps / len(record.members))
    expected_s = max(started_s, job.startup_s + job.cache_s(machine) + restore_s)
    return max(
        START_FLOOR * idle_after_s, START_FACTOR * (expected_s + _unit_s(planned_units_per_s))
    )


def pause_limit_s(
    job: Job, record: JobRecord, idle_after_s: float, planned_units_per_s: float | None
) -> float:
    """Return for how long a gang that trains may make no progress: no less than the policy says,
    and than the evaluations, saves and steps that the job declares take."""
    checkpoint = job.checkpoint
    declared_s = (
        job.phase_at(record.done_units).evaluation_s
        + max(checkpoint.save_s, checkpoint.durable_s)
        + _unit_s(planned_units_per_s)
    )
    return max(idle_after_s, PAUSE_FACTOR * declared_s)


def _unit_s(units_per_s: float | None) -> float:
    return 1.0 / units_per_s if units_per_s else 0.0
