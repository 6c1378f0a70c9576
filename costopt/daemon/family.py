"""The strategies of all jobs of a tenant that follow one policy."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from costopt.domain.ports import Strategy
from costopt.domain.view import Decision, Desired, JobView, View
from costopt.market.lifetime import LifetimeModel
from costopt.strategies.learner import lifetime_model, share_lifetimes, share_programs
from costopt.strategies.programs import ProgramCache


class StrategyGroup:
    """One strategy for each job, as ``make`` makes it; they share what they learn and solve."""

    def __init__(
        self,
        make: Callable[[], Strategy],
        peer: StrategyGroup | None = None,
        programs: ProgramCache | None = None,
    ) -> None:
        """It learns together with its ``kin``, whose strategies are made alike, and solves
        together with all that have the same ``programs``."""
        self._make = make
        self._of_job: dict[str, Strategy] = {}
        self._first = make()
        if programs is not None:
            share_programs(self._first, programs)
        if peer is not None:
            share_lifetimes(self._first, peer._first)
        self.lifetimes: LifetimeModel | None = lifetime_model(self._first)

    def decide(self, view: View) -> Desired:
        """One decision per job, in the order of the view."""
        return Desired(tuple(self.decide_one(view, job_view) for job_view in view.jobs))

    def decide_one(self, view: View, job_view: JobView) -> Decision:
        """What the job's own strategy decides."""
        name = job_view.job.name
        if name not in self._of_job:
            self._of_job[name] = self._make()
            share_lifetimes(self._of_job[name], self._first)
        (decision,) = self._of_job[name].decide(replace(view, jobs=(job_view,))).decisions
        return decision

    def forget(self, wanted: Collection[str]) -> None:
        """The strategies of all jobs but these."""
        for name in self._of_job.keys() - set(wanted):
            del self._of_job[name]
