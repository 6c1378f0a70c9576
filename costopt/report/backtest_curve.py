"""One run of a backtest as it is drawn: dollars, progress and mode in hours since its start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from costopt.domain.market import Pool
from costopt.replay.hindsight import OptimumPoint
from costopt.report.run import RunView

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class PoolInterval:
    """From hour to hour in a pool."""

    pool: Pool
    begin_h: float
    end_h: float


@dataclass(frozen=True, slots=True)
class BacktestCurve:
    """Cumulative dollars and the share of the work done, both by hour, and where it ran."""

    spend_usd: tuple[Point, ...]
    done: tuple[Point, ...]
    stays: tuple[PoolInterval, ...]

    @property
    def usd(self) -> float:
        """Dollars at its end."""
        return self.spend_usd[-1][1] if self.spend_usd else 0.0


def curve_of_run(run: RunView) -> BacktestCurve:
    """A replay's."""
    begun_at = run.begun_at
    work = run.summary.work_units or 1.0
    return BacktestCurve(
        spend_usd=tuple((_h(p.at, begun_at), p.usd_micros / 1e6) for p in run.curves.spend),
        done=tuple((_h(p.at, begun_at), p.done_units / work) for p in run.curves.progress),
        stays=_joined(
            PoolInterval(
                row.pool, _h(row.launched_at, begun_at), _h(row.ended_at or run.now, begun_at)
            )
            for row in run.intervals
        ),
    )


def curve_of_moments(moments: Sequence[OptimumPoint], work_units: float) -> BacktestCurve:
    """The hindsight optimum's, from its grid points."""
    begun_at = moments[0].at
    return BacktestCurve(
        spend_usd=tuple((_h(m.at, begun_at), m.usd) for m in moments),
        done=tuple((_h(m.at, begun_at), m.done_units / work_units) for m in moments),
        stays=_joined(
            PoolInterval(moment.pool, _h(moment.at, begun_at), _h(after.at, begun_at))
            for moment, after in pairwise(moments)
            if moment.pool is not None
        ),
    )


def _joined(stays: Iterable[PoolInterval]) -> tuple[PoolInterval, ...]:
    """Stays that touch or overlap in one pool are one, in the order of their begin."""
    joined: list[PoolInterval] = []
    last: dict[Pool, int] = {}
    for stay in sorted(stays, key=lambda each: each.begin_h):
        index = last.get(stay.pool)
        if index is not None and stay.begin_h <= joined[index].end_h + 1e-9:
            before = joined[index]
            joined[index] = PoolInterval(stay.pool, before.begin_h, max(before.end_h, stay.end_h))
        else:
            last[stay.pool] = len(joined)
            joined.append(stay)
    return tuple(joined)


def _h(at: datetime, begun_at: datetime) -> float:
    return (at - begun_at).total_seconds() / 3600
