"""The market that costopt ships as ``sample``: how its file was made.

    python -m benchmarks.sample_market FILE [SEED]

Recorded: the list prices of six weeks of Google Cloud, spot and on-demand, of machines that hold
four or eight GPUs, from $COSTOPT_DATA/gcp_gpu_spot_history_2022-2026.csv.gz, a table of the price
files of github.com/Cyclenerd/google-cloud-pricing-cost-calculator (Apache-2.0). Modelled: capacity,
which no public record of Google Cloud holds, by the generator's profile ``typical``. A list price
is that of a region; the zones are among those in which Google Cloud rents the machine.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import CapacityType, Pool
from costopt.market.generator import fill_capacity
from costopt.market.history_file import UNLIMITED_NODES, compress_samples, write_history

NAME = "sample"
PRICES = "gcp_gpu_spot_history_2022-2026.csv.gz"
SOURCE = (
    "list prices of Google Cloud recorded by github.com/Cyclenerd/"
    "google-cloud-pricing-cost-calculator (Apache-2.0)"
)
BEGINS_AT = datetime(2026, 6, 11, tzinfo=UTC)
ENDS_AT = datetime(2026, 7, 23, tzinfo=UTC)
ZONES = {
    "a3-highgpu-8g": (
        *("us-central1-a", "us-east4-a", "us-east4-b", "us-west4-a"),
        *("europe-west1-b", "europe-west4-b"),
    ),
    "a2-ultragpu-8g": ("us-central1-c", "us-east5-b", "europe-west4-a"),
    "g2-standard-48": ("us-central1-a", "us-east4-a", "europe-west4-b"),
}
TICK_S = 600.0
"""Prices change at midnight, capacity at multiples of it: the market has a grid."""
COLUMN = {CapacityType.SPOT: "spot_usd_h", CapacityType.ON_DEMAND: "on_demand_usd_h"}


def sample_market(prices: Path, seed: int = 0) -> MarketHistory:
    """Return the market of this table of prices, with capacity drawn by ``seed``; costopt ships
    that of 0. Raise OSError if the table cannot be read."""
    with gzip.open(prices) as file:
        rows = list(csv.DictReader(io.TextIOWrapper(file, encoding="utf-8")))
    rows.sort(key=lambda row: row["date"])
    pools = {
        pool: PoolHistory(pool, compress_samples(_states(rows, pool)), ENDS_AT)
        for machine, zones in ZONES.items()
        for zone in zones
        for pool in (
            Pool("gcp", zone.rpartition("-")[0], zone, machine, capacity_type)
            for capacity_type in COLUMN
        )
    }
    recorded = MarketHistory(name=NAME, pools=pools, tick_s=None, source=SOURCE)
    filled = fill_capacity(recorded, seed=seed, profile="typical", tick_s=TICK_S)
    return replace(filled, tick_s=TICK_S)


def _states(rows: list[dict[str, str]], pool: Pool) -> Iterator[MarketState]:
    """Yield the pool's prices from the start on; the last one before it is that of the start."""
    nodes = None if pool.capacity_type is CapacityType.SPOT else UNLIMITED_NODES
    before: MarketState | None = None
    for row in rows:
        if (row["machine_type"], row["region"]) != (pool.instance_type, pool.region):
            continue
        price = row[COLUMN[pool.capacity_type]]
        state = MarketState(_day(row["date"]), nodes, float(price) if price else None)
        if state.starts_at <= BEGINS_AT:
            before = MarketState(BEGINS_AT, nodes, state.price_usd_per_hour)
        elif state.starts_at < ENDS_AT:
            if before is not None:
                yield before
                before = None
            yield state
    if before is not None:
        yield before


def _day(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


if __name__ == "__main__":
    table = Path(os.environ["COSTOPT_DATA"]) / PRICES
    write_history(sample_market(table, *map(int, sys.argv[2:3])), Path(sys.argv[1]))
