"""Spot whenever there is any, wait otherwise, on-demand when time runs out.

The greedy baseline of "Can't Be Late" (Wu et al., NSDI'24, §3.2).
"""

from __future__ import annotations

from costopt.domain.view import Decision, Desired, JobView, View
from costopt.strategies.cant_be_late import CapacityMode, apply_safety_net, keep_or_cheapest
from costopt.strategies.option import gang_options, uninterruptible_options
from costopt.strategies.shield import choose_fallback


class GreedySpotStrategy:
    """Takes the cheapest spot gang that can be had and keeps it until it is lost."""

    def decide(self, view: View) -> Desired:
        """One decision per job."""
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
        return Decision(name, on_spot.targets, f"spot is to be had: {on_spot.pool}")
    return Decision(name, (), "no spot to be had: wait")
