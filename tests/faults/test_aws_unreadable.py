"""Answers that are not AWS's: pages of proxies, and answers that are cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from costopt.domain.errors import CostoptError, ProviderError, ProviderUnavailableError
from costopt.domain.market import CapacityType, Pool
from tests.support.aws.account import REGION, SPOT, TYPE, NewAccount
from tests.support.aws.overlay.faults import UNREADABLE

STORE = "s3://runs/a"


def _launch(account: NewAccount) -> object:
    return account.provider.launch(account.request(2, "another"))


def _reserve(account: NewAccount) -> object:
    pool = Pool("aws", REGION, SPOT.zone, TYPE, CapacityType.RESERVED)
    return account.provider.launch(account.request(1, "reserved", pool))


def _nodes(account: NewAccount) -> object:
    return account.provider.nodes("me")


def _terminate(account: NewAccount) -> None:
    account.provider.terminate("i-0123456789abcdef0")


def _offers(account: NewAccount) -> object:
    return account.provider.offers(account.clock.now())


def _changes(account: NewAccount) -> object:
    now = account.clock.now()
    series = account.provider.price_series(REGION, [TYPE], now)
    return [account.provider.price_changes(each, now, now) for each in series]


def _quotas(account: NewAccount) -> object:
    return account.provider.quotas(account.clock.now())


def _notices(account: NewAccount) -> object:
    return account.provider.notices("me")


def _orphans(account: NewAccount) -> object:
    return account.provider.orphaned_resources("me")


def _checks(account: NewAccount) -> object:
    return list(account.provider.checks("me", STORE))


def _charge(account: NewAccount) -> object:
    now = account.clock.now()
    return account.provider.charge("me", "job", now.replace(day=1), now)


ACTS: dict[str, Callable[[NewAccount], object]] = {
    "launch": _launch,
    "reserve": _reserve,
    "nodes": _nodes,
    "terminate": _terminate,
    "offers": _offers,
    "changes": _changes,
    "quotas": _quotas,
    "notices": _notices,
    "orphaned_resources": _orphans,
    "checks": _checks,
    "charge": _charge,
}


def _calls(account: NewAccount, act: str) -> Iterator[tuple[str, str]]:
    """What a fresh controller calls for it, where all goes well."""
    account.provider = account.connect()
    account.cloud.faults.calls.clear()
    with suppress(CostoptError):
        ACTS[act](account)
    yield from sorted(account.cloud.faults.calls)


@pytest.mark.exhaustive
@pytest.mark.parametrize("response", UNREADABLE)
@pytest.mark.parametrize("act", ACTS)
def test_whatever_call_is_answered_so_nothing_but_a_provider_error_is_raised(
    account: NewAccount, act: str, response: str
) -> None:
    account.cloud.client("s3").create_bucket(Bucket="runs")
    reasons: list[str] = []
    for service, action in _calls(account, act):
        account.cloud.faults.reset()
        account.cloud.faults.on(service, action, UNREADABLE[response])
        account.provider = account.connect()
        try:
            ACTS[act](account)
        except ProviderError as error:
            reasons.append(error.message)
    assert not [reason for reason in reasons if reason.endswith(": ") or len(reason) > 600]


@pytest.mark.parametrize("response", UNREADABLE)
def test_the_reason_says_what_came(account: NewAccount, response: str) -> None:
    account.cloud.faults.on("ec2", "DescribeInstances", UNREADABLE[response])
    with pytest.raises(ProviderUnavailableError) as raised:
        account.provider.nodes("me")
    reason = raised.value.message.rpartition("us-east-1: ")[2]
    assert "ec2:DescribeInstances" in reason or "502" in reason
    assert not reason.strip().endswith(":")
