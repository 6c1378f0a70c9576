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
from tests.support.gcp.account import ELSEWHERE, EMPTY, SPOT, TYPE, NewAccount
from tests.support.gcp.faults import (
    Fault,
    drop,
    drop_after,
    fail,
    refuse,
    throttle,
    too_many,
    unauthorized,
)

LAUNCH_CALLS = (
    "regions.get",
    "instances.list",
    "zoneOperations.list",
    "advice.capacityHistory",
    "instances.bulkInsert",
    "zoneOperations.wait",
)
FAULTS: dict[str, tuple[Fault, type[ProviderError]]] = {
    "throttled": (throttle, ThrottledError),
    "too many": (too_many, ThrottledError),
    "refused": (unauthorized, ForbiddenError),
    "dropped": (drop, ProviderUnavailableError),
    "failed": (fail, ProviderUnavailableError),
    "lost": (drop_after, ProviderUnavailableError),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("call", LAUNCH_CALLS)
@pytest.mark.parametrize("fault", FAULTS)
def test_any_call_of_a_launch_may_fail_once(project: NewAccount, call: str, fault: str) -> None:
    """Asked again under its key the launch gives two nodes, whatever happened the first time."""
    goes_wrong, expected = FAULTS[fault]
    project.cloud.faults.on(call, goes_wrong)
    if call == "zoneOperations.wait":
        # The launch itself is on its way, so whatever befalls the look leaves the outcome open.
        expected = ProviderUnavailableError
    with pytest.raises(ProviderError) as raised:
        project.provider.launch(project.request(2))
    if call == "advice.capacityHistory":
        assert isinstance(raised.value, NoCapacityError), "without a price nothing is launched"
    else:
        assert isinstance(raised.value, expected)
    assert "us-central1" in raised.value.message
    project.clock.sleep(60)
    nodes = project.provider.launch(project.request(2))
    assert project.cloud.instances.alive() == [node.node_id for node in nodes]
    assert len(nodes) == 2


@pytest.mark.parametrize("call", ["instances.bulkInsert", "zoneOperations.wait"])
def test_a_restarted_controller_finds_the_nodes_of_a_lost_answer(
    project: NewAccount, call: str
) -> None:
    """What is still on its way is asked for under the same request id: the same operation."""
    project.cloud.faults.on(call, drop_after)
    with pytest.raises(ProviderUnavailableError):
        project.provider.launch(project.request(2))
    nodes = project.connect().launch(project.request(2))
    assert [node.node_id for node in nodes] == project.cloud.instances.alive()
    assert len(nodes) == 2
    kinds = [operation.kind for operation in project.cloud.operations.all]
    assert kinds.count("bulkInsert") == 1


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
def test_what_an_operation_comes_to_has_its_kind_and_names_the_pool(
    project: NewAccount, codes: list[str], kind: type[ProviderError]
) -> None:
    project.cloud.instances.operation_errors = [(code, "Google's own words.") for code in codes]
    with pytest.raises(kind, match=str(SPOT)) as raised:
        project.provider.launch(project.request())
    assert codes[-1] in raised.value.message
    assert not project.cloud.instances.alive()


@pytest.mark.parametrize(
    ("reason", "status", "kind"),
    [
        ("quotaExceeded", 403, QuotaExceededError),
        ("rateLimitExceeded", 429, ThrottledError),
        ("forbidden", 403, ForbiddenError),
        ("accessNotConfigured", 403, ForbiddenError),
        ("notFound", 404, BadRequestError),
        ("invalid", 400, BadRequestError),
        ("resourceNotReady", 400, ProviderUnavailableError),
        ("backendError", 500, ProviderUnavailableError),
    ],
)
def test_every_refusal_has_its_kind_and_names_the_pool(
    project: NewAccount, reason: str, status: int, kind: type[ProviderError]
) -> None:
    project.cloud.faults.on("instances.bulkInsert", refuse(reason, status), times=None)
    with pytest.raises(kind, match=str(SPOT)) as raised:
        project.provider.launch(project.request())
    assert reason in raised.value.message
    assert project.cloud.faults.calls["instances.bulkInsert"] == 1
    assert not project.cloud.instances.alive()


def test_a_failed_operation_is_not_told_for_ever(project: NewAccount) -> None:
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


def test_a_pool_that_refused_is_left_alone_for_ever_longer(project: NewAccount) -> None:
    calls = project.cloud.faults.calls
    provider = project.connect(compact_placement="off")

    def ask() -> int:
        before = calls["instances.bulkInsert"]
        with pytest.raises(NoCapacityError):
            provider.launch(project.request(2, f"key-{project.clock.now()}", EMPTY))
        return calls["instances.bulkInsert"] - before

    assert ask() == 1
    assert ask() == 0
    project.clock.sleep(31)
    assert ask() == 1
    project.clock.sleep(31)
    assert ask() == 0
    project.clock.sleep(30)
    assert ask() == 1
    provider.launch(project.request(1, "elsewhere", ELSEWHERE))


def test_a_smaller_gang_may_be_asked_for_at_once(project: NewAccount) -> None:
    with pytest.raises(NoCapacityError):
        project.provider.launch(project.request(4, "a"))
    assert len(project.provider.launch(project.request(3, "b"))) == 3


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("call", ["instances.delete", "instances.aggregatedList"])
def test_ending_and_listing_may_fail_once(project: NewAccount, call: str, fault: str) -> None:
    """A node is called ended only once Google says so."""
    goes_wrong, expected = FAULTS[fault]
    (node,) = project.provider.launch(project.request())
    project.cloud.faults.on(call, goes_wrong)
    provider = project.provider
    act, about = (
        (provider.terminate, node.node_id) if call == "instances.delete" else (provider.nodes, "me")
    )
    with pytest.raises(expected):
        act(about)
    project.provider.terminate(node.node_id)
    assert not project.cloud.instances.alive()
    (ended,) = project.provider.nodes("me")
    assert ended.end_cause is EndCause.RELEASED


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
