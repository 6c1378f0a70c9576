"""Market files: what is written is read, and what is wrong is named."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from costopt.domain.errors import MarketError
from costopt.market.history_file import read_history, write_history
from tests.support.errors import has_code
from tests.support.market_fixtures import ON_DEMAND, SPOT, T0, after, market, pool_history

US = pa.timestamp("us", "UTC")
HISTORY = market(
    pool_history(SPOT, [(0, 1, 0.9), (195, 0, 0.9), (390, None, None)], 585),
    pool_history(ON_DEMAND, [(0, 10_000, 3.06)], 585),
    tick_s=195.0,
)


def columns(**changed: Any) -> dict[str, Any]:
    """A valid file of two rows, with some columns replaced."""
    return {
        "pool": pa.array([str(SPOT)] * 2),
        "starts_at": pa.array([T0, after(60)], US),
        "ends_at": pa.array([after(60), after(90)], US),
        "nodes_available": pa.array([1, 0]),
        "price_usd_per_hour": pa.array([1.0, None]),
    } | changed


def written(folder: Path, table: dict[str, Any]) -> Path:
    path = folder / "market.parquet"
    pq.write_table(pa.table(table), path)
    return path


def test_a_file_of_another_tool_is_event_data_named_after_itself(tmp_path: Path) -> None:
    history = read_history(written(tmp_path, columns()))
    assert (history.name, history.tick_s, history.source) == ("market", None, "file market.parquet")
    assert history.pools[SPOT].states[1].price_usd_per_hour is None


def test_rows_that_change_nothing_are_one_state(tmp_path: Path) -> None:
    same = columns(nodes_available=pa.array([1, 1]), price_usd_per_hour=pa.array([1.0, 1.0]))
    assert len(read_history(written(tmp_path, same)).pools[SPOT].states) == 1


def test_other_time_zones_and_units_are_read_as_utc(tmp_path: Path) -> None:
    berlin = columns(starts_at=pa.array([T0, after(60)], pa.timestamp("ns", "Europe/Berlin")))
    history = read_history(written(tmp_path, berlin))
    assert history.starts_at == T0
    assert history.starts_at.tzinfo is UTC


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"price_usd_per_hour": pa.array([1.0, float("nan")])}, "row 2, column price.*: is nan"),
        ({"price_usd_per_hour": pa.array([0.0, 1.0])}, "row 1, column price.*: is 0.0"),
        ({"price_usd_per_hour": pa.array([-1.0, 1.0])}, "row 1, column price.*: is -1.0"),
        ({"price_usd_per_hour": pa.array([1.0, float("inf")])}, "row 2, column price.*: is inf"),
        ({"price_usd_per_hour": pa.array(["1", "2"])}, "column price_usd_per_hour: holds string"),
        ({"nodes_available": pa.array([1, -1])}, "row 2, column nodes_available: is -1"),
        ({"nodes_available": pa.array([1.0, 0.5])}, "column nodes_available: holds double"),
        ({"starts_at": pa.array([T0, after(30)], US)}, "row 2, column starts_at: .*before row 1"),
        ({"starts_at": pa.array([T0, after(70)], US)}, "row 2, column starts_at: .*hole"),
        ({"starts_at": pa.array([T0, None], US)}, "row 2, column starts_at: is null"),
        ({"ends_at": pa.array([after(60), after(60)], US)}, "row 2, column ends_at: is not after"),
        (
            {"starts_at": pa.array([T0.replace(tzinfo=None)] * 2, pa.timestamp("us"))},
            "column starts_at: holds timestamp",
        ),
        (
            {"pool": pa.array([str(SPOT), "aws/spot"])},
            "row 2, column pool: 'aws/spot' is not a pool",
        ),
        ({"pool": pa.array([str(SPOT), None])}, "row 2, column pool"),
        ({"pool": pa.array([1, 2])}, "column pool: holds int64"),
    ],
)
def test_wrong_values_are_named_with_row_and_column(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    path = written(tmp_path, columns(**changed))
    with pytest.raises(MarketError, match=message) as raised:
        read_history(path)
    assert str(path) in raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize("column", list(columns()))
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    table = columns()
    del table[column]
    with pytest.raises(MarketError, check=has_code("missing_column")):
        read_history(written(tmp_path, table))


def test_truncated_empty_foreign_and_missing_files(tmp_path: Path) -> None:
    path = tmp_path / "market.parquet"
    with pytest.raises(MarketError, check=has_code("missing")):
        read_history(path)
    path.write_bytes(b"")
    with pytest.raises(MarketError, check=has_code("empty")):
        read_history(path)
    path.write_text("pool,starts_at\n")
    with pytest.raises(MarketError, check=has_code("not_parquet")):
        read_history(path)
    write_history(HISTORY, path)
    whole = path.read_bytes()
    for length in (4, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(MarketError, check=has_code("not_parquet")):
            read_history(path)
    no_rows = {name: column[:0] for name, column in columns().items()}
    with pytest.raises(MarketError, check=has_code("no_rows")):
        read_history(written(tmp_path, no_rows))


def test_a_flipped_byte_is_an_error_that_names_the_file_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "market.parquet"
    write_history(HISTORY, path)
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        error = read_error(path)
        refused += error is not None
        assert error is None or str(path) in error.message
    assert refused > 10


def read_error(path: Path) -> MarketError | None:
    try:
        read_history(path)
    except MarketError as error:
        return error
    return None


@pytest.mark.parametrize("tick", ["0", "-5", "nan", "five"])
def test_an_impossible_tick_is_named(tmp_path: Path, tick: str) -> None:
    path = tmp_path / "market.parquet"
    pq.write_table(pa.table(columns()).replace_schema_metadata({"tick_s": tick}), path)
    with pytest.raises(MarketError, match="tick_s"):
        read_history(path)


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "market.parquet"
    write_history(HISTORY, path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(MarketError, check=has_code("unwritable")):
        write_history(market(pool_history(SPOT, [(0, 1, 5.0)], 60)), path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MarketError, check=has_code("unwritable")):
        write_history(HISTORY, tmp_path / "nowhere" / "market.parquet")


def test_times_are_plain_utc(tmp_path: Path) -> None:
    path = tmp_path / "market.parquet"
    write_history(HISTORY, path)
    assert type(read_history(path).starts_at) is datetime
