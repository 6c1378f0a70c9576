"""The electricity contracts of an account file, checked and as the domain has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from costopt.catalog import load_catalog
from costopt.domain.contracts import ContractKind, ElectricityContract
from costopt.spec.fields import Text, did_you_mean
from costopt.spec.period_section import PeriodSection, period_problems
from costopt.spec.yaml_document import Document, SpecProblem

SECTION = "electricity_contracts"


class ContractSection(PeriodSection):
    """What a provider's electricity emits by contract, for market-based emissions."""

    regions: list[Text] = Field(
        default_factory=list, description="the regions it covers; default: all of the provider's"
    )
    gco2e_per_kwh: Annotated[float, Field(ge=0, le=5000)] = Field(
        description="what the contracted electricity emits; 0 for certified renewable energy"
    )
    kind: Annotated[ContractKind, Field(strict=False)] = Field(
        default=ContractKind.CONTRACT,
        description="contract, or residual_mix: the published mix for what no contract covers",
    )

    def contract(self) -> ElectricityContract:
        """Return it as the domain has it."""
        return ElectricityContract(
            self.name,
            self.provider,
            self.gco2e_per_kwh,
            tuple(self.regions),
            self.period(),
            self.kind,
        )


def contract_problems(
    document: Document, sections: Sequence[ContractSection]
) -> Iterator[SpecProblem]:
    """Yield contradictions: unknown regions, ends before beginnings, two figures for one hour."""
    contracts = [each.contract() for each in sections]
    for index, contract in enumerate(contracts):
        yield from _region_problems(document, index, contract)
        yield from period_problems(document, (SECTION, index), sections[index])
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
