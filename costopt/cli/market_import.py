"""A public record as a market history: what its file does not say comes from the options."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import click

from costopt.cli.record_file import check_record
from costopt.domain.errors import MarketError
from costopt.domain.history import MarketHistory
from costopt.domain.market import CapacityType, Pool

TABLE_SUFFIXES = (".csv", ".csv.gz")


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the options say; None: nothing."""

    spot_usd_per_hour: float | None
    on_demand_usd_per_hour: float | None
    pool: Pool | None
    instance_type: str | None
    start_at: datetime | None
    nodes_per_unit: int


def import_record(record: Path, given: ImportOptions) -> MarketHistory:
    """A table of prices and availability by its suffix, else a trace of availability.

    Raises MarketError for a missing or wrong file or an unknown price, UsageError for an option
    that does not go with the record.
    """
    check_record(record, MarketError)
    if record.name.endswith(TABLE_SUFFIXES):
        return _import_table(record, given)
    return _import_trace(record, given)


def _import_table(record: Path, given: ImportOptions) -> MarketHistory:
    from costopt.market.wide_csv import import_wide_csv

    for option, is_given in (
        ("--spot-price", given.spot_usd_per_hour is not None),
        ("--pool", given.pool is not None),
        ("--start", given.start_at is not None),
        ("--nodes-per-unit", given.nodes_per_unit != 1),
    ):
        if is_given:
            raise click.UsageError(f"{option} is for traces; {record.name} says it itself")
    return import_wide_csv(
        record,
        on_demand_usd_per_hour=lambda pool: _usd_per_hour(
            given.on_demand_usd_per_hour, record, pool, "--on-demand-price"
        ),
        instance_type=given.instance_type,
    )


def _import_trace(record: Path, given: ImportOptions) -> MarketHistory:
    from costopt.market.spot_traces import import_spot_trace

    spot_usd, on_demand_usd = _trace_prices(record, given)
    return import_spot_trace(
        record,
        spot_usd_per_hour=spot_usd,
        on_demand_usd_per_hour=on_demand_usd,
        pool=given.pool,
        start_at=given.start_at,
        instance_type=given.instance_type,
        nodes_per_unit=given.nodes_per_unit,
    )


def _trace_prices(record: Path, given: ImportOptions) -> tuple[float, float]:
    """On spot and on demand: as given, else the catalogue's for the trace's place."""
    spot_usd, on_demand_usd = given.spot_usd_per_hour, given.on_demand_usd_per_hour
    if spot_usd is not None and on_demand_usd is not None:
        return spot_usd, on_demand_usd
    spot = given.pool or _place(record, given.instance_type)
    on_demand = spot.with_capacity_type(CapacityType.ON_DEMAND)
    return (
        _usd_per_hour(spot_usd, record, spot, "--spot-price"),
        _usd_per_hour(on_demand_usd, record, on_demand, "--on-demand-price"),
    )


def _place(record: Path, instance_type: str | None) -> Pool:
    from costopt.catalog import find_traits
    from costopt.market.place import TraceFileName, instance_type_of

    named = TraceFileName.parse(record.name)
    kind = instance_type or (
        instance_type_of(named.provider, named.gpu, named.gpu_count) if named else None
    )
    if named is None or kind is None:
        raise MarketError(
            f"spot trace {record.name}: the name does not say which machine it is of",
            hint="give --spot-price, --on-demand-price and --pool or --instance-type",
        )
    region = find_traits(named.provider).region_of_zone(named.zone)
    return Pool(named.provider, region, named.zone, kind, CapacityType.SPOT)


def _usd_per_hour(given_usd: float | None, record: Path, pool: Pool, option: str) -> float:
    """The price given, else the catalogue's of the pool."""
    from costopt.catalog import load_catalog

    if given_usd is not None:
        return given_usd
    known, key = load_catalog(), (pool.provider, pool.region, pool.instance_type)
    if pool.capacity_type is CapacityType.SPOT:
        price = known.spot_price_usd_per_hour(*key)
    else:
        price = known.list_price_usd_per_hour(*key)
    if price is None:
        raise MarketError(
            f"{record.name}: the catalogue has no {pool.capacity_type.value} price of "
            f"{pool.instance_type} in {pool.region}",
            hint=f"give {option}",
        )
    return price.value
