"""Timeouts for slow providers: a tick waits for each up to a limit, and for none due to another.

Every provider has its own thread. A call that takes too long raises ProviderUnavailableError, which
leaves its outcome unknown to the engine: it assumes the nodes that it knew, and requests a launch
again under the same key. Until the late answer arrives, further calls fail at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NoAnswerYet
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from costopt.domain.errors import ProviderError, ProviderUnavailableError
from costopt.domain.fleet import LaunchRequest, Node
from costopt.domain.market import Offer
from costopt.domain.ports import Clock
from costopt.provider.base import OrphanedResource, Provider
from costopt.provider.wrapper import ProviderWrapper

T = TypeVar("T")


UNTIMED = frozenset({"restore_known_nodes", "unreachable_regions", "errors_by_region", "runtime"})
"""Methods that make no request: called at once, also while an answer is late."""


class TimeoutProvider(ProviderWrapper):
    """A provider that answers within ``answer_s`` of the wall; ``prices`` None: asks for offers.

    ``may_act`` is called before every launch and every deletion; what it raises is passed on.
    """

    def __init__(
        self,
        raw: Provider,
        answer_s: float,
        may_act: Callable[[], None],
        prices: OfferCache | None = None,
    ) -> None:
        super().__init__(raw)
        self._answer_s = answer_s
        self._may_act = may_act
        self._prices = prices
        self._label = "+".join(sorted(self.names))
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"provider-{self._label}")
        self._late: tuple[str, Future[Any]] | None = None

    def offers(self, now: datetime) -> Sequence[Offer]:
        """Return those that were fetched last, or the provider's. Raises ProviderError."""
        return super().offers(now) if self._prices is None else self._prices.offers()

    def launch(self, request: LaunchRequest) -> tuple[Node, ...]:
        self._may_act()
        return super().launch(request)

    def terminate(self, node_id: str) -> None:
        self._may_act()
        super().terminate(node_id)

    def delete_resource(self, resource: OrphanedResource) -> None:
        self._may_act()
        super().delete_resource(resource)

    def close(self) -> None:
        """Close the provider without waiting for an answer that is late."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._raw.close()

    def _call(self, method: str, call: Callable[[], T]) -> T:
        if method in UNTIMED:
            return call()
        if self._late is not None:
            late, waiting = self._late
            if not waiting.done():
                raise ProviderUnavailableError(f"{self._label} has not yet answered to {late}")
            self._late = None
        future = self._thread.submit(call)
        try:
            return future.result(self._answer_s)
        except NoAnswerYet:
            if future.done():
                return future.result()
            self._late = method, future
            raise ProviderUnavailableError(
                f"{self._label} did not answer to {method} within {self._answer_s:g} s"
            ) from None


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
            offers = self._provider.offers(now)
        except ProviderError as error:
            self._failure = error
            raise
        self._offers = tuple(_dated(offer, now) for offer in offers)
        self._failure = None

    def offers(self) -> Sequence[Offer]:
        """Return the last offers. Raise ProviderError if there were none yet."""
        if self._offers is None:
            raise self._failure or ProviderUnavailableError(f"{self.name} was not asked yet")
        return self._offers


def _dated(offer: Offer, now: datetime) -> Offer:
    price = offer.price_usd_per_hour
    if price is None or price.observed_at is not None:
        return offer
    return replace(offer, price_usd_per_hour=replace(price, observed_at=now))
