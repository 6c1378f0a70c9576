"""Compute Engine launches when calls are throttled, refused, unanswered, or answered in vain."""

from __future__ import annotations

import pytest

from costopt.domain.errors import (
    BadRequestError,
    ForbiddenError,
    NoCapacityError,
    ProviderError,
    ProviderUnavailableError,
    QuotaExceededError,
    ThrottledError,
)
from costopt.domain.fleet import EndCause, NodeState
from costopt_gcp.instances import node_names
from tests.support.gcp.account import SPOT, TYPE, NewAccount
from tests.support.gcp.faults import (
    drop_after,
    fail,
    throttle,
)


def test_a_node_that_came_and_went_unseen_is_not_launched_again(project: NewAccount) -> None:
    project.cloud.faults.on("zoneOperations.wait", drop_after, nth=3)
    with pytest.raises(ProviderUnavailableError):
        project.provider.launch(project.request(1))
    (name,) = project.cloud.instances.alive()
    project.clock.sleep(60)
    project.cloud.interrupt(name)
    project.clock.sleep(60)
    assert not project.cloud.instances.alive()
    (node,) = project.connect().launch(project.request(1))
    assert (node.node_id, node.state, node.end_cause) == (
        name,
        NodeState.ENDED,
        EndCause.INTERRUPTED,
    )
    assert node.ended_at is not None
    assert (node.ended_at - node.launched_at).total_seconds() == 90
    assert not project.cloud.instances.alive()


def test_names_that_are_taken_are_waited_for(project: NewAccount) -> None:
    """Google forgets request ids; the names of a launch's instances still hold it to one."""
    project.cloud.faults.on("zoneOperations.wait", drop_after, nth=3)
    with pytest.raises(ProviderUnavailableError):
        project.provider.launch(project.request(2))
    for operation in project.cloud.operations.all:
        operation.request_id = ""
    alive = project.cloud.instances.alive()
    # Their labels cannot be seen yet, as if the list were behind.
    hidden = [project.cloud.instances.named(name) for name in alive]
    for item in hidden:
        item["labels"], item["kept"] = {}, item["labels"]
    with pytest.raises(ProviderUnavailableError, match="asked for before"):
        project.connect().launch(project.request(2))
    for item in hidden:
        item["labels"] = item["kept"]
    nodes = project.connect().launch(project.request(2))
    assert [node.node_id for node in nodes] == alive == list(node_names(project.request(2)))


def test_throttling_after_a_lost_answer_leaves_the_outcome_open(project: NewAccount) -> None:
    """The engine must not write down that no node exists."""
    project.cloud.instances.looks = 9
    project.cloud.faults.on("instances.bulkInsert", drop_after)
    project.cloud.faults.on("instances.bulkInsert", throttle, nth=2)
    for _ in range(2):
        with pytest.raises(ProviderUnavailableError):
            project.provider.launch(project.request())
    (node,) = project.provider.launch(project.request())
    assert [node.node_id] == project.cloud.instances.alive()


@pytest.mark.parametrize(
    ("codes", "kind"),
    [
        (["ZONE_RESOURCE_POOL_EXHAUSTED"], NoCapacityError),
        (["ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"], NoCapacityError),
        (["VM_MIN_COUNT_NOT_REACHED"], NoCapacityError),
        (["VM_MIN_COUNT_NOT_REACHED", "QUOTA_EXCEEDED"], QuotaExceededError),
        (["QUOTA_EXCEEDED"], QuotaExceededError),
        (["PERMISSIONS_ERROR"], ForbiddenError),
        (["RESOURCE_NOT_FOUND"], BadRequestError),
        (["RESOURCE_NOT_READY"], ProviderUnavailableError),
        (["RESOURCE_OPERATION_RATE_EXCEEDED"], ThrottledError),
        (["INTERNAL_ERROR"], ProviderUnavailableError),
    ],
)
def test_the_result_of_an_operation_has_its_kind_and_names_the_pool(
    project: NewAccount, codes: list[str], kind: type[ProviderError]
) -> None:
    project.cloud.instances.operation_errors = [(code, "Google's own words.") for code in codes]
    with pytest.raises(kind, match=str(SPOT)) as raised:
        project.provider.launch(project.request())
    assert codes[-1] in raised.value.message
    assert not project.cloud.instances.alive()


def test_a_failed_operation_is_not_reported_for_ever(project: NewAccount) -> None:
    """The same request id would only tell of the same failure."""
    project.cloud.instances.operation_errors = [("RESOURCE_NOT_READY", "not yet")]
    with pytest.raises(ProviderUnavailableError):
        project.provider.launch(project.request())
    project.cloud.instances.operation_errors = []
    (node,) = project.provider.launch(project.request())
    assert [node.node_id] == project.cloud.instances.alive()


def test_an_operation_that_does_not_end_is_given_up_and_found_later(project: NewAccount) -> None:
    from costopt_gcp.clients import Clients, Timeouts

    project.cloud.instances.looks = 1000
    timeouts = Timeouts(read_s=10.0, launch_s=0.05, poll_s=0.0)
    hasty = project.connect(Clients("project-1", project.cloud.endpoint, timeouts, 0.0))
    with pytest.raises(ProviderUnavailableError):
        hasty.launch(project.request())
    project.cloud.instances.looks = 1
    for operation in project.cloud.operations.all:
        operation.looks = 1
    (node,) = project.provider.launch(project.request())
    assert [node.node_id] == project.cloud.instances.alive()


def test_operations_that_cannot_be_read_end_no_node(project: NewAccount) -> None:
    """Whether it was preempted or deleted decides what it costs and what is learned of the pool."""
    (node,) = project.provider.launch(project.request())
    project.clock.sleep(1000)
    project.cloud.interrupt(node.node_id)
    project.clock.sleep(31)
    project.cloud.faults.on("zoneOperations.list", fail)
    (listed,) = project.provider.nodes("me")
    assert listed.state.is_alive
    (listed,) = project.provider.nodes("me")
    assert listed.end_cause is EndCause.INTERRUPTED


def test_a_launch_asks_for_a_spot_machine_that_is_deleted_when_taken(project: NewAccount) -> None:
    provider = project.connect(preemption_notice_s=120)
    (node,) = provider.launch(project.request())
    asked = project.cloud.instances.named(node.node_id)["asked"]
    assert asked["machineType"] == TYPE
    assert asked["scheduling"] == {
        "provisioningModel": "SPOT",
        "instanceTerminationAction": "DELETE",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "preemptionNoticeDuration": {"seconds": "120"},
    }
    assert asked["labels"]["costopt-owner"] == "me"
    assert asked["serviceAccounts"][0]["email"] == "n@p.example"
    (disk,) = asked["disks"]
    assert disk["autoDelete"]
    assert disk["initializeParams"]["labels"] == asked["labels"]
