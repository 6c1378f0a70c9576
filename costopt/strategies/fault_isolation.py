"""Fault isolation of strategies, and the state that learning strategies share.

A strategy that fails for some jobs still decides for the others; the shield decides for those that
it fails for. Strategies that learn how long capacity lasts can share lifetimes and programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from costopt.domain.errors import failure_message
from costopt.domain.ports import Strategy
from costopt.domain.view import Decision, Desired, JobView, View
from costopt.strategies.remaining_time import keep_current
from costopt.strategies.shield import ShieldedStrategy, apply_shield

if TYPE_CHECKING:
    from costopt.market.lifetime import LifetimeModel
    from costopt.strategies.adaptive.program import ProgramCache
    from costopt.strategies.shared_limits import SharedLimits


FAILED = "failed"
"""The rule of a decision for a job whose strategy failed; its reason says how."""


class FaultIsolatedStrategy:
    """A strategy of ``make``; where it raises for a job, or leaves it out, the shield decides.

    Such a job keeps what it has for as long as its deadline allows that. A strategy that raises for
    many jobs is asked for half of them, and so on, until it is known for which it does; these are
    asked for apart, each of a strategy of its own, until that raises no more.
    """

    def __init__(self, make: Callable[[], Strategy]) -> None:
        self._make = make
        self._apart: dict[str, Strategy] = {}
        self.inner = make()
        self.starts_between_ticks: bool = getattr(self.inner, "starts_between_ticks", False)

    def decide(self, view: View) -> Desired:
        """Return one decision per job, whatever the inner strategy does."""
        names = {job_view.job.name for job_view in view.jobs}
        self._apart = {job: s for job, s in self._apart.items() if job in names}
        together = [jv for jv in view.jobs if jv.job.name not in self._apart]
        decisions = self._together(view, together)
        for job_view in view.jobs:
            if job_view.job.name not in decisions:
                decisions[job_view.job.name] = self._alone(view, job_view)
        return Desired(tuple(decisions[job_view.job.name] for job_view in view.jobs))

    def _together(self, view: View, jobs: Sequence[JobView]) -> dict[str, Decision]:
        """Without those for which it raises; where that is news, they are apart from now on."""
        if not jobs:
            return {}
        try:
            return _asked(self.inner, view, jobs)
        except Exception as error:  # noqa: BLE001 - a strategy may raise anything
            if len(view.jobs) == 1:
                return {jobs[0].job.name: _without(view, jobs[0], error)}
            if len(jobs) == 1:
                self._apart[jobs[0].job.name] = self._make()
                return {}
        half = len(jobs) // 2
        return self._together(view, jobs[:half]) | self._together(view, jobs[half:])

    def _alone(self, view: View, job_view: JobView) -> Decision:
        name = job_view.job.name
        try:
            decision = _asked(self._apart[name], view, [job_view])[name]
        except Exception as error:  # noqa: BLE001
            return _without(view, job_view, error)
        del self._apart[name]
        return decision


def _asked(strategy: Strategy, view: View, jobs: Sequence[JobView]) -> dict[str, Decision]:
    """Raises whatever the strategy raises, KeyError for a job that it leaves out, and ValueError
    for a pool that cannot run its job: nodes there would cost and do nothing."""
    seen = view if len(jobs) == len(view.jobs) else replace(view, jobs=tuple(jobs))
    decisions = {decision.job: decision for decision in strategy.decide(seen).decisions}
    for job_view in jobs:
        for target in decisions[job_view.job.name].targets:
            machine = view.machines.get(target.pool)
            why = None if machine is None else job_view.job.resources.rejection_reason(machine)
            if why is not None:
                raise ValueError(f"{target.pool} cannot run the job: {why}")
    return {job_view.job.name: decisions[job_view.job.name] for job_view in jobs}


def shield_or_keep(view: View, job_view: JobView, decision: Decision) -> Decision:
    """Return the shielded decision; the decision itself where the shield fails for the job."""
    try:
        return apply_shield(view, job_view, decision)
    except Exception:  # noqa: BLE001 - the caller reports it
        return decision


def _without(view: View, job_view: JobView, error: Exception) -> Decision:
    """What is done without the strategy."""
    stays = Decision(job_view.job.name, keep_current(job_view), "what runs is kept")
    held = shield_or_keep(view, job_view, stays)
    why = f"the strategy failed ({failure_message(error)}): {held.reason}"
    return replace(held, reason=why, rule=FAILED)


@runtime_checkable
class LearningStrategy(Protocol):
    """A strategy that keeps estimates between its decisions, and what it has solved for them."""

    lifetimes: LifetimeModel
    programs: ProgramCache


@runtime_checkable
class PricesLimits(Protocol):
    """A strategy whose jobs pay for the limits that they share; None where they do not."""

    limits: SharedLimits | None


def shared_limits(strategy: Strategy) -> SharedLimits | None:
    """Return the prices of limits of a strategy, wrapped or not; None for one without any."""
    inner = _inner(strategy)
    return inner.limits if isinstance(inner, PricesLimits) else None


def lifetime_model(strategy: Strategy) -> LifetimeModel | None:
    """Return what a strategy, wrapped or not, has learned; None for one that learns nothing."""
    inner = _inner(strategy)
    return inner.lifetimes if isinstance(inner, LearningStrategy) else None


def share_lifetimes(strategy: Strategy, other: Strategy) -> None:
    """Let a strategy, wrapped or not, learn, solve and price limits with another of its kind."""
    mine, its = _inner(strategy), _inner(other)
    if isinstance(mine, LearningStrategy) and isinstance(its, LearningStrategy):
        mine.lifetimes, mine.programs = its.lifetimes, its.programs
    if isinstance(mine, PricesLimits) and isinstance(its, PricesLimits):
        mine.limits = its.limits


def share_programs(strategy: Strategy, programs: ProgramCache) -> None:
    """Let a strategy, wrapped or not, share programs; these are the same for any policy."""
    inner = _inner(strategy)
    if isinstance(inner, LearningStrategy):
        inner.programs = programs


def _inner(strategy: Strategy) -> Strategy:
    while isinstance(strategy, (ShieldedStrategy, FaultIsolatedStrategy)):
        strategy = strategy.inner
    return strategy
