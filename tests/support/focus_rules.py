"""The rules of FOCUS 1.2 for rows of usage, as the specification's columns state them.

Apart from the exporter's own table of columns: required columns, allowed values, sums.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any


def words(text: str) -> list[str]:
    """Return the words of a long list."""
    return text.split()


NOT_NULL = frozenset(
    words(
        """BilledCost EffectiveCost ContractedCost ListCost BillingAccountId BillingAccountName
    BillingCurrency BillingPeriodStart BillingPeriodEnd ChargeCategory ChargeFrequency
    ChargeDescription ChargePeriodStart ChargePeriodEnd InvoiceIssuerName ProviderName
    PublisherName PricingCategory PricingQuantity PricingUnit ContractedUnitPrice
    ServiceCategory ServiceName ServiceSubcategory RegionId RegionName SkuId SkuPriceId
    PricingCurrency PricingCurrencyContractedUnitPrice PricingCurrencyEffectiveCost"""
    )
)
PRESENT = NOT_NULL | frozenset(
    words(
        """AvailabilityZone CapacityReservationId CapacityReservationStatus ChargeClass
    CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName
    CommitmentDiscountQuantity CommitmentDiscountStatus CommitmentDiscountType
    CommitmentDiscountUnit ConsumedQuantity ConsumedUnit InvoiceId ListUnitPrice
    PricingCurrencyListUnitPrice ResourceId ResourceName ResourceType SkuMeter SkuPriceDetails
    SubAccountId SubAccountName Tags"""
    )
)
ALLOWED: Mapping[str, frozenset[Any]] = {
    "ChargeCategory": frozenset({"Usage"}),
    "ChargeClass": frozenset({None}),
    "ChargeFrequency": frozenset({"Usage-Based"}),
    "InvoiceId": frozenset({None}),
    "BillingCurrency": frozenset({"USD"}),
    "PricingCategory": frozenset({"Standard", "Dynamic", "Committed", "Other"}),
    "PricingUnit": frozenset({"Hours", "GiB"}),
    "ConsumedUnit": frozenset({"Hours", "GiB"}),
    "ServiceCategory": frozenset({"Compute", "Networking", "Storage"}),
    "ServiceSubcategory": frozenset(
        {"Virtual Machines", "Network Connectivity", "Block Storage", "Object Storage"}
    ),
}
SKU_KEYS = frozenset({"CoreCount", "MemorySize", "GpuCount", "InstanceType"})
MAX_ROUNDING_USD = Decimal("0.000003")


def violations(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return every rule that a row breaks, with the row's number."""
    return [f"row {number}: {each}" for number, row in enumerate(rows) for each in _of_row(row)]


def _of_row(row: Mapping[str, Any]) -> list[str]:
    found = [f"{name} is null" for name in sorted(NOT_NULL) if row.get(name) is None]
    found += [
        f"{name} is {row.get(name)!r}"
        for name, allowed in ALLOWED.items()
        if row.get(name) not in allowed
    ]
    return found or [*_of_costs(row), *_of_periods(row), *_of_texts(row)]


def _of_costs(row: Mapping[str, Any]) -> Iterable[str]:
    for kind in ("List", "Contracted"):
        price, cost = row[f"{kind}UnitPrice"], row[f"{kind}Cost"]
        if price is not None and price * row["PricingQuantity"] != cost:
            yield f"{kind}Cost is not {kind}UnitPrice × PricingQuantity"
        if price is not None and price < 0:
            yield f"{kind}UnitPrice is negative"
    if row["ListUnitPrice"] is None and row["ListCost"] != row["BilledCost"]:
        yield "ListCost without a list price is not BilledCost"
    if row.get("CommitmentDiscountStatus") or row.get("CapacityReservationStatus"):
        if row["EffectiveCost"] < row["BilledCost"]:
            yield "EffectiveCost of what a commitment covers is below BilledCost"
        return
    if abs(row["BilledCost"] - row["ContractedCost"]) >= MAX_ROUNDING_USD:
        yield "BilledCost is not ContractedCost"
    if row["EffectiveCost"] != row["BilledCost"]:
        yield "EffectiveCost is not BilledCost"


def _of_periods(row: Mapping[str, Any]) -> Iterable[str]:
    times: list[datetime] = [
        row[f"{which}Period{end}"] for which in ("Billing", "Charge") for end in ("Start", "End")
    ]
    bill_from, bill_until, from_at, until_at = times
    if not bill_from <= from_at < until_at <= bill_until:
        yield "the charge period is not within the billing period"
    if any(at.utcoffset() is None or at.microsecond or at.second for at in times):
        yield "a period is not in whole minutes of UTC"
    if bill_from.day != 1 or bill_until.day != 1:
        yield "the billing period is not a month"


def _of_texts(row: Mapping[str, Any]) -> Iterable[str]:
    if (row.get("ResourceId") is None) != (row.get("ResourceType") is None):
        yield "ResourceType does not follow ResourceId"
    if (row.get("ConsumedQuantity") is None) != (row.get("ConsumedUnit") is None):
        yield "ConsumedUnit does not follow ConsumedQuantity"
    for name in ("Tags", "SkuPriceDetails"):
        for key, value in json.loads(row.get(name) or "{}").items():
            if not isinstance(value, str | int | float | bool | None):
                yield f"{name} is not flat"
            if name == "SkuPriceDetails" and key not in SKU_KEYS and not key.startswith("x_"):
                yield f"{key} is not a key of SkuPriceDetails"
