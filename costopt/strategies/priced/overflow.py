"""When a job that waits for a cluster goes to spot, and when one that is there comes back.

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
class Overflow:
    """Compares spot with the cluster at the price λ. ``view`` holds no offers of the cluster."""

    view: View
    price_usd_per_gpu_hour: float
    restart_s: float

    def better_spot(self, job_view: JobView, job: ClusterJob) -> GangOption | None:
        """Return the spot gang for a job that waits here; None where to wait is better."""
        options = spot_options(gang_options(self.view, job_view))
        if not options:
            return None
        best = min(options, key=lambda each: self._spot_usd(job_view, job, each))
        is_cheaper = self._spot_usd(job_view, job, best) < self._cluster_usd(job, start_s=0.0)
        return best if is_cheaper else None

    def should_return(self, job_view: JobView, job: ClusterJob) -> bool:
        """Return whether a job on spot would rather be on the cluster, its restart counted."""
        here = [o for o in gang_options(self.view, job_view) if is_running(job_view, o.targets)]
        if not here:
            return False
        stays = self._spot_usd(job_view, job, here[0], start_s=0.0)
        return self._cluster_usd(job, start_s=self.restart_s) < stays

    def _cluster_usd(self, job: ClusterJob, *, start_s: float) -> float:
        """What the rest is worth on its cheapest gang at this price."""
        price = self.price_usd_per_gpu_hour
        return min(
            (job.weight + price * gpus) * (start_s + job.remaining_s / speed) / 3600
            for gpus, speed in job.gangs.options
        )

    def _spot_usd(
        self, job_view: JobView, job: ClusterJob, option: GangOption, start_s: float | None = None
    ) -> float:
        saves = job_view.job.checkpoint
        known = [o.hazard_per_hour for o in self.view.offers if o.pool == option.pool]
        each = next((h.value for h in known if h is not None), EXPECTED_HAZARD_PER_HOUR)
        hazard_per_hour = each * option.nodes
        interval_s = save_interval_s(saves, hazard_per_hour)
        lost_h = (option.start_s + interval_s / 2) / 3600
        speed = option.units_per_s / job.gangs.units_per_s
        hours = job.remaining_s / speed / 3600 * (1 + hazard_per_hour * lost_h)
        begin_h = (option.start_s if start_s is None else start_s) / 3600
        return (job.weight + option.score_usd_per_hour) * (begin_h + hours)
