"""Reserved nodes of Compute Engine: dated offers, and launches that name their reservation."""

from __future__ import annotations

from datetime import timedelta

import pytest

from costopt.domain.errors import NoCapacityError
from costopt.domain.market import CapacityType, Offer, Pool
from tests.support.gcp.account import EMPTY, SPOT, TYPE, NewAccount
from tests.support.gcp.faults import unauthorized

RESERVED = SPOT.with_capacity_type(CapacityType.RESERVED)


def reserved(project: NewAccount, **options: object) -> dict[Pool, Offer]:
    offers = project.connect(None, **options).offers(project.clock.now())
    return {o.pool: o for o in offers if o.pool.capacity_type is CapacityType.RESERVED}


def asked(project: NewAccount) -> list[dict[str, object]]:
    return [item["asked"] for item in project.cloud.instances.all.values()]


def test_a_reservation_is_an_offer_that_costs_no_more(project: NewAccount) -> None:
    ends_at = project.clock.now() + timedelta(days=3)
    project.cloud.reserved.hold(SPOT.zone, "r", TYPE, 4, deleteAtTime=ends_at.isoformat())
    (offer,) = reserved(project).values()
    assert offer.pool == RESERVED
    assert offer.price_usd_per_hour is not None
    assert offer.price_usd_per_hour.value == 0
    assert offer.hazard_per_hour is not None
    assert offer.hazard_per_hour.value == 0
    assert (offer.nodes_available, offer.from_at, offer.until_at) == (4, None, ends_at)


def test_a_launch_names_its_reservation_and_takes_of_it(project: NewAccount) -> None:
    project.cloud.reserved.hold(SPOT.zone, "r", TYPE, 3)
    nodes = project.provider.launch(project.request(2, pool=RESERVED))
    assert {(node.pool, node.usd_per_hour) for node in nodes} == {(RESERVED, 0.0)}
    for properties in asked(project):
        affinity = properties["reservationAffinity"]
        assert isinstance(affinity, dict)
        assert (affinity["consumeReservationType"], affinity["values"]) == (
            "SPECIFIC_RESERVATION",
            ["r"],
        )
        assert properties["scheduling"]["provisioningModel"] == "STANDARD"  # type: ignore[index]
        assert "resourcePolicies" not in properties
    assert reserved(project)[RESERVED].nodes_available == 1
    with pytest.raises(NoCapacityError):
        project.provider.launch(project.request(2, "b", RESERVED))
    project.provider.terminate(nodes[0].node_id)
    project.clock.sleep(3600)
    (ended,) = (node for node in project.provider.nodes("me") if not node.state.is_alive)
    bill = project.provider.bill(ended)
    assert bill is not None
    assert [usd for _, usd in bill.prices] == [0.0]


def test_what_is_booked_by_the_calendar_is_dated_and_bound_to_its_end(
    project: NewAccount,
) -> None:
    now = project.clock.now()
    begins_at, ends_at = now + timedelta(hours=2), now + timedelta(days=2)
    project.cloud.reserved.book(SPOT.zone, TYPE, 2, begins_at, ends_at)
    offer = reserved(project)[RESERVED]
    assert (offer.nodes_available, offer.from_at, offer.until_at) == (2, begins_at, ends_at)
    with pytest.raises(NoCapacityError, match="has begun"):
        project.provider.launch(project.request(2, pool=RESERVED))
    project.clock.sleep(2 * 3600)
    project.cloud.reserved.begin(SPOT.zone, TYPE, 2)
    offer = reserved(project)[RESERVED]
    assert (offer.nodes_available, offer.from_at, offer.until_at) == (2, begins_at, ends_at)
    project.connect().launch(project.request(2, pool=RESERVED))
    for properties in asked(project):
        scheduling, affinity = properties["scheduling"], properties["reservationAffinity"]
        assert isinstance(scheduling, dict)
        assert isinstance(affinity, dict)
        assert affinity["values"] == ["booked-1"]
        assert scheduling["provisioningModel"] == "RESERVATION_BOUND"
        assert scheduling["instanceTerminationAction"] == "DELETE"
    project.clock.sleep(2 * 86400)
    assert not reserved(project)


def test_a_launch_at_the_very_beginning_names_what_the_booking_became(
    project: NewAccount,
) -> None:
    begins_at = project.clock.now() + timedelta(minutes=1)
    project.cloud.reserved.book(SPOT.zone, TYPE, 2, begins_at, begins_at + timedelta(days=2))
    provider = project.connect()
    provider.offers(project.clock.now())
    project.clock.sleep(60)
    with pytest.raises(NoCapacityError, match="has begun"):
        provider.launch(project.request(2, pool=RESERVED))
    project.cloud.reserved.begin(SPOT.zone, TYPE, 2)
    project.clock.sleep(60)
    assert len(provider.launch(project.request(2, "job-0002", RESERVED))) == 2


def test_reservations_of_one_name_in_two_zones_are_distinguished(project: NewAccount) -> None:
    project.cloud.reserved.hold(SPOT.zone, "r", TYPE, 1)
    project.cloud.reserved.hold(EMPTY.zone, "r", TYPE, 2)
    found = {pool.zone: offer.nodes_available for pool, offer in reserved(project).items()}
    assert found == {SPOT.zone: 1, EMPTY.zone: 2}


def named(project: NewAccount) -> list[str]:
    """The reservations that the instances were launched into, in the order of their launch."""
    affinities = [properties["reservationAffinity"] for properties in asked(project)]
    return [affinity["values"][0] for affinity in affinities]  # type: ignore[index]


def figures_of(project: NewAccount) -> tuple[int | None, object, object]:
    offer = reserved(project)[RESERVED]
    return offer.nodes_available, offer.from_at, offer.until_at


def test_a_full_reservation_hides_none_with_room(project: NewAccount) -> None:
    project.cloud.reserved.hold(SPOT.zone, "a", TYPE, 2)
    project.cloud.reserved.hold(SPOT.zone, "b", TYPE, 3)
    assert figures_of(project) == (3, None, None)
    project.provider.launch(project.request(2, "one", RESERVED))
    assert figures_of(project) == (3, None, None)
    project.provider.launch(project.request(3, "two", RESERVED))
    assert named(project) == ["a", "a", "b", "b", "b"], "room for a gang is kept together"
    assert figures_of(project)[0] == 0


def test_of_reservations_that_end_apart_nothing_is_reported_for_too_long(
    project: NewAccount,
) -> None:
    ends_at = project.clock.now() + timedelta(days=1)
    project.cloud.reserved.hold(SPOT.zone, "day", TYPE, 2, deleteAtTime=ends_at.isoformat())
    project.cloud.reserved.hold(SPOT.zone, "ever", TYPE, 4)
    assert figures_of(project) == (4, None, None)
    for key in ("one", "two", "three"):
        project.provider.launch(project.request(2, key, RESERVED))
    assert named(project) == ["ever"] * 4 + ["day"] * 2, "what lasts longest first"
    project.cloud.reserved.hold(SPOT.zone, "more", TYPE, 8)
    assert figures_of(project) == (8, None, ends_at), "nodes that run may be in the one that ends"
    project.clock.sleep(86400)
    assert figures_of(project) == (8, None, None)


def test_bookings_follow_one_another(project: NewAccount) -> None:
    now = project.clock.now()
    from_at, until_at = now + timedelta(hours=1), now + timedelta(hours=3)
    again_at, end_at = now + timedelta(hours=5), now + timedelta(hours=9)
    project.cloud.reserved.book(SPOT.zone, TYPE, 4, again_at, end_at, "second")
    project.cloud.reserved.book(SPOT.zone, TYPE, 2, from_at, until_at, "first")
    assert figures_of(project) == (2, from_at, until_at)
    project.clock.sleep(3600)
    project.cloud.reserved.begin(SPOT.zone, TYPE, 2, "first")
    project.connect().launch(project.request(2, pool=RESERVED))
    assert named(project) == ["first-1"] * 2
    assert figures_of(project) == (0, from_at, until_at)
    project.clock.sleep(2 * 3600)
    assert figures_of(project) == (4, again_at, end_at)


def test_what_cannot_be_used_by_naming_it_is_not_an_offer(project: NewAccount) -> None:
    later = project.clock.now() + timedelta(days=1)
    project.cloud.reserved.hold(SPOT.zone, "any", TYPE, 2, specificReservationRequired=False)
    project.cloud.reserved.hold(SPOT.zone, "made", TYPE, 2, status="CREATING")
    project.cloud.reserved.hold(SPOT.zone, "other", "a2-highgpu-1g", 2)
    future = project.cloud.reserved.book(SPOT.zone, TYPE, 2, later, later + timedelta(days=1))
    future["status"] = {"procurementStatus": "PENDING_APPROVAL"}
    assert not reserved(project)
    future |= {"status": {"procurementStatus": "APPROVED"}, "reservationMode": "DEFAULT"}
    assert not reserved(project)


def test_attached_gpus_are_part_of_what_is_reserved(project: NewAccount) -> None:
    name = "n1-standard-8+1xT4"
    held = project.cloud.reserved.hold(SPOT.zone, "r", "n1-standard-8", 1)
    (gpus,) = [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": 1}]
    held["specificReservation"]["instanceProperties"]["guestAccelerators"] = [gpus]
    (pool,) = reserved(project, instance_types=[name])
    assert pool.instance_type == name


def test_who_may_not_list_reservations_has_none(project: NewAccount) -> None:
    project.cloud.reserved.hold(SPOT.zone, "r", TYPE, 1)
    project.cloud.faults.on("reservations.list", unauthorized, times=None)
    assert not reserved(project)


def test_reservations_are_asked_for_every_five_minutes(project: NewAccount) -> None:
    provider = project.connect()
    for _ in range(3):
        provider.offers(project.clock.now())
        project.clock.sleep(120)
    assert project.cloud.faults.calls["reservations.list"] == 1
    project.clock.sleep(120)
    provider.offers(project.clock.now())
    assert project.cloud.faults.calls["reservations.list"] == 2
