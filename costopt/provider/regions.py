"""Clouds with many regions: what is offered of them, where one does not answer, and where not."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from costopt.domain.errors import BadRequestError, ProviderError
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.provider.cache import fan_out_or_raise

ANY_ZONE = "*"
"""Suffix of a region's name for what applies to all its zones, as in the catalogue's offers."""


@dataclass(frozen=True, slots=True)
class OfferScope:
    """Regions and types to offer; ``instance_types`` may hold wildcards, () is all with GPUs.

    ``rated_nodes``: for how many nodes the cloud's own estimate of capacity is fetched, None for
    no estimate.
    """

    provider: str
    regions: tuple[str, ...]
    instance_types: tuple[str, ...] = ()
    rated_nodes: int | None = 1

    def check(self, pool: Pool) -> None:
        """Raise BadRequestError for a pool in another region."""
        if pool.region not in self.regions:
            raise BadRequestError(
                f"{pool}: region {pool.region!r} is not one of those in use",
                hint=f"in use are {', '.join(self.regions)}",
            )

    def offers(self, ask: Callable[[str], tuple[Offer, ...]]) -> tuple[Offer, ...]:
        """Return the offers of all regions, by ``ask``.

        Of a region that does not answer they have no price, and report why. Raise ProviderError if
        no region answers.
        """
        results = fan_out_or_raise(self.regions, ask)
        return tuple(
            offer
            for region, response in results.items()
            for offer in (
                self._unknown(region, self.instance_types or ("*",), response.message)
                if isinstance(response, ProviderError)
                else response
            )
        )

    def not_sold(self, region: str, sold: Collection[str]) -> Iterator[Offer]:
        """Yield offers without a price for the named types that the region does not sell."""
        for name in self.instance_types:
            if name not in sold and not any(sign in name for sign in "*?["):
                yield from self._unknown(region, (name,), f"{region} does not sell {name}")

    def _unknown(self, region: str, names: tuple[str, ...], reason: str) -> Iterator[Offer]:
        for name in names:
            for terms in (CapacityType.SPOT, CapacityType.ON_DEMAND):
                pool = Pool(self.provider, region, region + ANY_ZONE, name, terms)
                yield Offer(pool, None, None, None, unknown_because=reason)
