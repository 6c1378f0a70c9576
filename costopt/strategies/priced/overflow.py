"""What the rest of a cluster's job costs on spot, and whether a job that is there comes back.

On the cluster an hour of g GPUs is worth (w + λ g), w being what an hour of the job is worth and λ
the price of a GPU-hour. On spot it costs (w + u); besides there is a start, and what interruptions
are expected to take: for each a start, and half of the time between two saves.
"""

from __future__ import annotations

from dataclasses import dataclass

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


def best_on_spot(view: View, job_view: JobView, job: ClusterJob) -> SpotRest | None:
    """Return the rest of the job on its best gang of spot, if any; ``view`` has no owned nodes."""
    options = spot_options(gang_options(view, job_view))
    rests = (_rest(view, job_view, job, each) for each in options)
    return min(rests, key=lambda each: each.usd(each.option.start_s), default=None)


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
    return here_usd < _rest(view, job_view, job, here[0]).usd(start_s=0.0)


def _rest(view: View, job_view: JobView, job: ClusterJob, option: GangOption) -> SpotRest:
    known = [o.hazard_per_hour for o in view.offers if o.pool == option.pool]
    each = next((h.value for h in known if h is not None), EXPECTED_HAZARD_PER_HOUR)
    hazard_per_hour = each * option.nodes
    interval_s = save_interval_s(job_view.job.checkpoint, hazard_per_hour)
    lost_h = (option.start_s + interval_s / 2) / 3600
    slowdown = job.gangs.units_per_s / option.units_per_s * (1 + hazard_per_hour * lost_h)
    return SpotRest(job, option, slowdown)
