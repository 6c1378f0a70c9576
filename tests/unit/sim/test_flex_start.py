"""How the simulated market lets launches on flex-start wait, and ends what runs."""

from __future__ import annotations

import pytest

from costopt.domain.errors import NoCapacityError
from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.market import CapacityType
from tests.support.market_fixtures import SPOT, Sim, after, market, pool_history

FLEX = SPOT.with_capacity_type(CapacityType.FLEX_START)
HOUR_S, DAY_S = 3600.0, 86400.0


def _sim(*states: tuple[float, int | None, float | None]) -> Sim:
    return Sim(market(pool_history(FLEX, states, 30 * DAY_S)))


def _only(sim: Sim) -> Node:
    (node,) = sim.provider.nodes("me")
    return node


def test_a_launch_waits_and_runs_from_the_instant_at_which_there_is_room() -> None:
    sim = _sim((0, 0, 1.0), (3000, 1, 1.5))
    sim.go(100)
    (node,) = sim.launch(pool=FLEX)
    assert node.state is NodeState.WAITING
    assert sim.launch(pool=FLEX) == (node,)
    sim.go(2999)
    assert _only(sim).state is NodeState.WAITING
    sim.go(9000)
    assert (_only(sim).state, _only(sim).launched_at) == (NodeState.RUNNING, after(3000))
    assert _only(sim).usd_per_hour == 1.5


def test_a_launch_that_finds_room_does_not_wait() -> None:
    sim = _sim((0, 1, 1.0))
    assert sim.launch(pool=FLEX)[0].state is NodeState.RUNNING


@pytest.mark.parametrize(("comes_s", "ends"), [(2 * HOUR_S, False), (2 * HOUR_S + 1, True)])
def test_what_does_not_come_within_two_hours_does_not_come(comes_s: float, ends: bool) -> None:
    sim = _sim((0, 0, 1.0), (comes_s, 1, 1.0))
    sim.launch(pool=FLEX)
    sim.go(3 * HOUR_S)
    node = _only(sim)
    if ends:
        assert (node.end_cause, node.ended_at) == (EndCause.NO_CAPACITY, after(2 * HOUR_S))
    else:
        assert node.state is NodeState.RUNNING


def test_a_gang_starts_whole_and_in_its_turn() -> None:
    sim = _sim((0, 1, 1.0), (1000, 2, 1.0), (2000, 3, 1.0))
    sim.launch(2, pool=FLEX, key="gang")
    sim.go(10)
    sim.launch(1, pool=FLEX, key="single")
    sim.go(1500)
    assert [node.key for node in sim.provider.nodes("me") if node.state is NodeState.RUNNING] == [
        "single"
    ]
    sim.go(2500)
    assert {node.launched_at for node in sim.provider.nodes("me")} == {after(10), after(2000)}


def test_a_node_that_is_released_makes_room() -> None:
    sim = _sim((0, 1, 1.0))
    (first,) = sim.launch(pool=FLEX, key="first")
    sim.launch(pool=FLEX, key="second")
    sim.go(700)
    sim.provider.terminate(first.node_id)
    sim.go(800)
    second = sim.provider.nodes("me")[1]
    assert (second.state, second.launched_at) == (NodeState.RUNNING, after(700))


def test_one_that_is_no_longer_waited_for_never_starts() -> None:
    sim = _sim((0, 0, 1.0), (1000, 5, 1.0))
    (node,) = sim.launch(pool=FLEX)
    sim.go(500)
    sim.provider.terminate(node.node_id)
    sim.go(2000)
    assert (_only(sim).end_cause, _only(sim).ended_at) == (EndCause.RELEASED, after(500))


def test_it_is_not_taken_and_ends_after_seven_days() -> None:
    sim = _sim((0, 1, 1.0), (1000, 0, 1.0))
    sim.go(100)
    sim.launch(pool=FLEX)
    now = sim.go(6 * DAY_S)
    (offer,) = sim.provider.offers(now)
    assert offer.until_at == after(100 + 7 * DAY_S - 900)
    assert offer.hazard_per_hour is not None
    assert offer.hazard_per_hour.value == 0
    sim.go(7 * DAY_S + 200)
    node = _only(sim)
    assert (node.end_cause, node.ended_at) == (EndCause.RELEASED, after(100 + 7 * DAY_S))


def test_an_offer_tells_how_long_one_may_wait_and_not_what_is_free() -> None:
    sim = _sim((0, 0, 1.0))
    (offer,) = sim.provider.offers(sim.go(50))
    assert (offer.wait_s, offer.nodes_available) == (2 * HOUR_S, None)
    assert offer.until_at == after(50 + 7 * DAY_S - 900)


def test_a_gap_launches_nothing() -> None:
    sim = _sim((0, None, None))
    with pytest.raises(NoCapacityError):
        sim.launch(pool=FLEX)
