"""Flex-start on Compute Engine: a launch that waits for hours, over HTTP."""

from __future__ import annotations

from datetime import timedelta

import pytest

from costopt.domain.errors import BadRequestError, NoCapacityError
from costopt.domain.fleet import EndCause, NodeState
from costopt.domain.market import CapacityType, Offer
from tests.support.gcp.account import ELSEWHERE, REGION, SPOT, NewAccount
from tests.support.gcp.faults import drop_after

FLEX = SPOT.with_capacity_type(CapacityType.FLEX_START)
HOURS_2 = timedelta(hours=2)


@pytest.fixture
def priced(project: NewAccount) -> NewAccount:
    """A project in whose region flex-start has a price; capacity never comes."""
    project.cloud.skus.g2(REGION)
    project.cloud.skus.g2_on_flex_start(REGION)
    return project


def _offer(project: NewAccount) -> Offer:
    (offer,) = (o for o in project.provider.offers(project.clock.now()) if o.pool == FLEX)
    return offer


def test_its_price_is_that_of_its_own_skus(priced: NewAccount) -> None:
    offer = _offer(priced)
    assert offer.price_usd_per_hour is not None
    assert offer.price_usd_per_hour.value == pytest.approx(0.86)
    assert offer.hazard_per_hour is not None
    assert offer.hazard_per_hour.value == 0
    assert (offer.nodes_available, offer.wait_s) == (1, 7200)
    on_demand = priced.provider.price_now(
        SPOT.with_capacity_type(CapacityType.ON_DEMAND), priced.clock.now()
    )
    assert on_demand == pytest.approx(1.72)


def test_without_these_its_price_is_unknown_and_nothing_is_launched(project: NewAccount) -> None:
    project.cloud.skus.g2(REGION)
    offer = _offer(project)
    assert offer.price_usd_per_hour is None
    assert offer.unknown_because == (
        "Cloud Billing has no flex_start price of g2 instance core in us-central1"
    )
    with pytest.raises(NoCapacityError, match="price"):
        project.provider.launch(project.request(pool=FLEX))
    assert not project.cloud.instances.alive()


def test_what_is_asked_for_is_one_instance_that_waits_two_hours_and_runs_seven_days(
    priced: NewAccount,
) -> None:
    (node,) = priced.provider.launch(priced.request(pool=FLEX))
    assert node.state is NodeState.WAITING
    item = priced.cloud.instances.named(node.node_id)
    assert item["status"] == "PENDING"
    asked = item["asked"]
    assert asked["scheduling"] == {
        "provisioningModel": "FLEX_START",
        "instanceTerminationAction": "DELETE",
        "maxRunDuration": {"seconds": "604800"},
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
    }
    assert asked["params"] == {"requestValidForDuration": {"seconds": "7200"}}
    assert asked["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}
    assert asked["machineType"] == "zones/us-central1-a/machineTypes/g2-standard-4"
    disk = asked["disks"][0]["initializeParams"]
    assert disk["diskType"] == "zones/us-central1-a/diskTypes/pd-balanced"


def test_it_runs_from_when_capacity_came_and_is_billed_from_then(priced: NewAccount) -> None:
    priced.cloud.instances.comes_after = timedelta(minutes=40)
    (node,) = priced.provider.launch(priced.request(pool=FLEX))
    begun_at = node.launched_at
    priced.clock.sleep(39 * 60)
    assert priced.provider.nodes("me")[0].state is NodeState.WAITING
    priced.clock.sleep(60)
    (node,) = priced.provider.nodes("me")
    assert (node.state, node.launched_at) == (NodeState.RUNNING, begun_at + timedelta(minutes=40))
    assert priced.provider.launch(priced.request(pool=FLEX)) == (node,)
    assert _offer(priced).until_at == node.launched_at + timedelta(days=7) - timedelta(minutes=15)
    priced.clock.sleep(3600)
    priced.provider.terminate(node.node_id)
    (ended,) = priced.provider.nodes("me")
    bill = priced.provider.bill(ended)
    assert bill is not None
    ((from_at, usd_per_hour),) = bill.prices
    assert from_at == node.launched_at
    assert usd_per_hour == pytest.approx(0.86)


@pytest.mark.parametrize("restarted", [False, True], ids=["watched", "after a restart"])
def test_a_request_that_expires_is_reported_as_a_node_that_never_ran(
    priced: NewAccount, restarted: bool
) -> None:
    (node,) = priced.provider.launch(priced.request(pool=FLEX))
    priced.clock.sleep(7199)
    assert priced.provider.nodes("me")[0].state is NodeState.WAITING
    if restarted:
        priced.provider = priced.connect()
        priced.provider.restore_known_nodes([node])
    priced.clock.sleep(61)
    (ended,) = priced.provider.nodes("me")
    assert (ended.state, ended.end_cause) == (NodeState.ENDED, EndCause.NO_CAPACITY)
    assert ended.ended_at == node.launched_at + HOURS_2
    assert "no capacity" in ended.message
    (again,) = priced.connect().launch(priced.request(pool=FLEX))
    assert again.end_cause is EndCause.NO_CAPACITY
    assert not priced.cloud.instances.alive()


def test_one_that_is_released_while_it_waits_is_deleted(priced: NewAccount) -> None:
    priced.cloud.instances.comes_after = timedelta(minutes=40)
    (node,) = priced.provider.launch(priced.request(pool=FLEX))
    priced.clock.sleep(600)
    priced.provider.terminate(node.node_id)
    assert not priced.cloud.instances.alive()
    priced.clock.sleep(3600)
    assert not priced.provider.nodes("me")[0].state.is_alive
    assert not priced.cloud.instances.alive()


def test_a_launch_whose_answer_was_lost_is_found_and_not_made_twice(priced: NewAccount) -> None:
    priced.cloud.faults.on("instances.insert", drop_after)
    with pytest.raises(Exception, match="us-central1"):
        priced.provider.launch(priced.request(pool=FLEX))
    for provider in (priced.provider, priced.connect()):
        (node,) = provider.launch(priced.request(pool=FLEX))
        assert node.state is NodeState.WAITING
    assert len(priced.cloud.instances.alive()) == 1


def test_a_gang_is_not_launched_at_once(priced: NewAccount) -> None:
    with pytest.raises(BadRequestError, match="one by one"):
        priced.provider.launch(priced.request(2, pool=FLEX))


def test_other_regions_have_no_price_of_it(priced: NewAccount) -> None:
    offers = priced.provider.offers(priced.clock.now())
    (elsewhere,) = (
        o for o in offers if o.pool == ELSEWHERE.with_capacity_type(CapacityType.FLEX_START)
    )
    assert elsewhere.price_usd_per_hour is None
