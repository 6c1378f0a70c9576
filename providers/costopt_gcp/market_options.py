"""What is offered and where prices are looked up, as ``connect`` is told it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from costopt.domain.errors import BadRequestError
from costopt.domain.ports import ProviderOptions
from costopt_gcp.prices import ListPrices

MARKET_KEYS = frozenset({"advised_nodes", "instance_types", "list_prices", "spot_prices"})


@dataclass(frozen=True, slots=True)
class MarketOptions:
    """``instance_types``: names and wildcards to offer, () for all with GPUs of their own.

    ``advised_nodes``: for how many nodes Google is asked how likely they are to be had, None for
    none. ``list_prices`` and ``spot_prices``: dated lists, by default those of the catalogue given
    as ``machines``; the latter for what Google tells no spot price of.
    """

    instance_types: tuple[str, ...] = ()
    advised_nodes: int | None = 1
    list_prices: ListPrices | None = None
    spot_prices: ListPrices | None = None

    @classmethod
    def parse(cls, options: ProviderOptions) -> MarketOptions:
        """Raises BadRequestError that names the option."""
        return cls(
            instance_types=_names(options.get("instance_types", ())),
            advised_nodes=_nodes(options.get("advised_nodes", 1)),
            list_prices=_prices(options, "list_prices", "list_price_usd_per_hour"),
            spot_prices=_prices(options, "spot_prices", "spot_price_usd_per_hour"),
        )


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise BadRequestError(
            f"costopt_gcp: option instance_types must be a list of names, not {value!r}",
            hint='such as ["a2-highgpu-1g", "g2-*", "n1-standard-8+1xT4"]',
        )
    return tuple(dict.fromkeys(str(name) for name in value))


def _nodes(value: object) -> int | None:
    if value is None or (isinstance(value, int) and value >= 1 and not isinstance(value, bool)):
        return value
    raise BadRequestError(
        f"costopt_gcp: option advised_nodes must be a number of nodes, not {value!r}",
        hint="null asks for no likelihoods",
    )


def _prices(options: ProviderOptions, key: str, of_catalogue: str) -> ListPrices | None:
    """As given, else those of the catalogue that is given for machines, which holds some."""
    value = options.get(key)
    if value is None:
        value = getattr(options.get("machines"), of_catalogue, None)
    if value is not None and not callable(value):
        raise BadRequestError(
            f"costopt_gcp: option {key} must be a function, not {type(value).__name__}",
            hint=f"pass the catalogue's {of_catalogue}",
        )
    return cast("ListPrices | None", value)
