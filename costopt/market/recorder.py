"""The recorder of price history: it stores a provider's past prices, part by part, as one market.

A part is one instance type in one region. Each is requested from where its record ends and written
as a file of its own, and in the end all become the history file: a run that is killed resumes where
it was, and one that is repeated requests only what is new. A price history does not contain
capacity: on spot it is left unknown; on demand it is assumed available, as in generated markets.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from costopt.domain.errors import MarketError, ProviderError
from costopt.domain.estimate import Estimate
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import CapacityType, Pool
from costopt.market.history_file import (
    UNLIMITED_NODES,
    compress_samples,
    read_history,
    write_history,
)
from costopt.provider.base import PriceChange, PriceSeriesKey, Provider

MAX_CONCURRENCY = 6
"""Parts that are asked for at once."""

MAX_PART_AGE = timedelta(hours=1)
"""A part that a killed run wrote so lately is not asked for again."""


@dataclass(frozen=True, slots=True)
class PartResult:
    """One part, and what went wrong with it: "" where nothing did."""

    series: PriceSeriesKey
    error: str = ""


@dataclass(frozen=True, slots=True)
class RecordingResult:
    """What a run wrote; parts that failed keep what was recorded of them before."""

    history: MarketHistory
    parts: tuple[PartResult, ...]


def record_prices(
    source: Provider,
    series: Sequence[PriceSeriesKey],
    out: Path,
    now: datetime,
    span: timedelta,
    on_part: Callable[[PartResult], None] = lambda _: None,
) -> RecordingResult:
    """Extend the record ``out`` to ``now``; what is new in it begins ``span`` before.

    Raises MarketError where nothing could be recorded, or a file cannot be read or written.
    """
    recorded = dict(read_history(out).pools) if out.exists() else {}
    folder = parts_folder(out)
    _make(folder)
    parts = _record_parts(source, series, recorded, folder, now, span, on_part)
    histories = [
        history for path in sorted(folder.iterdir()) if (history := _part(path)) is not None
    ]
    for history in histories:
        recorded |= history.pools
    if not recorded:
        reasons = "; ".join(dict.fromkeys(part.error for part in parts if part.error))
        shutil.rmtree(folder, ignore_errors=True)
        raise MarketError(
            f"nothing was recorded: {reasons or 'the regions do not sell these types on spot'}",
            hint="costopt catalog lists instance types and where they are for rent",
            code="nothing_recorded",
        )
    history = MarketHistory(out.stem, recorded, None, _sources(histories, recorded))
    write_history(history, out)
    shutil.rmtree(folder, ignore_errors=True)
    return RecordingResult(history, parts)


def parts_folder(out: Path) -> Path:
    """Return the folder of the parts of a run, which exists until the run is done."""
    return out.with_name(f".{out.name}.parts")


def extend_history(
    known: PoolHistory | None,
    pool: Pool,
    changes: Sequence[PriceChange],
    since: datetime,
    until: datetime,
) -> PoolHistory:
    """The record of a pool, ``known`` or begun at ``since``, with ``changes``, up to ``until``.

    The last change at or before the end of what is known is the price in force there. Where it is
    not the one that was recorded last, the provider reported it late, and it counts from its own
    time, though not from before the last recorded change. Time without a reported price is a gap.
    """
    states = [] if known is None else list(known.states)
    begins_at = since if known is None else known.ends_at
    before = [change for change in changes if change.at <= begins_at]
    if before:
        states += _in_force(known, before[-1], begins_at)
    else:
        states.append(MarketState(begins_at, None, None))
    later = [change for change in changes if begins_at < change.at < until]
    states += [MarketState(change.at, None, change.usd_per_hour) for change in later]
    return PoolHistory(pool, compress_samples(_ascending(states)), until)


def _in_force(
    known: PoolHistory | None, change: PriceChange, begins_at: datetime
) -> list[MarketState]:
    last = None if known is None else known.states[-1]
    if last is None:
        return [MarketState(begins_at, None, change.usd_per_hour)]
    if last.price_usd_per_hour == change.usd_per_hour:
        return []
    at = change.at if change.at > last.starts_at else begins_at
    return [MarketState(at, None, change.usd_per_hour)]


def _ascending(states: Iterable[MarketState]) -> list[MarketState]:
    """By time; of two at one instant the one reported later."""
    by_time = {state.starts_at: state for state in states}
    return [by_time[at] for at in sorted(by_time)]


def _record_parts(
    source: Provider,
    series: Sequence[PriceSeriesKey],
    recorded: Mapping[Pool, PoolHistory],
    folder: Path,
    now: datetime,
    span: timedelta,
    on_part: Callable[[PartResult], None],
) -> tuple[PartResult, ...]:
    def record(each: PriceSeriesKey) -> PartResult:
        path = folder / f"{each.provider}--{each.region}--{each.instance_type}.parquet"
        done = _part(path)
        if done is not None and now - done.ends_at < MAX_PART_AGE:
            return PartResult(each)
        known = done.pools if done is not None else _of(recorded, each)
        if known and min(history.ends_at for history in known.values()) >= now:
            return PartResult(each)
        try:
            write_history(_record_part(source, each, known, now, span), path)
        except ProviderError as error:
            return PartResult(each, error.message)
        return PartResult(each)

    workers = ThreadPoolExecutor(MAX_CONCURRENCY, thread_name_prefix="record")
    try:
        running = {workers.submit(record, each): each for each in series}
        parts: dict[PriceSeriesKey, PartResult] = {}
        for future in as_completed(running):
            parts[running[future]] = future.result()
            on_part(parts[running[future]])
    finally:
        workers.shutdown(cancel_futures=True)
    return tuple(parts[each] for each in series)


def _record_part(
    source: Provider,
    series: PriceSeriesKey,
    known: Mapping[Pool, PoolHistory],
    now: datetime,
    span: timedelta,
) -> MarketHistory:
    """The part with its on-demand pools, one for each zone with a spot pool.

    A zone that is new to a part that is not has a gap before.
    """
    spot = {p: history for p, history in known.items() if p.capacity_type is CapacityType.SPOT}
    since = min((history.ends_at for history in spot.values()), default=now - span)
    begins_at = min((history.starts_at for history in spot.values()), default=since)
    changes_of: dict[Pool, list[PriceChange]] = {pool: [] for pool in spot}
    for change in source.price_changes(series, since, now):
        changes_of.setdefault(change.pool, []).append(change)
    if not changes_of:
        raise ProviderError(
            f"{series.region}: no price of {series.instance_type} is available for this period"
        )
    pools: dict[Pool, PoolHistory] = {}
    for pool, changes in changes_of.items():
        before = known.get(pool) or _gap(pool, begins_at, since)
        pools[pool] = extend_history(before, pool, changes, since, now)
    listed = source.list_price(series, now)
    for pool in [on_spot.with_capacity_type(CapacityType.ON_DEMAND) for on_spot in changes_of]:
        before = known.get(pool) or _gap(pool, begins_at, since)
        if listed is not None or pool in known:
            usd = None if listed is None else listed.value
            pools[pool] = _on_demand(before, pool, usd, since, now)
    return MarketHistory(series.instance_type, pools, None, _source_text(series, listed))


def _gap(pool: Pool, begins_at: datetime, ends_at: datetime) -> PoolHistory | None:
    if begins_at >= ends_at:
        return None
    return PoolHistory(pool, (MarketState(begins_at, None, None),), ends_at)


def _on_demand(
    known: PoolHistory | None, pool: Pool, usd: float | None, since: datetime, until: datetime
) -> PoolHistory:
    """The list price of today, taken to have held since the last record."""
    states = [] if known is None else list(known.states)
    begins_at = since if known is None else known.ends_at
    states.append(MarketState(begins_at, UNLIMITED_NODES if usd is not None else None, usd))
    return PoolHistory(pool, compress_samples(states), until)


def _source_text(series: PriceSeriesKey, listed: Estimate | None) -> str:
    spot = f"spot prices of {series.provider}"
    return spot if listed is None else f"{spot}; on demand as by {listed.source}"


def _of(recorded: Mapping[Pool, PoolHistory], series: PriceSeriesKey) -> dict[Pool, PoolHistory]:
    return {
        pool: history
        for pool, history in recorded.items()
        if (pool.provider, pool.region, pool.instance_type)
        == (series.provider, series.region, series.instance_type)
    }


def _part(path: Path) -> MarketHistory | None:
    """What a part holds; None where it is missing or damaged and must be asked for again."""
    with suppress(MarketError):
        return read_history(path)
    return None


def _make(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise MarketError(
            f"{folder} cannot be made: {error.strerror}",
            hint="choose an --out in a folder that exists and that this user may write to",
            code="unwritable",
        ) from error


def _sources(histories: Iterable[MarketHistory], recorded: Mapping[Pool, PoolHistory]) -> str:
    sources = dict.fromkeys(
        part for history in histories for part in history.source.split("; ") if part
    )
    fallback = f"prices of {len(recorded)} pools"
    return "; ".join((*sources, "capacity not observed")) if sources else fallback
