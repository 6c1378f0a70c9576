"""What every provider must do; each provider adds a world of its own to WORLDS."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from costopt.domain.errors import BadRequestError, NoCapacityError
from costopt.domain.fleet import EndCause, LaunchRequest, NodeState
from costopt.domain.market import CapacityType, Pool
from costopt.domain.ports import Clock
from costopt.engine.loop import VirtualClock
from costopt.provider.base import CAPABILITY_METHODS, Provider
from tests.support.market_fixtures import (
    ELSEWHERE,
    ON_DEMAND,
    SPOT,
    T0,
    Sim,
    market,
    pool_history,
)

END_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class World:
    """A provider with 3 spot nodes in ``spot``, none in ``empty``, and all on-demand one wants.

    One hour in, ``spot`` falls to one node. ``unknown`` is no pool of the provider.
    """

    provider: Provider
    clock: Clock
    spot: Pool
    empty: Pool
    on_demand: Pool
    unknown: Pool
    notice_s: float
    tells_room: bool = True
    """Whether offers say how many nodes a pool has left."""
    whole_gangs: bool = False
    """Whether an interruption takes all nodes of a launch."""

    def launch(self, pool: Pool, nodes: int, key: str, owner: str = "me") -> tuple[str, ...]:
        request = LaunchRequest(owner, "job", pool, nodes, key)
        return tuple(node.node_id for node in self.provider.launch(request))

    def alive(self, owner: str = "me") -> set[str]:
        return {node.node_id for node in self.provider.nodes(owner) if node.state.is_alive}

    def has_ended(self) -> bool:
        """Return whether no node is alive; a real site takes a moment to end what was released."""
        give_up_at = time.monotonic() + END_TIMEOUT_S
        while self.alive() and time.monotonic() < give_up_at:
            time.sleep(0.1)
        return not self.alive()


def virtual_sim(_: pytest.FixtureRequest) -> World:
    sim = Sim(
        market(
            pool_history(SPOT, [(0, 3, 1.0), (3600, 1, 1.5)], 1e6),
            pool_history(ELSEWHERE, [(0, 0, 1.0)], 1e6),
            pool_history(ON_DEMAND, [(0, 10_000, 3.06)], 1e6),
        )
    )
    unknown = Pool("aws", "mars-1", "mars-1a", "p3.2xlarge", SPOT.capacity_type)
    return World(sim.provider, sim.clock, SPOT, ELSEWHERE, ON_DEMAND, unknown, sim.notice_s)


def amazon(request: pytest.FixtureRequest) -> World:
    from tests.support.aws.account import EMPTY, SPOT, UNKNOWN, NewAccount

    account: NewAccount = request.getfixturevalue("account")
    account.falls_to(SPOT, 1, after_s=3600)
    return World(
        account.provider,
        account.clock,
        SPOT,
        EMPTY,
        SPOT.with_capacity_type(CapacityType.ON_DEMAND),
        UNKNOWN,
        notice_s=120,
        tells_room=False,
    )


def google(request: pytest.FixtureRequest) -> World:
    from tests.support.gcp.account import EMPTY, SPOT, UNKNOWN, NewAccount

    project: NewAccount = request.getfixturevalue("project")
    project.falls_to(SPOT, 1, after_s=3600)
    return World(
        project.provider,
        project.clock,
        SPOT,
        EMPTY,
        SPOT.with_capacity_type(CapacityType.ON_DEMAND),
        UNKNOWN,
        notice_s=30,
        tells_room=False,
    )


def kubernetes(request: pytest.FixtureRequest) -> World:
    """On a real API server with its scheduler."""
    from tests.support.kubernetes.cluster import EMPTY, SPOT, UNKNOWN, NewCluster

    cluster: NewCluster = request.getfixturevalue("cluster")
    cluster.falls_to(SPOT, 1, after_s=3600)
    return World(
        cluster.provider,
        cluster.clock,
        SPOT,
        EMPTY,
        SPOT.with_capacity_type(CapacityType.ON_DEMAND),
        UNKNOWN,
        notice_s=120,
    )


def skeleton(_: pytest.FixtureRequest) -> World:
    """The adapter that newcomers copy, so that what they copy is true."""
    from costopt_skeleton import connect

    clock = VirtualClock(T0)
    provider = connect(clock, {"regions": ["north-1"]})
    provider.cloud.spot_nodes["north-1a"] = [(T0, 3), (T0 + timedelta(hours=1), 1)]
    spot = Pool("skeleton", "north-1", "north-1a", "gpu-1", CapacityType.SPOT)
    return World(
        provider,
        clock,
        spot,
        replace(spot, zone="north-1b"),
        spot.with_capacity_type(CapacityType.ON_DEMAND),
        replace(spot, region="mars-1", zone="mars-1a"),
        notice_s=60,
        tells_room=False,
    )


def slurm_partitions(request: pytest.FixtureRequest, fixture: str = "slurm_world") -> World:
    from tests.support.slurm.world import EMPTY, GRACE_S, SPOT, UNINTERRUPTIBLE, UNKNOWN, SlurmWorld

    site: SlurmWorld = request.getfixturevalue(fixture)
    site.falls_to(SPOT, 1, after_s=3600)
    return World(
        site.provider,
        site.clock,
        SPOT,
        EMPTY,
        UNINTERRUPTIBLE,
        UNKNOWN,
        notice_s=GRACE_S,
        whole_gangs=True,
    )


def slurm_rest(request: pytest.FixtureRequest) -> World:
    return slurm_partitions(request, "slurm_rest_world")


WORLDS: dict[str, Callable[[pytest.FixtureRequest], World]] = {
    "aws": amazon,
    "gcp": google,
    "kubernetes": kubernetes,
    "sim-virtual": virtual_sim,
    "skeleton": skeleton,
    "slurm": slurm_partitions,
    "slurm-rest": slurm_rest,
}


CLOUDS = ("aws", "gcp")
ALL = [pytest.param(w, marks=pytest.mark.cloud if w in CLOUDS else ()) for w in sorted(WORLDS)]


@pytest.fixture(params=ALL)
def world(request: pytest.FixtureRequest) -> World:
    return WORLDS[request.param](request)


def test_it_overrides_all_methods_of_a_capability_or_none(world: World) -> None:
    kind = type(world.provider)
    overridden = {
        method
        for methods in CAPABILITY_METHODS.values()
        for method in methods
        if getattr(kind, method) is not getattr(Provider, method)
    }
    declared = world.provider.capabilities()
    assert overridden == {method for each in declared for method in CAPABILITY_METHODS[each]}


def test_offers_name_every_pool_with_price_room_and_source(world: World) -> None:
    now = world.clock.now()
    offers = {offer.pool: offer for offer in world.provider.offers(now)}
    assert {world.spot, world.empty, world.on_demand} <= set(offers)
    assert {pool.provider for pool in offers} == world.provider.names
    spot, on_demand = offers[world.spot], offers[world.on_demand]
    assert spot.nodes_available == (3 if world.tells_room else None)
    assert offers[world.empty].nodes_available == (0 if world.tells_room else None)
    assert spot.price_usd_per_hour is not None
    assert spot.price_usd_per_hour.source
    assert spot.price_usd_per_hour.age_s(now) == 0
    assert on_demand.hazard_per_hour is not None
    assert on_demand.hazard_per_hour.high == 0


def test_a_launch_takes_room_and_carries_its_tags(world: World) -> None:
    ids = world.launch(world.spot, 2, "a")
    nodes = world.provider.nodes("me")
    assert tuple(node.node_id for node in nodes) == ids
    assert {(n.owner, n.job, n.key, n.pool) for n in nodes} == {("me", "job", "a", world.spot)}
    offers = {offer.pool: offer for offer in world.provider.offers(world.clock.now())}
    assert offers[world.spot].nodes_available == (1 if world.tells_room else None)
    assert world.provider.nodes("somebody else") == ()


def test_the_same_key_launches_nothing_new(world: World) -> None:
    first = world.launch(world.spot, 2, "a")
    assert world.launch(world.spot, 2, "a") == first
    assert world.alive() == set(first)
    for node_id in first:
        world.provider.terminate(node_id)
    assert world.launch(world.spot, 2, "a") == first
    assert world.has_ended()


def test_all_nodes_or_none(world: World) -> None:
    with pytest.raises(NoCapacityError, match=str(world.spot)):
        world.launch(world.spot, 4, "a")
    assert world.alive() == set()
    with pytest.raises(NoCapacityError):
        world.launch(world.empty, 1, "b")
    assert len(world.launch(world.spot, 3, "a")) == 3


def test_an_unknown_pool_is_a_bad_request(world: World) -> None:
    with pytest.raises(BadRequestError, match="mars-1"):
        world.launch(world.unknown, 1, "a")


def test_terminate_releases_once_and_never_complains(world: World) -> None:
    (node_id,) = world.launch(world.spot, 1, "a")
    world.clock.sleep(60)
    world.provider.terminate(node_id)
    released_at = world.clock.now()
    world.clock.sleep(60)
    world.provider.terminate(node_id)
    world.provider.terminate("no such node")
    (node,) = world.provider.nodes("me")
    assert (node.state, node.end_cause) == (NodeState.ENDED, EndCause.RELEASED)
    assert node.ended_at == released_at


def test_an_interruption_is_announced_and_happens_when_it_said(world: World) -> None:
    ids = world.launch(world.spot, 3, "a")
    assert world.provider.notice_s(world.spot) == world.notice_s
    started = world.clock.now()
    world.clock.sleep(3600 - world.notice_s - 1)
    assert not world.provider.notices("me")
    world.clock.sleep(1)
    notices = world.provider.notices("me")
    assert {notice.node_id for notice in notices} == set(ids if world.whole_gangs else ids[1:])
    assert not world.provider.notices("somebody else")
    assert world.alive() == set(ids)
    world.clock.sleep(world.notice_s)
    ended = {n.node_id: n for n in world.provider.nodes("me") if not n.state.is_alive}
    for notice in notices:
        assert ended[notice.node_id].ended_at == notice.interrupts_at
        assert ended[notice.node_id].end_cause is EndCause.INTERRUPTED
        assert notice.interrupts_at == started + timedelta(hours=1)
    assert not world.provider.notices("me")


def test_on_demand_is_not_interrupted(world: World) -> None:
    ids = world.launch(world.on_demand, 2, "a")
    world.clock.sleep(7200)
    assert world.alive() == set(ids)


def test_ended_nodes_stay_listed_for_an_hour(world: World) -> None:
    (node_id,) = world.launch(world.on_demand, 1, "a")
    world.provider.terminate(node_id)
    world.clock.sleep(3600)
    assert [node.node_id for node in world.provider.nodes("me")] == [node_id]
