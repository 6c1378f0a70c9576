"""Deadlines of jobs that cannot all be on safe capacity at once, because a quota is too small.

Each job alone could wait for spot until the last start that is in time. Where several wait so, the
quota has no room for all of these last starts. So their safe gangs are packed backwards in time,
the latest deadline first, each as late as the quotas allow: where a job has to end there before its
own deadline, that earlier end is the deadline that the shield and the strategy keep.

For gangs of one size and length that is exact: if any order keeps all deadlines, this one does
(Jackson, 1955, read backwards). Otherwise it is a heuristic. A job for which there is no room from
now on is due as if it started now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from costopt.domain.account import Quota
from costopt.domain.limits import ROUNDING, Resource
from costopt.domain.view import JobView, View
from costopt.strategies.gang_options import GangOption

COUNTED = (Resource.NODES, Resource.GPUS, Resource.VCPUS)
Load = Mapping[tuple[str, Resource], float]


@dataclass(frozen=True, slots=True)
class SafeRun:
    """A safe gang that does the rest of a job in ``needed_s``; ``until_s`` is when it must end."""

    job_view: JobView
    gang: GangOption
    needed_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class _Turn:
    begin_s: float
    end_s: float
    load: Load


def with_turns(view: View, runs: Iterable[SafeRun]) -> View:
    """Return the view with earlier deadlines for the jobs that must end earlier for the others.

    A tick passes until what one job leaves is launched for the next. It is the same view where no
    quota on nodes, GPUs or vCPUs is too small for these runs together.
    """
    limits = {
        (quota.name, resource): (quota, most)
        for quota in view.account.limits
        for resource, most in quota.limits()
        if resource in COUNTED
    }
    found = [(run, _load(view, run, (quota for quota, _ in limits.values()))) for run in runs]
    most = {limit: each for limit, (_, each) in limits.items()}
    if all(sum(load.get(limit, 0.0) for _, load in found) <= most[limit] for limit in most):
        return view
    turns: list[_Turn] = []
    earlier: dict[str, timedelta] = {}
    for run, load in sorted(found, key=lambda each: -each[0].until_s):
        end_s = _latest_end_s(run, load, turns, most)
        turns.append(_Turn(end_s - run.needed_s - view.tick_s, end_s, load))
        if end_s < run.until_s:
            earlier[run.job_view.job.name] = timedelta(seconds=run.until_s - end_s)
    return replace(view, jobs=tuple(_brought_forward(jv, earlier) for jv in view.jobs))


def _load(view: View, run: SafeRun, quotas: Iterable[Quota]) -> Load:
    """What the gang holds of each quota; a quota with several limits comes several times."""
    machine = view.machines[run.gang.pool]
    return {
        (quota.name, resource): run.gang.nodes * quota.node_load(resource, run.gang.pool, machine)
        for quota in quotas
        if quota.tenant in (None, run.job_view.job.tenant) and quota.matches(run.gang.pool, machine)
        for resource, _ in quota.limits()
        if resource in COUNTED
    }


def _latest_end_s(
    run: SafeRun, load: Load, turns: list[_Turn], most: Mapping[tuple[str, Resource], float]
) -> float:
    """The latest end, by its deadline or by the begin of another turn, with room from the begin on,
    or that of a start now where there is none."""
    ends = sorted({run.until_s, *(t.begin_s for t in turns if t.begin_s < run.until_s)})
    for end_s in reversed(ends):
        begin_s = end_s - run.needed_s
        if begin_s < 0:
            break
        beside = [t for t in turns if t.begin_s < end_s and t.end_s > begin_s]
        instants = [begin_s, *(t.begin_s for t in beside if t.begin_s > begin_s)]
        if all(_fits(load, [t for t in beside if t.begin_s <= at < t.end_s], most)
               for at in instants):  # fmt: skip
            return end_s
    return run.needed_s


def _fits(load: Load, beside: list[_Turn], most: Mapping[tuple[str, Resource], float]) -> bool:
    return all(
        amount + sum(turn.load.get(limit, 0.0) for turn in beside) <= most[limit] + ROUNDING
        for limit, amount in load.items()
    )


def _brought_forward(job_view: JobView, earlier: Mapping[str, timedelta]) -> JobView:
    by = earlier.get(job_view.job.name)
    if by is None:
        return job_view
    job = job_view.job
    return replace(job_view, job=replace(job, deadline_at=job.until_at - by))
