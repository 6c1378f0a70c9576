"""Uniform Progress that knows how long each spot pool will last; for replays only.

The distance between this and Uniform Progress (Wu et al., NSDI'24) is the most that predicting the
life of the present spot capacity could save; that to the hindsight optimum depends on the farther
future. A spot gang that lives for L costs L·p_s and does (L − d)·v_s work, with d the
overhead of its launch. It is taken only if the same work is more expensive on the safe gang, to
which a gang that runs there has to be launched once more afterwards:

    p_s · L  <  p_o · ((L − d) · v_s / v_o − [on demand now] · d)

Of several, the one with the cheapest work is taken; without one, the job runs on demand while it
is behind the uniform pace, and waits else. The shield keeps the deadline.
"""

from __future__ import annotations

from datetime import timedelta

from costopt.domain.history import MarketHistory
from costopt.domain.view import Decision, Desired, JobView, View
from costopt.strategies.gang_options import (
    GangOption,
    gang_options,
    spot_options,
    uninterruptible_options,
)
from costopt.strategies.shield import choose_fallback
from costopt.strategies.uniform_progress import CapacityMode, current_mode


class LifetimeOracle:
    """Knows of the record when each pool that is up goes down, and nothing beyond."""

    def __init__(self, market: MarketHistory) -> None:
        self._market = market

    def decide(self, view: View) -> Desired:
        """One decision per job."""
        return Desired(tuple(self._decide(view, jv) for jv in view.jobs))

    def _decide(self, view: View, job_view: JobView) -> Decision:
        name = job_view.job.name
        all_options = gang_options(view, job_view)
        units_left = job_view.job.work.amount - job_view.progress.done_units
        fallback = choose_fallback(view, job_view, uninterruptible_options(all_options), units_left)
        chosen = self._spot(view, job_view, all_options, fallback)
        if chosen is not None:
            return Decision(name, chosen.targets, f"spot that lasts: {chosen.pool}")
        if fallback is None:
            return Decision(name, (), "nothing lasts long enough: wait")
        if current_mode(job_view) is CapacityMode.SAFE or _is_behind(view, job_view, fallback):
            return Decision(name, fallback.targets, "no spot that lasts: on-demand")
        return Decision(name, (), "ahead of the uniform pace and no spot that lasts: wait")

    def _spot(
        self,
        view: View,
        job_view: JobView,
        all_options: tuple[GangOption, ...],
        fallback: GangOption | None,
    ) -> GangOption | None:
        """The gang that runs while it lasts, else the one whose work is cheapest."""
        on_spot = spot_options(all_options)
        kept = next((o for o in on_spot if o.running), None)
        if kept is not None:
            return kept
        lives = {o: self._life_s(view, job_view, o) for o in on_spot}
        lasting = [o for o in on_spot if _pays(o, lives[o], job_view, fallback)]
        return min(lasting, key=lambda o: _usd_per_unit(o, lives[o]), default=None)

    def _life_s(self, view: View, job_view: JobView, option: GangOption) -> float:
        """Seconds until the pool has too few nodes, at most those that the work takes."""
        history = self._market.pools[option.pool]
        max_s = option.start_s + sum(s for _, s in option.work_left(job_view.progress.done_units))
        for state in history.between(view.now, view.now + timedelta(seconds=max_s)):
            if (state.nodes_available or 0) < option.nodes or state.price_usd_per_hour is None:
                return (state.starts_at - view.now).total_seconds()
        return max_s


def _pays(
    option: GangOption, life_s: float, job_view: JobView, fallback: GangOption | None
) -> bool:
    useful_s = life_s - option.start_s
    if useful_s <= 0:
        return False
    if fallback is None:
        return True
    saved_s = useful_s * option.units_per_s / fallback.units_per_s
    if current_mode(job_view) is CapacityMode.SAFE:
        saved_s -= fallback.start_s
    return option.score_usd_per_hour * life_s < fallback.score_usd_per_hour * saved_s


def _usd_per_unit(option: GangOption, life_s: float) -> float:
    return option.score_usd_per_unit * life_s / (life_s - option.start_s)


def _is_behind(view: View, job_view: JobView, fallback: GangOption) -> bool:
    """Whether less is done than on a straight line from the start to the deadline."""
    job = job_view.job
    elapsed_s = (view.now - job.start_at).total_seconds()
    span_s = (job.until_at - job.start_at).total_seconds()
    done_s = job_view.progress.done_units / fallback.units_per_s
    return done_s < elapsed_s * (job.work.amount / fallback.units_per_s) / span_s
