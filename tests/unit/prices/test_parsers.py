"""Parsers of public lists: their wire forms, their traps, and forms that have changed."""

from __future__ import annotations

import json
import math
import zipfile
from datetime import UTC, datetime
from io import BytesIO

import pytest

from costopt.catalog import load_catalog
from costopt.domain.errors import PriceListError
from costopt.domain.market import CapacityType, Pool
from costopt.prices.aws_public import parse_advisor, parse_spot_feed
from costopt.prices.cyclenerd import parse_pricing
from costopt.prices.dstack import dstack_parser, unzip_member, version_day
from costopt.prices.price_list import Parse, ParsedPrices
from costopt.prices.skypilot import parse_skypilot_aws, skypilot_urls
from tests.support.price_lists import (
    ADVICE,
    DSTACK_AWS,
    DSTACK_GCP,
    DSTACK_HEADER,
    PRICING_YML,
    SKYPILOT_AWS,
    SKYPILOT_HEADER,
    SPOT,
    csv_text,
    skypilot_row,
    spot_feed,
    zipped,
)

KNOWN = load_catalog()
TERMS = (CapacityType.ON_DEMAND, CapacityType.SPOT)
DSTACK = dstack_parser("aws", TERMS)
PRICING = PRICING_YML.format(timestamp=1787198036).encode()


def prices(file: ParsedPrices) -> dict[str, float]:
    return {str(pool): usd for pool, usd in file.prices.items()}


def test_dstack_prices_are_by_region_and_terms() -> None:
    found = DSTACK(csv_text(DSTACK_HEADER, DSTACK_AWS), KNOWN)
    assert prices(found)["aws/us-east-2/us-east-2*/p5.48xlarge/spot"] == 11.2462
    assert prices(found)["aws/us-east-1/us-east-1*/g4dn.xlarge/on_demand"] == 0.526
    assert not [pool for pool in found.prices if pool.instance_type == "m5.large"]
    assert found.rows == len(found.prices) == 12


def test_dstack_zones_of_google_are_one_region() -> None:
    body = csv_text(DSTACK_HEADER, DSTACK_GCP)
    found = dstack_parser("gcp", (CapacityType.SPOT,))(body, KNOWN)
    assert prices(found) == {"gcp/us-central1/us-central1*/a3-highgpu-8g/spot": 26.83}
    assert found.rows == 2


def test_columns_are_found_by_name_whatever_their_order() -> None:
    body = b"spot,new,location,price,instance_name\nTrue,?,us-east-1,0.21,g4dn.xlarge\n"
    assert prices(DSTACK(body, KNOWN)) == {"aws/us-east-1/us-east-1*/g4dn.xlarge/spot": 0.21}


def test_skypilot_zones_are_zone_ids_without_local_zones() -> None:
    found = prices(parse_skypilot_aws(csv_text(SKYPILOT_HEADER, SKYPILOT_AWS), KNOWN))
    assert found["aws/us-east-2/use2-az1/p5.48xlarge/spot"] == 11.2462
    assert found["aws/us-west-2/us-west-2*/p5.48xlarge/on_demand"] == 55.04
    assert "aws/us-west-2/usw2-az2/p5.48xlarge/spot" not in found
    assert not [pool for pool in found if "atl2" in pool]


def test_skypilot_spot_without_a_list_price_is_kept() -> None:
    rows = [skypilot_row("p5e.48xlarge", "", "24.8", "us-east-2", "use2-az1")]
    found = prices(parse_skypilot_aws(csv_text(SKYPILOT_HEADER, rows), KNOWN))
    assert found == {"aws/us-east-2/use2-az1/p5e.48xlarge/spot": 24.8}


def test_the_version_of_skypilots_form_is_a_setting() -> None:
    assert all("/v9/aws/vms.csv" in url for url in skypilot_urls("v9"))


def test_the_spot_feed_has_names_of_its_own_for_regions_and_no_price_of_zero() -> None:
    found = prices(parse_spot_feed(spot_feed(SPOT), KNOWN))
    assert found == {
        "aws/us-east-1/us-east-1*/p5.48xlarge/spot": 19.9678,
        "aws/us-east-1/us-east-1*/p4d.24xlarge/spot": 8.9,
        "aws/us-east-1/us-east-1*/g4dn.xlarge/spot": 0.2104,
        "aws/us-east-2/us-east-2*/p5.48xlarge/spot": 11.5,
    }


def test_the_advisors_buckets_are_of_linux_and_of_machines_in_the_catalog() -> None:
    found = parse_advisor(json.dumps(ADVICE).encode(), KNOWN)
    assert found.buckets == {("us-east-2", "p5.48xlarge"): 3, ("us-east-1", "g4dn.xlarge"): 4}
    assert not found.prices


def test_the_calculators_prices_are_dated_and_of_regions_with_the_machine() -> None:
    found = parse_pricing(PRICING, KNOWN)
    assert found.observed_at == datetime(2026, 8, 20, 3, 53, 56, tzinfo=UTC)
    assert prices(found)["gcp/us-central1/us-central1*/a3-highgpu-8g/on_demand"] == 88.49
    assert prices(found)["gcp/us-central1/us-central1*/a2-highgpu-1g/spot"] == 1.293355
    assert not [p for p in found.prices if p.region in ("mars-north1", "africa-south1")]


def test_rows_of_one_pool_count_by_their_median() -> None:
    rows = [
        f"g4dn.xlarge,us-east-1{zone},{usd},True"
        for zone, usd in zip("abc", (3, 1, 2), strict=True)
    ]
    body = csv_text("instance_name,location,price,spot", rows)
    assert prices(DSTACK(body, KNOWN)) == {"aws/us-east-1/us-east-1*/g4dn.xlarge/spot": 2.0}


@pytest.mark.parametrize("text", ["nan", "NaN", "free", "1,0", "--"])
def test_what_is_not_a_number_is_nan_and_left_to_the_checks(text: str) -> None:
    body = f'instance_name,location,price,spot\ng4dn.xlarge,us-east-1,"{text}",True\n'.encode()
    assert all(math.isnan(usd) for usd in DSTACK(body, KNOWN).prices.values())


CSV = csv_text(SKYPILOT_HEADER, SKYPILOT_AWS)
BAD = {
    "empty": b"",
    "HTML page": b"<!DOCTYPE html><html><body>Sign in</body></html>",
    "not UTF-8": b"\xff\xfe" + CSV,
    "NUL": b"\0" * 100,
    "nested": b"[" * 100_000,
    "null": b"null",
    "list": b"[]",
    "number": b"3",
    "object": b"{}",
    "long line": b'a,"' + b"x" * 300_000,
}
PARSERS: dict[str, Parse] = {
    "dstack": DSTACK,
    "skypilot": parse_skypilot_aws,
    "spot feed": parse_spot_feed,
    "advisor": parse_advisor,
    "cyclenerd": parse_pricing,
}


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
def test_another_form_is_refused(name: str, body: bytes) -> None:
    with pytest.raises(PriceListError) as caught:
        PARSERS[name](body, KNOWN)
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("column", ["Price", "SpotPrice", "Region", "AvailabilityZone"])
def test_a_renamed_column_is_named(column: str) -> None:
    with pytest.raises(PriceListError, match=f"no column {column};"):
        parse_skypilot_aws(CSV.replace(column.encode(), b"Other", 1), KNOWN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"timestamp: 1787198036", b"stamp: 1"),
        (b"timestamp: 1787198036", b"timestamp: soon"),
        (b"timestamp: 1787198036", b"timestamp: 1e30"),
        (b"instance:", b"machines:"),
        (b"cost:", b"prices:"),
        (b"compute:", b"compute: *none"),
    ],
)
def test_a_changed_calculator_list_is_refused(old: bytes, new: bytes) -> None:
    with pytest.raises(PriceListError):
        parse_pricing(PRICING.replace(old, new), KNOWN)


def test_a_yaml_bomb_does_not_expand() -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 30)]
    found = parse_pricing(PRICING + "\n".join([*lines, ""]).encode(), KNOWN)
    assert found.prices


@pytest.mark.parametrize(
    "body",
    [b"", b"PK", b"<html>", zipped("other.csv", b"x"), zipped("aws.csv", b"x" * 999)[:60]],
    ids=["empty", "short", "HTML", "another file", "truncated"],
)
def test_another_or_a_truncated_zip_file_is_refused(body: bytes) -> None:
    with pytest.raises(PriceListError):
        unzip_member(body, "aws.csv", 1000)


def test_a_zip_bomb_is_cut_off() -> None:
    bomb = zipped("aws.csv", bytes(64 * 2**20))
    assert len(bomb) < 2**17
    with pytest.raises(PriceListError, match="larger than"):
        unzip_member(bomb, "aws.csv", 2**20)


def test_a_zip_file_that_lies_about_its_size_is_refused() -> None:
    body = bytearray(zipped("aws.csv", b"x" * 5000))
    with zipfile.ZipFile(BytesIO(body)) as archive:
        real = archive.getinfo("aws.csv").file_size.to_bytes(4, "little")
    lying = bytes(body).replace(real, (10).to_bytes(4, "little"))
    with pytest.raises(PriceListError):
        unzip_member(lying, "aws.csv", 10_000)


def test_a_version_is_dated_by_its_day() -> None:
    seen_at = datetime(2026, 11, 22, 20, 5, tzinfo=UTC)
    assert version_day("20261122-7", None) == datetime(2026, 11, 22, tzinfo=UTC)
    assert version_day("20261122-7", seen_at) == seen_at
    assert version_day("20261121-7", seen_at) == datetime(2026, 11, 21, tzinfo=UTC)
    assert version_day("", None) is None
    with pytest.raises(PriceListError):
        version_day("20261399-7", None)


def test_pools_are_of_the_catalog() -> None:
    found = DSTACK(csv_text(DSTACK_HEADER, DSTACK_AWS), KNOWN)
    assert Pool.parse("aws/us-east-2/us-east-2*/p5.48xlarge/spot") in found.prices
