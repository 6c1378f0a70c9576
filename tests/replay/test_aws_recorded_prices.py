"""Recorded AWS prices and buckets come through the test cloud as they went in."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from costopt.domain.hazards import InterruptionBucket, parse_spot_advisor
from costopt.domain.history import PoolHistory
from costopt.domain.market import CapacityType, Pool
from costopt.market.importers import import_wide_csv
from costopt.market.recorder import extend_history
from costopt.provider.base import PriceChange
from costopt_aws.regions import Zones
from costopt_aws.spot_prices import SpotPrices
from tests.support.aws.clients import shared_clients
from tests.support.aws.cloud import Cloud
from tests.support.aws.overlay.list_prices import RANGES

KIND = "p3.2xlarge"


@pytest.fixture(scope="module")
def data() -> Path:
    folder = os.environ.get("COSTOPT_DATA")
    if not folder:
        pytest.skip("COSTOPT_DATA names no folder with the recorded facts")
    return Path(folder)


def record(
    prices: SpotPrices, pool: Pool, zone_id: str, begins_at: datetime, stops: Sequence[int]
) -> PoolHistory:
    """The record of a zone that is extended at these days after its begin."""
    known: PoolHistory | None = None
    since = begins_at
    for day in stops:
        until = begins_at + timedelta(days=day)
        reported = [
            PriceChange(pool, price.at, price.usd_per_hour)
            for price in prices.history(pool.region, KIND, since, until)
            if price.zone_id == zone_id
        ]
        known, since = extend_history(known, pool, reported, since, until), until
    assert known is not None
    return known


def test_six_weeks_of_five_zones_are_read_as_they_were(cloud: Cloud, data: Path) -> None:
    market = import_wide_csv(
        data / "aws_v100_2023_price_avail_5zones.csv.gz",
        on_demand_usd_per_hour=lambda _: 3.06,
        instance_type=KIND,
    )
    recorded = [h for pool, h in market.pools.items() if pool.capacity_type is CapacityType.SPOT]
    count = 0
    for history in recorded:
        for state in history.states:
            if state.price_usd_per_hour is not None:
                count += 1
                usd, when = state.price_usd_per_hour, state.starts_at
                cloud.spot.price(history.pool.zone, KIND, usd, when)
    assert count > 500
    cloud.spot.page = 500
    zones = Zones(shared_clients())
    prices = SpotPrices(shared_clients(), zones)
    for history in recorded:
        zone_id = zones.ids(history.pool.region)[history.pool.zone]
        begins_at = history.starts_at + timedelta(days=1)
        at_once = record(prices, history.pool, zone_id, begins_at, [40])
        assert record(prices, history.pool, zone_id, begins_at, range(5, 41, 5)) == at_once
        assert len(at_once.states) > 1
        for state in at_once.states:
            truth = history.at(state.starts_at)
            assert truth is not None
            assert truth.price_usd_per_hour in (None, state.price_usd_per_hour)


def test_every_recorded_bucket_is_read(data: Path) -> None:
    with (data / "aws_spot_advisor_gpu_2025-06-28.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    regions: dict[str, dict[str, dict[str, dict[str, int]]]] = {}
    for row in rows:
        linux = regions.setdefault(row["region"], {"Linux": {}})["Linux"]
        linux[row["instance_type"]] = {"s": int(row["savings_pct"]), "r": int(row["bucket"])}
    buckets = parse_spot_advisor({"ranges": RANGES, "spot_advisor": regions})
    assert len(buckets) == len({(row["region"], row["instance_type"]) for row in rows}) > 700
    for row in rows:
        bucket = buckets[row["region"], row["instance_type"]]
        assert bucket is InterruptionBucket(int(row["bucket"]))
