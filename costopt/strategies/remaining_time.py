"""The remaining time of a job: seconds to finish, to the deadline and of start-up.

``keep_current`` returns the job's present gang as targets: the decision where nothing better is
known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from costopt.domain.checkpoint_interval import LOSS_BUDGET_S
from costopt.domain.job import Job
from costopt.domain.view import JobView, Target, View
from costopt.strategies.gang_options import GangOption


def seconds_to_finish(
    option: GangOption, job: Job, units: float, start_s: float | None = None
) -> float:
    """Return the seconds from now until ``units`` are done and saved on this gang.

    They are the ``start_s`` seconds until it does new work (None: it must still be launched, so a
    whole start), plus units / speed, stretched by the periodic saves, plus the final save. Where a
    phase takes more nodes or fewer than the one before, the gang saves and starts once more in
    between. Without work left the command has still to end: at once on a gang that runs, else after
    a start.
    """
    if units <= 0:
        return option.start_s if start_s is None else 0.0
    units = option.units_to_last(units)
    saves = option.checkpoint or job.checkpoint
    interval_s = saves.interval_s or LOSS_BUDGET_S
    stretch = 1.0 + saves.save_s / interval_s
    starts_s = option.start_s if start_s is None else start_s
    work = tuple(option.work_left(job.work.amount - units))
    resizes = sum(1 for (before, _), (after, _) in pairwise(work) if before != after)
    return (
        starts_s
        + sum(seconds for _, seconds in work) * stretch
        + resizes * (saves.durable_s + option.start_s)
        + saves.durable_s
    )


def seconds_left(view: View, job_view: JobView) -> float:
    """Return the seconds to the deadline, less the reserve that the policy holds back."""
    left = (job_view.job.until_at - view.now).total_seconds()
    return left - view.policy.risk.reserve_s


def is_running(job_view: JobView, targets: Iterable[Target]) -> bool:
    """Return whether exactly these targets are what the job's gang runs on now."""
    have: dict[object, int] = {}
    for node in job_view.nodes:
        have[node.pool] = have.get(node.pool, 0) + 1
    return bool(have) and have == {t.pool: t.nodes for t in targets}


def remaining_startup_s(view: View, job_view: JobView) -> float:
    """Return the seconds until the gang that runs now does new work."""
    until = job_view.progress.starting_until
    return 0.0 if until is None else max(0.0, (until - view.now).total_seconds())


def keep_current(job_view: JobView) -> tuple[Target, ...]:
    """Return a target for each pool in which the job has nodes."""
    there = Counter(node.pool for node in job_view.nodes)
    return tuple(Target(pool, nodes) for pool, nodes in there.items())
