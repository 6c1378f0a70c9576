"""What it costs to move data out of a region, in dollars per GiB."""

from __future__ import annotations

from dataclasses import dataclass

from costopt.catalog.table import Row, parse_number, read_table
from costopt.domain.transfer import Transfer

ANYWHERE = "*"

_WITHIN_A_REGION = Transfer(0.0, None, "reading an object store in its own region is free")


@dataclass(frozen=True, slots=True)
class TransferPrice:
    """A row: beginnings of "provider/region" at both ends; the price is None where unknown."""

    origins: tuple[str, ...]
    destinations: tuple[str, ...]
    usd_per_gib: float | None
    source: str

    def matches(self, from_region: str, to_region: str) -> bool:
        """Whether the row tells of data that go this way."""
        return _begins(from_region, self.origins) and _begins(to_region, self.destinations)


def read_transfer_prices() -> tuple[TransferPrice, ...]:
    """Every row; of those that fit, the first counts."""
    return tuple(_price(row) for row in read_table("transfer_prices"))


def find_transfer(
    prices: tuple[TransferPrice, ...], from_region: str, to_region: str
) -> Transfer | None:
    """The list price between two "provider/region"; None where it is not known.

    No speed is listed: what a store delivers to a node is not published.
    """
    if from_region == to_region:
        return _WITHIN_A_REGION
    found = next((price for price in prices if price.matches(from_region, to_region)), None)
    if found is None or found.usd_per_gib is None:
        return None
    return Transfer(found.usd_per_gib, None, found.source)


def _price(row: Row) -> TransferPrice:
    source = ", ".join(filter(None, (row["source"], row["observed_on"])))
    origins, destinations = tuple(row["from"].split()), tuple(row["to"].split())
    return TransferPrice(origins, destinations, parse_number(row["usd_per_gib"]), source)


def _begins(region: str, beginnings: tuple[str, ...]) -> bool:
    return beginnings == (ANYWHERE,) or region.startswith(beginnings)
