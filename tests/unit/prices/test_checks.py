"""Checks of figures and files, and which source's figure counts."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from costopt.catalog import load_catalog
from costopt.catalog.price_cache import PriceQuote, SourceState
from costopt.domain.errors import PriceListError
from costopt.domain.market import Pool
from costopt.prices.checks import NewList, PriceChecks, check_file, choose_quotes
from costopt.prices.price_list import ParsedPrices
from costopt.prices.sources import list_sources
from tests.support.price_quotes import edition, quote

KNOWN = load_catalog()
SOURCES = {source.name: source for source in list_sources()}
REGIONS = ("us-east-1", "us-east-2", "us-west-2", "sa-east-1")
LISTED = "aws/us-east-1/us-east-1*/p5.48xlarge/on_demand"
SPOT = "aws/us-east-1/us-east-1*/p5.48xlarge/spot"
ZONE = "aws/us-east-1/use1-az1/p5.48xlarge/spot"
GCP = "gcp/us-central1/us-central1*/a3-highgpu-8g/"


def new_list(name: str, prices: dict[str, float], *before: PriceQuote) -> NewList:
    file = ParsedPrices({Pool.parse(pool): usd for pool, usd in prices.items()}, len(prices))
    return NewList(SOURCES[name], file, edition(name), {each.pool: each for each in before})


def checked(*lists: NewList, cached: tuple[PriceQuote, ...] = ()) -> PriceChecks:
    checks = PriceChecks(KNOWN, lists, cached)
    checks.run()
    return checks


def held_codes(checks: PriceChecks) -> dict[str, str]:
    return {str(each.pool): each.code for each in checks.held}


@pytest.mark.parametrize("usd", [math.nan, math.inf, -1.0, 0.0, 500.0, 700.0, 1e9])
def test_what_is_not_a_price_is_held_back(usd: float) -> None:
    checks = checked(new_list("dstack-aws", {SPOT: usd}))
    assert held_codes(checks) == {SPOT: "invalid"}
    assert not checks.quotes


@pytest.mark.parametrize("usd", [20.0, 120.0])
def test_a_list_price_far_off_its_types_median_is_held_back(usd: float) -> None:
    listed = {f"aws/{r}/{r}*/p5.48xlarge/on_demand": 55.04 for r in REGIONS[1:]}
    checks = checked(new_list("dstack-aws", {**listed, LISTED: usd}))
    assert held_codes(checks) == {LISTED: "median"}
    assert {str(each.pool) for each in checks.quotes} == set(listed)


def test_spot_far_below_the_list_price_is_held_back() -> None:
    checks = checked(new_list("dstack-aws", {LISTED: 55.04, SPOT: 4.0}))
    assert held_codes(checks) == {SPOT: "below_list"}
    assert not checked(new_list("dstack-aws", {LISTED: 55.04, SPOT: 5.504})).held


def test_spot_at_and_above_the_list_price_is_marked_and_capped() -> None:
    checks = checked(new_list("dstack-aws", {LISTED: 55.04, SPOT: 60.0, ZONE: 55.04}))
    figures = {str(each.pool): (each.usd_per_hour, each.note) for each in checks.quotes}
    assert figures[SPOT] == (55.04, "capped at the list price")
    assert figures[ZONE] == (55.04, "no discount")


def test_on_google_the_list_price_is_wrong_where_spot_costs_more() -> None:
    prices = {GCP + "on_demand": 33.60609, GCP + "spot": 43.9512}
    checks = checked(new_list("cyclenerd-gcp", prices))
    assert held_codes(checks) == {GCP + "on_demand": "below_spot"}
    assert [each.usd_per_hour for each in checks.quotes] == [43.9512]


def test_a_figure_far_off_the_one_before_is_held_back_and_that_one_stays() -> None:
    before = quote(SPOT, 11.0, age=timedelta(days=3))
    checks = checked(new_list("dstack-aws", {LISTED: 400.0 / 7, SPOT: 56.0}, before))
    (held,) = checks.held
    assert (held.code, held.kept) == ("changed", before)
    assert before in checks.quotes
    assert before.edition.observed_at < datetime.now(UTC) - timedelta(days=2)


def test_another_source_confirms_a_large_change() -> None:
    before = quote(SPOT, 5.0)
    lists = (new_list("dstack-aws", {SPOT: 30.0}, before), new_list("aws-spot", {SPOT: 28.0}))
    assert checked(lists[0]).held
    assert not [each for each in checked(*lists).held if each.source == "dstack-aws"]


def test_the_first_figure_is_held_against_other_sources_and_the_built_in_one() -> None:
    built_in = KNOWN.spot_price_usd_per_hour("aws", "us-east-1", "g4dn.xlarge")
    assert built_in is not None
    pool = "aws/us-east-1/us-east-1*/g4dn.xlarge/"
    lists = {pool + "on_demand": 20 * built_in.value, pool + "spot": 5.5 * built_in.value}
    checks = checked(new_list("dstack-aws", lists))
    assert held_codes(checks) == {pool + "on_demand": "changed", pool + "spot": "changed"}


def test_a_file_that_lacks_too_much_is_refused() -> None:
    types = [f"g4dn.{size}xlarge" for size in ("", 2, 4, 8, 12, 16)] + ["g5.xlarge", "p5.48xlarge"]
    pools = [Pool.parse(f"aws/us-east-1/us-east-1*/{name}/spot") for name in types]
    quotes = [quote(str(pool), 1.0) for pool in pools]
    before = SourceState("dstack-aws", edition(), rows=100)
    check_file(ParsedPrices(dict.fromkeys(pools, 1.0), 50), before, quotes)
    with pytest.raises(PriceListError, match="rows"):
        check_file(ParsedPrices(dict.fromkeys(pools, 1.0), 49), before, quotes)
    with pytest.raises(PriceListError, match=r"p5\.48xlarge"):
        check_file(ParsedPrices(dict.fromkeys(pools[:-1], 1.0), 100), before, quotes)


def chosen(*quotes: PriceQuote) -> set[tuple[str, str]]:
    picked, others = choose_quotes(quotes, list(SOURCES))
    assert {id(each) for each in (*picked, *others)} == {id(each) for each in quotes}
    return {(each.edition.source, each.pool.zone) for each in picked}


def test_zones_count_before_their_region_unless_a_day_older() -> None:
    region, hours = quote(SPOT, 1.0), timedelta(hours=20)
    assert chosen(region, quote(ZONE, 2.0, "skypilot-aws", hours)) == {("skypilot-aws", "use1-az1")}
    old = quote(ZONE, 2.0, "skypilot-aws", timedelta(hours=30))
    assert chosen(region, old) == {("dstack-aws", "us-east-1*")}


def test_sources_count_in_order_unless_a_day_older() -> None:
    witness = quote(SPOT, 1.0, "aws-spot", timedelta(0))
    assert chosen(witness, quote(SPOT, 2.0, age=timedelta(hours=20))) == {
        ("dstack-aws", "us-east-1*")
    }
    assert chosen(witness, quote(SPOT, 2.0, age=timedelta(days=2))) == {("aws-spot", "us-east-1*")}


def test_a_weekly_list_price_counts_for_thirty_days() -> None:
    weekly = quote(LISTED, 1.0, "dstack-aws", timedelta(days=8))
    assert chosen(quote(LISTED, 1.0, "skypilot-aws"), weekly) == {("dstack-aws", "us-east-1*")}
    older = replace(weekly.edition, observed_at=datetime.now(UTC) - timedelta(days=40))
    late = weekly._replace(edition=older)
    assert chosen(quote(LISTED, 1.0, "skypilot-aws"), late) == {("skypilot-aws", "us-east-1*")}
