"""Views for strategies, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.fleet import Node, NodeState
from costopt.domain.job import Job
from costopt.domain.market import Offer, Pool
from costopt.domain.policy import Objective, Policy, Risk
from costopt.domain.progress import Progress
from costopt.domain.view import Decision, Desired, JobView, Target, View
from tests.support.engine_fixtures import Machines, Powers
from tests.support.market_fixtures import after

TICK_S = 300.0


def offer(pool: Pool, usd_per_hour: float | None, available: int | None = 9) -> Offer:
    """An offer with an exact price."""
    price = None if usd_per_hour is None else Estimate.exact(usd_per_hour, Basis.MEASURED, "test")
    return Offer(pool, price, None, available)


def nodes_in(pool: Pool, count: int = 1, job: str = "job") -> tuple[Node, ...]:
    """Nodes that run since the beginning."""
    return tuple(
        Node(f"n{i}-{pool}", "me", job, pool, "k", NodeState.RUNNING, after(0), 1.0)
        for i in range(count)
    )


def build_view(
    job: Job,
    offers: Sequence[Offer],
    *,
    now_s: float = 0.0,
    done: float = 0.0,
    saved: float | None = None,
    nodes: tuple[Node, ...] = (),
    starts_in_s: float | None = None,
    speed_factor: float = 1.0,
    reserve_s: float = 0.0,
    uninterruptible_s: float = 0.0,
    objective: Objective | None = None,
) -> View:
    """One job as a strategy sees it; what is done is saved unless ``saved`` says less."""
    now = after(now_s)
    until = None if starts_in_s is None else now + timedelta(seconds=starts_in_s)
    progress = Progress(done, done if saved is None else saved, starting_until=until)
    known = [
        (o.pool, Machines().instance_type(o.pool), Powers().node_power(o.pool)) for o in offers
    ]
    return View(
        now=now,
        tick_s=TICK_S,
        uninterruptible_s=uninterruptible_s,
        jobs=(JobView(job, progress, nodes, speed_factor),),
        offers=tuple(offers),
        machines={pool: machine for pool, machine, _ in known if machine is not None},
        powers={pool: power for pool, _, power in known if power is not None},
        policy=Policy("p", objective=objective or Objective(), risk=Risk(0.95, reserve_s)),
    )


class Wants:
    """A strategy that wants the same whatever it sees."""

    def __init__(self, *targets: Target) -> None:
        self.targets = targets

    def decide(self, view: View) -> Desired:
        return Desired(tuple(Decision(jv.job.name, self.targets, "wanted") for jv in view.jobs))


def only(desired: Desired) -> Decision:
    """The decision for the one job."""
    (decision,) = desired.decisions
    return decision
