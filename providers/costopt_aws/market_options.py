"""Where prices are looked up and what is offered, as ``connect`` is told it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from costopt.domain.errors import BadRequestError
from costopt.domain.ports import ProviderOptions
from costopt_aws.advisor import ADVISOR_URL
from costopt_aws.on_demand_prices import ListPrices
from costopt_aws.price_file import PRICE_FILE_URL

MARKET_KEYS = frozenset(
    {
        "instance_types",
        "list_prices",
        "cache_folder",
        "advisor_url",
        "price_file_url",
        "scored_nodes",
    }
)


@dataclass(frozen=True, slots=True)
class MarketOptions:
    """``instance_types``: names and wildcards to offer, () for all with GPUs.

    ``list_prices``: a dated list to fall back on, by default that of the catalogue which is given
    as ``machines``. ``cache_folder``: where price files are kept between runs, by default
    $XDG_CACHE_HOME/costopt. ``advisor_url`` and ``price_file_url`` default to the environment
    variables COSTOPT_AWS_ADVISOR_URL and COSTOPT_AWS_PRICE_FILE_URL, then to the public pages.
    ``scored_nodes``: for how many nodes spot placement scores are asked, None for no scores.
    """

    instance_types: tuple[str, ...] = ()
    list_prices: ListPrices | None = None
    cache_folder: Path | None = None
    advisor_url: str = ADVISOR_URL
    price_file_url: str = PRICE_FILE_URL
    scored_nodes: int | None = 1

    @classmethod
    def parse(cls, options: ProviderOptions) -> MarketOptions:
        """Raises BadRequestError that names the option."""
        folder = options.get("cache_folder")
        return cls(
            instance_types=_names(options.get("instance_types", ())),
            list_prices=_list_prices(options.get("list_prices"), options.get("machines")),
            cache_folder=_cache_folder() if folder is None else Path(str(folder)),
            advisor_url=_url(options, "advisor_url", "COSTOPT_AWS_ADVISOR_URL", ADVISOR_URL),
            price_file_url=_url(
                options, "price_file_url", "COSTOPT_AWS_PRICE_FILE_URL", PRICE_FILE_URL
            ),
            scored_nodes=_scored_nodes(options.get("scored_nodes", 1)),
        )


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise BadRequestError(
            f"costopt_aws: option instance_types must be a list of names, not {value!r}",
            hint='such as ["p5.48xlarge", "g6e.*"]',
        )
    return tuple(dict.fromkeys(str(name) for name in value))


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "costopt"


def _list_prices(value: object, machines: object) -> ListPrices | None:
    """As given, else those of the catalogue that is given for machines, which holds some."""
    if value is None:
        value = getattr(machines, "list_price_usd_per_hour", None)
    if value is not None and not callable(value):
        raise BadRequestError(
            f"costopt_aws: option list_prices must be a function, not {type(value).__name__}",
            hint="pass the catalogue's list_price_usd_per_hour",
        )
    return cast("ListPrices | None", value)


def _url(options: ProviderOptions, key: str, variable: str, otherwise: str) -> str:
    return str(options.get(key) or os.environ.get(variable) or otherwise)


def _scored_nodes(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise BadRequestError(
            f"costopt_aws: scored_nodes must be a positive number of nodes, not {value!r}",
            hint="None asks for no spot placement scores",
        )
    return value
