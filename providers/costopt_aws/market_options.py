"""Where prices are looked up and what is offered, as ``connect`` is told it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, SkipValidation, model_validator

from costopt.domain.ports import InstanceCatalog
from costopt.provider.options import (
    Listed,
    NodeCount,
    OptionModel,
    Text,
    WebAddress,
    with_method,
)
from costopt_aws.advisor import ADVISOR_URL
from costopt_aws.on_demand_prices import ListPrices
from costopt_aws.price_file import PRICE_FILE_URL


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "costopt"


class MarketOptions(OptionModel):
    """``machines``: the catalogue, None where there is none."""

    injected: ClassVar[frozenset[str]] = frozenset({"machines", "list_prices"})

    machines: SkipValidation[InstanceCatalog | None] = Field(
        default=None, description="the catalogue"
    )
    list_prices: Annotated[
        SkipValidation[ListPrices | None], with_method("__call__", "a function")
    ] = Field(default=None, description="a dated list to fall back on; default: the catalogue's")
    instance_types: Listed[Text] = Field(
        default=(), description='names and wildcards, such as ["p5.48xlarge", "g6e.*"]'
    )
    cache_folder: Annotated[Path, Field(strict=False)] = Field(
        default_factory=_cache_folder, description="a folder where price files are kept"
    )
    advisor_url: WebAddress = Field(
        default_factory=lambda: os.environ.get("COSTOPT_AWS_ADVISOR_URL") or ADVISOR_URL,
        description="a web address in place of AWS's Spot Advisor",
    )
    price_file_url: WebAddress = Field(
        default_factory=lambda: os.environ.get("COSTOPT_AWS_PRICE_FILE_URL") or PRICE_FILE_URL,
        description="a web address in place of AWS's price files",
    )
    scored_nodes: NodeCount | None = Field(
        default=1, description="for how many nodes placement scores are asked; null: for none"
    )

    @model_validator(mode="before")
    @classmethod
    def _list_prices_of_catalogue(cls, options: dict[str, Any]) -> dict[str, Any]:
        listed = getattr(options.get("machines"), "list_price_usd_per_hour", None)
        return {"list_prices": listed, **options}
