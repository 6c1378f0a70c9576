"""Offers of EC2: joined from many answers, with a reason where one is missing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from costopt.domain.errors import BadRequestError, ForbiddenError, ProviderUnavailableError
from costopt.domain.estimate import Basis
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.domain.policy import Policy
from costopt.engine.loop import ScaledClock
from costopt.market.hazard import LearnedHazard
from costopt.market.screening import screen_offers
from costopt.provider.base import PriceSeriesKey
from costopt_aws import connect
from costopt_aws.options import AwsOptions
from costopt_aws.provider import AwsProvider
from tests.support.aws.clients import shared_clients
from tests.support.aws.cloud import Cloud
from tests.support.aws.overlay.faults import fail, refuse, throttle, unauthorized

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND
KINDS = ("g6e.xlarge", "g6e.2xlarge", "g6e.4xlarge")


def provider(regions: tuple[str, ...] = ("us-east-1",), **options: object) -> AwsProvider:
    asked = {"regions": regions, "instance_types": KINDS, **options}
    parsed = AwsOptions.parse(asked)
    return AwsProvider(ScaledClock(NOW, 1.0), parsed, shared_clients(1))


def priced(cloud: Cloud, region: str = "us-east-1", zones: str = "ab") -> None:
    for kind in KINDS:
        cloud.listed.list(region, kind, 2.0, bucket=1)
        for zone in zones:
            cloud.spot.price(f"{region}{zone}", kind, 0.8, NOW - timedelta(hours=1))


def by_pool(offers: tuple[Offer, ...]) -> dict[Pool, Offer]:
    found = {offer.pool: offer for offer in offers}
    assert len(found) == len(offers)
    return found


def at(zone: str, terms: CapacityType = SPOT, kind: str = KINDS[0]) -> Pool:
    return Pool("aws", "us-east-1", zone, kind, terms)


def test_an_offer_has_price_hazard_and_likelihood_with_their_sources(cloud: Cloud) -> None:
    priced(cloud)
    cloud.spot.score("us-east-1", "use1-az6", 9)
    offers = by_pool(tuple(provider().offers(NOW)))
    spot, on_demand = offers[at("use1-az6")], offers[at("use1-az6", ON_DEMAND)]
    assert spot.price_usd_per_hour is not None
    assert (spot.price_usd_per_hour.value, spot.price_usd_per_hour.observed_at) == (0.8, NOW)
    assert spot.price_usd_per_hour.source == "EC2 spot price, unchanged since 2026-11-20 11:00Z"
    assert spot.hazard_per_hour is not None
    assert spot.hazard_per_hour.basis is Basis.PRIOR
    assert spot.availability is not None
    assert spot.availability.value == 0.9
    assert spot.nodes_available is None
    assert on_demand.price_usd_per_hour is not None
    assert on_demand.price_usd_per_hour.basis is Basis.LISTED
    assert on_demand.hazard_per_hour is not None
    assert on_demand.hazard_per_hour.high == 0
    assert {pool.instance_type for pool in offers} == set(KINDS)
    assert offers[at("use1-az1")].availability is None


def test_a_zone_without_a_price_is_excluded_with_a_reason(cloud: Cloud) -> None:
    priced(cloud, zones="a")
    usable, rejections = screen_offers(provider().offers(NOW), Policy("p"), NOW)
    assert {o.pool.zone for o in usable if o.pool.capacity_type is SPOT} == {"use1-az6"}
    reasons = {r.pool.zone: r.reason for r in rejections}
    assert reasons["use1-az1"] == "AWS publishes no spot price of this type in this zone"


def test_types_without_a_list_price_are_excluded_with_a_reason(cloud: Cloud) -> None:
    priced(cloud)
    del cloud.listed.in_api["us-east-1", KINDS[0]], cloud.listed.in_file["us-east-1", KINDS[0]]
    _, rejections = screen_offers(provider().offers(NOW), Policy("p"), NOW)
    on_demand = [r for r in rejections if r.pool.capacity_type is ON_DEMAND]
    assert {r.pool.instance_type for r in on_demand} == {KINDS[0]}
    assert {r.reason for r in on_demand} == {"no list price is known"}


def test_a_type_that_the_region_does_not_sell_is_reported(cloud: Cloud) -> None:
    offers = provider(("eu-west-3",), instance_types=("p6-b300.48xlarge",)).offers(NOW)
    assert {o.unknown_because for o in offers} == {"eu-west-3 does not sell p6-b300.48xlarge"}


def test_a_region_that_is_down_stops_no_other(cloud: Cloud) -> None:
    priced(cloud)
    priced(cloud, "us-west-2")
    cloud.faults.on("ec2", "*", fail, region="us-east-1")
    offers = provider(("us-east-1", "us-west-2")).offers(NOW)
    usable, rejections = screen_offers(offers, Policy("p"), NOW)
    assert {o.pool.region for o in usable} == {"us-west-2"}
    lost = [r for r in rejections if r.pool.region == "us-east-1"]
    assert {r.pool.instance_type for r in lost} == set(KINDS)
    assert all("us-east-1" in r.reason and "InternalError" in r.reason for r in lost)


def test_a_region_that_is_not_enabled_or_unknown_is_reported(cloud: Cloud) -> None:
    priced(cloud)
    cloud.faults.on("ec2", "*", refuse("AuthFailure", "no", 401), region="ap-east-1")
    offers = provider(("us-east-1", "ap-east-1", "us-esat-1")).offers(NOW)
    reasons = {o.pool.region: o.unknown_because for o in offers if o.unknown_because}
    assert reasons["ap-east-1"] == "ap-east-1: the region is not enabled in this account"
    assert reasons["us-esat-1"] == "AWS has no region 'us-esat-1'"
    assert any(o.pool.region == "us-east-1" and o.price_usd_per_hour for o in offers)


def test_a_missing_permission_excludes_spot_and_leaves_on_demand(cloud: Cloud) -> None:
    priced(cloud)
    cloud.faults.on("ec2", "DescribeSpotPriceHistory", unauthorized)
    usable, rejections = screen_offers(provider().offers(NOW), Policy("p"), NOW)
    assert {o.pool.capacity_type for o in usable} == {ON_DEMAND}
    spot = {r.reason for r in rejections if r.pool.capacity_type is SPOT}
    assert len(spot) == 1
    assert "ec2:DescribeSpotPriceHistory" in spot.pop()


def test_throttled_prices_are_the_last_ones_at_their_age(cloud: Cloud) -> None:
    priced(cloud)
    cloudy = provider()
    cloudy.offers(NOW)
    cloud.faults.on("ec2", "DescribeSpotPriceHistory", throttle)
    later = NOW + timedelta(minutes=50)
    price = by_pool(tuple(cloudy.offers(later)))[at("use1-az6")].price_usd_per_hour
    assert price is not None
    assert price.observed_at == NOW
    much_later = NOW + timedelta(hours=3)
    offer = by_pool(tuple(cloudy.offers(much_later)))[at("use1-az6")]
    assert offer.price_usd_per_hour is None
    assert "RequestLimitExceeded" in offer.unknown_because


def test_a_tick_costs_few_calls(cloud: Cloud) -> None:
    priced(cloud)
    quiet = provider()
    quiet.offers(NOW)
    cloud.faults.calls.clear()
    for minute in range(1, 60):
        quiet.offers(NOW + timedelta(minutes=minute))
    assert cloud.faults.calls["ec2", "DescribeSpotPriceHistory"] == 11
    others = cloud.faults.calls.total() - cloud.faults.calls["ec2", "DescribeSpotPriceHistory"]
    assert others == cloud.faults.calls["ec2", "DescribeCapacityReservations"] == 11


def test_the_bucket_is_the_prior_over_which_hazards_are_learned(cloud: Cloud) -> None:
    priced(cloud)
    offers = provider().offers(NOW)
    model, pool = LearnedHazard({}), at("use1-az6")
    for hour in range(3):
        model.observe(offers, NOW + timedelta(hours=hour), {pool})
    before = model.hazard_per_hour(pool)
    model.record_interruption(pool, NOW + timedelta(hours=2))
    learned = model.hazard_per_hour(pool)
    assert before is not None
    assert learned is not None
    assert "AWS Spot Advisor" in learned.source
    assert learned.source.startswith("1 interruptions in 2.0 h")
    assert learned.value > before.value


def test_quotas_and_past_prices_are_reported_through_ports(cloud: Cloud) -> None:
    priced(cloud)
    source = connect(ScaledClock(NOW, 1.0), {"regions": ["us-east-1"], "instance_types": KINDS})
    assert len(source.quotas(NOW)) == 7
    series = source.price_series("us-east-1", ["g6e.x*"], NOW)
    assert series == (PriceSeriesKey("aws", "us-east-1", "g6e.xlarge"),)
    changes = source.price_changes(series[0], NOW - timedelta(days=90), NOW)
    assert {(c.pool.zone, c.usd_per_hour) for c in changes} == {
        ("use1-az6", 0.8),
        ("use1-az1", 0.8),
    }
    listed = source.list_price(series[0], NOW)
    assert listed is not None
    assert listed.value == 2.0


def test_quotas_of_a_region_that_is_down_are_left_out(cloud: Cloud) -> None:
    cloud.faults.on("servicequotas", "*", fail, region="us-east-1")
    both = provider(("us-east-1", "us-west-2"))
    assert {quota.region for quota in both.quotas(NOW)} == {"us-west-2"}
    with pytest.raises(ProviderUnavailableError, match="us-east-1"):
        provider(("us-east-1",)).quotas(NOW)


@pytest.mark.parametrize(
    ("regions", "error", "said"),
    [
        (("us-esat-1",), BadRequestError, "AWS has no region 'us-esat-1'"),
        (("ap-east-1", "me-south-1"), ForbiddenError, "is not enabled in this account"),
    ],
)
def test_where_no_region_answers_it_is_an_error(
    cloud: Cloud, regions: tuple[str, ...], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        provider((*regions,)).offers(NOW)


def test_without_credentials_there_is_one_message(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    bare = connect(ScaledClock(NOW, 1.0), {"regions": ["us-east-1", "us-west-2"]})
    with pytest.raises(ForbiddenError, match="AWS credentials") as raised:
        bare.offers(NOW)
    assert "AWS_PROFILE" in str(raised.value)
    bare.close()


def test_expired_credentials_leave_the_last_prices_for_a_while(cloud: Cloud) -> None:
    priced(cloud)
    tired = provider()
    tired.offers(NOW)
    expired = refuse("RequestExpired", "Request has expired.", 400)
    cloud.faults.on("ec2", "*", expired)
    soon = by_pool(tuple(tired.offers(NOW + timedelta(hours=1))))[at("use1-az6")]
    assert soon.price_usd_per_hour is not None
    later = by_pool(tuple(tired.offers(NOW + timedelta(hours=3))))[at("use1-az6")]
    assert "credentials have expired" in later.unknown_because
