"""Imports a wide CSV of prices and availability: one row per instant, two columns per pool.

Columns: a time in UTC, then {zone}_{gpu}_{count}_avail and {zone}_{gpu}_{count}_price. An empty
cell, and every instant that the grid has and the file has not, is a gap: never filled in.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from costopt.catalog import find_traits
from costopt.domain.errors import MarketError
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import CapacityType, Pool
from costopt.market.place import instance_type_of
from costopt.market.runs import UNLIMITED_NODES, compress_samples

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


def import_wide_csv(
    path: Path,
    *,
    on_demand_usd_per_hour: Callable[[Pool], float | None] | None = None,
    instance_type: str | None = None,
    provider: str = "aws",
    time_column: str = "time_utc_approx",
    name: str | None = None,
) -> MarketHistory:
    """The pools of the file (plain or .gz), and on-demand beside those whose price is given.

    ``on_demand_usd_per_hour`` prices an on-demand pool, None leaves it out; ``instance_type`` is
    that of every column, in place of the one its GPU and count say. Raises MarketError with line
    and column.
    """
    table = _read(path, time_column)
    step = _step(table)
    ends_at = table.instants[-1] + step
    pools: dict[Pool, PoolHistory] = {}
    for pool, columns in _pools(table, provider, instance_type).items():
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
        name=name or path.name.partition(".")[0],
        pools=pools,
        tick_s=step.total_seconds() if on_grid else None,
        source=f"price and availability record {path.name}",
    )


def _read(path: Path, time_column: str) -> _Table:
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise MarketError(
            f"{path} cannot be read: {error}", hint="download it again", code="unreadable"
        ) from error
    header, *rows = list(csv.reader(io.StringIO(text))) or [[]]
    if time_column not in header:
        raise MarketError(
            f"{path} has no column {time_column}",
            hint="its first line names the columns",
            code="missing_column",
        )
    if not rows:
        raise MarketError(f"{path} holds no row", code="no_rows")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise MarketError(f"{path}, line {number}: {len(row)} cells, the header {len(header)}")
    return _Table(path, header, _instants(path, header.index(time_column), rows), rows)


def _instants(path: Path, column: int, rows: Sequence[Sequence[str]]) -> list[datetime]:
    instants: list[datetime] = []
    for number, row in enumerate(rows, start=2):
        try:
            instant = datetime.fromisoformat(row[column])
        except ValueError as error:
            raise MarketError(f"{path}, line {number}: {row[column]!r} is no time") from error
        # The public records write UTC without saying so; the column's name says it for them.
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


def _pools(table: _Table, provider: str, instance_type: str | None) -> dict[Pool, dict[str, int]]:
    pools: dict[Pool, dict[str, int]] = {}
    for index, column in enumerate(table.header):
        match = _COLUMN.fullmatch(column)
        if match is None:
            continue
        gpus = f"{match['gpu']}_{match['count']}"
        kind = instance_type or instance_type_of(provider, match["gpu"], int(match["count"]))
        if kind is None:
            raise MarketError(
                f"{table.path}, column {column}: no instance type is known for {gpus}",
                hint="give the instance type",
            )
        zone = match["zone"]
        region = find_traits(provider).region_of_zone(zone)
        pool = Pool(provider, region, zone, kind, CapacityType.SPOT)
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
