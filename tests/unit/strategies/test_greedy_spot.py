"""Spot whenever there is any."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.fleet import Node
from costopt.domain.view import Target
from costopt.strategies.baselines import GreedySpotStrategy
from costopt.strategies.gang_options import gang_options, uninterruptible_options
from costopt.strategies.uniform_progress import CapacityMode, apply_safety_net, current_mode
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, SPOT_B, task
from tests.support.strategy_fixtures import TICK_S, build_view, nodes_in, offer, only

OFFERS = [offer(SPOT_A, 2.0), offer(SPOT_B, 1.0), offer(SAFE, 8.0)]


def test_the_cheapest_spot() -> None:
    decision = only(GreedySpotStrategy().decide(build_view(task(), OFFERS)))
    assert decision.targets == (Target(SPOT_B, 1),)
    assert decision.rule is None


def test_spot_that_runs_is_kept_though_another_is_cheaper() -> None:
    view = build_view(task(), OFFERS, nodes=nodes_in(SPOT_A))
    assert only(GreedySpotStrategy().decide(view)).targets == (Target(SPOT_A, 1),)


def test_waits_where_there_is_none() -> None:
    view = build_view(task(), [offer(SPOT_A, 2.0, 0), offer(SAFE, 8.0)])
    assert only(GreedySpotStrategy().decide(view)).targets == ()


def test_on_demand_when_time_runs_out() -> None:
    view = build_view(task(deadline_s=4 * HOUR_S + 250), [offer(SPOT_A, 2.0, 0), offer(SAFE, 8.0)])
    decision = only(GreedySpotStrategy().decide(view))
    assert decision.targets == (Target(SAFE, 1),)
    assert decision.rule == "safety_net"


def test_what_a_job_runs_on_determines_its_mode() -> None:
    for nodes, mode in [
        ((), CapacityMode.WAIT),
        (nodes_in(SPOT_A), CapacityMode.SPOT),
        (nodes_in(SAFE), CapacityMode.SAFE),
        (nodes_in(SAFE) + nodes_in(SPOT_A), CapacityMode.SPOT),
    ]:
        assert current_mode(build_view(task(nodes=(1, 2)), OFFERS, nodes=nodes).jobs[0]) is mode


@pytest.mark.parametrize(
    ("slack_ticks", "nodes", "starts_in_s", "mode"),
    [
        (5, (), None, CapacityMode.SPOT),
        (4, (), None, CapacityMode.SAFE),
        (4, nodes_in(SAFE), None, CapacityMode.SAFE),
        (4, nodes_in(SPOT_A), None, CapacityMode.SPOT),
        (2, nodes_in(SPOT_A), None, CapacityMode.SPOT),
        (3, nodes_in(SPOT_A), 60.0, CapacityMode.SPOT),
        (2, nodes_in(SPOT_A), 60.0, CapacityMode.SAFE),
    ],
)
def test_the_published_net(
    slack_ticks: int, nodes: tuple[Node, ...], starts_in_s: float | None, mode: CapacityMode
) -> None:
    """20 ticks of work, and an overhead of two."""
    job = task(20 * TICK_S, (20 + slack_ticks) * TICK_S)
    checkpoint = replace(job.checkpoint, restore_s=0.0)
    job = replace(job, startup_s=2 * TICK_S, checkpoint=checkpoint)
    view = build_view(job, OFFERS, nodes=nodes, starts_in_s=starts_in_s)
    (fallback,) = uninterruptible_options(gang_options(view, view.jobs[0]))
    assert apply_safety_net(view, view.jobs[0], CapacityMode.SPOT, fallback) is mode
