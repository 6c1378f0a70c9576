"""What is offered and where prices are looked up, as ``connect`` is told it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, SkipValidation, model_validator

from costopt.domain.ports import InstanceCatalog
from costopt.provider.options import Listed, NodeCount, OptionModel, Text, with_method
from costopt_gcp.prices import ListPrices

DatedPrices = Annotated[SkipValidation[ListPrices | None], with_method("__call__", "a function")]
OF_CATALOGUE = {
    "list_prices": "list_price_usd_per_hour",
    "spot_prices": "spot_price_usd_per_hour",
}


class MarketOptions(OptionModel):
    """``machines``: the catalogue, None where there is none."""

    injected: ClassVar[frozenset[str]] = frozenset({"machines", *OF_CATALOGUE})

    machines: SkipValidation[InstanceCatalog | None] = Field(
        default=None, description="the catalogue"
    )
    list_prices: DatedPrices = Field(
        default=None, description="a dated list to fall back on; default: the catalogue's"
    )
    spot_prices: DatedPrices = Field(
        default=None,
        description="a dated list for spot prices that Google does not publish; default: the "
        "catalogue's",
    )
    instance_types: Listed[Text] = Field(
        default=(),
        description='names and wildcards, such as ["a2-highgpu-1g", "g2-*", "n1-standard-8+1xT4"]; '
        "default: every type with GPUs of its own",
    )
    advised_nodes: NodeCount | None = Field(
        default=1,
        description="for how many nodes the likelihood of capacity is asked; null: for none",
    )

    @model_validator(mode="before")
    @classmethod
    def _prices_of_catalogue(cls, options: dict[str, Any]) -> dict[str, Any]:
        machines = options.get("machines")
        found = {key: getattr(machines, method, None) for key, method in OF_CATALOGUE.items()}
        return found | options
