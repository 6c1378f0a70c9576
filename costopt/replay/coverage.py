"""Which part of a record can be replayed: gaps are never filled in.

A window that touches a gap would be scored on a guess: whether a node survived it, whether
another could have been launched in it. So windows lie where every pool that the job may use was
observed from their start to their deadline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import Pool

Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class RecordCoverage:
    """Of one market and windows of ``span_s``.

    ``starts`` are the spans, ends included, in which a window may begin. ``gap_s`` is the time in
    which some pool was not observed; ``unobserved`` pools never were, and do not count.
    """

    market: str
    span_s: float
    recorded_s: float
    gap_s: float
    starts: tuple[Span, ...]
    unobserved: tuple[Pool, ...]
    usable_share: float


def record_coverage(
    market: MarketHistory, pools: Collection[Pool], span: timedelta, *, over_gaps: bool = False
) -> RecordCoverage:
    """Where windows of ``span`` can begin; ``over_gaps`` lets them lie anywhere in the record."""
    unobserved = tuple(p for p in pools if not any(map(_known, market.pools[p].states)))
    observed = [market.pools[pool] for pool in pools if pool not in unobserved]
    whole = (market.starts_at, market.ends_at)
    gaps = _union(gap for history in observed for gap in _gaps(history, whole))
    latest = market.ends_at - span
    starts = _starts(() if over_gaps else gaps, market.starts_at, latest, span)
    room_s = max(0.0, (latest - market.starts_at).total_seconds())
    usable_s = sum((end - begin).total_seconds() for begin, end in starts)
    return RecordCoverage(
        market=market.name,
        span_s=span.total_seconds(),
        recorded_s=(whole[1] - whole[0]).total_seconds(),
        gap_s=sum((end - begin).total_seconds() for begin, end in gaps),
        starts=starts,
        unobserved=unobserved,
        usable_share=usable_s / room_s if room_s else float(bool(starts)),
    )


def _known(state: MarketState) -> bool:
    return state.nodes_available is not None and state.price_usd_per_hour is not None


def _gaps(history: PoolHistory, whole: Span) -> Iterator[Span]:
    ends = [state.starts_at for state in history.states[1:]] + [history.ends_at]
    for state, end in zip(history.states, ends, strict=True):
        begin, until = max(state.starts_at, whole[0]), min(end, whole[1])
        if begin < until and not _known(state):
            yield begin, until


def _union(spans: Iterator[Span]) -> tuple[Span, ...]:
    joined: list[Span] = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return tuple(joined)


def _starts(
    gaps: Sequence[Span], earliest: datetime, latest: datetime, span: timedelta
) -> tuple[Span, ...]:
    """What is left between the gaps that is long enough for a window."""
    starts: list[Span] = []
    begin = earliest
    for gap_begin, gap_end in gaps:
        if begin <= gap_begin - span:
            starts.append((begin, gap_begin - span))
        begin = gap_end
    if begin <= latest:
        starts.append((begin, latest))
    return tuple(starts)
