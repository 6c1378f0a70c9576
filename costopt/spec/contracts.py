"""The electricity contracts of an account file, checked and as the domain has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from costopt.catalog import load_catalog
from costopt.domain.contracts import ContractKind, ElectricityContract
from costopt.spec.fields import FileModel, Name, Text, did_you_mean
from costopt.spec.yaml_document import VALUE_ERROR, Document, SpecProblem

SECTION = "electricity_contracts"


DAY_PATTERN = r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$"


def _day(value: object) -> object:
    """Return the date of a text; what is not one is refused with a sentence."""
    if not isinstance(value, str):
        return value
    try:
        if re.fullmatch(DAY_PATTERN, value):
            return date.fromisoformat(value)
    except ValueError:
        pass
    raise ValueError("expected a day such as 2026-01-31")


Day = Annotated[
    date,
    BeforeValidator(_day),
    WithJsonSchema({"type": "string", "format": "date", "pattern": DAY_PATTERN}),
]


class ContractSection(FileModel):
    """What a provider's electricity emits by contract, for market-based emissions."""

    name: Name = Field(description="the contract's name, as reports show it")
    provider: Text = Field(description="the cloud, as in the catalogue")
    regions: list[Text] = Field(
        default_factory=list, description="the regions it covers; default: all of the provider's"
    )
    gco2e_per_kwh: Annotated[float, Field(ge=0, le=5000)] = Field(
        description="what the contracted electricity emits; 0 for certified renewable energy"
    )
    first_day: Day | None = Field(
        default=None, description="from this day on (UTC); default: no start"
    )
    last_day: Day | None = Field(default=None, description="through this day; default: no end")
    kind: Annotated[ContractKind, Field(strict=False)] = Field(
        default=ContractKind.CONTRACT,
        description="contract, or residual_mix: the published mix for what no contract covers",
    )

    def contract(self) -> ElectricityContract:
        """Return it as the domain has it."""
        return ElectricityContract(**(self.model_dump() | {"regions": tuple(self.regions)}))


def contract_problems(
    document: Document, sections: Sequence[ContractSection]
) -> Iterator[SpecProblem]:
    """Yield contradictions: unknown regions, ends before beginnings, two figures for one hour."""
    contracts = [each.contract() for each in sections]
    for index, contract in enumerate(contracts):
        yield from _region_problems(document, index, contract)
        if contract.first_day and contract.last_day and contract.last_day < contract.first_day:
            message = f"ends before its first_day, {contract.first_day}"
            yield document.problem((SECTION, index, "last_day"), message, code=VALUE_ERROR)
        for earlier in contracts[:index]:
            if contract.overlaps(earlier):
                message = f"states the same electricity as {earlier.name!r} at the same time"
                yield document.problem((SECTION, index), message, code="duplicate")


def _region_problems(
    document: Document, index: int, contract: ElectricityContract
) -> Iterator[SpecProblem]:
    known = [each for each in load_catalog().regions() if each.provider == contract.provider]
    if not known:
        providers = sorted({each.provider for each in load_catalog().regions()})
        message = f"unknown provider {contract.provider!r}; one of: {', '.join(providers)}"
        yield document.problem((SECTION, index, "provider"), message, code="unknown_name")
        return
    names = [each.name for each in known]
    for place, region in enumerate(contract.regions):
        if region not in names:
            message = f"{contract.provider} has no region {region!r}{did_you_mean(region, names)}"
            yield document.problem((SECTION, index, "regions", place), message, code="unknown_name")
