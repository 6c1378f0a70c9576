"""Importers of public markets: spot availability traces (JSON) and wide CSV tables.

The traces are those of github.com/skypilot-org/spot-traces (NSDI'24): ``{"metadata":
{"gap_seconds": 600}, "data": [1, 0, …]}``. Each value holds for one gap from its place on: 1 or
more nodes were available, 0 none, null not observed. The traces carry no prices, so the caller
gives them. ``TraceFileName`` reads the region, zone, GPU and first day from the file's public name.

A wide CSV has one row per instant and two columns per pool: a time in UTC, then
{zone}_{gpu}_{count}_avail and {zone}_{gpu}_{count}_price. An empty cell, and every instant that the
grid has and the file has not, is a gap: never filled in.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TypeGuard

from costopt.catalog import find_traits
from costopt.catalog.csv_table import read_user_csv
from costopt.domain.errors import MarketError
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import CapacityType, Pool
from costopt.market.history_file import UNLIMITED_NODES, compress_samples


def import_spot_trace(
    path: Path,
    *,
    spot_usd_per_hour: float,
    on_demand_usd_per_hour: float,
    pool: Pool | None = None,
    start_at: datetime | None = None,
    instance_type: str | None = None,
    nodes_per_unit: int = 1,
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
        name=path.stem,
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


_COLUMN = re.compile(
    r"(?P<zone>[a-z0-9-]+)_(?P<gpu>[a-z0-9]+)_(?P<count>\d+)_(?P<what>avail|price)"
)


@dataclass(frozen=True, slots=True)
class _Table:
    """The file as text: header, instants and the cells of each row."""

    path: Path
    header: Sequence[str]
    instants: Sequence[datetime]
    rows: Sequence[Sequence[str]]

    def wrong(self, row: int, column: int, what: str) -> MarketError:
        """``row`` counts data rows from 0; the message counts lines, the header being line 1."""
        return MarketError(
            f"{self.path}, line {row + 2}, column {self.header[column]}: {what}",
            hint="availability is a whole number, a price is positive; empty means not observed",
        )


PROVIDER = "aws"
TIME_COLUMN = "time_utc_approx"


def import_wide_csv(
    path: Path,
    *,
    on_demand_usd_per_hour: Callable[[Pool], float | None] | None = None,
    instance_type: str | None = None,
) -> MarketHistory:
    """The pools of the file (plain or .gz), and on-demand beside those whose price is given.

    ``on_demand_usd_per_hour`` prices an on-demand pool, None leaves it out; ``instance_type`` is
    that of every column, in place of the one its GPU and count say. Raises MarketError with line
    and column.
    """
    table = _wide_csv_read(path)
    step = _step(table)
    ends_at = table.instants[-1] + step
    pools: dict[Pool, PoolHistory] = {}
    for pool, columns in _pools(table, instance_type).items():
        pools[pool] = PoolHistory(pool, compress_samples(_samples(table, columns, step)), ends_at)
        on_demand = pool.with_capacity_type(CapacityType.ON_DEMAND)
        usd_per_hour = on_demand_usd_per_hour(on_demand) if on_demand_usd_per_hour else None
        if usd_per_hour is not None:
            if not (math.isfinite(usd_per_hour) and usd_per_hour > 0):
                raise MarketError(
                    f"{path}: on-demand at {usd_per_hour} $/h is impossible",
                    code="impossible_price",
                )
            always = MarketState(table.instants[0], UNLIMITED_NODES, usd_per_hour)
            pools[on_demand] = PoolHistory(on_demand, (always,), ends_at)
    on_grid = all((b - a) % step == timedelta(0) for a, b in pairwise(table.instants))
    return MarketHistory(
        name=path.name.partition(".")[0],
        pools=pools,
        tick_s=step.total_seconds() if on_grid else None,
        source=f"price and availability record {path.name}",
    )


def _wide_csv_read(path: Path) -> _Table:
    header, rows = read_user_csv(path, MarketError)
    if TIME_COLUMN not in header:
        raise MarketError(
            f"{path} has no column {TIME_COLUMN}",
            hint="its first line names the columns",
            code="missing_column",
        )
    if not rows:
        raise MarketError(f"{path} holds no row", code="no_rows")
    return _Table(path, header, _instants(path, header.index(TIME_COLUMN), rows), rows)


def _instants(path: Path, column: int, rows: Sequence[Sequence[str]]) -> list[datetime]:
    instants: list[datetime] = []
    for number, row in enumerate(rows, start=2):
        try:
            instant = datetime.fromisoformat(row[column])
        except ValueError as error:
            raise MarketError(f"{path}, line {number}: {row[column]!r} is not a time") from error
        # The public files write UTC without an offset; the column's name states it.
        instant = instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
        if instants and instant <= instants[-1]:
            raise MarketError(f"{path}, line {number}: not after the line before it")
        instants.append(instant)
    return instants


def _step(table: _Table) -> timedelta:
    """The commonest distance between two rows; longer ones are gaps."""
    steps = Counter(b - a for a, b in pairwise(table.instants))
    if not steps:
        raise MarketError(f"{table.path}: a single row does not say how long it holds")
    return steps.most_common(1)[0][0]


def _pools(table: _Table, instance_type: str | None) -> dict[Pool, dict[str, int]]:
    pools: dict[Pool, dict[str, int]] = {}
    for index, column in enumerate(table.header):
        match = _COLUMN.fullmatch(column)
        if match is None:
            continue
        gpus = f"{match['gpu']}_{match['count']}"
        kind = instance_type or instance_type_of(PROVIDER, match["gpu"], int(match["count"]))
        if kind is None:
            raise MarketError(
                f"{table.path}, column {column}: no instance type is known for {gpus}",
                hint="give the instance type",
            )
        zone = match["zone"]
        region = find_traits(PROVIDER).region_of_zone(zone)
        pool = Pool(PROVIDER, region, zone, kind, CapacityType.SPOT)
        columns = pools.setdefault(pool, {})
        if match["what"] in columns:
            first = table.header[columns[match["what"]]]
            raise MarketError(f"{table.path}: columns {first} and {column} are both of {pool}")
        columns[match["what"]] = index
    if not pools:
        raise MarketError(
            f"{table.path} has no column of a pool",
            hint="they are named like us-east-1a_v100_1_avail and us-east-1a_v100_1_price",
            code="missing_column",
        )
    return pools


def _samples(table: _Table, columns: Mapping[str, int], step: timedelta) -> list[MarketState]:
    samples: list[MarketState] = []
    expected = table.instants[0]
    for row, instant in enumerate(table.instants):
        if instant > expected:
            samples.append(MarketState(expected, None, None))
        nodes = _cell(table, row, columns.get("avail"))
        price = _cell(table, row, columns.get("price"))
        if nodes is not None and (nodes < 0 or nodes != int(nodes)):
            raise table.wrong(row, columns["avail"], f"is {nodes:g}")
        if price is not None and price <= 0:
            raise table.wrong(row, columns["price"], f"is {price:g}")
        samples.append(MarketState(instant, None if nodes is None else int(nodes), price))
        expected = instant + step
    return samples


def _cell(table: _Table, row: int, column: int | None) -> float | None:
    if column is None or not table.rows[row][column].strip():
        return None
    try:
        value = float(table.rows[row][column])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise table.wrong(row, column, f"is {table.rows[row][column]!r}")
    return value


TRACE_INSTANCE_TYPES = {
    ("aws", "k80", 1): "p2.xlarge",
    ("aws", "k80", 8): "p2.8xlarge",
    ("aws", "k80", 16): "p2.16xlarge",
    ("aws", "v100", 1): "p3.2xlarge",
    ("aws", "v100", 4): "p3.8xlarge",
    ("aws", "v100", 8): "p3.16xlarge",
}
"""Instance types by provider, GPU and count (docs.aws.amazon.com/ec2, families P2 and P3)."""

_TRACE = re.compile(
    r"availability_\d+-node_(?P<provider>[a-z]+)-(?P<month>\d\d)-(?P<day>\d\d)-(?P<year>\d{4})"
    r"_(?P<zone>[a-z0-9-]+)_(?P<gpu>[a-z0-9]+)_(?P<count>\d+)\.json"
)


@dataclass(frozen=True, slots=True)
class TraceFileName:
    """What the file name of a public spot trace says."""

    provider: str
    zone: str
    gpu: str
    gpu_count: int
    start_at: datetime

    @classmethod
    def parse(cls, file_name: str) -> TraceFileName | None:
        """From names like availability_1-node_aws-02-15-2023_us-east-1a_v100_1.json, else None."""
        match = _TRACE.fullmatch(file_name)
        if match is None:
            return None
        try:
            start_at = datetime(
                int(match["year"]), int(match["month"]), int(match["day"]), tzinfo=UTC
            )
        except ValueError:
            return None
        return cls(match["provider"], match["zone"], match["gpu"], int(match["count"]), start_at)


def instance_type_of(provider: str, gpu: str, gpu_count: int) -> str | None:
    """The instance type with these GPUs, or None where it is not known."""
    return TRACE_INSTANCE_TYPES.get((provider, gpu, gpu_count))
