"""A market history as a parquet file, and the merging of several histories into one.

The file has one row per pool and stretch between changes. Columns: ``pool``
(provider/region/zone/instance_type/capacity_type), ``starts_at`` and ``ends_at`` (timestamps with a
time zone), ``nodes_available`` (integer) and ``price_usd_per_hour`` (per node). A null in the last
two means: not observed. The stretches of a pool, whatever the order of their rows, follow each
other in time without holes. The schema's metadata holds ``name``, ``tick_s`` (empty for event data)
and ``source``. ``compress_samples`` reduces samples of a pool to states between changes.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from costopt.domain.errors import MarketError
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import Pool

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = ("pool", "starts_at", "ends_at", "nodes_available", "price_usd_per_hour")
REGENERATE = "write the file again with `costopt market generate` or `costopt market import`"


@dataclass(frozen=True, slots=True)
class _Row:
    """One row, with its number (the first is 1) for messages."""

    number: int
    pool: Pool
    ends_at: datetime
    state: MarketState


def write_history(history: MarketHistory, path: Path) -> None:
    """Write ``history`` so that a reader sees the old file or the new one. Raises MarketError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            pa.field("pool", pa.dictionary(pa.int32(), pa.string()), nullable=False),
            pa.field("starts_at", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("ends_at", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("nodes_available", pa.int64()),
            pa.field("price_usd_per_hour", pa.float64()),
        ],
        metadata={
            "name": history.name,
            "tick_s": "" if history.tick_s is None else repr(history.tick_s),
            "source": history.source,
        },
    )
    table = pa.table(columns_of(history), schema=schema)
    try:
        _replace_atomically(
            path, lambda temporary: pq.write_table(table, temporary, write_page_checksum=True)
        )
    except OSError as error:
        raise MarketError(
            f"market file {path} cannot be written: {error}",
            hint="check the folder and its space",
            code="unwritable",
        ) from error


BUNDLED_MARKETS = ("sample",)
"""Markets that costopt ships, by name; data/NAME.parquet says in its metadata what it is."""


def market_path(path: Path) -> Path:
    """Return the file of ``path``: a bundled market's, where no file has its name."""
    if str(path) in BUNDLED_MARKETS and not path.is_file():
        return Path(__file__).with_name("data") / f"{path}.parquet"
    return path


def read_history(path: Path) -> MarketHistory:
    """Read what ``write_history`` or another tool wrote, or a bundled market by its name.

    A file of that name in the present folder is taken first. Raises MarketError that names the
    file, and the row (the first is 1) and column where there is one.
    """
    path = market_path(path)
    columns, metadata = _read_columns(path)
    rows = _rows(path, columns)
    if not rows:
        raise MarketError(f"market file {path} holds no row", hint=REGENERATE, code="no_rows")
    by_pool: dict[Pool, list[_Row]] = {}
    for row in rows:
        by_pool.setdefault(row.pool, []).append(row)
    for of_pool in by_pool.values():
        of_pool.sort(key=lambda row: row.state.starts_at)
    return MarketHistory(
        name=metadata.get("name") or path.stem,
        pools={pool: _pool_history(path, pool, of_pool) for pool, of_pool in by_pool.items()},
        tick_s=_tick_s(path, metadata.get("tick_s", "")),
        source=metadata.get("source") or f"file {path.name}",
    )


def columns_of(history: MarketHistory) -> dict[str, list[object]]:
    """Return the columns of the file, one value per pool and stretch between changes."""
    columns: dict[str, list[object]] = {name: [] for name in COLUMNS}
    for pool, recorded in history.pools.items():
        ends = [state.starts_at for state in recorded.states[1:]] + [recorded.ends_at]
        for state, ends_at in zip(recorded.states, ends, strict=True):
            columns["pool"].append(str(pool))
            columns["starts_at"].append(state.starts_at)
            columns["ends_at"].append(ends_at)
            columns["nodes_available"].append(state.nodes_available)
            columns["price_usd_per_hour"].append(state.price_usd_per_hour)
    return columns


def _replace_atomically(path: Path, write: Any) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise


def _read_columns(path: Path) -> tuple[Mapping[str, Sequence[Any]], Mapping[str, str]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.exists():
        raise MarketError(
            f"market file {path} does not exist",
            hint=f"check the path, or use {', '.join(BUNDLED_MARKETS)}, which costopt ships",
            code="missing",
        )
    if not path.is_file():
        raise MarketError(f"market file {path} is not a regular file", hint="check the path")
    if path.stat().st_size == 0:
        raise MarketError(f"market file {path} is empty (0 bytes)", hint=REGENERATE, code="empty")
    try:
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
        _check_types(path, table.schema)
        columns = {name: _values(table.column(name)) for name in COLUMNS}
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:120]
        raise MarketError(
            f"market file {path} is truncated or no parquet file: {reason}",
            hint=REGENERATE,
            code="not_parquet",
        ) from error
    metadata = table.schema.metadata or {}
    return columns, {_text(key): _text(value) for key, value in metadata.items()}


def _values(column: Any) -> list[Any]:
    """Python values; timestamps as microseconds since the epoch."""
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
    values: list[Any] = column.to_pylist()
    return values


def _check_types(path: Path, schema: Any) -> None:
    import pyarrow.types as types

    for name in COLUMNS:
        if name not in schema.names:
            raise MarketError(
                f"market file {path} has no column {name}",
                hint=f"the columns are {', '.join(COLUMNS)}",
                code="missing_column",
            )
        kind = schema.field(name).type
        if types.is_dictionary(kind):
            kind = kind.value_type
        if types.is_null(kind) and name in ("nodes_available", "price_usd_per_hour"):
            continue
        if not _fits(types, name, kind):
            raise MarketError(
                f"market file {path}, column {name}: holds {kind}", hint=_WANTED[name]
            )


_WANTED = {
    "pool": "store text: provider/region/zone/instance_type/capacity_type",
    "starts_at": "store timestamps with a time zone, not naive times",
    "ends_at": "store timestamps with a time zone, not naive times",
    "nodes_available": "store integers; null where it was not observed",
    "price_usd_per_hour": "store numbers in dollars per node-hour; null where not observed",
}


def _fits(types: Any, name: str, kind: Any) -> bool:
    if name == "pool":
        return bool(types.is_string(kind) or types.is_large_string(kind))
    if name == "nodes_available":
        return bool(types.is_integer(kind))
    if name == "price_usd_per_hour":
        return bool(types.is_floating(kind) or types.is_integer(kind))
    return bool(types.is_timestamp(kind)) and kind.tz is not None


def _rows(path: Path, columns: Mapping[str, Sequence[Any]]) -> list[_Row]:
    pools: dict[str, Pool] = {}
    rows = []
    for number, (pool_text, start_us, end_us, nodes, price) in enumerate(
        zip(*(columns[name] for name in COLUMNS), strict=True), start=1
    ):
        if pool_text not in pools:
            pools[pool_text] = _pool(path, number, pool_text)
        starts_at = _instant(path, number, "starts_at", start_us)
        ends_at = _instant(path, number, "ends_at", end_us)
        if ends_at <= starts_at:
            raise _wrong(path, number, "ends_at", "is not after starts_at", REGENERATE)
        _check_values(path, number, nodes, price)
        state = MarketState(starts_at, nodes, None if price is None else float(price))
        rows.append(_Row(number, pools[pool_text], ends_at, state))
    return rows


def _pool(path: Path, number: int, text: str | None) -> Pool:
    try:
        return Pool.parse(text or "")
    except ValueError as error:
        raise _wrong(path, number, "pool", str(error), _WANTED["pool"]) from error


def _instant(path: Path, number: int, column: str, micros: int | None) -> datetime:
    if micros is None:
        raise _wrong(path, number, column, "is null", "every stretch has a start and an end")
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError as error:
        raise _wrong(path, number, column, "is out of the range of dates", REGENERATE) from error


def _check_values(path: Path, number: int, nodes: int | None, price: float | None) -> None:
    if nodes is not None and nodes < 0:
        raise _wrong(
            path, number, "nodes_available", f"is {nodes}", "0 means none, null not observed"
        )
    if price is not None and not (math.isfinite(price) and price > 0):
        raise _wrong(
            path,
            number,
            "price_usd_per_hour",
            f"is {price}",
            "a price is a positive number; null where it was not observed",
        )


def _pool_history(path: Path, pool: Pool, rows: list[_Row]) -> PoolHistory:
    for before, row in pairwise(rows):
        if row.state.starts_at < before.ends_at:
            raise _wrong(
                path,
                row.number,
                "starts_at",
                f"{pool} begins again before row {before.number} ends",
                "state each stretch of a pool once",
            )
        if row.state.starts_at > before.ends_at:
            raise _wrong(
                path,
                row.number,
                "starts_at",
                f"{pool} has a hole after row {before.number}",
                "state a gap as a row with nulls",
            )
    return PoolHistory(pool, compress_samples(row.state for row in rows), rows[-1].ends_at)


def _tick_s(path: Path, text: str) -> float | None:
    if not text:
        return None
    try:
        tick_s = float(text)
    except ValueError:
        tick_s = math.nan
    if not (math.isfinite(tick_s) and tick_s > 0):
        raise MarketError(
            f"market file {path}: metadata tick_s is {text!r}",
            hint="a positive number of seconds, or empty for event data",
        )
    return tick_s


def _text(value: bytes) -> str:
    return value.decode("utf-8", errors="replace")


def _wrong(path: Path, number: int, column: str, what: str, hint: str) -> MarketError:
    return MarketError(f"market file {path}, row {number}, column {column}: {what}", hint=hint)


def merge_histories(name: str, histories: Sequence[MarketHistory]) -> MarketHistory:
    """The pools of all ``histories``. Raises MarketError where two record a pool differently.

    The grid survives where all records lie on the same one; else the result is event data, for
    which nothing is promised between changes.
    """
    if not histories:
        raise MarketError(f"market {name!r}: nothing to merge", code="empty")
    pools: dict[Pool, PoolHistory] = {}
    for history in histories:
        for pool, recorded in history.pools.items():
            if pools.setdefault(pool, recorded) != recorded:
                raise MarketError(
                    f"market {name!r}: {pool} is recorded twice, and differently in "
                    f"{history.name!r}",
                    hint="merge records of different pools, or keep them as markets of their own",
                    code="contradiction",
                )
    return MarketHistory(
        name=name,
        pools=pools,
        tick_s=_common_tick_s(histories),
        source="; ".join(dict.fromkeys(history.source for history in histories)),
    )


def _common_tick_s(histories: Iterable[MarketHistory]) -> float | None:
    ticks = {history.tick_s for history in histories}
    tick_s = ticks.pop()
    if ticks or tick_s is None:
        return None
    starts = [recorded.starts_at for h in histories for recorded in h.pools.values()]
    tick = timedelta(seconds=tick_s)
    aligned = all((start - starts[0]) % tick == timedelta(0) for start in starts)
    return tick_s if aligned else None


UNLIMITED_NODES = 10_000
"""Capacity of a pool that is never short, such as on-demand in a record that lists none."""


def compress_samples(samples: Iterable[MarketState]) -> tuple[MarketState, ...]:
    """``samples`` in order of time without those that change nothing."""
    states: list[MarketState] = []
    for sample in samples:
        if not states or _differ(states[-1], sample):
            states.append(sample)
    return tuple(states)


def _differ(a: MarketState, b: MarketState) -> bool:
    return a.nodes_available != b.nodes_available or a.price_usd_per_hour != b.price_usd_per_hour
