"""Providers that may be slow: a tick waits for each only so long, and for none because of another.

Every provider has a thread of its own. A call that takes too long raises ProviderUnavailableError,
whose outcome the engine takes as unknown: it knows the nodes that it knew, and asks for a launch
again under the same key. Until the late answer has come, further calls fail at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NoAnswerYet
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar, cast

from costopt.domain.bill import NodeBill
from costopt.domain.errors import ProviderError, ProviderUnavailableError
from costopt.domain.fleet import LaunchRequest, Node
from costopt.domain.market import Interruption, Offer
from costopt.domain.ports import Clock
from costopt.provider.base import BillSource, PartialFailures, Provider, TracksEndedNodes

T = TypeVar("T")


class TimeoutProvider:
    """A Provider that answers within ``answer_s`` of the wall; ``prices`` None: asks for offers.

    ``may_act`` is asked before every launch and release; what it raises is passed on.
    """

    def __init__(
        self,
        raw: Provider,
        answer_s: float,
        may_act: Callable[[], None],
        prices: OfferCache | None = None,
    ) -> None:
        self._raw = raw
        self._answer_s = answer_s
        self._may_act = may_act
        self._prices = prices
        self._label = "+".join(sorted(raw.names))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"provider-{self._label}")
        self._late: tuple[str, Future[Any]] | None = None

    @property
    def names(self) -> frozenset[str]:
        """As the provider's."""
        return self._raw.names

    def uninterruptible_s(self, now: datetime) -> float:
        """As the provider's."""
        return self._ask("uninterruptible_s", lambda: self._raw.uninterruptible_s(now))

    def offers(self, now: datetime) -> Sequence[Offer]:
        """Those that were fetched last, or as the provider tells them."""
        if self._prices is not None:
            return self._prices.offers()
        return self._ask("offers", lambda: self._raw.offers(now))

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        """As the provider's."""
        self._may_act()
        return self._ask("launch", lambda: self._raw.launch(request))

    def nodes(self, owner: str) -> tuple[Node, ...]:
        """As the provider's."""
        return self._ask("nodes", lambda: self._raw.nodes(owner))

    def notices(self, owner: str) -> tuple[Interruption, ...]:
        """As the provider's."""
        return self._ask("notices", lambda: self._raw.notices(owner))

    def terminate(self, node_id: str) -> None:
        """As the provider's."""
        self._may_act()
        self._ask("terminate", lambda: self._raw.terminate(node_id))

    def close(self) -> None:
        """Let go of the provider, without waiting for what it may never answer."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._raw.close()

    def _ask(self, call: str, answer: Callable[[], T]) -> T:
        if self._late is not None:
            late, waiting = self._late
            if not waiting.done():
                raise ProviderUnavailableError(f"{self._label} has not yet answered to {late}")
            self._late = None
        future = self._thread.submit(answer)
        try:
            return future.result(self._answer_s)
        except NoAnswerYet:
            if future.done():
                return future.result()
            self._late = call, future
            raise ProviderUnavailableError(
                f"{self._label} did not answer to {call} within {self._answer_s:g} s"
            ) from None


class _Billing(TimeoutProvider):
    """Of a provider that knows what it charges."""

    def bill(self, node: Node) -> NodeBill | None:
        """As the provider's."""
        return self._ask("bill", lambda: cast("BillSource", self._raw).bill(node))


class _Parted(TimeoutProvider):
    """Of a provider of which only a part may answer."""

    def unreachable_regions(self) -> frozenset[str]:
        """As the provider's."""
        return cast("PartialFailures", self._raw).unreachable_regions()

    def errors_by_region(self) -> Mapping[str, str]:
        """As the provider's."""
        return cast("PartialFailures", self._raw).errors_by_region()


class _Reminded(TimeoutProvider):
    """Of a provider that has to be reminded of nodes."""

    def restore_known_nodes(self, nodes: Iterable[Node]) -> None:
        """As the provider's, which asks nobody for it."""
        cast("TracksEndedNodes", self._raw).restore_known_nodes(nodes)


KINDS = ((BillSource, _Billing), (PartialFailures, _Parted), (TracksEndedNodes, _Reminded))


def with_timeout(
    raw: Provider, answer_s: float, may_act: Callable[[], None], prices: OfferCache | None = None
) -> TimeoutProvider:
    """The provider with patience, able to do what it is able to do."""
    kinds = tuple(kind for port, kind in KINDS if isinstance(raw, port))
    able: type[TimeoutProvider] = type("AblePatientProvider", (*kinds, TimeoutProvider), {})
    return able(raw, answer_s, may_act, prices)


class OfferCache:
    """One thread refreshes, any other reads. A price without a time is of when it was asked for,

    so that a policy's limit on the age of prices binds, however long the provider is silent.
    """

    def __init__(self, provider: Provider, clock: Clock) -> None:
        self.name = "+".join(sorted(provider.names))
        self._provider = provider
        self._clock = clock
        self._offers: tuple[Offer, ...] | None = None
        self._failure: ProviderError | None = None

    def refresh(self) -> None:
        """Ask the provider. Raises ProviderError, and keeps what was known."""
        now = self._clock.now()
        try:
            told = self._provider.offers(now)
        except ProviderError as error:
            self._failure = error
            raise
        self._offers = tuple(_dated(offer, now) for offer in told)
        self._failure = None

    def offers(self) -> Sequence[Offer]:
        """What was told last. Raises ProviderError where nothing ever was."""
        if self._offers is None:
            raise self._failure or ProviderUnavailableError(f"{self.name} was not asked yet")
        return self._offers


def _dated(offer: Offer, now: datetime) -> Offer:
    price = offer.price_usd_per_hour
    if price is None or price.observed_at is not None:
        return offer
    return replace(offer, price_usd_per_hour=replace(price, observed_at=now))
