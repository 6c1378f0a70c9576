"""When a command that keeps failing has failed for good: so many times at the same point.

A failure is at the same point unless the command got further than at any failure before, by what it
has saved or reports as done. A command that reports no progress is believed to have made some where
it ran for long. What is a day older than the newest failure does not count.
"""

from __future__ import annotations

from collections.abc import Sequence

from costopt.domain.job import Job
from costopt.protocol.messages import CommandFailure, Gang

LASTING_RUN_S = 600.0
"""Of the job's time, after a restore: a crash loop is faster."""
MAX_AGE_S = 86_400.0
"""Of the job's time."""


def final_failure(
    failures: Sequence[CommandFailure], job: Job, gang: Gang
) -> CommandFailure | None:
    """Return the newest failure if it is the last that the job allows at the same point."""
    if not failures or failures[-1].generation != gang.generation:
        return None
    last, count, furthest = failures[-1], 0, -1.0
    for failure in failures:
        if (last.at - failure.at) * gang.speed > MAX_AGE_S:
            continue
        units = max(failure.saved_units, failure.done_units or 0.0)
        count = 1 if units > furthest or _has_lasted(failure, job, gang) else count + 1
        furthest = max(furthest, units)
    return last if count >= job.max_failures else None


def failure_text(failure: CommandFailure) -> str:
    """Return how the command ended, where, and its last message."""
    words = failure.message or "it printed nothing"
    return f"the command exited with {failure.exit_code} on node {failure.node_id}: {words}"


def _has_lasted(failure: CommandFailure, job: Job, gang: Gang) -> bool:
    if failure.done_units is not None or failure.ran_s is None:
        return False
    return failure.ran_s * gang.speed >= job.checkpoint.restore_s + LASTING_RUN_S
