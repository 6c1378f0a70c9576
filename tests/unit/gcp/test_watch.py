"""Nodes of Compute Engine over time: how they end, what is left of them, what they cost."""

from __future__ import annotations

from datetime import timedelta

import pytest

from costopt.domain.errors import BadRequestError
from costopt.domain.fleet import EndCause, NodeState
from costopt.domain.market import CapacityType
from costopt.provider.base import OrphanedResource
from costopt_gcp.instances import label
from tests.support.gcp.account import ELSEWHERE, REGION, SPOT, TYPE, NewAccount
from tests.support.gcp.faults import fail


def _launched(project: NewAccount, key: str = "a") -> str:
    (node,) = project.provider.launch(project.request(1, key))
    return node.node_id


def test_a_restarted_controller_finds_its_nodes_and_notices(project: NewAccount) -> None:
    name = _launched(project)
    (before,) = project.provider.nodes("me")
    interrupts_at = project.cloud.interrupt(name)
    restarted = project.connect()
    (after,) = restarted.nodes("me")
    assert after.state is NodeState.STOPPING
    assert (after.node_id, after.pool, after.key, after.usd_per_hour) == (
        before.node_id,
        before.pool,
        before.key,
        before.usd_per_hour,
    )
    (notice,) = restarted.notices("me")
    assert notice.interrupts_at == interrupts_at


def test_an_owner_that_no_label_can_hold_is_distinguished_from_others(project: NewAccount) -> None:
    from costopt.domain.fleet import LaunchRequest

    for number, owner in enumerate(("Me & Co.", "me & co.")):
        project.provider.launch(LaunchRequest(owner, "Job/1", SPOT, 1, f"k{number}"))
    assert [n.owner for n in project.connect().nodes("Me & Co.")] == ["Me & Co."]
    (node,) = project.connect().nodes("me & co.")
    assert (node.owner, node.job) == ("me & co.", "Job/1")
    assert len(label("x" * 100)) <= 63
    assert label("Me & Co.") != label("me & co.")


def test_a_notice_that_comes_to_nothing_lapses(project: NewAccount) -> None:
    name = _launched(project)
    project.provider.nodes("me")
    project.cloud.instances.preempt(name, timedelta(days=1))
    assert project.provider.notices("me")
    project.clock.sleep(700)
    assert not project.provider.notices("me")


def test_a_node_that_google_forgets_is_remembered_for_two_hours(project: NewAccount) -> None:
    name = _launched(project)
    project.provider.terminate(name)
    project.clock.sleep(60)
    for _ in range(2):
        assert [node.node_id for node in project.provider.nodes("me")] == [name]
        project.clock.sleep(7100)
    project.clock.sleep(200)
    project.provider.nodes("me")
    assert not project.provider.nodes("me")


def test_a_reminder_of_an_ended_node_changes_nothing(project: NewAccount) -> None:
    name = _launched(project)
    living = project.provider.nodes("me")
    project.provider.terminate(name)
    project.clock.sleep(60)
    ended = project.provider.nodes("me")
    project.provider.restore_known_nodes(living)
    assert project.provider.nodes("me") == ended


def test_a_node_that_vanished_without_a_word_has_failed(project: NewAccount) -> None:
    _launched(project)
    project.cloud.instances.all.clear()
    (node,) = project.provider.nodes("me")
    assert node.state.is_alive, "a new one may not be listed yet"
    project.clock.sleep(301)
    (node,) = project.provider.nodes("me")
    assert node.end_cause is EndCause.LOST


def test_who_is_deleted_while_it_is_preempted_was_interrupted(project: NewAccount) -> None:
    name = _launched(project)
    project.clock.sleep(600)
    project.cloud.interrupt(name)
    project.clock.sleep(10)
    project.provider.terminate(name)
    project.clock.sleep(60)
    (node,) = project.provider.nodes("me")
    assert node.end_cause is EndCause.INTERRUPTED
    assert node.ended_at == node.launched_at + timedelta(seconds=610)


def test_instances_of_others_are_not_nodes(project: NewAccount) -> None:
    name = _launched(project)
    item = project.cloud.instances.named(name)
    item["metadata"] = {"items": [{"key": "costopt-pool", "value": "what?"}]}
    assert not project.connect().nodes("me")


def test_a_zone_that_is_not_reachable_keeps_its_nodes_and_is_named(project: NewAccount) -> None:
    here = _launched(project)
    project.provider.launch(project.request(1, "b", ELSEWHERE))
    assert len(project.provider.nodes("me")) == 2
    project.cloud.instances.unreachable.add(SPOT.zone)
    project.clock.sleep(1000)
    alive = {node.node_id for node in project.provider.nodes("me") if node.state.is_alive}
    assert here in alive
    assert len(alive) == 2
    assert project.provider.unreachable_regions() == {REGION}
    assert f"gcp {REGION}" in project.provider.errors_by_region()


def test_operations_that_cannot_be_read_are_reported(project: NewAccount) -> None:
    _launched(project)
    project.provider.nodes("me")
    project.cloud.faults.on("zoneOperations.list", fail)
    assert not project.provider.notices("me")
    assert f"gcp {SPOT.zone} notices" in project.provider.errors_by_region()


def test_a_node_that_switched_itself_off_is_over_and_left_to_be_cleaned(
    project: NewAccount,
) -> None:
    name = _launched(project)
    project.cloud.instances.named(name)["status"] = "TERMINATED"
    (node,) = project.provider.nodes("me")
    assert (node.state, node.end_cause) == (NodeState.ENDED, EndCause.FAILED)
    (left,) = project.provider.orphaned_resources("me")
    assert (left.kind, left.name, left.place, left.job) == (
        "stopped instance",
        name,
        f"gcp/{SPOT.zone}",
        "job",
    )
    project.provider.delete_resource(left)
    project.provider.delete_resource(left)
    assert not project.provider.orphaned_resources("me")


def test_disks_and_templates_of_the_owner_are_found_and_removed(project: NewAccount) -> None:
    now, mine = project.clock.now(), {"costopt-owner": "me", "costopt-job": "old"}
    project.cloud.things.leave_disk(SPOT.zone, "disk-1", mine, now)
    project.cloud.things.leave_disk(SPOT.zone, "disk-2", {"costopt-owner": "you"}, now)
    project.cloud.things.leave_disk("asia-east1-a", "disk-3", mine, now)
    project.cloud.things.leave_template("template-1", mine, now)
    project.cloud.things.leave_template("template-2", {}, now)
    found = project.provider.orphaned_resources("me")
    assert [(left.kind, left.name, left.job, left.serves_job) for left in found] == [
        ("disk", "disk-1", "old", False),
        ("instance template", "template-1", "old", True),
    ]
    for left in (*found, *found):
        project.provider.delete_resource(left)
    assert not project.provider.orphaned_resources("me")
    assert len(project.cloud.things.disks) == 2
    with pytest.raises(BadRequestError, match="bucket"):
        project.provider.delete_resource(
            OrphanedResource("bucket", "b", "gcp/global", "job", None, None, serves_job=False)
        )


def test_a_disk_that_an_instance_uses_is_not_an_orphan(project: NewAccount) -> None:
    project.cloud.things.leave_disk(
        SPOT.zone, "disk-1", {"costopt-owner": "me"}, project.clock.now()
    )
    project.cloud.things.disks[SPOT.zone, "disk-1"]["users"] = ["https://…/instances/x"]
    assert not project.provider.orphaned_resources("me")


def test_a_spot_node_pays_by_the_second_at_the_prices_in_force(project: NewAccount) -> None:
    name = _launched(project)
    began_at = project.clock.now()
    changed_at = began_at + timedelta(minutes=50)
    project.clock.sleep(5000)
    project.cloud.price(REGION, TYPE, 0.5, changed_at)
    project.provider.terminate(name)
    (node,) = project.provider.nodes("me")
    project.clock.sleep(700)
    bill = project.provider.bill(node)
    assert bill is not None
    assert bill.prices == ((began_at, 0.25), (changed_at, 0.5))
    assert bill.min_billed_s == 60


def test_a_node_that_is_taken_in_its_first_minute_is_free(project: NewAccount) -> None:
    name = _launched(project)
    project.cloud.interrupt(name)
    project.clock.sleep(60)
    (node,) = project.provider.nodes("me")
    bill = project.provider.bill(node)
    assert bill is not None
    assert [usd for _, usd in bill.prices] == [0.0]


def test_on_demand_pays_the_list_price_and_the_living_nothing_yet(project: NewAccount) -> None:
    pool = SPOT.with_capacity_type(CapacityType.ON_DEMAND)
    (node,) = project.provider.launch(project.request(1, "a", pool))
    assert project.provider.bill(node) is None
    project.clock.sleep(100)
    project.provider.terminate(node.node_id)
    (node,) = project.provider.nodes("me")
    bill = project.provider.bill(node)
    assert bill is not None
    assert bill.prices == ((node.launched_at, 0.8),)


def test_without_a_price_of_some_time_there_is_no_bill(project: NewAccount) -> None:
    name = _launched(project)
    project.cloud.place.spot[REGION, TYPE] = []
    project.clock.sleep(7300)
    project.provider.terminate(name)
    (node,) = project.provider.nodes("me")
    assert project.provider.bill(node) is None
