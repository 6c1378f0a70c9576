"""How long a job without a deadline waits: until waiting has cost what safe capacity would.

When cheaper capacity comes is unknown. To wait until the hours waited are worth as much as the
job costs on the safest gang, and to take that one then, never costs more than twice the best choice
in hindsight (ski rental; Karlin, Manasse, Rudolph and Sleator, 1988). So for all that plans by
deadlines, the job has one: the last start on safe capacity that this rule allows.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from costopt.domain.view import JobView, View
from costopt.strategies.gang_options import GangOption, gang_options
from costopt.strategies.remaining_time import seconds_to_finish


def with_deadlines(view: View) -> View:
    """Return the view in which every job has a deadline; the same where all have one."""
    if all(job_view.job.deadline_at is not None for job_view in view.jobs):
        return view
    return replace(view, jobs=tuple(_with_deadline(view, each) for each in view.jobs))


def _with_deadline(view: View, job_view: JobView) -> JobView:
    job = job_view.job
    if job.deadline_at is not None:
        return job_view
    whole = replace(job, deadline_at=job.until_at)
    seen = replace(job_view, job=whole)
    firm = [each for each in gang_options(view, seen) if each.is_uninterruptible]
    if not firm:
        return seen

    def usd(option: GangOption) -> float:
        hours = seconds_to_finish(option, whole, whole.work.amount) / 3600
        return (option.score_usd_per_hour + job.usd_per_hour_waited) * hours

    safest = min(firm, key=lambda each: (usd(each), str(each.pool), each.nodes))
    needed_s = seconds_to_finish(safest, whole, whole.work.amount)
    patience_s = needed_s * safest.score_usd_per_hour / job.usd_per_hour_waited
    in_all_s = needed_s + patience_s + view.policy.risk.reserve_s
    limit_s = (job.until_at - job.start_at).total_seconds()
    due_at = job.start_at + timedelta(seconds=min(in_all_s, max(limit_s, needed_s)))
    return replace(job_view, job=replace(job, deadline_at=due_at))
