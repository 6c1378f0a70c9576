"""Spot prices over HTTP: paged, throttled in the middle, by zone id."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from costopt.domain.errors import ForbiddenError, ThrottledError
from costopt_aws.regions import Zones
from costopt_aws.spot_prices import SpotPrice, SpotPrices
from tests.support.aws.clients import shared_clients
from tests.support.aws.cloud import Cloud
from tests.support.aws.overlay.faults import throttle, unauthorized

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
KIND = "g6e.xlarge"


def prices(attempts: int = 5) -> SpotPrices:
    clients = shared_clients(attempts)
    return SpotPrices(clients, Zones(clients))


def test_current_prices_are_the_last_changes_of_each_zone(cloud: Cloud) -> None:
    cloud.spot.price("us-east-1a", KIND, 0.9, NOW - timedelta(days=40))
    cloud.spot.price("us-east-1a", KIND, 0.8, NOW - timedelta(hours=3))
    cloud.spot.price("us-east-1b", KIND, 0.7, NOW - timedelta(days=3))
    cloud.spot.price("us-east-1b", "g6.xlarge", 0.3, NOW - timedelta(days=3))
    cloud.spot.price("us-east-1b", KIND, 5.0, NOW - timedelta(days=1), product="Windows")
    now = prices().current("us-east-1", [KIND], NOW)
    assert now == {
        ("use1-az6", KIND): SpotPrice("use1-az6", KIND, NOW - timedelta(hours=3), 0.8),
        ("use1-az1", KIND): SpotPrice("use1-az1", KIND, NOW - timedelta(days=3), 0.7),
    }


def test_history_begins_with_the_price_in_force(cloud: Cloud) -> None:
    for day, usd in ((100, 1.0), (95, 1.1), (50, 1.2), (0.5, 1.3), (0, 1.4)):
        cloud.spot.price("us-east-1a", KIND, usd, NOW - timedelta(days=day))
    reported = prices().history("us-east-1", KIND, NOW - timedelta(days=90), NOW)
    assert [price.usd_per_hour for price in reported] == [1.1, 1.2, 1.3]
    assert [price.at for price in reported] == sorted(price.at for price in reported)


def test_pages_are_joined_though_one_is_throttled(cloud: Cloud) -> None:
    cloud.spot.page = 7
    for hour in range(40):
        for zone in "abc":
            cloud.spot.price(f"us-east-1{zone}", KIND, 1 + hour / 100, NOW - timedelta(hours=hour))
    cloud.faults.on("ec2", "DescribeSpotPriceHistory", throttle, nth=4, times=2)
    reported = prices().history("us-east-1", KIND, NOW - timedelta(days=90), NOW)
    assert len(reported) == 39 * 3
    assert len({(price.zone_id, price.at) for price in reported}) == len(reported)
    pages = -(-40 * 3 // 7)
    assert cloud.faults.calls["ec2", "DescribeSpotPriceHistory"] == pages + 2


def test_throttled_for_good_is_an_error_and_no_half_history(cloud: Cloud) -> None:
    cloud.spot.page = 1
    for hour in range(5):
        cloud.spot.price("us-east-1a", KIND, 1 + hour, NOW - timedelta(hours=hour + 1))
    cloud.faults.on("ec2", "DescribeSpotPriceHistory", throttle, nth=3, times=100)
    with pytest.raises(ThrottledError, match="us-east-1"):
        prices(attempts=1).history("us-east-1", KIND, NOW - timedelta(days=90), NOW)


def test_a_missing_permission_is_named(cloud: Cloud) -> None:
    cloud.faults.on("ec2", "DescribeSpotPriceHistory", unauthorized)
    with pytest.raises(ForbiddenError, match="ec2:DescribeSpotPriceHistory"):
        prices().current("us-east-1", [KIND], NOW)


@pytest.mark.parametrize("text", ["", "nan", "-1", "0.000000", "a lot", "inf"])
def test_an_impossible_price_is_unknown(cloud: Cloud, text: str) -> None:
    cloud.spot.price("us-east-1a", KIND, text)
    (reported,) = prices().current("us-east-1", [KIND], NOW).values()
    assert reported.usd_per_hour is None


def test_a_zone_that_is_not_the_accounts_is_left_out(cloud: Cloud) -> None:
    cloud.spot.price("us-east-1-bos-1a", KIND, 1.0)
    assert prices().current("us-east-1", [KIND], NOW) == {}


def test_without_types_nothing_is_asked(cloud: Cloud) -> None:
    assert prices().current("us-east-1", [], NOW) == {}
    assert not cloud.faults.calls
