"""Imports the public spot availability traces (github.com/skypilot-org/spot-traces, NSDI'24).

A trace is JSON: ``{"metadata": {"gap_seconds": 600}, "data": [1, 0, …]}``. Each value holds for
one gap from its place on: 1 or more nodes were available, 0 none, null not observed. The traces
carry no prices, so the caller gives them.
"""

from __future__ import annotations

import json
import math
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeGuard

from costopt.catalog import find_traits
from costopt.domain.errors import MarketError
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import CapacityType, Pool
from costopt.market.place import TraceFileName, instance_type_of
from costopt.market.runs import UNLIMITED_NODES, compress_samples


def import_spot_trace(
    path: Path,
    *,
    spot_usd_per_hour: float,
    on_demand_usd_per_hour: float,
    pool: Pool | None = None,
    start_at: datetime | None = None,
    instance_type: str | None = None,
    nodes_per_unit: int = 1,
    name: str | None = None,
) -> MarketHistory:
    """The trace as a spot pool, with the on-demand pool of the same place beside it.

    Without ``pool`` and ``start_at`` the place, instance type and first day (midnight UTC) come
    from the file's public name. ``nodes_per_unit`` is how many nodes one unit of the trace's
    values stands for. On-demand has a constant price and is never short. Raises MarketError.
    """
    for price in (spot_usd_per_hour, on_demand_usd_per_hour):
        if not (math.isfinite(price) and price > 0):
            raise MarketError(
                f"spot trace {path.name}: a price of {price} $/h is impossible",
                code="impossible_price",
            )
    gap_s, data = _read(path)
    spot = pool or _pool_of(path, instance_type)
    begins_at = start_at or _start_of(path)
    if begins_at.tzinfo is None:
        raise MarketError(f"spot trace {path.name}: the start {begins_at} is a naive time")
    step, ends_at = timedelta(seconds=gap_s), begins_at + timedelta(seconds=gap_s * len(data))
    samples = (
        MarketState(
            begins_at + index * step,
            None if units is None else units * nodes_per_unit,
            None if units is None else spot_usd_per_hour,
        )
        for index, units in enumerate(data)
    )
    on_demand = spot.with_capacity_type(CapacityType.ON_DEMAND)
    always = MarketState(begins_at, UNLIMITED_NODES, on_demand_usd_per_hour)
    return MarketHistory(
        name=name or path.stem,
        pools={
            spot: PoolHistory(spot, compress_samples(samples), ends_at),
            on_demand: PoolHistory(on_demand, (always,), ends_at),
        },
        tick_s=gap_s,
        source=f"spot trace {path.name}, prices given",
    )


def _read(path: Path) -> tuple[float, list[int | None]]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MarketError(
            f"spot trace {path} cannot be read: {error}", code="unreadable"
        ) from error
    except ValueError as error:
        raise MarketError(
            f"spot trace {path} is truncated or no JSON: {error}", hint="download it again"
        ) from error
    if not isinstance(document, dict):
        raise MarketError(f"spot trace {path}: not an object with metadata and data")
    return _gap_s(path, document.get("metadata")), _data(path, document.get("data"))


def _gap_s(path: Path, metadata: object) -> float:
    gap_s = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    if not _is_number(gap_s) or not (math.isfinite(gap_s) and gap_s > 0):
        raise MarketError(
            f"spot trace {path}: metadata.gap_seconds is {gap_s!r}",
            hint="it differs by trace (600 s in 2022, 195 s in 2023), so it must be in the file",
        )
    return float(gap_s)


def _data(path: Path, data: object) -> list[int | None]:
    if not isinstance(data, list) or not data:
        raise MarketError(f"spot trace {path}: data is empty or no list", code="invalid")
    for index, value in enumerate(data):
        if value is not None and not _is_count(value):
            raise MarketError(
                f"spot trace {path}: data[{index}] is {value!r}",
                hint="a value is 0, a number of nodes, or null where it was not observed",
            )
    return [None if value is None else int(value) for value in data]


def _is_count(value: object) -> TypeGuard[float]:
    return _is_number(value) and math.isfinite(value) and value >= 0 and value == int(value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _pool_of(path: Path, instance_type: str | None) -> Pool:
    named = TraceFileName.parse(path.name)
    if named is None:
        raise MarketError(
            f"spot trace {path.name}: the name does not say where it was taken",
            hint="give the pool",
            code="no_place",
        )
    kind = instance_type or instance_type_of(named.provider, named.gpu, named.gpu_count)
    if kind is None:
        raise MarketError(
            f"spot trace {path.name}: no instance type is known for {named.gpu_count} × "
            f"{named.gpu} at {named.provider}",
            hint="give the instance type",
        )
    region = find_traits(named.provider).region_of_zone(named.zone)
    return Pool(named.provider, region, named.zone, kind, CapacityType.SPOT)


def _start_of(path: Path) -> datetime:
    named = TraceFileName.parse(path.name)
    if named is None:
        raise MarketError(
            f"spot trace {path.name}: the name does not say when it was taken",
            hint="give the start",
            code="no_start",
        )
    return named.start_at
