"""The columns of a FOCUS export: the FinOps Open Cost and Usage Specification, 1.2 and 1.3.

The columns of 1.2 come first, then what 1.3 adds, then our own, which begin with ``x_``. Columns
that costopt has nothing to say about (such as invoices) are present and null, since readers and the
official validator expect them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FocusVersion(StrEnum):
    """The versions of the specification that can be written."""

    V1_2 = "1.2"
    V1_3 = "1.3"


class FocusType(StrEnum):
    """The data types of columns, by their names in FOCUS metadata."""

    STRING = "STRING"
    DATETIME = "DATETIME"
    COST = "DECIMAL"
    """An amount of money: 18 decimals hold a unit price times a quantity exactly."""
    FACTOR = "DECIMAL(9)"
    """A unit price or a quantity: 9 decimals, so hours are exact to the millisecond."""
    JSON = "JSON"


COST_PRECISION, COST_SCALE = 38, 18
FACTOR_PRECISION, FACTOR_SCALE = 19, 9


@dataclass(frozen=True, slots=True)
class FocusColumn:
    """A column; ``required`` ones are not null in any row of usage."""

    name: str
    type: FocusType = FocusType.STRING
    required: bool = False


def _columns(names: str, kind: FocusType = FocusType.STRING) -> tuple[FocusColumn, ...]:
    """Return a column per name; those that end in ``!`` are required."""
    return tuple(
        FocusColumn(name.rstrip("!"), kind, required=name.endswith("!")) for name in names.split()
    )


_V1_2 = (
    *_columns("BilledCost! EffectiveCost! ContractedCost! ListCost!", FocusType.COST),
    *_columns("BillingAccountId! BillingAccountName! BillingCurrency!"),
    *_columns(
        "BillingPeriodStart! BillingPeriodEnd! ChargePeriodStart! ChargePeriodEnd!",
        FocusType.DATETIME,
    ),
    *_columns("ChargeCategory! ChargeClass ChargeDescription! ChargeFrequency!"),
    *_columns("InvoiceId InvoiceIssuerName! ProviderName! PublisherName!"),
    *_columns("ServiceCategory! ServiceName! ServiceSubcategory!"),
    *_columns("PricingCategory!"),
    *_columns("PricingQuantity!", FocusType.FACTOR),
    *_columns("PricingUnit!"),
    *_columns("ListUnitPrice ContractedUnitPrice!", FocusType.FACTOR),
    *_columns("PricingCurrency!"),
    *_columns("PricingCurrencyContractedUnitPrice! PricingCurrencyListUnitPrice", FocusType.FACTOR),
    *_columns("PricingCurrencyEffectiveCost!", FocusType.COST),
    *_columns("ConsumedQuantity", FocusType.FACTOR),
    *_columns("ConsumedUnit"),
    *_columns("RegionId! RegionName! AvailabilityZone"),
    *_columns("ResourceId ResourceName ResourceType"),
    *_columns("SkuId! SkuMeter! SkuPriceId!"),
    *_columns("SkuPriceDetails", FocusType.JSON),
    *_columns("SubAccountId SubAccountName"),
    *_columns("Tags!", FocusType.JSON),
    *_columns("CapacityReservationId CapacityReservationStatus"),
    *_columns("CommitmentDiscountCategory CommitmentDiscountId CommitmentDiscountName"),
    *_columns("CommitmentDiscountQuantity", FocusType.FACTOR),
    *_columns("CommitmentDiscountStatus CommitmentDiscountType CommitmentDiscountUnit"),
)
_V1_3 = _columns("ServiceProviderName! HostProviderName!")
_OWN = (
    *_columns("x_EnergyKilowattHours", FocusType.FACTOR),
    *_columns("x_EnergyBasis"),
    *_columns("x_PowerUsageEffectiveness", FocusType.FACTOR),
    *_columns("x_EmissionsLocationBasedKilograms x_EmissionsMarginalKilograms", FocusType.FACTOR),
    *_columns("x_EmissionsMarketBasedKilograms x_EmbodiedEmissionsKilograms", FocusType.FACTOR),
    *_columns("x_IntensityBasis"),
)


def focus_columns(version: FocusVersion) -> tuple[FocusColumn, ...]:
    """Return the columns of a file of this version, in their order."""
    added = _V1_3 if version is FocusVersion.V1_3 else ()
    return (*_V1_2, *added, *_OWN)
