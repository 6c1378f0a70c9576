"""A provider that is slow delays nobody for long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Event
from typing import Any, TypeVar

import pytest

from costopt.domain.errors import (
    LeadershipLostError,
    NoCapacityError,
    NotSupportedError,
    ProviderUnavailableError,
)
from costopt.domain.fleet import LaunchRequest, Node, NodeBill
from costopt.engine.loop import VirtualClock
from costopt.provider import timeouts as patient_module
from costopt.provider.base import Capability
from costopt.provider.timeouts import OfferCache, TimeoutProvider
from tests.support.engine_fixtures import SPOT_A, FaultyCloud, always
from tests.support.live_run import PATIENCE_S, wait_until
from tests.support.market_fixtures import T0

T = TypeVar("T")
REQUEST = LaunchRequest("costopt", "job", SPOT_A, 1, "key")


class SlowCloud(FaultyCloud):
    """Its launches wait until they are let go."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock, [always(SPOT_A, 3, 1.0)], 0.0)
        self.may_answer = Event()

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        self.may_answer.wait(PATIENCE_S)
        return super().launch(request)


class BillingCloud(FaultyCloud):
    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.BILLS, Capability.KNOWN_NODES})

    def bill(self, node: Node) -> NodeBill | None:
        return None

    def restore_known_nodes(self, nodes: Iterable[Node]) -> None:
        self.reminded = tuple(nodes)


@pytest.fixture
def cloud() -> Iterator[SlowCloud]:
    made = SlowCloud(VirtualClock(T0))
    yield made
    made.may_answer.set()


def _patient(cloud: FaultyCloud, answer_s: float = 0.1) -> TimeoutProvider:
    return TimeoutProvider(cloud, answer_s, lambda: None)


def test_a_late_answer_is_unknown_and_the_launch_is_there_when_asked_again(
    cloud: SlowCloud,
) -> None:
    provider = _patient(cloud)
    with pytest.raises(ProviderUnavailableError, match=r"\blaunch .*\b0\.1 s"):
        provider.launch(REQUEST)
    with pytest.raises(ProviderUnavailableError, match=r"\blaunch\b"):
        provider.nodes("costopt")
    cloud.may_answer.set()
    wait_until(lambda: cloud.inner.nodes("costopt") != (), "late launch")
    patient_again = _patient(cloud, PATIENCE_S)
    (node,) = patient_again.launch(REQUEST)
    assert [n.node_id for n in patient_again.nodes("costopt")] == [node.node_id]
    for each in (provider, patient_again):
        each.close()


class Tardy(Future[T]):
    """Done at the moment at which it is given up."""

    def result(self, timeout: float | None = None) -> T:
        if timeout is not None:
            raise TimeoutError
        return super().result()


class TardyThread(ThreadPoolExecutor):
    def submit(self, fn: Callable[..., T], /, *given: Any, **named: Any) -> Future[T]:
        future = Tardy[T]()
        future.set_result(fn(*given, **named))
        return future


def test_an_answer_that_comes_as_it_is_given_up_counts(
    cloud: SlowCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.may_answer.set()
    monkeypatch.setattr(patient_module, "ThreadPoolExecutor", TardyThread)
    provider = _patient(cloud)
    (node,) = provider.launch(REQUEST)
    assert [n.node_id for n in provider.nodes("costopt")] == [node.node_id]
    provider.close()


def test_refusals_pass_through(cloud: SlowCloud) -> None:
    cloud.may_answer.set()
    cloud.refusing.add(SPOT_A)
    provider = _patient(cloud, PATIENCE_S)
    with pytest.raises(NoCapacityError):
        provider.launch(REQUEST)
    assert provider.names == cloud.names
    provider.close()


def test_who_may_not_act_asks_for_nothing(cloud: SlowCloud) -> None:
    def lost() -> None:
        raise LeadershipLostError("another daemon leads")

    provider = TimeoutProvider(cloud, PATIENCE_S, lost)
    for act in (lambda: provider.launch(REQUEST), lambda: provider.terminate("x")):
        with pytest.raises(LeadershipLostError):
            act()
    assert cloud.requests == []
    assert cloud.released == []
    assert provider.nodes("costopt") == ()
    provider.close()


def test_it_can_do_what_the_provider_can(cloud: SlowCloud) -> None:
    with pytest.raises(NotSupportedError):
        _patient(cloud).unreachable_regions()
    billing = BillingCloud(VirtualClock(T0), [always(SPOT_A, 3, 1.0)], 0.0)
    forgetful = _patient(billing)
    assert forgetful.capabilities() == billing.capabilities()
    forgetful.restore_known_nodes(nodes := billing.launch(REQUEST))
    assert billing.reminded == nodes != ()
    assert forgetful.bill(nodes[0]) is None


def test_prices_that_are_not_reported_again_grow_old(cloud: SlowCloud) -> None:
    clock = VirtualClock(T0)
    cache = OfferCache(cloud, clock)
    provider = TimeoutProvider(cloud, PATIENCE_S, lambda: None, cache)
    with pytest.raises(ProviderUnavailableError):
        provider.offers(T0)
    (reported,) = cloud.inner.offers(T0)
    assert reported.price_usd_per_hour is not None
    cloud.quoted_prices[SPOT_A] = replace(reported.price_usd_per_hour, observed_at=None)
    cache.refresh()
    clock.sleep(7200)
    cloud.silent.add("offers")
    with pytest.raises(ProviderUnavailableError):
        cache.refresh()
    (offer,) = provider.offers(clock.now())
    assert offer.price_usd_per_hour is not None
    assert offer.price_usd_per_hour.age_s(clock.now()) == 7200
    provider.close()
