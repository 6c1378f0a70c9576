"""Public records become markets, and wrong ones are refused."""

from __future__ import annotations

import gzip
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from costopt.catalog import find_traits
from costopt.domain.errors import CatalogError, MarketError
from costopt.domain.history import MarketHistory
from costopt.domain.market import CapacityType, Pool
from costopt.market.history_file import UNLIMITED_NODES, merge_histories
from costopt.market.importers import (
    TraceFileName,
    import_spot_trace,
    import_wide_csv,
    instance_type_of,
)
from tests.support.errors import has_code
from tests.support.market_fixtures import ELSEWHERE, SPOT, T0, after, market, pool_history

NAME = "availability_1-node_aws-02-15-2023_us-east-1a_v100_1.json"


def trace(folder: Path, content: object, name: str = NAME) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def imported(path: Path, **options: Any) -> MarketHistory:
    return import_spot_trace(
        path, **{"spot_usd_per_hour": 0.97, "on_demand_usd_per_hour": 3.06, **options}
    )


def states(history: MarketHistory, pool: Pool) -> list[tuple[float, int | None, float | None]]:
    return [
        ((s.starts_at - history.starts_at).total_seconds(), s.nodes_available, s.price_usd_per_hour)
        for s in history.pools[pool].states
    ]


def test_a_trace_gives_spot_and_on_demand_in_the_place_its_name_says(tmp_path: Path) -> None:
    path = trace(tmp_path, {"metadata": {"gap_seconds": 195}, "data": [1, 1, 0, None, 3]})
    history = imported(path)
    assert set(history.pools) == {SPOT, SPOT.with_capacity_type(CapacityType.ON_DEMAND)}
    assert states(history, SPOT) == [
        (0, 1, 0.97),
        (390, 0, 0.97),
        (585, None, None),
        (780, 3, 0.97),
    ]
    assert states(history, SPOT.with_capacity_type(CapacityType.ON_DEMAND)) == [
        (0, UNLIMITED_NODES, 3.06)
    ]
    assert history.tick_s == 195.0
    assert history.starts_at == datetime(2023, 2, 15, tzinfo=UTC)
    assert history.ends_at == history.starts_at + timedelta(seconds=5 * 195)


def test_the_pool_start_and_nodes_can_be_given(tmp_path: Path) -> None:
    path = trace(tmp_path, {"metadata": {"gap_seconds": 600}, "data": [1]}, "trace.json")
    history = imported(path, pool=ELSEWHERE, start_at=after(5), nodes_per_unit=16)
    assert history.starts_at == after(5)
    assert history.pools[ELSEWHERE].states[0].nodes_available == 16
    with pytest.raises(MarketError, check=has_code("no_place")):
        imported(path)
    with pytest.raises(MarketError, check=has_code("no_start")):
        imported(path, pool=ELSEWHERE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "truncated or no JSON"),
        ('{"metadata": {"gap_seconds": 600}, "data": [1, 0', "truncated or no JSON"),
        ([1, 0], "not an object"),
        ({"data": [1]}, "gap_seconds is None"),
        ({"metadata": {"gap_seconds": 0}, "data": [1]}, "gap_seconds is 0"),
        ({"metadata": {"gap_seconds": True}, "data": [1]}, "gap_seconds is True"),
        ({"metadata": {"gap_seconds": "600"}, "data": [1]}, "gap_seconds is '600'"),
        ('{"metadata": {"gap_seconds": NaN}, "data": [1]}', "gap_seconds is nan"),
        ('{"metadata": {"gap_seconds": 600}, "data": [Infinity]}', r"data\[0\] is inf"),
        ({"metadata": {"gap_seconds": 600}}, "data is empty"),
        ({"metadata": {"gap_seconds": 600}, "data": []}, "data is empty"),
        ({"metadata": {"gap_seconds": 600}, "data": [1, -1]}, r"data\[1\] is -1"),
        ({"metadata": {"gap_seconds": 600}, "data": [0.5]}, r"data\[0\] is 0\.5"),
        ({"metadata": {"gap_seconds": 600}, "data": ["1"]}, r"data\[0\] is '1'"),
    ],
)
def test_malformed_traces_are_refused(tmp_path: Path, content: object, message: str) -> None:
    with pytest.raises(MarketError, match=message):
        imported(trace(tmp_path, content))


def test_impossible_prices_and_unknown_types_are_refused(tmp_path: Path) -> None:
    content = {"metadata": {"gap_seconds": 600}, "data": [1]}
    with pytest.raises(MarketError, check=has_code("impossible_price")):
        imported(trace(tmp_path, content), spot_usd_per_hour=float("nan"))
    a100 = trace(tmp_path, content, NAME.replace("v100", "a100"))
    with pytest.raises(MarketError, match="1 × a100"):
        imported(a100)
    assert SPOT.region in str(next(iter(imported(a100, instance_type="x").pools)))
    with pytest.raises(MarketError, check=has_code("unreadable")):
        imported(tmp_path / "absent.json")


def test_places() -> None:
    assert TraceFileName.parse("trace.json") is None
    assert TraceFileName.parse(NAME.replace("02-15", "13-45")) is None
    assert find_traits("gcp").region_of_zone("us-central1-a") == "us-central1"
    assert find_traits("aws").region_of_zone("us-east-1a") == "us-east-1"
    with pytest.raises(CatalogError):
        find_traits("azure").region_of_zone("eastus-1")
    assert instance_type_of("aws", "k80", 8) == "p2.8xlarge"
    assert instance_type_of("gcp", "v100", 1) is None


def wide(folder: Path, text: str, name: str = "wide.csv") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


HEADER = "time_utc_approx,us-east-1a_v100_1_avail,us-east-1a_v100_1_price\n"


@pytest.mark.parametrize("name", ["wide.csv", "wide.csv.gz"])
def test_a_wide_table_keeps_its_gaps(tmp_path: Path, name: str) -> None:
    rows = "2023-02-15T00:00:00,1,1.5\n2023-02-15T00:01:00,,1.5\n"
    rows += "2023-02-15T00:02:00,0,\n2023-02-15T00:05:00,1,1.6\n"
    history = import_wide_csv(
        wide(tmp_path, HEADER + rows, name),
        on_demand_usd_per_hour=lambda pool: 3.06 if pool.instance_type == "p3.2xlarge" else None,
    )
    assert states(history, SPOT) == [
        (0, 1, 1.5),
        (60, None, 1.5),
        (120, 0, None),
        (180, None, None),
        (300, 1, 1.6),
    ]
    assert (history.tick_s, history.starts_at, history.ends_at) == (60.0, T0, after(360))
    assert (
        history.pools[SPOT.with_capacity_type(CapacityType.ON_DEMAND)].states[0].price_usd_per_hour
        == 3.06
    )


def test_a_wide_table_off_its_grid_is_event_data(tmp_path: Path) -> None:
    instants = ("00:00:00", "00:01:00", "00:02:00", "00:02:30")
    rows = "".join(f"2023-02-15T{instant},1,1.5\n" for instant in instants)
    assert import_wide_csv(wide(tmp_path, HEADER + rows)).tick_s is None


FIRST = "2023-02-15T00:00:00,1,1.5\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column time_utc_approx"),
        (HEADER, "holds no row"),
        (HEADER + FIRST, "single row"),
        ("time_utc_approx,x\n2023-02-15,1\n2023-02-16,1\n", "no column of a pool"),
        (HEADER + FIRST + "yesterday,1,1\n", "line 3: 'yesterday' is not a time"),
        (HEADER + FIRST + FIRST, "line 3: not after"),
        (HEADER + FIRST + "2023-02-15T00:01:00,1\n", "line 3: 2 cells"),
        (HEADER + FIRST + "2023-02-15T00:01:00,1,nan\n", "line 3, column us-east-1a.*price"),
        (HEADER + FIRST + "2023-02-15T00:01:00,1,0\n", "line 3, column us-east-1a.*price: is 0"),
        (HEADER + FIRST + "2023-02-15T00:01:00,-1,1\n", "line 3, column us-east-1a.*avail: is -1"),
        (HEADER + FIRST + "2023-02-15T00:01:00,many,1\n", "line 3, column .*avail: is 'many'"),
        (HEADER.replace("v100", "h100") + FIRST + FIRST.replace("15T", "16T"), "h100_1"),
    ],
)
def test_malformed_wide_tables_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(MarketError, match=message):
        import_wide_csv(wide(tmp_path, text))


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = wide(tmp_path, HEADER + FIRST * 50, "wide.csv.gz")
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(MarketError, check=has_code("unreadable")):
        import_wide_csv(path)


def test_merging_keeps_a_common_grid_only() -> None:
    here = market(pool_history(SPOT, [(0, 1, 1.0)], 6000), tick_s=60.0)
    aligned = market(pool_history(ELSEWHERE, [(120, 1, 1.0)], 6000), tick_s=60.0)
    shifted = market(pool_history(ELSEWHERE, [(90, 1, 1.0)], 6000), tick_s=60.0)
    coarse = market(pool_history(ELSEWHERE, [(0, 1, 1.0)], 6000), tick_s=120.0)
    merged = merge_histories("both", [here, aligned])
    assert (merged.name, merged.tick_s, merged.starts_at) == ("both", 60.0, after(120))
    assert set(merged.pools) == {SPOT, ELSEWHERE}
    assert merge_histories("both", [here, shifted]).tick_s is None
    assert merge_histories("both", [here, coarse]).tick_s is None
    assert merge_histories("same", [here, here]).pools == here.pools
    with pytest.raises(MarketError, check=has_code("contradiction")):
        merge_histories("both", [here, market(pool_history(SPOT, [(0, 2, 1.0)], 6000))])
    with pytest.raises(MarketError, check=has_code("empty")):
        merge_histories("none", [])


@pytest.mark.slow
def test_the_recorded_files_are_read_whole() -> None:
    data = os.environ.get("COSTOPT_DATA")
    if data is None:
        pytest.skip("COSTOPT_DATA names no folder of recorded data")
    traces = sorted((Path(data) / "traces").glob("*2023*.json"))
    merged = merge_histories("v100", [imported(path) for path in traces])
    assert len(merged.pools) == 2 * len(traces)
    assert merged.tick_s == 195.0
    history = import_wide_csv(Path(data) / "aws_v100_2023_price_avail_5zones.csv.gz")
    assert len(history.pools) == 5
    assert history.tick_s == 195.0
