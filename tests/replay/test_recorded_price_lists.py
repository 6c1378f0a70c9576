"""The parsers over excerpts of the real public price lists."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.catalog import load_catalog
from costopt.catalog.price_cache import Edition
from costopt.prices.aws_public import parse_spot_feed
from costopt.prices.checks import NewList, PriceChecks
from costopt.prices.price_list import ParsedPrices
from costopt.prices.skypilot import parse_skypilot_aws
from costopt.prices.sources import list_sources

NOW = datetime(2026, 11, 22, tzinfo=UTC)
KNOWN = load_catalog()


def excerpt(name: str) -> bytes:
    folder = os.environ.get("COSTOPT_DATA")
    if not folder:
        pytest.skip("COSTOPT_DATA names no folder with the recorded lists")
    return (Path(folder) / "prices" / name).read_bytes()


def checked(name: str, file: ParsedPrices) -> PriceChecks:
    source = next(each for each in list_sources() if each.name == name)
    edition = Edition(name, "", "", NOW, True, NOW, 0, "")
    checks = PriceChecks(KNOWN, [NewList(source, file, edition, {})], ())
    checks.run()
    return checks


def test_skypilots_list_of_aws() -> None:
    found = parse_skypilot_aws(excerpt("aws_vms_excerpt.csv"), KNOWN)
    checks = checked("skypilot-aws", found)
    figures = {str(each.pool): (each.usd_per_hour, each.note) for each in checks.quotes}
    assert figures["aws/us-east-2/use2-az1/p5.48xlarge/spot"] == (11.2543, "")
    assert figures["aws/us-east-1/use1-az1/p5.48xlarge/spot"] == (55.04, "no discount")
    assert figures["aws/eu-south-2/eus2-az2/p5en.48xlarge/spot"] == (6.836, "")
    assert figures["aws/us-east-2/use2-az3/p5e.48xlarge/spot"] == (18.7359, "")
    assert not [pool for pool in figures if "use1-atl2" in pool or "g7e" in pool]
    assert not checks.held


def test_awss_spot_feed() -> None:
    body = excerpt("spot_js_excerpt.js").replace(b"LAST-REGION-OF-THE-FILE", b"us-west-2")
    checks = checked("aws-spot", parse_spot_feed(body, KNOWN))
    figures = {each.pool.instance_type: each.usd_per_hour for each in checks.quotes}
    assert figures["p5.48xlarge"] == 19.9678
    assert figures["p6-b200.48xlarge"] == 40.7895
    assert {pool.region for pool in parse_spot_feed(body, KNOWN).prices} == {"us-west-2"}
