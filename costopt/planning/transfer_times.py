"""Questions about sizes that take far longer to move than a job file or its deadline allows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from costopt.domain.cached_data import GIGABITS_PER_GIB
from costopt.domain.job import Job
from costopt.domain.storage import STORE_GBPS
from costopt.formatting import number_text, percent_text, seconds_text

CHECKPOINT_TOLERANCE, WINDOW_SHARE = 1.5, 0.1
"""How often longer than its restore a checkpoint may take to move, and which share of the time to
the deadline the data may take, before it is questioned."""


def size_questions(job: Job, now: datetime) -> Iterator[str]:
    """Yield a sentence for each size that the fastest network allowed moves implausibly slowly."""
    gbps = _fastest_gbps(job)
    if gbps is None:
        return
    speed = f"at {number_text(gbps)} Gbit/s, the most that a gang of its machines reaches"
    checkpoint = job.checkpoint
    moved_s = checkpoint.size_gib * GIGABITS_PER_GIB / gbps
    if moved_s > CHECKPOINT_TOLERANCE * max(checkpoint.restore_s, 1.0):
        yield (
            f"is checkpoint.size_gib of {job.name} right? {number_text(checkpoint.size_gib)} GiB "
            f"take {seconds_text(moved_s)} {speed}, but checkpoint.restore is "
            f"{seconds_text(checkpoint.restore_s)}"
        )
    window_s = max((job.until_at - max(now, job.start_at)).total_seconds(), 1.0)
    if job.data is not None:
        fetched_s = job.data.size_gib * GIGABITS_PER_GIB / gbps
        if fetched_s > WINDOW_SHARE * window_s:
            yield (
                f"is data.size_gib of {job.name} right? {number_text(job.data.size_gib)} GiB take "
                f"{seconds_text(fetched_s)} {speed}: {percent_text(fetched_s / window_s)} of the "
                "time to its deadline, at each start"
            )
    if job.cache_s() > WINDOW_SHARE * window_s:
        share = percent_text(job.cache_s() / window_s)
        yield (
            f"is cache.size_gib of {job.name} right? A node takes {seconds_text(job.cache_s())} "
            f"to fetch it: {share} of the time to its deadline, at each start"
        )


def _fastest_gbps(job: Job) -> float | None:
    """Return the most that a gang of one instance type exchanges with a store, None if unknown."""
    from costopt.catalog import load_catalog

    return max(
        (
            min(machine.network_gbps, STORE_GBPS) * max(job.resources.node_counts(machine))
            for machine in load_catalog().instance_types()
            if machine.network_gbps and job.resources.rejection_reason(machine) is None
        ),
        default=None,
    )
