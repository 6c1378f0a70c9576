"""Quotas, placement scores, Capacity Blocks and the facts of instance types, over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from costopt.domain.errors import BadRequestError, ForbiddenError
from costopt.domain.estimate import Basis
from costopt.domain.market import CapacityType, Pool
from costopt_aws.capacity import CapacityBlocks, PlacementScores
from costopt_aws.instance_types import InstanceTypes, Offerings
from costopt_aws.quotas import AccountQuotas
from costopt_aws.regions import Zones
from tests.support.aws.clients import shared_clients
from tests.support.aws.cloud import Cloud
from tests.support.aws.overlay.faults import unauthorized

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND
G6E = ("g6e.xlarge", "g6e.2xlarge", "g6e.4xlarge")


def test_quotas_are_vcpus_by_family_and_capacity_type(cloud: Cloud) -> None:
    quotas = AccountQuotas(shared_clients()).of("us-east-1", NOW)
    standard = ("a", "c", "d", "h", "i", "m", "r", "t", "z")
    assert {(q.capacity_type, q.families, q.max_vcpus) for q in quotas} == {
        (SPOT, standard, 640),
        (SPOT, ("g", "vt"), 96),
        (SPOT, ("p4", "p3", "p2"), 0),
        (SPOT, ("p5",), 192),
        (ON_DEMAND, standard, 1152),
        (ON_DEMAND, ("g", "vt"), 64),
        (ON_DEMAND, ("p",), 384),
    }
    assert {(q.provider, q.region) for q in quotas} == {("aws", "us-east-1")}
    assert any("L-C4BD4855" in q.name for q in quotas)
    assert cloud.faults.calls["servicequotas", "ListServiceQuotas"] == 3


def test_quotas_that_may_not_be_read_name_the_permission(cloud: Cloud) -> None:
    cloud.faults.on("servicequotas", "ListServiceQuotas", unauthorized)
    with pytest.raises(ForbiddenError, match="servicequotas:ListServiceQuotas"):
        AccountQuotas(shared_clients()).of("us-east-1", NOW)


def test_scores_are_asked_once_an_hour_for_three_types_or_more(cloud: Cloud) -> None:
    cloud.spot.score("us-east-1", "use1-az6", 9)
    cloud.spot.score("us-east-1", "use1-az1", 2)
    scores = PlacementScores(shared_clients())
    with pytest.raises(BadRequestError, match="says nothing"):
        scores.scores("us-east-1", G6E[:2], 1, NOW)
    for minute in range(0, 60, 10):
        reported, _ = scores.scores("us-east-1", G6E, 1, NOW + timedelta(minutes=minute))
        assert reported == {"use1-az6": 9, "use1-az1": 2}
    assert cloud.faults.calls["ec2", "GetSpotPlacementScores"] == 1
    likely = scores.availability("us-east-1", G6E, 1, NOW)["use1-az1"]
    assert (likely.low, likely.value, likely.high) == (0.0, 0.2, 0.5)
    assert likely.basis is Basis.PRIOR


def test_scores_beyond_the_days_limit_are_unknown(cloud: Cloud) -> None:
    cloud.spot.score("us-east-1", "use1-az6", 9)
    cloud.spot.questions_a_day = 1
    scores = PlacementScores(shared_clients())
    assert scores.availability("us-east-1", G6E, 1, NOW)
    assert scores.availability("us-east-1", G6E, 2, NOW) == {}
    later = NOW + timedelta(hours=5)
    assert scores.availability("us-east-1", G6E, 1, later)["use1-az6"].observed_at == later


def test_a_booked_block_is_a_dated_reserved_offer_that_costs_no_more(cloud: Cloud) -> None:
    begins_at, ends_at = NOW - timedelta(hours=1), NOW + timedelta(days=2)
    cloud.limits.book("us-east-1a", "p5.48xlarge", 4, begins_at, ends_at)
    cloud.limits.book("us-east-1b", "p5.48xlarge", 2, NOW - timedelta(days=3), NOW)
    cloud.limits.book("us-west-2a", "p5.48xlarge", 1, begins_at, ends_at)
    clients = shared_clients()
    blocks = CapacityBlocks(clients, Zones(clients))
    (offer,) = blocks.reservations("us-east-1", ["p5.48xlarge"], NOW)
    assert offer.pool == Pool("aws", "us-east-1", "use1-az6", "p5.48xlarge", CapacityType.RESERVED)
    assert offer.price_usd_per_hour is not None
    assert offer.price_usd_per_hour.value == 0
    assert (offer.from_at, offer.until_at) == (begins_at, ends_at - timedelta(minutes=30))
    assert offer.nodes_available == 4
    named = blocks.of(offer.pool, 4, NOW)
    assert named is not None
    assert named.name == "cr-0b10c"
    assert blocks.of(offer.pool, 4, ends_at - timedelta(minutes=30)) is None
    assert blocks.reservations("us-east-1", ["g6e.xlarge"], NOW) == ()


def test_of_several_blocks_of_a_pool_the_one_with_room_is_reported_and_named(cloud: Cloud) -> None:
    def at(days: float) -> datetime:
        return NOW + timedelta(days=days)

    def figures_of(days: float) -> tuple[int | None, datetime | None, datetime | None]:
        (offer,) = CapacityBlocks(clients, Zones(clients)).reservations("us-east-1", [p5], at(days))
        return offer.nodes_available, offer.from_at, offer.until_at

    p5, clients, cleared = "p5.48xlarge", shared_clients(), timedelta(minutes=30)
    cloud.limits.book("us-east-1a", p5, 2, at(-1), at(1), "cr-full", used=2)
    cloud.limits.book("us-east-1a", p5, 4, at(-1), at(3), "cr-free")
    cloud.limits.book("us-east-1a", p5, 8, at(5), at(9), "cr-later", used=8, state="scheduled")
    assert figures_of(0) == (4, at(-1), at(1) - cleared), (
        "nodes that run may be in the one that ends"
    )
    assert figures_of(1) == (4, at(-1), at(3) - cleared)
    assert figures_of(3) == (8, at(5), at(9) - cleared)
    pool = Pool("aws", "us-east-1", "use1-az6", p5, CapacityType.RESERVED)
    for nodes, name in ((1, "cr-free"), (4, "cr-free"), (5, "cr-free")):
        named = CapacityBlocks(clients, Zones(clients)).of(pool, nodes, NOW)
        assert named is not None
        assert named.name == name
    assert CapacityBlocks(clients, Zones(clients)).of(pool, 1, at(6)) is None, "not yet active"


def test_types_are_reported_with_gpus_and_terms(cloud: Cloud) -> None:
    types = InstanceTypes(shared_clients()).matching("us-east-1", (), NOW)
    assert {"p5.48xlarge", "p5en.48xlarge", "g6e.xlarge", "g6f.2xlarge"} <= set(types)
    p5 = types["p5.48xlarge"]
    assert (p5.gpus, p5.efa_interfaces) == (8, 32)
    assert p5.terms == frozenset(CapacityType) - {CapacityType.FLEX_START}
    assert types["g6f.2xlarge"].gpus == 0.25
    assert all(facts.gpus > 0 for facts in types.values())


def test_types_are_chosen_by_wildcards_and_asked_once_a_day(cloud: Cloud) -> None:
    types = InstanceTypes(shared_clients())
    for hour in range(24):
        found = types.matching("us-east-1", ("p5*", "g6e.xlarge"), NOW + timedelta(hours=hour))
    assert set(found) == {
        "g6e.xlarge", "p5.4xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge"
    }  # fmt: skip
    asked = cloud.faults.calls["ec2", "DescribeInstanceTypes"]
    assert asked == 1


def test_offerings_are_by_zone_id(cloud: Cloud) -> None:
    zones = Offerings(shared_clients()).zones("us-east-1", ["p5en.48xlarge", "none.such"], NOW)
    assert zones == {"p5en.48xlarge": {"use1-az2", "use1-az6"}}
