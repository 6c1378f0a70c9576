"""Recording prices: incremental, resumable, and never a guess."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.domain.errors import ForbiddenError, MarketError, ProviderUnavailableError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.history import MarketState
from costopt.domain.market import CapacityType, Pool
from costopt.market.history_file import UNLIMITED_NODES, read_history
from costopt.market.recorder import RecordingResult, extend_history, parts_folder, record_prices
from costopt.provider.base import PriceChange, PriceSeriesKey
from tests.support.errors import has_code
from tests.support.stub_provider import StubProvider

T0 = datetime(2026, 1, 1, tzinfo=UTC)
POOL = Pool("aws", "r", "z1", "g.x", CapacityType.SPOT)
WEEK = timedelta(days=7)


def at(hours: float) -> datetime:
    return T0 + timedelta(hours=hours)


class GivenPrices(StubProvider):
    """A provider whose prices are in a table, and which tells as AWS does."""

    def __init__(self) -> None:
        self.changes: dict[Pool, list[tuple[datetime, float | None]]] = {}
        self.asked: list[tuple[PriceSeriesKey, datetime]] = []
        self.listed: float | None = 9.0
        self.failing: dict[str, Exception] = {}

    def price(self, hours: float, usd: float | None, pool: Pool = POOL) -> None:
        self.changes.setdefault(pool, []).append((at(hours), usd))

    def price_series(
        self, region: str, instance_types: Collection[str], now: datetime
    ) -> tuple[PriceSeriesKey, ...]:
        kinds = {(p.region, p.instance_type) for p in self.changes}
        return tuple(PriceSeriesKey("aws", *kind) for kind in sorted(kinds))

    def price_changes(
        self, series: PriceSeriesKey, since: datetime, until: datetime
    ) -> tuple[PriceChange, ...]:
        self.asked.append((series, since))
        if series.instance_type in self.failing:
            raise self.failing[series.instance_type]
        reported = []
        for pool, changes in self.changes.items():
            if (pool.region, pool.instance_type) != (series.region, series.instance_type):
                continue
            ordered = sorted(changes, key=lambda change: change[0])
            first = max(bisect_right(ordered, since, key=lambda change: change[0]) - 1, 0)
            reported += [
                PriceChange(pool, when, usd) for when, usd in ordered[first:] if when < until
            ]
        return tuple(reported)

    def list_price(self, series: PriceSeriesKey, now: datetime) -> Estimate | None:
        if self.listed is None:
            return None
        return Estimate.exact(self.listed, Basis.LISTED, "the list", now)


def record(
    source: GivenPrices, out: Path, now: datetime, span: timedelta = WEEK
) -> RecordingResult:
    return record_prices(source, source.price_series("r", (), now), out, now, span)


def states(out: Path, pool: Pool = POOL) -> list[tuple[float, float | None]]:
    found = read_history(out).pools[pool].states
    return [((s.starts_at - T0).total_seconds() / 3600, s.price_usd_per_hour) for s in found]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "prices.parquet"


def test_a_record_begins_with_the_price_in_force(out: Path) -> None:
    source = GivenPrices()
    for hours, usd in ((-500, 1.0), (-200, 1.1), (10, 1.2), (20, 1.3)):
        source.price(hours, usd)
    done = record(source, out, at(30))
    assert states(out) == [(30 - 168, 1.1), (10, 1.2), (20, 1.3)]
    assert done.history.ends_at == at(30)
    assert not parts_folder(out).exists()
    assert {s.nodes_available for s in done.history.pools[POOL].states} == {None}
    assert "capacity not observed" in done.history.source


def test_on_demand_comes_along_at_todays_list_price(out: Path) -> None:
    source = GivenPrices()
    source.price(-500, 1.0)
    record(source, out, at(0))
    source.listed = 8.0
    record(source, out, at(24))
    source.listed = None
    record(source, out, at(48))
    recorded = read_history(out).pools[POOL.with_capacity_type(CapacityType.ON_DEMAND)]
    assert recorded.states == (
        MarketState(at(-168), UNLIMITED_NODES, 9.0),
        MarketState(at(0), UNLIMITED_NODES, 8.0),
        MarketState(at(24), None, None),
    )


def test_a_second_run_asks_only_for_what_is_new(out: Path) -> None:
    source = GivenPrices()
    source.price(-500, 1.0)
    record(source, out, at(0))
    source.price(5, 1.5)
    record(source, out, at(10))
    assert [since for _, since in source.asked] == [at(-168), at(0)]
    assert states(out) == [(-168, 1.0), (5, 1.5)]


def test_a_change_that_was_reported_late_counts_from_its_own_time(out: Path) -> None:
    source = GivenPrices()
    source.price(-500, 1.0)
    record(source, out, at(10))
    source.price(9, 2.0)
    record(source, out, at(20))
    assert states(out) == [(-158, 1.0), (9, 2.0)]


def test_a_zone_that_is_new_has_a_gap_before(out: Path) -> None:
    source = GivenPrices()
    source.price(-500, 1.0)
    record(source, out, at(0))
    other = Pool("aws", "r", "z2", "g.x", CapacityType.SPOT)
    source.price(7, 3.0, other)
    done = record(source, out, at(10))
    assert states(out, other) == [(-168, None), (7, 3.0)]
    assert done.history.starts_at == at(-168)


def test_a_part_that_fails_keeps_what_it_had_and_stops_no_other(out: Path) -> None:
    source = GivenPrices()
    other = Pool("aws", "r", "z1", "p.x", CapacityType.SPOT)
    source.price(-500, 1.0)
    source.price(-500, 2.0, other)
    record(source, out, at(0))
    source.price(5, 1.5)
    source.price(5, 2.5, other)
    source.failing["p.x"] = ForbiddenError("r: not allowed")
    done = record(source, out, at(10))
    assert {p.series.instance_type: p.error for p in done.parts} == {
        "g.x": "",
        "p.x": "r: not allowed",
    }
    assert read_history(out).pools[other].ends_at == at(0)
    source.failing.clear()
    record(source, out, at(12))
    assert states(out, other) == [(-168, 2.0), (5, 2.5)]
    assert states(out) == [(-168, 1.0), (5, 1.5)]


def test_a_run_that_died_goes_on_where_it_was(out: Path) -> None:
    source = GivenPrices()
    kinds = [Pool("aws", "r", "z1", f"g{n}.x", CapacityType.SPOT) for n in range(5)]
    for kind in kinds:
        source.price(-500, 1.0, kind)
    source.failing["g3.x"] = KeyboardInterrupt()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        record(source, out, at(0))
    assert not out.exists()
    whole = {path.name for path in parts_folder(out).iterdir()}
    assert whole
    (torn,) = sorted(parts_folder(out).glob("*g0.x*"))
    torn.write_bytes(torn.read_bytes()[:100])
    source.failing.clear()
    source.asked.clear()
    record(source, out, at(0.5))
    asked = {series.instance_type for series, _ in source.asked}
    assert {"g0.x", "g3.x"} <= asked
    assert len(asked) == 5 - len(whole) + 1
    assert set(read_history(out).pools) >= set(kinds)
    assert not parts_folder(out).exists()


def test_where_nothing_can_be_recorded_it_says_why_and_leaves_nothing(out: Path) -> None:
    source = GivenPrices()
    source.price(-500, 1.0)
    source.failing["g.x"] = ProviderUnavailableError("r did not answer")
    with pytest.raises(MarketError, check=has_code("nothing_recorded")):
        record(source, out, at(0))
    assert not list(out.parent.iterdir())


def test_an_out_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    source = GivenPrices()
    source.price(-500, 1.0)
    with pytest.raises(MarketError, check=has_code("unwritable")):
        record(source, tmp_path / "missing" / "prices.parquet", at(0))


prices = st.lists(
    st.tuples(st.integers(-300, 99), st.sampled_from([1.0, 2.0, 3.0])), min_size=1, max_size=30
)


@settings(max_examples=200, deadline=None)
@given(prices, st.lists(st.integers(1, 99), max_size=5, unique=True))
def test_many_runs_record_what_one_would(
    changes: list[tuple[int, float]], stops: list[int]
) -> None:
    source = GivenPrices()
    source.price(-1000, 9.0)
    for hours, usd in changes:
        source.price(hours, usd)
    source.changes[POOL] = list(dict(source.changes[POOL]).items())
    series = PriceSeriesKey("aws", "r", "g.x")
    at_once = extend_history(
        None, POOL, source.price_changes(series, at(0), at(100)), at(0), at(100)
    )
    known, since = None, at(0)
    for stop in [*sorted(stops), 100]:
        reported = source.price_changes(series, since, at(stop))
        known, since = extend_history(known, POOL, reported, since, at(stop)), at(stop)
    assert known == at_once
