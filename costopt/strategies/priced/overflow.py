"""What the rest of a cluster's job costs on spot, and whether a job that is there comes back.

On the cluster an hour of g GPUs is worth (w + λ g), w being what an hour of the job is worth and λ
the price of a GPU-hour. On spot it costs (w + u); besides there is a start, and what interruptions
are expected to take: for each a start, and half of the time between two saves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from costopt.domain.market import Offer, Pool
from costopt.domain.view import JobView, View
from costopt.strategies.gang_options import (
    EXPECTED_HAZARD_PER_HOUR,
    GangOption,
    gang_options,
    save_interval_s,
    spot_options,
)
from costopt.strategies.priced.cluster_job import ClusterJob
from costopt.strategies.remaining_time import is_running

MAX_OPTIONS = 5_000
"""Pools that are weighed in a round, over all jobs whose turn it is: each takes some 70 µs."""
KEPT_POOLS = 4


@dataclass(frozen=True, slots=True)
class SpotRest:
    """The rest of a job on a gang of spot, which takes ``slowdown`` × the time that the GPUs it
    asked for take on the cluster, interruptions counted."""

    job: ClusterJob
    option: GangOption
    slowdown: float

    @property
    def usd_per_gpu_hour(self) -> float:
        """Return what it pays for what a GPU does in an hour of the gang it asked for."""
        return self.option.score_usd_per_hour * self.slowdown / self.job.gangs.asked

    def usd(self, start_s: float) -> float:
        """Return its dollars and what its time is worth."""
        hours = (start_s + self.job.remaining_s * self.slowdown) / 3600
        return (self.job.weight + self.option.score_usd_per_hour) * hours

    @property
    def extra_usd(self) -> float:
        """Return the dollars of going there, and what it is worth that it ends later than here."""
        return self.usd(self.option.start_s) - self.job.weight * self.job.remaining_s / 3600


class SpotSearch:
    """The best spot of each job: in turn among all pools, as many jobs a round as there is time
    for, and the others among the pools that were best when it was their turn."""

    def __init__(self) -> None:
        self._best: dict[str, tuple[Pool, ...]] = {}

    def rests(self, view: View, jobs: Sequence[tuple[JobView, ClusterJob]]) -> dict[str, SpotRest]:
        """Return the rest of each job on its best gang of spot, if any is free now."""
        offers = {o.pool: o for o in view.offers if o.pool.capacity_type.is_interruptible}
        names = dict.fromkeys(job.name for _, job in jobs)
        known = {name: pools for name, pools in self._best.items() if name in names}
        turns = [*(name for name in names if name not in known), *known]
        due = set(turns[: max(1, MAX_OPTIONS // max(1, len(offers)))])
        # Whose turn it was comes last.
        self._best = {name: pools for name, pools in known.items() if name not in due}
        found = {}
        for job_view, job in jobs:
            pools = offers if job.name in due else self._best.get(job.name, ())
            few = replace(view, offers=tuple(offers[pool] for pool in pools if pool in offers))
            rests = [
                _rest(offers[option.pool], job_view, job, option)
                for option in spot_options(gang_options(few, job_view))
            ]
            rests.sort(key=lambda each: each.usd(each.option.start_s))
            if job.name in due:
                in_order = dict.fromkeys(each.option.pool for each in rests)
                self._best[job.name] = tuple(in_order)[:KEPT_POOLS]
            if rests:
                found[job.name] = rests[0]
        return found


def is_better_here(
    view: View,
    job_view: JobView,
    job: ClusterJob,
    usd_per_gpu_hour: float,
    gpus: int,
    start_s: float,
) -> bool:
    """Return whether a job on spot costs less on so many GPUs of the cluster, a start counted."""
    here = [o for o in gang_options(view, job_view) if is_running(job_view, o.targets)]
    if not here or not gpus:
        return False
    here_s = start_s + job.remaining_s / dict(job.gangs.options)[gpus]
    here_usd = (job.weight + usd_per_gpu_hour * gpus) * here_s / 3600
    offer = next(each for each in view.offers if each.pool == here[0].pool)
    return here_usd < _rest(offer, job_view, job, here[0]).usd(start_s=0.0)


def _rest(offer: Offer, job_view: JobView, job: ClusterJob, option: GangOption) -> SpotRest:
    known = offer.hazard_per_hour
    each = EXPECTED_HAZARD_PER_HOUR if known is None else known.value
    hazard_per_hour = each * option.nodes
    interval_s = save_interval_s(job_view.job.checkpoint, hazard_per_hour, option.save_paid_s)
    lost_h = (option.start_s + interval_s / 2) / 3600
    slowdown = job.gangs.units_per_s / option.units_per_s * (1 + hazard_per_hour * lost_h)
    return SpotRest(job, option, slowdown)
