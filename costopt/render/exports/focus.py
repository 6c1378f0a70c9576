"""The rows of a FOCUS export: what each node and transfer of a job cost, per charge period.

A node has a row per charge period and price: price times quantity is exact in every row. Money
comes from the ledger's micro-dollars: ``BilledCost`` is the ledger's figure, and the sum over the
rows of a job is its summary's ``usd_micros``. ``ContractedCost`` and ``ListCost`` are unit price
times quantity, not rounded; as the ledger rounds each price segment down, they differ from
``BilledCost`` by less than three micro-dollars a row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from itertools import pairwise

from costopt.catalog import load_catalog
from costopt.catalog.traits import find_traits
from costopt.domain.account_price import CommitmentKind
from costopt.domain.events import DataMoved
from costopt.domain.market import CapacityType, Pool
from costopt.domain.policy import CarbonSignal
from costopt.ledger.job_account import JobAccount
from costopt.ledger.node_account import NodeAccount, energy_basis
from costopt.ledger.node_emissions import Emission, carbon_basis
from costopt.ledger.node_meter import MS_PER_HOUR, from_milliseconds, to_milliseconds
from costopt.ledger.storage_costs import volume_usd_micros
from costopt.render.exports.focus_columns import FACTOR_SCALE

FocusRow = dict[str, str | datetime | Decimal | None]
_STEP = Decimal(1).scaleb(-FACTOR_SCALE)
ESTIMATE_ACCOUNT = "costopt-estimate"
"""The billing account of rows for which no account was named."""


class ChargePeriod(StrEnum):
    """The length of charge periods, in UTC."""

    HOUR = "hour"
    DAY = "day"

    @property
    def ms(self) -> int:
        """Return milliseconds."""
        return MS_PER_HOUR if self is ChargePeriod.HOUR else 24 * MS_PER_HOUR


@dataclass(frozen=True, slots=True)
class FocusSettings:
    """``billing_account`` is the id under which the provider bills."""

    billing_account: str = ESTIMATE_ACCOUNT
    period: ChargePeriod = ChargePeriod.DAY


_TERMS = {
    CapacityType.SPOT: ("Dynamic", "Spot instance hour"),
    CapacityType.ON_DEMAND: ("Standard", "On-demand instance hour"),
    CapacityType.RESERVED: ("Committed", "Reserved instance hour"),
    CapacityType.FLEX_START: ("Standard", "Flex-start instance hour"),
}
"""Pricing category and meter. Spot is Dynamic: the specification names interruptible capacity."""


def focus_rows(
    account: JobAccount, moves: Iterable[DataMoved], now: datetime, settings: FocusSettings
) -> Iterator[FocusRow]:
    """Yield the rows of a job until ``now``: its nodes with their volumes by launch, checkpoints,
    then its transfers by time.

    Transfers and storage of unknown price have no row, as they are not in the job's sum either.
    """
    job = _job_cells(account, settings)
    now_ms = to_milliseconds(now)
    nodes = account.fleet.nodes.values()
    for node in sorted(nodes, key=lambda node: (node.launched_ms, node.node_id)):
        for row in _node_rows(node, now_ms, settings.period):
            yield {**job, **row, "ResourceName": f"{account.job}/{node.node_id}"}
    for row in _checkpoint_rows(account, now_ms, settings.period):
        yield {**job, **row}
    for move in sorted(moves, key=lambda move: move.at):
        if move.usd_micros:
            yield {**job, **_transfer_row(move, settings.period)}


def _job_cells(account: JobAccount, settings: FocusSettings) -> FocusRow:
    """Return the cells that all rows of a job share."""
    submitted = account.submitted
    tags = {"costopt/job": account.job}
    if submitted is not None:
        tags |= {"costopt/policy": submitted.policy, "costopt/tenant": submitted.tenant}
    return {
        "BillingAccountId": settings.billing_account,
        "BillingAccountName": settings.billing_account,
        "BillingCurrency": "USD",
        "PricingCurrency": "USD",
        "ChargeCategory": "Usage",
        "ChargeFrequency": "Usage-Based",
        "SubAccountId": None if submitted is None else submitted.tenant or None,
        "SubAccountName": None if submitted is None else submitted.tenant or None,
        "Tags": json.dumps(tags, ensure_ascii=False),
    }


@dataclass(frozen=True, slots=True)
class _Slice:
    """A stretch of a node's time at one price within one charge period; ``charged_ms`` is longer
    than it where the provider charges a minimum."""

    from_ms: int
    until_ms: int
    charged_ms: int


def _slices(node: NodeAccount, now_ms: int, period: ChargePeriod) -> Iterator[_Slice]:
    begin, end = node.launched_ms, node.until_ms(now_ms)
    first = (begin // period.ms + 1) * period.ms
    prices = (ms for ms in node.cost.starts_ms if begin < ms < end)
    knots = sorted({begin, *range(first, end, period.ms), *prices, end})
    missing_ms = max(0, node.min_billed_ms - (end - begin))
    stretches = list(pairwise(knots)) or [(begin, end)]
    for start, stop in stretches:
        charged = stop - start + (missing_ms if stop == end else 0)
        if charged:
            yield _Slice(start, stop, charged)


def _node_rows(node: NodeAccount, now_ms: int, period: ChargePeriod) -> Iterator[FocusRow]:
    shared = _pool_cells(node.pool)
    known = _list_price(node.pool.uncommitted)
    before = _Meters.of(node, node.launched_ms, 0)
    for piece in _slices(node, now_ms, period):
        after = _Meters.of(node, piece.until_ms, node.usd_micros(piece.until_ms))
        price = _dollars(node.cost.micros_per_hour_at(piece.from_ms))
        hours = _hours(piece.charged_ms)
        yield {
            **shared,
            **_period_cells(piece.from_ms, period),
            **_money(
                after.usd_micros - before.usd_micros,
                price,
                _own_list_price(node, piece.from_ms, price, known),
                hours,
            ),
            **_commitment_cells(node, before, after, hours),
            "PricingUnit": "Hours",
            "ConsumedQuantity": _hours(piece.until_ms - piece.from_ms),
            "ConsumedUnit": "Hours",
            "ResourceId": node.node_id,
            "ResourceType": "Instance",
            **_energy_cells(node, before, after),
        }
        before = after
        yield from _volume_row(node, piece, period)


def _volume_row(node: NodeAccount, piece: _Slice, period: ChargePeriod) -> Iterator[FocusRow]:
    """Yield the row of a node's root volume, none where it costs nothing or is unpriced."""
    billed = volume_usd_micros(node, piece.until_ms) - volume_usd_micros(node, piece.from_ms)
    if not billed:
        return
    price, pool = _dollars(node.launched.volume_micros_per_hour or 0), node.pool
    yield {
        **_provider_cells(pool.provider),
        **_period_cells(piece.from_ms, period),
        **_money(billed, price, price, _hours(piece.until_ms - piece.from_ms)),
        **_storage_cells("Block Storage", f"Root volume, {pool.region}", f"volume/{pool.region}"),
        "ServiceName": find_traits(pool.provider).compute_service or pool.provider,
        "RegionId": pool.region,
        "RegionName": pool.region,
        "AvailabilityZone": pool.zone,
        "ConsumedQuantity": _hours(piece.until_ms - piece.from_ms),
        "ResourceId": f"{node.node_id}/root",
        "ResourceType": "Volume",
    }


STORES = {"aws": "Amazon Simple Storage Service", "gcp": "Cloud Storage"}
"""The service of a provider's object stores, as on its bills."""


def _checkpoint_rows(account: JobAccount, now_ms: int, period: ChargePeriod) -> Iterator[FocusRow]:
    """Yield a row per charge period for what checkpoints cost in their store."""
    stored, since_ms = account.storage, account.storage.since_ms
    provider, _, region = stored.region.partition("/")
    if since_ms is None or not region:
        return
    first = (since_ms // period.ms + 1) * period.ms
    for start, stop in pairwise((since_ms, *range(first, now_ms, period.ms), now_ms)):
        billed = stored.usd_micros_until(stop) - stored.usd_micros_until(start)
        if billed:
            quantity = _hours(stop - start)
            price = (_dollars(billed) / quantity).quantize(_STEP)
            yield {
                **_provider_cells(provider),
                **_period_cells(start, period),
                **_money(billed, price, price, quantity),
                **_storage_cells("Object Storage", f"Checkpoints, {region}", f"store/{region}"),
                "ServiceName": STORES.get(provider, provider),
                "RegionId": region,
                "RegionName": region,
                "ConsumedQuantity": quantity,
                "ResourceId": stored.uri.rpartition("/")[0],
                "ResourceType": "Bucket",
            }


def _storage_cells(kind: str, said: str, sku: str) -> FocusRow:
    return {
        "ChargeDescription": said,
        "ServiceCategory": "Storage",
        "ServiceSubcategory": kind,
        "PricingCategory": "Standard",
        "PricingUnit": "Hours",
        "ConsumedUnit": "Hours",
        "SkuId": sku,
        "SkuMeter": "Storage",
        "SkuPriceId": sku,
    }


def _own_list_price(
    node: NodeAccount, ms: int, price: Decimal, known: Decimal | None
) -> Decimal | None:
    """Return the public price at ``ms``. The provider's own of on-demand capacity is fresher than a
    table's."""
    if node.pool.uncommitted.capacity_type is not CapacityType.ON_DEMAND:
        return known
    return price if node.listed is None else _dollars(node.listed.micros_per_hour_at(ms))


def _commitment_cells(
    node: NodeAccount, before: _Meters, after: _Meters, hours: Decimal
) -> FocusRow:
    """Return what a node used of a commitment: it is in the effective cost, and not in the billed
    cost, as the commitment itself is billed whether it is used or not."""
    kind, contracted = node.launched.commitment, node.launched.contracted_micros_per_hour
    if kind is None:
        return {}
    name = node.pool.commitment
    price = None if contracted is None else _dollars(contracted)
    cells: FocusRow = {}
    if price is not None:
        cells |= {
            "ContractedUnitPrice": price,
            "ContractedCost": price * hours,
            "PricingCurrencyContractedUnitPrice": price,
        }
    if after.committed_usd_micros is not None and before.committed_usd_micros is not None:
        used = after.committed_usd_micros - before.committed_usd_micros
        if not used:
            # The commitment has ended.
            return {}
        effective = _dollars(after.usd_micros - before.usd_micros + used)
        cells |= {"EffectiveCost": effective, "PricingCurrencyEffectiveCost": effective}
        quantity = _dollars(used) if kind.is_spend else hours
    else:
        quantity = hours
    if kind is CommitmentKind.RESERVATION:
        return cells | {"CapacityReservationId": name, "CapacityReservationStatus": "Used"}
    return cells | {
        "PricingCategory": "Committed",
        "CommitmentDiscountCategory": "Spend" if kind.is_spend else "Usage",
        "CommitmentDiscountId": name,
        "CommitmentDiscountName": name,
        "CommitmentDiscountQuantity": quantity.quantize(_STEP),
        "CommitmentDiscountStatus": "Used",
        "CommitmentDiscountType": kind.value.replace("_", " ").capitalize(),
        "CommitmentDiscountUnit": "USD" if kind.is_spend else "Hours",
    }


@dataclass(frozen=True, slots=True)
class _Meters:
    """Running totals of a node at an instant."""

    usd_micros: int
    committed_usd_micros: int | None
    uwh: int
    measured_uwh: int
    emitted: Emission
    embodied_ugco2e: int | None

    @classmethod
    def of(cls, node: NodeAccount, ms: int, usd_micros: int) -> _Meters:
        """Return the totals at ``ms``, with this cost."""
        return cls(
            usd_micros,
            node.committed_usd_micros(ms),
            sum(node.uwh(ms)),
            node.measured_uwh(ms),
            node.emitted(ms),
            node.embodied_ugco2e(ms),
        )


def _energy_cells(node: NodeAccount, before: _Meters, after: _Meters) -> FocusRow:
    """Return energy and emissions; null where unknown. Location-based figures are by the grid's
    average: those by a marginal intensity, by electricity contracts, and of making the machine have
    columns of their own."""
    pue = node.launched.pue
    if pue is None:
        return {}
    embodied = (
        None
        if before.embodied_ugco2e is None or after.embodied_ugco2e is None
        else Decimal(after.embodied_ugco2e - before.embodied_ugco2e).scaleb(-9)
    )
    uwh = after.uwh - before.uwh
    emitted = after.emitted.plus(before.emitted, -1)
    kilograms = None if emitted.unknown_uwh else Decimal(emitted.ugco2e).scaleb(-9)
    signal = node.launched.carbon_signal
    location_based = kilograms if signal is CarbonSignal.AVERAGE else None
    marginal = kilograms if signal is CarbonSignal.MARGINAL else None
    return {
        "x_EnergyKilowattHours": Decimal(uwh).scaleb(-9),
        "x_EnergyBasis": energy_basis(
            node.launched.energy_basis, after.measured_uwh - before.measured_uwh, uwh
        ),
        "x_PowerUsageEffectiveness": Decimal(str(pue)).quantize(_STEP),
        "x_EmissionsLocationBasedKilograms": location_based,
        "x_EmissionsMarginalKilograms": marginal,
        "x_EmissionsMarketBasedKilograms": None
        if emitted.uncontracted_uwh
        else Decimal(emitted.market_ugco2e).scaleb(-9),
        "x_EmbodiedEmissionsKilograms": embodied,
        "x_IntensityBasis": None
        if kilograms is None
        else carbon_basis(frozenset({signal}), emitted.hourly_uwh, uwh),
    }


def _pool_cells(pool: Pool) -> FocusRow:
    traits = find_traits(pool.provider)
    launched = pool.uncommitted.capacity_type
    category, meter = _TERMS[launched]
    terms = launched.value.replace("_", "-")
    return {
        **_provider_cells(pool.provider),
        "ChargeDescription": f"{pool.instance_type} {terms}, {pool.region}",
        "ServiceCategory": "Compute",
        "ServiceName": traits.compute_service or pool.provider,
        "ServiceSubcategory": "Virtual Machines",
        "PricingCategory": category,
        "RegionId": pool.region,
        "RegionName": pool.region,
        "AvailabilityZone": pool.uncommitted.zone,
        "SkuId": pool.instance_type,
        "SkuMeter": meter,
        "SkuPriceId": f"{pool.instance_type}/{pool.region}/{launched.value}",
        "SkuPriceDetails": _machine_details(pool),
    }


def _machine_details(pool: Pool) -> str:
    details: dict[str, str | float] = {"InstanceType": pool.instance_type}
    machine = load_catalog().instance_type(pool)
    if machine is not None:
        details |= {
            "CoreCount": machine.vcpus,
            "MemorySize": machine.memory_gib,
            "GpuCount": machine.gpu_count,
            "x_GpuModel": machine.gpu.model,
        }
    return json.dumps(details)


def _provider_cells(provider: str) -> FocusRow:
    name = find_traits(provider).title or provider
    names = ("ProviderName", "PublisherName", "InvoiceIssuerName")
    return dict.fromkeys((*names, "ServiceProviderName", "HostProviderName"), name)


def _list_price(pool: Pool) -> Decimal | None:
    known = load_catalog().list_price_usd_per_hour(pool.provider, pool.region, pool.instance_type)
    return None if known is None else Decimal(str(known.value)).quantize(_STEP)


def _transfer_row(move: DataMoved, period: ChargePeriod) -> FocusRow:
    assert move.usd_micros is not None
    provider, _, region = move.from_region.partition("/")
    quantity = Decimal(str(move.gib)).quantize(_STEP)
    price = (_dollars(move.usd_micros) / quantity).quantize(_STEP)
    sku = f"transfer/{move.from_region}/{move.to_region}"
    return {
        **_provider_cells(provider),
        **_period_cells(to_milliseconds(move.at), period),
        **_money(move.usd_micros, price, price, quantity),
        "ChargeDescription": f"Data transfer to {move.to_region}",
        "ServiceCategory": "Networking",
        "ServiceName": find_traits(provider).transfer_service or provider,
        "ServiceSubcategory": "Network Connectivity",
        "PricingCategory": "Standard",
        "PricingUnit": "GiB",
        "ConsumedQuantity": quantity,
        "ConsumedUnit": "GiB",
        "RegionId": region,
        "RegionName": region,
        "SkuId": sku,
        "SkuMeter": "Data transfer between regions",
        "SkuPriceId": sku,
    }


def _money(usd_micros: int, price: Decimal, listed: Decimal | None, quantity: Decimal) -> FocusRow:
    """Return costs, prices and quantity. By the specification, the list cost of a row without a
    list price is what was billed: no saving is claimed."""
    billed = _dollars(usd_micros)
    return {
        "BilledCost": billed,
        "EffectiveCost": billed,
        "ContractedCost": price * quantity,
        "ListCost": billed if listed is None else listed * quantity,
        "ContractedUnitPrice": price,
        "ListUnitPrice": listed,
        "PricingQuantity": quantity,
        "PricingCurrencyContractedUnitPrice": price,
        "PricingCurrencyListUnitPrice": listed,
        "PricingCurrencyEffectiveCost": billed,
    }


def _period_cells(ms: int, period: ChargePeriod) -> FocusRow:
    """Return the bounds of the charge period, and of the month, that hold ``ms``."""
    begin = from_milliseconds(ms // period.ms * period.ms)
    month = datetime(begin.year, begin.month, 1, tzinfo=UTC)
    later = month + timedelta(days=31)
    return {
        "ChargePeriodStart": begin,
        "ChargePeriodEnd": begin + timedelta(milliseconds=period.ms),
        "BillingPeriodStart": month,
        "BillingPeriodEnd": datetime(later.year, later.month, 1, tzinfo=UTC),
    }


def _dollars(micros: int) -> Decimal:
    return Decimal(micros).scaleb(-6)


def _hours(ms: int) -> Decimal:
    return (Decimal(ms) / MS_PER_HOUR).quantize(_STEP)
