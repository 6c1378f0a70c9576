"""List prices: the API, else the public file, else a dated list; never a guess."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import urlopen

import pytest

from costopt.domain.errors import BadRequestError, ProviderUnavailableError
from costopt.domain.estimate import Basis, Estimate
from costopt_aws.capacity import SpotAdvisor
from costopt_aws.prices import (
    ListPrices,
    OnDemandPrices,
    PriceFile,
    PricingApi,
    read_price_file,
    read_products,
)
from tests.support.aws.clients import shared_clients
from tests.support.aws.cloud import Cloud
from tests.support.aws.overlay.call import Reply
from tests.support.aws.overlay.faults import throttle, unauthorized
from tests.support.aws.overlay.list_prices import ADVISOR, PRICE_FILES

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
OLD = Estimate.exact(9.9, Basis.LISTED, "a dated list", NOW - timedelta(days=300))


def chain(cloud: Cloud, dated: ListPrices | None = None) -> OnDemandPrices:
    return OnDemandPrices(
        PricingApi(shared_clients(1)), PriceFile(cloud.endpoint + PRICE_FILES), dated
    )


def test_the_api_is_asked_once_for_a_type_in_all_regions(cloud: Cloud) -> None:
    cloud.listed.page = 1
    cloud.listed.list("us-east-1", "p5.48xlarge", 55.04)
    cloud.listed.list("us-west-2", "p5.48xlarge", 56.0)
    cloud.listed.list("us-east-1", "g6e.xlarge", 1.861)
    prices = chain(cloud)
    east, why_not = prices.prices("us-east-1", ["p5.48xlarge", "g6e.xlarge"], NOW)
    assert {name: price.value for name, price in east.items()} == {
        "p5.48xlarge": 55.04,
        "g6e.xlarge": 1.861,
    }
    assert why_not == ""
    assert {price.source for price in east.values()} == {"AWS Pricing API"}
    asked = cloud.faults.calls["pricing", "GetProducts"]
    west, _ = prices.prices("us-west-2", ["p5.48xlarge"], NOW + timedelta(hours=20))
    assert west["p5.48xlarge"].value == 56.0
    assert west["p5.48xlarge"].observed_at == NOW
    assert cloud.faults.calls["pricing", "GetProducts"] == asked


@pytest.mark.parametrize("fault", [unauthorized, throttle])
def test_without_the_api_the_public_file_is_read(cloud: Cloud, fault: object) -> None:
    cloud.listed.list("us-east-1", "g6e.xlarge", 1.861)
    cloud.faults.on("pricing", "GetProducts", fault)  # type: ignore[arg-type]
    prices, why_not = chain(cloud).prices("us-east-1", ["g6e.xlarge", "g6e.2xlarge"], NOW)
    assert prices["g6e.xlarge"].value == 1.861
    assert prices["g6e.xlarge"].source == (
        "AWS price file of us-east-1, published 2026-11-14T10:00:00Z"
    )
    assert "g6e.2xlarge" not in prices
    assert "no list price is known" in why_not


def test_the_dated_list_comes_last_and_keeps_its_age(cloud: Cloud) -> None:
    cloud.faults.on("pricing", "GetProducts", unauthorized)
    asked: list[tuple[str, str, str]] = []

    def dated(provider: str, region: str, name: str) -> Estimate | None:
        asked.append((provider, region, name))
        return OLD if name == "g6e.xlarge" else None

    cloud.listed.in_file["us-east-1", "p5.48xlarge"] = 55.0
    names = ["p5.48xlarge", "g6e.xlarge", "g6e.2xlarge"]
    prices, _ = chain(cloud, dated).prices("us-east-1", names, NOW)
    assert prices["p5.48xlarge"].value == 55.0
    assert prices["g6e.xlarge"] == OLD
    assert "g6e.2xlarge" not in prices
    assert ("aws", "us-east-1", "p5.48xlarge") not in asked


def test_where_every_source_fails_the_reasons_are_reported(cloud: Cloud) -> None:
    cloud.faults.on("pricing", "GetProducts", unauthorized)
    api = PricingApi(shared_clients(1))
    nowhere = OnDemandPrices(api, PriceFile("http://127.0.0.1:9/none"))
    prices, why_not = nowhere.prices("us-east-1", ["g6e.xlarge"], NOW)
    assert prices == {}
    assert "pricing:GetProducts" in why_not
    assert "http://127.0.0.1:9/none/us-east-1/index.csv cannot be read" in why_not


def test_the_file_is_kept_on_disk_with_its_age(cloud: Cloud, tmp_path: Path) -> None:
    cloud.listed.list("us-east-1", "g6e.xlarge", 1.861)
    url = cloud.endpoint + PRICE_FILES
    first = PriceFile(url, tmp_path / "cache").price("us-east-1", "g6e.xlarge", NOW)
    cloud.listed.list("us-east-1", "g6e.xlarge", 2.0)
    later = PriceFile(url, tmp_path / "cache")
    assert later.price("us-east-1", "g6e.xlarge", NOW + timedelta(days=6)) == first
    fresh = PriceFile(url, tmp_path / "cache")
    renewed = fresh.price("us-east-1", "g6e.xlarge", NOW + timedelta(days=8))
    assert renewed is not None
    assert renewed.value == 2.0


def test_an_old_copy_bridges_an_outage_and_a_damaged_one_is_none(
    cloud: Cloud, tmp_path: Path
) -> None:
    cloud.listed.list("us-east-1", "g6e.xlarge", 1.861)
    PriceFile(cloud.endpoint + PRICE_FILES, tmp_path).price("us-east-1", "g6e.xlarge", NOW)
    down = "http://127.0.0.1:9"
    old = PriceFile(down, tmp_path).price("us-east-1", "g6e.xlarge", NOW + timedelta(days=30))
    assert old is not None
    assert old.observed_at == NOW
    with pytest.raises(ProviderUnavailableError):
        PriceFile(down, tmp_path).price("us-east-1", "g6e.xlarge", NOW + timedelta(days=91))
    (copy,) = tmp_path.iterdir()
    copy.write_text(copy.read_text(encoding="utf-8")[:40], encoding="utf-8")
    with pytest.raises(ProviderUnavailableError):
        PriceFile(down, tmp_path).price("us-east-1", "g6e.xlarge", NOW)


@pytest.mark.parametrize("at", [100, 700, 1200, -1, None])
def test_a_file_that_ends_too_soon_is_not_a_price_list(
    cloud: Cloud, tmp_path: Path, at: int | None
) -> None:
    for number in range(20):
        cloud.listed.list("us-east-1", f"g{number}.xlarge", 1.0 + number)
    whole = urlopen(f"{cloud.endpoint}{PRICE_FILES}/us-east-1/index.csv").read()
    row_end = whole.rindex(b"\n", 0, len(whole) // 2) + 1
    cloud.listed.cut_files_at = row_end if at is None else at
    with pytest.raises(ProviderUnavailableError, match=r"index\.csv"):
        PriceFile(cloud.endpoint + PRICE_FILES, tmp_path).price("us-east-1", "g0.xlarge", NOW)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "a,b\n" * 3, '"x","y"\n' * 9, "<html>not found</html>\n" * 9])
def test_what_is_not_a_price_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="columns"):
        read_price_file(io.StringIO(text))


def test_a_region_with_two_prices_has_none() -> None:
    def product(region: str, usd: str, unit: str = "Hrs") -> dict[str, object]:
        dimension = {"unit": unit, "pricePerUnit": {"USD": usd}}
        return {
            "product": {"attributes": {"regionCode": region}},
            "terms": {"OnDemand": {"t": {"priceDimensions": {"d": dimension}}}},
        }

    reported: list[dict[str, object]] = [
        product("a", "1.5"),
        product("a", "1.5000"),
        product("b", "1"),
        product("b", "2"),
        product("c", "0.0"),
        product("d", "3", unit="Quantity"),
        {"product": {"attributes": {}}},
    ]
    assert read_products(reported) == {"a": 1.5}


def test_buckets_become_priors_by_their_labels(cloud: Cloud) -> None:
    cloud.listed.list("us-east-1", "g6e.xlarge", 1.861, bucket=1)
    cloud.listed.list("us-east-1", "p5.48xlarge", 55.0, bucket=4)
    advisor = SpotAdvisor(cloud.endpoint + ADVISOR)
    calm = advisor.hazard_per_hour("us-east-1", "g6e.xlarge", NOW)
    rough = advisor.hazard_per_hour("us-east-1", "p5.48xlarge", NOW)
    assert calm is not None
    assert rough is not None
    assert calm.low < calm.value < calm.high
    assert calm.basis is Basis.PRIOR
    assert calm.observed_at == NOW
    assert calm.source == "AWS Spot Advisor: 5–10 % of instances interrupted in a month"
    assert rough.value > calm.value
    assert advisor.hazard_per_hour("us-east-1", "g6e.2xlarge", NOW) is None
    assert advisor.hazard_per_hour("mars-1", "g6e.xlarge", NOW) is None


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"<html/>", b'{"ranges": [], "spot_advisor": 3}', b'{"spot_advisor": {}}']
)
def test_an_advisor_that_says_nothing_leaves_the_hazard_unknown(cloud: Cloud, body: bytes) -> None:
    cloud.listed.advisor = body
    assert SpotAdvisor(cloud.endpoint + ADVISOR).hazard_per_hour("us-east-1", "x.y", NOW) is None


def test_an_unknown_label_is_not_a_bucket(cloud: Cloud) -> None:
    cloud.listed.advisor = (
        b'{"ranges": [{"index": 0, "label": "rarely", "max": 5}],'
        b'"spot_advisor": {"r": {"Linux": {"a.b": {"s": 1, "r": 0}, "c.d": {"s": 1, "r": 9}}}}}'
    )
    advisor = SpotAdvisor(cloud.endpoint + ADVISOR)
    assert advisor.hazard_per_hour("r", "a.b", NOW) is None
    assert advisor.hazard_per_hour("r", "c.d", NOW) is None


def test_only_web_addresses_are_fetched() -> None:
    with pytest.raises(BadRequestError, match="web address"):
        PriceFile("file:///etc").price("us-east-1", "g6e.xlarge", NOW)


def test_products_that_cannot_be_read_leave_the_file(cloud: Cloud) -> None:
    cloud.listed.list("us-east-1", "g6e.xlarge", 1.861)
    cloud.faults.on(
        "pricing", "GetProducts", lambda call, forward: Reply.json({"PriceList": ['{"terms": 1}']})
    )
    prices, _ = chain(cloud).prices("us-east-1", ["g6e.xlarge"], NOW)
    assert prices["g6e.xlarge"].source.startswith("AWS price file")
