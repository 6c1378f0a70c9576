"""Whatever the code of one provider raises or returns costs that provider, and no other job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from inspect import signature
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.controller.site import connect_provider
from costopt.domain.errors import (
    NotSupportedError,
    ProviderError,
    ProviderUnavailableError,
    StoreError,
)
from costopt.domain.events import JobFinished, NodeLaunched, SignalStale
from costopt.domain.fleet import LaunchRequest, Node, NodeBill
from costopt.domain.market import CapacityType, Interruption, Offer, Pool
from costopt.domain.view import Target
from costopt.engine.engine import Engine
from costopt.engine.loop import VirtualClock
from costopt.engine.settings import World
from costopt.provider.base import CAPABILITY_METHODS, Capability, Provider
from costopt.provider.fault_isolation import ITEMS, IsolatedProvider
from costopt.provider.timeouts import TimeoutProvider
from costopt.provider.wrapper import CAPABILITY_OF
from costopt.strategies import build
from tests.support.engine_fixtures import SPOT_A, Follow, Machines, Powers, Scene, always, task
from tests.support.engines import start_engine
from tests.support.live_run import PATIENCE_S
from tests.support.market_fixtures import T0
from tests.support.stub_provider import StubProvider

BROKEN = Pool("gcp", "us-central1", "us-central1-a", "p3.2xlarge", CapacityType.SPOT)
SOUND = SPOT_A
CALLED = (
    "uninterruptible_s", "offers", "launch", "nodes", "notices", "terminate", "bill",
    "unreachable_regions", "errors_by_region", "restore_known_nodes",
)  # fmt: skip
"""The methods that a tick calls."""
TICKS = 6


def with_timeout(raw: Provider) -> Provider:
    return TimeoutProvider(raw, PATIENCE_S, lambda: None)


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


ERRORS: tuple[Callable[[], Exception], ...] = (
    lambda: TypeError("string indices must be integers"),
    lambda: KeyError("Instances"),
    lambda: ValueError("\ud800\x00"),
    lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    lambda: OSError(28, "No space left on device"),
    TimeoutError,
    StopIteration,
    RecursionError,
    lambda: AssertionError("<html>" * 10_000),
    lambda: StoreError("the folder is gone"),
    UnprintableError,
)


class Half(Provider):
    """The pools of one provider of a simulator; ``fault`` is what each named method does first."""

    def __init__(self, cloud: Any, name: str) -> None:
        self._cloud = cloud
        self._names = frozenset({name})
        self.faults: dict[str, Callable[[], Any]] = {}

    @property
    def names(self) -> frozenset[str]:
        return self._names

    def capabilities(self) -> frozenset[Capability]:
        return frozenset({Capability.BILLS, Capability.PARTIAL_FAILURES, Capability.KNOWN_NODES})

    def _answer(self, method: str, answer: Callable[[], Any]) -> Any:
        return self.faults.get(method, answer)()

    def _mine(self, found: Any) -> tuple[Any, ...]:
        return tuple(each for each in found if each.pool.provider in self.names)

    def uninterruptible_s(self, now: datetime) -> float:
        return float(self._answer("uninterruptible_s", lambda: self._cloud.uninterruptible_s(now)))

    def offers(self, now: datetime) -> tuple[Offer, ...]:
        return self._answer("offers", lambda: self._mine(self._cloud.offers(now)))  # type: ignore[no-any-return]

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        return self._answer("launch", lambda: self._cloud.launch(request))  # type: ignore[no-any-return]

    def nodes(self, owner: str) -> tuple[Node, ...]:
        return self._answer("nodes", lambda: self._mine(self._cloud.nodes(owner)))  # type: ignore[no-any-return]

    def notices(self, owner: str) -> tuple[Interruption, ...]:
        return self._answer("notices", lambda: self._mine(self._cloud.notices(owner)))  # type: ignore[no-any-return]

    def terminate(self, node_id: str) -> None:
        self._answer("terminate", lambda: self._cloud.terminate(node_id))

    def bill(self, node: Node) -> NodeBill | None:
        return self._answer("bill", lambda: None)  # type: ignore[no-any-return]

    def unreachable_regions(self) -> frozenset[str]:
        return self._answer("unreachable_regions", frozenset)  # type: ignore[no-any-return]

    def errors_by_region(self) -> dict[str, str]:
        return self._answer("errors_by_region", dict)  # type: ignore[no-any-return]

    def restore_known_nodes(self, nodes: Any) -> None:
        self._answer("restore_known_nodes", lambda: None)

    def close(self) -> None:
        return


def raising(error: Callable[[], Exception]) -> Callable[[], Any]:
    def fail() -> Any:
        raise error()

    return fail


def lazily_raising() -> Iterator[Any]:
    yield from ()
    raise LookupError("while the answer is read")


class TwoProviders(Scene):
    """Job "sound" on one provider, job "broken" on another, whose adapter has defects."""

    def __init__(self) -> None:
        self.half: Half | None = None
        strategy = Follow(broken=(Target(BROKEN, 1),), sound=(Target(SOUND, 1),))
        jobs = [task(600.0, name="sound"), task(600.0, name="broken")]
        super().__init__(
            always(SOUND, 4, 1.0), always(BROKEN, 4, 1.0), jobs=jobs, strategy=strategy
        )

    def restart(self) -> Engine:
        self.half = Half(self.cloud, "gcp")
        providers = (IsolatedProvider(self.half), IsolatedProvider(Half(self.cloud, "aws")))
        world = World(
            providers, self.cloud.runtime, self.ledger, self.clock, Machines(), Powers(),
            self.hazards,
        )  # fmt: skip
        strategy = self.strategy or build(self.policy.strategy)
        self.engine = start_engine(self.jobs, self.policy, strategy, world, self.settings)
        return self.engine


def _goes_on(method: str, fault: Callable[[], Any], from_tick: int) -> TwoProviders:
    scene = TwoProviders()
    scene.go(from_tick * scene.settings.tick_s)
    assert scene.half is not None
    scene.half.faults[method] = fault
    scene.go(TICKS * scene.settings.tick_s)
    assert len(scene.events(NodeLaunched, "sound")) == 1
    scene.half.faults.clear()
    scene.finish(200)
    for job in ("sound", "broken"):
        assert len(scene.events(JobFinished, job)) == 1
        assert len({e.key for e in scene.events(NodeLaunched, job)}) == 1
    assert scene.living("sound") == scene.living("broken") == []
    return scene


@pytest.mark.parametrize("method", CALLED)
@settings(deadline=None, max_examples=12)
@given(error=st.sampled_from(ERRORS), from_tick=st.integers(0, 14))
def test_what_a_method_raises_concerns_its_provider_alone(
    method: str, error: Callable[[], Exception], from_tick: int
) -> None:
    _goes_on(method, raising(error), from_tick)


@pytest.mark.parametrize("method", sorted(ITEMS.keys() & set(CALLED)))
@pytest.mark.parametrize("answer", [lambda: None, lambda: [None], lambda: 7, lazily_raising])
def test_a_result_of_another_type_concerns_its_provider_alone(
    method: str, answer: Callable[[], Any]
) -> None:
    _goes_on(method, answer, 0)


def test_the_reason_names_provider_method_and_line() -> None:
    scene = _goes_on("notices", raising(ERRORS[0]), 2)
    reasons = [e for e in scene.events(SignalStale, "sound") if e.source == "gcp"]
    assert len(reasons) == 1, "once, for as long as it goes on"
    for part in ("gcp", "notices", "test_provider_fault_isolation.py:", "TypeError"):
        assert part in reasons[0].message


METHODS = sorted(
    name
    for name in vars(Provider)
    if not name.startswith("_") and name not in ("names", "capabilities")
)


def raw_provider(method: str, answer: Callable[[], Any]) -> Provider:
    """A provider that declares everything, of which one method is as given."""
    overridden = (
        property(lambda self: answer()) if method == "runtime" else lambda self, *_: answer()
    )
    members = {"capabilities": lambda self: frozenset(Capability), method: overridden}
    return type("Raw", (StubProvider,), members)()  # type: ignore[no-any-return]


def call(provider: Provider, method: str) -> Any:
    """The method's answer to arguments that it does not get to look at."""
    if method == "runtime":
        return provider.runtime
    bound = getattr(provider, method)
    return bound(*(None for _ in signature(bound).parameters))


def test_every_optional_method_belongs_to_one_capability() -> None:
    optional = set(METHODS) - Provider.__abstractmethods__ - {"uninterruptible_s", "notice_s"}
    assert sorted(optional) == sorted(m for each in CAPABILITY_METHODS.values() for m in each)
    assert CAPABILITY_METHODS.keys() == set(Capability)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("wrapper", [IsolatedProvider, with_timeout])
def test_a_wrapper_forwards_every_method(
    method: str, wrapper: Callable[[Provider], Provider]
) -> None:
    answers = iter([()])
    wrapped = wrapper(raw_provider(method, lambda: next(answers, ())))
    call(wrapped, method)
    assert next(answers, "used up") == "used up"
    wrapped.close()


@pytest.mark.parametrize("method", sorted(CAPABILITY_OF))
@pytest.mark.parametrize("wrapper", [IsolatedProvider, with_timeout])
def test_what_is_not_declared_is_refused(
    method: str, wrapper: Callable[[Provider], Provider]
) -> None:
    for provider in (StubProvider(), wrapper(StubProvider())):
        with pytest.raises(NotSupportedError) as caught:
            call(provider, method)
        assert caught.value.subject == "x"
        provider.close()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("error", ERRORS)
def test_every_method_of_every_port_raises_provider_errors_only(
    method: str, error: Callable[[], Exception]
) -> None:
    isolated = IsolatedProvider(raw_provider(method, raising(error)))
    with pytest.raises(ProviderUnavailableError) as caught:
        call(isolated, method)
    assert "x" in caught.value.message
    assert len(caught.value.message) < 500
    caught.value.message.encode()


@pytest.mark.parametrize("method", ITEMS)
def test_an_answer_that_raises_as_it_is_read_is_a_defect(method: str) -> None:
    isolated = IsolatedProvider(raw_provider(method, lazily_raising))
    with pytest.raises(ProviderUnavailableError, match=f"x failed in {method} "):
        call(isolated, method)


def test_sound_values_pass() -> None:
    class Refusing(Half):
        def terminate(self, node_id: str) -> None:
            raise error

    for error in (ProviderError("no"), KeyboardInterrupt(), SystemExit()):
        with pytest.raises(type(error)) as caught:
            IsolatedProvider(Refusing(None, "x")).terminate("i-1")
        assert caught.value is error


@pytest.mark.parametrize(("name", "region"), [("aws", "us-east-1"), ("gcp", "us-central1")])
def test_every_adapter_is_connected_isolated(name: str, region: str) -> None:
    provider: Provider = connect_provider(name, VirtualClock(T0), {"regions": [region]})
    provider._raw.notices = raising(ERRORS[0])  # type: ignore[attr-defined]
    with pytest.raises(ProviderUnavailableError, match=f"{name} failed in notices"):
        provider.notices("me")
    provider.close()
