"""How the simulated market gives and takes nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.errors import BadRequestError, NoCapacityError, ProviderError
from costopt.domain.fleet import EndCause, LaunchRequest, Node, NodeState
from costopt.domain.market import CapacityType, Interruption
from costopt_sim import connect
from costopt_sim.fleet import SimFleet
from tests.support.market_fixtures import (
    ON_DEMAND,
    SPOT,
    T0,
    OneMachine,
    SetClock,
    Sim,
    after,
    market,
    pool_history,
)


def test_the_newest_nodes_are_taken_at_the_instant_of_the_change() -> None:
    sim = Sim(market(pool_history(SPOT, [(0, 4, 1.0), (1000, 2, 1.0), (2000, 0, 1.0)], 9000)))
    sim.launch(2, key="old")
    sim.go(10)
    sim.launch(2, key="new")
    sim.go(5000)
    ended = {node.node_id: node.ended_at for node in sim.provider.nodes("me")}
    assert ended == {
        "sim-0001": after(2000),
        "sim-0002": after(2000),
        "sim-0003": after(1000),
        "sim-0004": after(1000),
    }


def test_each_pool_gives_the_notice_of_its_provider() -> None:
    elsewhere = replace(SPOT, provider="gcp")
    states = [(0, 1, 1.0), (1000, 0, 1.0)]
    fleet = SimFleet(
        market(pool_history(SPOT, states, 9000), pool_history(elsewhere, states, 9000))
    )
    for pool in (SPOT, elsewhere):
        fleet.launch(LaunchRequest("me", "job", pool, 1, str(pool)), T0)
    noticed = {s: {n.pool.provider for n in fleet.notices("me", after(s))} for s in (879, 880, 970)}
    assert noticed == {879: set(), 880: {"aws"}, 970: {"aws", "gcp"}}
    assert {n.interrupts_at for n in fleet.notices("me", after(970))} == {after(1000)}


def test_how_often_one_looks_changes_nothing() -> None:
    states = [(0, 3, 1.0), (500, 1, 1.0), (700, 3, 1.0), (900, 0, 1.0), (1000, 2, 1.0)]
    worlds = [Sim(market(pool_history(SPOT, states, 9000))) for _ in range(2)]
    for sim in worlds:
        sim.launch(3)
    for second in range(0, 1200, 7):
        worlds[0].go(second)
        worlds[0].provider.notices("me")
    for sim in worlds:
        sim.go(1300)
    assert worlds[0].provider.nodes("me") == worlds[1].provider.nodes("me")


def test_a_gap_interrupts_nothing_and_launches_nothing() -> None:
    sim = Sim(market(pool_history(SPOT, [(0, 1, 1.0), (100, None, None), (900, 2, 2.0)], 9000)))
    sim.launch(1)
    now = sim.go(500)
    (offer,) = sim.provider.offers(now)
    assert offer.price_usd_per_hour is None
    assert offer.nodes_available is None
    with pytest.raises(NoCapacityError, match=r"us-east-1a.*2023-02-15 00:08:20"):
        sim.launch(1, key="k2")
    sim.go(1000)
    assert sim.states() == {"sim-0001": "running"}
    assert sim.launch(1, key="k2")[0].usd_per_hour == 2.0


def test_nothing_is_launched_at_an_unknown_price() -> None:
    sim = Sim(market(pool_history(SPOT, [(0, 5, None)], 9000)))
    with pytest.raises(NoCapacityError, match="no price"):
        sim.launch(1)


def test_outside_the_record_nothing_is_offered_but_what_runs_stays() -> None:
    sim = Sim(market(pool_history(SPOT, [(0, 1, 1.0)], 1000)))
    sim.launch(1)
    now = sim.go(1000)
    assert sim.provider.offers(now)[0].price_usd_per_hour is None
    assert sim.states() == {"sim-0001": "running"}


def test_a_node_launched_into_an_announced_drop_is_reported_at_once() -> None:
    sim = Sim(market(pool_history(SPOT, [(0, 1, 1.0), (1000, 0, 1.0)], 9000)))
    sim.go(950)
    sim.launch(1)
    (notice,) = sim.provider.notices("me")
    assert (notice.noticed_at, notice.interrupts_at) == (after(950), after(1000))


def test_a_released_node_makes_room_for_the_announced_one_no_more() -> None:
    """A notice stands, as on a cloud, though its reason has gone."""
    sim = Sim(market(pool_history(SPOT, [(0, 2, 1.0), (1000, 1, 1.0)], 9000)))
    sim.launch(2)
    sim.go(950)
    assert [n.node_id for n in sim.provider.notices("me")] == ["sim-0002"]
    sim.provider.terminate("sim-0001")
    sim.go(1000)
    assert sim.states() == {"sim-0001": "ended", "sim-0002": "ended"}


def test_uninterruptible_time_runs_to_the_next_grid_point() -> None:
    history = pool_history(SPOT, [(0, 1, 1.0)], 9000)
    grid, events = Sim(market(history, tick_s=195.0)), Sim(market(history))
    assert grid.provider.uninterruptible_s(T0) == 195.0
    assert grid.provider.uninterruptible_s(after(200)) == 190.0
    assert grid.provider.uninterruptible_s(after(390)) == 195.0
    assert events.provider.uninterruptible_s(after(200)) == 0.0


def test_offers_are_the_same_object_while_nothing_changed() -> None:
    sim = Sim(market(pool_history(SPOT, [(0, 2, 1.0)], 9000)))
    first = sim.provider.offers(T0)
    assert sim.provider.offers(T0) is first
    sim.launch(1)
    assert sim.provider.offers(T0)[0].nodes_available == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "market"),
        ({"market": "file.parquet"}, "instance of MarketHistory"),
        ({"machines": 3}, "machines"),
        ({"mode": "quantum"}, "quantum"),
        ({"notice_s": -1}, "notice_s"),
        ({"notice_s": float("nan")}, "notice_s"),
        ({"notice_s": "2 min"}, "notice_s"),
        ({"nodes": 3}, "option nodes: unknown"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], message: str) -> None:
    good = {"market": market(pool_history(SPOT, [(0, 1, 1.0)], 1.0)), "machines": OneMachine()}
    with pytest.raises(BadRequestError, match=message):
        connect(SetClock(), {**good, **options} if options else {})


class _Host:
    """Notes what it is told; refuses the second node."""

    def __init__(self, refuse: str = "") -> None:
        self.reported: list[tuple[str, str]] = []
        self._refuse = refuse

    def wait(self, node: Node) -> None:
        self.reported.append(("wait", node.node_id))

    def start(self, node: Node) -> None:
        if node.node_id == self._refuse:
            raise ProviderError("no more processes")
        self.reported.append(("start", node.node_id))

    def notice(self, interruption: Interruption) -> None:
        self.reported.append(("notice", interruption.node_id))

    def stop(self, node: Node) -> None:
        self.reported.append((f"stop {node.end_cause}", node.node_id))


def test_a_host_is_reported_in_order() -> None:
    host = _Host()
    fleet = SimFleet(market(pool_history(SPOT, [(0, 2, 1.0), (1000, 1, 1.0)], 9000)), 120, host)
    fleet.launch(LaunchRequest("me", "job", SPOT, 2, "k"), T0)
    fleet.advance(after(2000))
    fleet.fail("sim-0001", after(2100), "exit code 1")
    assert host.reported == [
        ("start", "sim-0001"),
        ("start", "sim-0002"),
        ("notice", "sim-0002"),
        ("stop interrupted", "sim-0002"),
        ("stop failed", "sim-0001"),
    ]


def test_a_host_that_cannot_start_all_nodes_starts_none() -> None:
    host = _Host(refuse="sim-0002")
    fleet = SimFleet(market(pool_history(ON_DEMAND, [(0, 9, 1.0)], 9000)), 120, host)
    with pytest.raises(ProviderError, match="no more processes"):
        fleet.launch(LaunchRequest("me", "job", ON_DEMAND, 2, "k"), T0)
    assert host.reported[-1] == ("stop failed", "sim-0001")
    assert fleet.nodes("me", T0) == ()
    assert fleet.running(ON_DEMAND) == 0


@pytest.mark.parametrize("refuse", ["", "sim-0002"])
def test_a_host_starts_what_has_waited_all_or_none(refuse: str) -> None:
    host, flex = _Host(refuse), SPOT.with_capacity_type(CapacityType.FLEX_START)
    fleet = SimFleet(market(pool_history(flex, [(0, 0, 1.0), (1000, 2, 1.0)], 9000)), 120, host)
    fleet.launch(LaunchRequest("me", "job", flex, 2, "k"), T0)
    fleet.advance(after(2000))
    waits, starts = [("wait", "sim-0001"), ("wait", "sim-0002")], ("start", "sim-0001")
    assert host.reported[:3] == [*waits, starts]
    states = {(node.state, node.end_cause) for node in fleet.nodes("me", after(2000))}
    if refuse:
        assert states == {(NodeState.ENDED, EndCause.FAILED)}
        assert fleet.running(flex) == 0
    else:
        assert states == {(NodeState.RUNNING, None)}
