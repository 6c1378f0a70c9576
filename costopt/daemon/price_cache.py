"""What a provider offered when it was last asked, so that a tick never waits for prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from costopt.domain.errors import ProviderError, ProviderUnavailableError
from costopt.domain.market import Offer
from costopt.domain.ports import Clock, Provider


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
