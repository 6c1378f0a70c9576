"""Answers that are not Google's: pages of proxies, and answers that are cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from costopt.domain.errors import CostoptError, ProviderError
from costopt.domain.market import CapacityType, Pool
from tests.support.gcp.account import REGION, SPOT, TYPE, NewAccount
from tests.support.gcp.faults import UNREADABLE


def _launch(project: NewAccount) -> object:
    return project.provider.launch(project.request(2, "another"))


def _reserve(project: NewAccount) -> object:
    pool = Pool("gcp", REGION, SPOT.zone, TYPE, CapacityType.RESERVED)
    return project.provider.launch(project.request(1, "reserved", pool))


def _nodes(project: NewAccount) -> object:
    return project.provider.nodes("me")


def _terminate(project: NewAccount) -> None:
    project.provider.terminate("costopt-unknown")


def _offers(project: NewAccount) -> object:
    return project.provider.offers(project.clock.now())


def _quotas(project: NewAccount) -> object:
    return project.provider.quotas(project.clock.now())


def _orphans(project: NewAccount) -> object:
    return project.provider.orphaned_resources("me")


def _checks(project: NewAccount) -> object:
    return list(project.provider.checks("me", "gs://runs/a"))


ACTS: dict[str, Callable[[NewAccount], object]] = {
    "launch": _launch,
    "reserve": _reserve,
    "nodes": _nodes,
    "terminate": _terminate,
    "offers": _offers,
    "quotas": _quotas,
    "orphaned_resources": _orphans,
    "checks": _checks,
}


def _calls(project: NewAccount, act: str) -> Iterator[str]:
    """What a fresh controller calls for it, where all goes well."""
    project.provider = project.connect()
    project.cloud.faults.calls.clear()
    with suppress(CostoptError):
        ACTS[act](project)
    yield from sorted(project.cloud.faults.calls)


@pytest.mark.exhaustive
@pytest.mark.parametrize("response", UNREADABLE)
@pytest.mark.parametrize("act", ACTS)
def test_whatever_call_is_answered_so_nothing_but_a_provider_error_is_raised(
    project: NewAccount, act: str, response: str
) -> None:
    reasons: list[str] = []
    for action in _calls(project, act):
        project.cloud.faults.reset()
        project.cloud.faults.on(action, UNREADABLE[response], times=None)
        project.provider = project.connect()
        try:
            ACTS[act](project)
        except ProviderError as error:
            reasons.append(error.message)
    assert not [reason for reason in reasons if reason.endswith(": ") or len(reason) > 600]
