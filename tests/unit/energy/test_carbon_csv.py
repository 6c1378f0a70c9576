"""Intensities are imported from CSV by the hour, whatever their intervals; gaps stay gaps."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costopt.domain.errors import SignalError
from costopt.domain.policy import CarbonSignal
from costopt.energy.carbon_csv import import_carbon_csv
from costopt.energy.carbon_files import read_carbon, write_carbon

START = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
CSV = "hour_utc,DE,FR\n2026-01-01 00:00:00+00:00,400,\n2026-01-01 02:00:00,380.5,60\n"
EM_HEADER = (
    "Datetime (UTC),Country,Zone name,Zone id,Carbon intensity gCO₂eq/kWh (direct),"
    "Carbon intensity gCO₂eq/kWh (Life cycle),Carbon-free energy percentage (CFE%),"
    "Renewable energy percentage (RE%),Data source,Data estimated,Data estimation method"
)
EM_ROW = "2026-01-01 00:00:00,Germany,Germany,DE,300.1,340.2,55.1,50.2,entsoe.eu,false,\n"
EM_2023 = (
    "Datetime (UTC),Country,Zone Name,Zone Id,Carbon Intensity gCO₂eq/kWh (direct),"
    "Carbon Intensity gCO₂eq/kWh (LCA),Low Carbon Percentage,Renewable Percentage,Data Source,"
    "Data Estimated,Data Estimation Method"
)


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_a_csv_is_imported_with_its_gaps_and_survives_the_file(tmp_path: Path) -> None:
    record = tmp_path / "c.csv.gz"
    record.write_bytes(gzip.compress(CSV.encode()))
    imported = import_carbon_csv([record])
    assert imported.zones == {"DE": (400.0, None, 380.5), "FR": (None, None, 60.0)}
    assert imported.ends_at == START + 3 * HOUR
    assert imported.at("DE", START + timedelta(minutes=150)) == 380.5
    assert imported.at("DE", START - HOUR) is None
    write_carbon(imported, tmp_path / "c.parquet")
    assert read_carbon(tmp_path / "c.parquet") == imported


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("hour_utc\n", "line 1"),
        ("hour_utc,DE,DE\n", "line 1"),
        ("hour_utc,DE\n", "no hour"),
        ("hour_utc,DE\nyesterday,3\n", "line 2"),
        ("hour_utc,DE\n2026-01-01 00:30:00,3\n", "line 2"),
        ("hour_utc,DE\n2026-01-01,3\n2026-01-01 00:15,3\n2026-01-01 00:40,3\n", "line 4"),
        ("hour_utc,DE\n2026-01-01,3\n2026-01-01 00:07,3\n", "line 2"),
        ("hour_utc,DE\n2026-01-01,3\n2026-01-02,3\n2026-01-04,3\n", "line 3"),
        ("hour_utc;DE\n2026-01-01;3,5\n", "semicolons"),
        (f"{EM_HEADER}\n".replace("Carbon intensity", "Intensity") + EM_ROW, "line 1"),
        (f"{EM_HEADER}\n{EM_ROW}".replace("340.2", "-1"), "line 2, column Carbon intensity"),
        (f"{EM_HEADER}\n{EM_ROW}{EM_ROW}", "line 3"),
        ("hour_utc,DE\n2026-01-01,3\n2026-01-01,3\n", "line 3"),
        ("hour_utc,DE\n2026-01-01,-3\n", "line 2, column DE"),
        ("hour_utc,DE\n2026-01-01,nan\n", "line 2, column DE"),
        ("hour_utc,DE\n2026-01-01,3,4\n", "line 2"),
        ("hour_utc,DE\n0026-01-01,3\n2026-01-01,4\n", "spans"),
    ],
)
def test_a_wrong_csv_is_refused_with_its_line(tmp_path: Path, text: str, named: str) -> None:
    record = tmp_path / "c.csv"
    record.write_text(text, encoding="utf-8")
    with pytest.raises(SignalError, match=named):
        import_carbon_csv([record])


def test_quarters_are_averaged_and_incomplete_hours_stay_gaps(tmp_path: Path) -> None:
    times = [START + number * timedelta(minutes=15) for number in range(16)]
    cells = [str(300 + 10 * number) for number in range(16)]
    cells[6] = ""
    rows = [f"{at.isoformat()},{cell}" for at, cell in zip(times, cells, strict=True)]
    found = import_carbon_csv([write(tmp_path / "c.csv", "start,DE", *rows[:-1])])
    assert found.zones == {"DE": (315.0, None, 395.0, None)}
    assert found.starts_at == START


@pytest.mark.parametrize("minutes", [1, 5, 10, 20, 30])
def test_other_parts_of_an_hour_are_averaged(minutes: int, tmp_path: Path) -> None:
    times = [START + timedelta(minutes=minute) for minute in range(0, 120, minutes)]
    rows = [f"{at.isoformat()},{at.hour},{100 * at.minute}" for at in times]
    found = import_carbon_csv([write(tmp_path / "c.csv", "start,DE,FR", *rows)])
    assert found.zones["DE"] == (0.0, 1.0)
    assert found.zones["FR"] == (50.0 * (60 - minutes),) * 2


@pytest.mark.parametrize("header", [EM_HEADER, EM_2023])
def test_the_life_cycle_of_a_yearly_file_of_electricity_maps_counts(
    header: str, tmp_path: Path
) -> None:
    next_row = EM_ROW.replace("00:00:00", "02:00:00").replace("340.2", "350")
    found = import_carbon_csv(
        [write(tmp_path / "DE_2026_hourly.csv", header, EM_ROW + next_row.strip())]
    )
    assert found.zones == {"DE": (340.2, None, 350.0)}
    assert "DE_2026_hourly.csv" in found.source


def test_several_files_become_one_history(tmp_path: Path) -> None:
    german = write(tmp_path / "DE_2026_hourly.csv", EM_HEADER, EM_ROW.strip())
    french = write(
        tmp_path / "FR_2026_hourly.csv",
        EM_HEADER,
        EM_ROW.strip().replace(",DE,", ",FR,").replace("340.2", "40"),
    )
    later = write(tmp_path / "own.csv", "hour,DE", "2026-01-01T01:00Z,200")
    found = import_carbon_csv([later, german, french])
    assert found.zones == {"DE": (340.2, 200.0), "FR": (40.0, None)}
    with pytest.raises(SignalError, match=r"line 2 of .*DE_2026_hourly"):
        import_carbon_csv([german, german])


def test_electricity_maps_files_are_not_marginal(tmp_path: Path) -> None:
    path = write(tmp_path / "c.csv", EM_HEADER, EM_ROW.strip())
    with pytest.raises(SignalError, match="average"):
        import_carbon_csv([path], CarbonSignal.MARGINAL)


def test_an_hour_that_is_there_twice_is_named_with_both_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "c.csv", "hour,DE", "2026-01-01,3", "2026-01-01T01:00+01:00,4")
    with pytest.raises(SignalError, match=r"line 3: .*line 2"):
        import_carbon_csv([path])
