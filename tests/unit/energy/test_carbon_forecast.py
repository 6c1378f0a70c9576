"""Carbon histories as files, and the forecasts made of them: gaps stay gaps."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costopt.domain.errors import SignalError
from costopt.domain.market import Region
from costopt.domain.policy import CarbonSignal
from costopt.energy.carbon import CarbonHistory
from costopt.energy.carbon_files import read_carbon, write_carbon
from costopt.energy.carbon_forecast import CarbonForecasts, forecast_carbon
from tests.support.errors import has_code

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
PAST = 20 * 24
NOW = START + PAST * HOUR + timedelta(minutes=20)


def region(zone: str | None, name: str = "eu-central-1") -> Region:
    return Region("aws", name, 1.1, 300.0, 700.0, zone, 2024, "made up")


def daily(hour: int) -> float:
    return 300 + 100 * math.sin(2 * math.pi * hour / 24)


def history(*values: float | None) -> CarbonHistory:
    return CarbonHistory(START, {"DE": values}, CarbonSignal.AVERAGE, "made up")


def forecasts(of: CarbonHistory, *regions: Region) -> CarbonForecasts:
    return forecast_carbon(of, regions or (region("DE"),), NOW, NOW + 48 * HOUR)


def test_a_day_that_repeats_is_forecast_as_it_was() -> None:
    found = forecasts(history(*(daily(hour) for hour in range(PAST))))
    series = found.series["aws/eu-central-1"]
    assert found.missing == {}
    assert series.at[0] == START + PAST * HOUR <= NOW
    assert series.at[-1] == START + (PAST + 48) * HOUR
    for step in range(48):
        assert series.values[step] == pytest.approx(daily(PAST + step))


def test_the_present_level_fades_into_the_mean_day() -> None:
    values = [daily(hour) for hour in range(PAST)]
    values[-1] += 100
    series = forecasts(history(*values)).series["aws/eu-central-1"]
    above = [series.values[step] - daily(PAST + step) for step in (0, 10, 40)]
    assert above[0] > above[1] > above[2] > 10
    assert above[0] == pytest.approx(100 * math.exp(-1 / 72), rel=0.1)


def test_hours_that_have_not_ended_change_nothing() -> None:
    known = [daily(hour) for hour in range(PAST)]
    later = [*known, *(9999.0 for _ in range(60))]
    assert forecasts(history(*later)) == forecasts(history(*known))


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([daily(h) if h % 24 != 5 or h < 12 * 24 else None for h in range(PAST)], "fewer than 7"),
        ([daily(h) if h < PAST - 3 else None for h in range(PAST)], "last recorded at 2026-01-20"),
        ([None] * PAST, "not recorded before"),
        ([daily(h) for h in range(PAST - 40)], "last recorded"),
        ([daily(h) for h in range(48)], "last recorded"),
    ],
)
def test_a_gap_gives_a_reason_in_place_of_a_forecast(
    values: list[float | None], reason: str
) -> None:
    found = forecasts(history(*values))
    assert found.series == {}
    assert reason in found.missing["aws/eu-central-1"]


def test_a_region_without_a_recorded_zone_says_so() -> None:
    of = history(*(daily(hour) for hour in range(PAST)))
    found = forecasts(of, region(None, "a"), region("SE", "b"))
    assert found.missing == {
        "aws/a": "its grid zone is unknown",
        "aws/b": "SE is not in the record",
    }


def test_a_wrong_carbon_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    with pytest.raises(SignalError, check=has_code("missing")):
        read_carbon(path)
    write_carbon(history(1.0, None), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SignalError, match="truncated"):
        read_carbon(path)


def test_another_parquet_file_is_not_a_carbon_file(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "c.parquet"
    for columns, metadata, named in (
        ({"a": [1]}, {}, "average or marginal"),
        ({"a": [1]}, {"carbon_signal": "average"}, "no column starts_at"),
        ({"starts_at": [START], "DE": ["x"]}, {"carbon_signal": "average"}, "column DE: holds"),
        ({"starts_at": [START], "DE": [-1.0]}, {"carbon_signal": "average"}, "impossible"),
        ({"starts_at": [START, START], "DE": [1.0, 1.0]}, {"carbon_signal": "average"}, "by hour"),
    ):
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)
        with pytest.raises(SignalError, match=named):
            read_carbon(path)
