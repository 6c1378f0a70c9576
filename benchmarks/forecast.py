"""How far forecasts of prices and carbon intensity are from what came, beside persistence."""

from __future__ import annotations

import csv
import gzip
import os
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean

from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import CapacityType, Pool, Region
from costopt.energy.carbon import CarbonHistory
from costopt.energy.carbon_csv import import_carbon_csv
from costopt.energy.carbon_forecast import forecast_carbon
from costopt.market.forecast import forecast_prices
from costopt.market.importers import import_wide_csv

HOURS = (1, 6, 24, 72)
AWS_PRICES = "aws_v100_2023_price_avail_5zones.csv.gz"
GCP_PRICES = "gcp_gpu_spot_history_2022-2026.csv.gz"
CARBON = "energy/carbon_intensity_hourly_2021-10_2022-12.csv.gz"
GCP_MACHINES = ("a2-highgpu-8g", "a3-highgpu-8g", "g2-standard-48")

Figure = tuple[str, float, str]


def run() -> list[Figure]:
    """Mean absolute error out of sample, as a share; nothing where no data are given."""
    folder = os.environ.get("COSTOPT_DATA")
    if folder is None:
        print("  COSTOPT_DATA is unset: forecasts were not compared with recorded data")
        return []
    data = Path(folder)
    aws, gcp = import_wide_csv(data / AWS_PRICES), _gcp_prices(data / GCP_PRICES)
    return [
        *_prices("AWS p3.2xlarge, 5 zones", aws, timedelta(hours=7)),
        *_prices("GCP list prices of spot", gcp, timedelta(days=9, hours=5)),
        *_carbon(import_carbon_csv([data / CARBON]), timedelta(hours=37)),
    ]


def _prices(label: str, history: MarketHistory, every: timedelta) -> Iterator[Figure]:
    errors: dict[int, list[tuple[float, float]]] = defaultdict(list)
    now, last = history.starts_at + timedelta(days=14), timedelta(hours=max(HOURS))
    served = asked = 0
    while now + last < history.ends_at:
        found = forecast_prices(history, history.pools, now, now + 2 * last)
        served, asked = served + len(found), asked + len(history.pools)
        for pool, recorded in history.pools.items():
            present = _price(recorded, now)
            for hours in HOURS:
                at = now + timedelta(hours=hours)
                came = _price(recorded, at)
                if present is None or came is None:
                    continue
                forecast = found[pool].value(at) if pool in found else present
                errors[hours].append((abs(forecast / came - 1), abs(present / came - 1)))
        now += every
    yield f"{label}: pools that get a forecast", 100 * served / asked, "%"
    yield from _figures(label, errors)


def _price(recorded: PoolHistory, at: datetime) -> float | None:
    state = recorded.at(at)
    return None if state is None else state.price_usd_per_hour


def _carbon(history: CarbonHistory, every: timedelta) -> Iterator[Figure]:
    errors: dict[int, list[tuple[float, float]]] = defaultdict(list)
    regions = [_region(zone) for zone in history.zones]
    means = {zone: _mean(history, zone) for zone in history.zones}
    now = history.starts_at + timedelta(days=14)
    while now + timedelta(hours=max(HOURS)) < history.ends_at:
        found = forecast_carbon(history, regions, now, now + timedelta(hours=max(HOURS) + 1))
        for key, series in found.series.items():
            zone = key.partition("/")[2]
            present = history.at(zone, now - timedelta(hours=1))
            for hours in HOURS:
                at = now + timedelta(hours=hours - 1)
                came = history.at(zone, at)
                if came is not None and present is not None:
                    off = abs(series.value(at) - came), abs(present - came)
                    errors[hours].append((off[0] / means[zone], off[1] / means[zone]))
        now += every
    yield from _figures(f"carbon, {len(regions)} grid zones", errors)


def _mean(history: CarbonHistory, zone: str) -> float:
    return fmean(value for value in history.zones[zone] if value is not None)


def _figures(label: str, errors: dict[int, list[tuple[float, float]]]) -> Iterator[Figure]:
    for hours, pairs in sorted(errors.items()):
        yield f"{label}: error at {hours} h", 100 * fmean(pair[0] for pair in pairs), "%"
        yield f"{label}: of persistence", 100 * fmean(pair[1] for pair in pairs), "%"


def _region(zone: str) -> Region:
    return Region("grid", zone, None, None, None, zone, 2022, "the zone itself")


def _gcp_prices(path: Path) -> MarketHistory:
    rows: dict[Pool, dict[datetime, float]] = defaultdict(dict)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["machine_type"] in GCP_MACHINES and row["spot_usd_h"]:
                place = ("gcp", row["region"], f"{row['region']}-a", row["machine_type"])
                day = datetime.fromisoformat(row["date"]).replace(tzinfo=UTC)
                rows[Pool(*place, CapacityType.SPOT)][day] = float(row["spot_usd_h"])
    ends_at = max(day for days in rows.values() for day in days) + timedelta(days=1)
    pools = {
        pool: PoolHistory(
            pool, tuple(MarketState(day, None, usd) for day, usd in sorted(days.items())), ends_at
        )
        for pool, days in rows.items()
        if min(days).year < 2025
    }
    return MarketHistory("gcp", pools, None, path.name)
