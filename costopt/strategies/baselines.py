"""The baseline strategies: greedy spot and on-demand.

Greedy spot runs on spot whenever there is any, waits otherwise, and goes to on-demand when time
runs out: the greedy baseline of "Can't Be Late" (Wu et al., NSDI'24, §3.2). On-demand runs on the
cheapest on-demand gang that meets the deadline, from start to end.
"""

from __future__ import annotations

from costopt.domain.view import Decision, Desired, JobView, View
from costopt.strategies.gang_options import gang_options, uninterruptible_options
from costopt.strategies.remaining_time import is_running
from costopt.strategies.shield import choose_fallback
from costopt.strategies.uniform_progress import CapacityMode, apply_safety_net, keep_or_cheapest


class GreedySpotStrategy:
    """The strategy that takes the cheapest available spot gang and keeps it until it is lost."""

    def decide(self, view: View) -> Desired:
        """Return one decision per job."""
        return Desired(tuple(_decide(view, jv) for jv in view.jobs))


def _decide(view: View, job_view: JobView) -> Decision:
    name = job_view.job.name
    all_options = gang_options(view, job_view)
    on_spot = keep_or_cheapest(all_options)
    units = job_view.job.work.amount - job_view.progress.done_units
    fallback = choose_fallback(view, job_view, uninterruptible_options(all_options), units)
    mode = CapacityMode.SPOT if on_spot else CapacityMode.WAIT
    if fallback is not None:
        mode = apply_safety_net(view, job_view, mode, fallback)
    if mode is CapacityMode.SAFE and fallback is not None:
        return Decision(name, fallback.targets, "time runs out: on-demand", rule="safety_net")
    if on_spot is not None:
        return Decision(name, on_spot.targets, f"spot is available: {on_spot.pool}")
    return Decision(name, (), "no spot capacity: wait")


class OnDemandStrategy:
    """The baseline that everyone can buy: on-demand, with no interruptions and at full price."""

    def decide(self, view: View) -> Desired:
        """Return one safe gang per job, kept once it runs."""
        return Desired(tuple(_on_demand_decide(view, jv) for jv in view.jobs))


def _on_demand_decide(view: View, job_view: JobView) -> Decision:
    name = job_view.job.name
    candidates = uninterruptible_options(gang_options(view, job_view))
    kept = next((o for o in candidates if is_running(job_view, o.targets)), None)
    units = job_view.job.work.amount - job_view.progress.done_units
    chosen = kept or choose_fallback(view, job_view, candidates, units)
    if chosen is None:
        return Decision(name, (), "no on-demand offer can be used now")
    return Decision(name, chosen.targets, f"on-demand: {chosen.nodes} × {chosen.pool}")
