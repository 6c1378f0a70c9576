"""Google's prices from pricing.yml of Cyclenerd's calculator: whole machines, weekly and dated.

The list names every region, also those without the machine: what the built-in tables do not price
is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import yaml

from costopt.catalog.catalog import Catalog
from costopt.domain.errors import PriceListError
from costopt.domain.market import CapacityType
from costopt.prices.price_list import Listed, ParsedPrices, collect_prices, parse_usd, rented_pool

URL = (
    "https://raw.githubusercontent.com/Cyclenerd/google-cloud-pricing-cost-calculator/master/"
    "pricing.yml"
)
MAX_BYTES = 32 * 2**20
COLUMNS = {CapacityType.ON_DEMAND: "hour", CapacityType.SPOT: "hour_spot"}

MAX_DEPTH = 16

_Parser: Any = getattr(yaml, "CLoader", yaml.Loader)
"""The C parser where there is one: the Python one takes a minute. Only its events are used."""

Tree = dict[str, Any]
"""Texts by name, or further trees."""


def parse_pricing(body: bytes, known: Catalog) -> ParsedPrices:
    """Return on-demand and spot prices by region."""
    try:
        document = _read_tree(body)
        machines = document["compute"]["instance"]
        observed_at = datetime.fromtimestamp(float(document["about"]["timestamp"]), UTC)
        return collect_prices(_listed(machines, known), observed_at)
    except yaml.YAMLError as error:
        raise PriceListError(f"it is not YAML: {str(error).splitlines()[0]}") from None
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, OSError) as error:
        raise PriceListError(
            f"it is not the calculator's price list: {type(error).__name__}: {error}"
        ) from None


def _read_tree(body: bytes) -> Tree:
    """Return the mappings of a YAML document as text; lists and aliases in it are left out.

    The parser's own composer crashes the process on deep nesting, and aliases may expand without
    bound. Raise YAMLError, or ValueError for nesting beyond ``MAX_DEPTH``.
    """
    tree: Tree = {}
    frames: list[_Frame] = []
    for event in yaml.parse(body, Loader=_Parser):
        if isinstance(event, yaml.CollectionStartEvent):
            inner = _Frame(event, tree if not frames else {})
            if frames:
                frames[-1].add(inner.tree)
            frames.append(inner)
            if len(frames) > MAX_DEPTH:
                raise ValueError(f"nested more than {MAX_DEPTH} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            frames.pop()
        elif isinstance(event, yaml.NodeEvent) and frames:
            frames[-1].add(event.value if isinstance(event, yaml.ScalarEvent) else None)
    return tree


class _Frame:
    """A mapping or, where what is added is dropped, a list that is being read."""

    __slots__ = ("_is_list", "_key", "_pending", "tree")

    def __init__(self, begin: Any, tree: Tree) -> None:
        self.tree = tree
        self._is_list = isinstance(begin, yaml.SequenceStartEvent)
        self._pending = False
        self._key: object = None

    def add(self, value: str | Tree | None) -> None:
        """Take a key, then its value, then the next key."""
        if self._is_list:
            return
        if not self._pending:
            self._key = value
        elif isinstance(self._key, str):
            self.tree[self._key] = value
        self._pending = not self._pending


def _listed(machines: Any, known: Catalog) -> Iterator[Listed]:
    for name, machine in machines.items():
        if not known.terms("gcp", name):
            continue
        for region, cost in machine["cost"].items():
            if not _is_offered(known, region, name):
                continue
            for terms, column in COLUMNS.items():
                pool = rented_pool(known, "gcp", region, name, terms)
                usd = parse_usd(cost.get(column))
                if pool is not None and usd:
                    yield pool, usd


def _is_offered(known: Catalog, region: str, name: str) -> bool:
    priced = known.list_price_usd_per_hour, known.spot_price_usd_per_hour
    return any(price("gcp", region, name) is not None for price in priced)
