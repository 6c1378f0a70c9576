"""Launches on each cloud when calls are throttled, refused, unanswered, or answered in vain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

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
from tests.support.aws.overlay.faults import FAULTS as AWS_FAULTS
from tests.support.cloud_accounts import either, on_each
from tests.support.gcp.faults import FAULTS as GCP_FAULTS

__all__ = ["either"]

LAUNCH_CALLS = {
    "aws_server": (
        "DescribeInstances",
        "DescribeAvailabilityZones",
        "DescribeInstanceTypes",
        "DescribeSpotPriceHistory",
        "CreateLaunchTemplate",
        "RunInstances",
    ),
    "gcp_server": (
        "regions.get",
        "instances.list",
        "zoneOperations.list",
        "advice.capacityHistory",
        "instances.bulkInsert",
        "zoneOperations.wait",
    ),
}
FAULTS: dict[str, Iterable[str]] = {
    "aws_server": AWS_FAULTS,
    "gcp_server": GCP_FAULTS,
}
ERRORS = {
    "throttled": ThrottledError,
    "too many": ThrottledError,
    "refused": ForbiddenError,
    "expired": ForbiddenError,
    "dropped": ProviderUnavailableError,
    "failed": ProviderUnavailableError,
    "lost": ProviderUnavailableError,
}
UNLIKE = {
    # Without a price nothing is launched.
    "advice.capacityHistory": NoCapacityError,
    # The launch itself is on its way, so whatever befalls the poll leaves the outcome open.
    "zoneOperations.wait": ProviderUnavailableError,
}
"""Errors of calls whose own failure is not what the launch fails with."""


@pytest.mark.exhaustive
@on_each(
    "call, fault",
    {server: [(c, f) for c in LAUNCH_CALLS[server] for f in FAULTS[server]] for server in FAULTS},
)
def test_any_call_of_a_launch_may_fail_once(either: Any, call: str, fault: str) -> None:
    """Asked again under its key the launch gives two nodes, whatever happened the first time."""
    either.fail(call, either.faults[fault])
    with pytest.raises(UNLIKE.get(call, ERRORS[fault])) as raised:
        either.provider.launch(either.request(2))
    assert either.spot.region in raised.value.message
    if fault == "refused" and call not in UNLIKE:
        assert either.permission(call) in raised.value.message
    either.clock.sleep(60)
    nodes = either.provider.launch(either.request(2))
    assert either.alive() == sorted(node.node_id for node in nodes)
    assert len(nodes) == 2


@on_each(
    "call",
    {
        "aws_server": ["RunInstances"],
        "gcp_server": ["instances.bulkInsert", "zoneOperations.wait"],
    },
)
def test_a_restarted_controller_finds_the_nodes_of_a_lost_answer(either: Any, call: str) -> None:
    either.fail(call, either.faults["lost"])
    with pytest.raises(ProviderUnavailableError):
        either.provider.launch(either.request(2))
    nodes = either.connect().launch(either.request(2))
    assert sorted(node.node_id for node in nodes) == either.alive()
    assert len(nodes) == 2


REFUSALS = {
    "aws_server": [
        ("InsufficientInstanceCapacity", 500, NoCapacityError),
        ("SpotMaxPriceTooLow", 400, NoCapacityError),
        ("MaxSpotInstanceCountExceeded", 400, QuotaExceededError),
        ("VcpuLimitExceeded", 400, QuotaExceededError),
        ("Unsupported", 400, BadRequestError),
        ("UnauthorizedOperation", 403, ForbiddenError),
        ("RequestLimitExceeded", 503, ThrottledError),
        ("InvalidAMIID.NotFound", 400, BadRequestError),
        ("InternalError", 500, ProviderUnavailableError),
    ],
    "gcp_server": [
        ("quotaExceeded", 403, QuotaExceededError),
        ("rateLimitExceeded", 429, ThrottledError),
        ("forbidden", 403, ForbiddenError),
        ("accessNotConfigured", 403, ForbiddenError),
        ("notFound", 404, BadRequestError),
        ("invalid", 400, BadRequestError),
        ("resourceNotReady", 400, ProviderUnavailableError),
        ("backendError", 500, ProviderUnavailableError),
    ],
}


@on_each("code, status, kind", REFUSALS)
def test_every_refusal_has_its_kind_and_names_the_pool(
    either: Any, code: str, status: int, kind: type[ProviderError]
) -> None:
    either.fail(either.launch_call, either.refuse(code, status), times=None)
    with pytest.raises(kind, match=str(either.spot)) as raised:
        either.provider.launch(either.request())
    assert code in raised.value.message
    assert either.count(either.launch_call) == 1
    assert not either.alive()


def test_a_pool_that_refused_is_left_alone_for_ever_longer(either: Any) -> None:
    def ask() -> int:
        before: int = either.count(either.launch_call)
        with pytest.raises(NoCapacityError):
            either.provider.launch(either.request(1, f"key-{either.clock.now()}", either.empty))
        after: int = either.count(either.launch_call)
        return after - before

    assert ask() == 1
    assert ask() == 0
    either.clock.sleep(31)
    assert ask() == 1
    either.clock.sleep(31)
    assert ask() == 0
    either.clock.sleep(30)
    assert ask() == 1
    either.provider.launch(either.request(1, "elsewhere", either.elsewhere))


def test_a_smaller_gang_may_be_asked_for_at_once(either: Any) -> None:
    with pytest.raises(NoCapacityError):
        either.provider.launch(either.request(4, "a"))
    assert len(either.provider.launch(either.request(3, "b"))) == 3


@pytest.mark.exhaustive
@on_each("fault", FAULTS)
@pytest.mark.parametrize("act", ["end", "list"])
def test_ending_and_listing_may_fail_once(either: Any, act: str, fault: str) -> None:
    """A node is called ended only once the cloud says so."""
    (node,) = either.provider.launch(either.request())
    either.fail(either.end_call if act == "end" else either.list_call, either.faults[fault])
    call, subject = (
        (either.provider.terminate, node.node_id) if act == "end" else (either.provider.nodes, "me")
    )
    with pytest.raises(ERRORS[fault]):
        call(subject)
    assert node.node_id in {each.node_id for each in either.provider.nodes("me")}
    either.provider.terminate(node.node_id)
    assert not either.alive()
    (ended,) = either.provider.nodes("me")
    assert not ended.state.is_alive
