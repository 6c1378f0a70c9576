"""Run on the cheapest on-demand gang that is in time, from start to end."""

from __future__ import annotations

from costopt.domain.view import Decision, Desired, JobView, View
from costopt.strategies.option import gang_options, uninterruptible_options
from costopt.strategies.reserve import is_running
from costopt.strategies.shield import choose_fallback


class OnDemandStrategy:
    """The baseline that everyone can buy: no interruptions, full price."""

    def decide(self, view: View) -> Desired:
        """One safe gang per job, kept once it runs."""
        return Desired(tuple(_decide(view, jv) for jv in view.jobs))


def _decide(view: View, job_view: JobView) -> Decision:
    name = job_view.job.name
    candidates = uninterruptible_options(gang_options(view, job_view))
    kept = next((o for o in candidates if is_running(job_view, o.targets)), None)
    units = job_view.job.work.amount - job_view.progress.done_units
    chosen = kept or choose_fallback(view, job_view, candidates, units)
    if chosen is None:
        return Decision(name, (), "no on-demand offer can be used now")
    return Decision(name, chosen.targets, f"on-demand: {chosen.nodes} × {chosen.pool}")
