"""What an account pays: private prices, discounts and commitments, whatever their order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costopt.domain.account_price import CommitmentKind
from costopt.domain.commitments import Commitment, Discount, PoolPattern, PrivatePrice
from costopt.domain.estimate import Basis, Estimate, Series
from costopt.domain.fleet import Node, NodeState
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.domain.period import Period
from costopt.domain.price_terms import PriceTerms

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
P5 = Pool("aws", "us-east-1", "use1-az1", "p5.48xlarge", CapacityType.ON_DEMAND)
G6 = Pool("aws", "us-east-1", "use1-az2", "g6.xlarge", CapacityType.ON_DEMAND)
SPOT = P5.with_capacity_type(CapacityType.SPOT)
ANY_AWS = PoolPattern("aws")
NOVEMBER = Period(date(2026, 11, 1), date(2026, 11, 30))


def quoted(pool: Pool = P5, usd: float | None = 40.0, nodes: int | None = None) -> Offer:
    price = None if usd is None else Estimate.exact(usd, Basis.LISTED, "list", NOW)
    return Offer(pool, price, None, nodes)


def plan_of(usd: float = 100.0, **rates: float) -> Commitment:
    named = {("", name.replace("_", ".")): rate for name, rate in rates.items()}
    return Commitment(
        "sp", CommitmentKind.SAVINGS_PLAN, ANY_AWS, usd_per_hour=usd, rates=named, period=NOVEMBER
    )


def node_in(pool: Pool) -> Node:
    return Node("n", "me", "job", pool, "k", NodeState.RUNNING, NOW, 0.0)


def usd_of(offer: Offer) -> float:
    assert offer.price_usd_per_hour is not None
    return offer.price_usd_per_hour.value


def test_a_discount_lowers_the_listed_price_and_says_so() -> None:
    terms = PriceTerms(discounts=(Discount("edp", ANY_AWS, 12.0),))
    (offer,) = terms.offers([quoted()], (), NOW)
    assert usd_of(offer) == pytest.approx(35.2)
    assert offer.price_usd_per_hour is not None
    assert "listed $40.0000" in offer.price_usd_per_hour.source
    assert "edp, 12 %" in offer.price_usd_per_hour.source


def test_a_discount_never_makes_an_unknown_price_known() -> None:
    terms = PriceTerms(discounts=(Discount("edp", ANY_AWS, 12.0),))
    assert terms.offers([quoted(usd=None)], (), NOW) == (quoted(usd=None),)


def test_a_private_price_needs_no_listed_one_and_goes_before_discounts() -> None:
    own = PrivatePrice("deal", ANY_AWS, 20.0)
    terms = PriceTerms(prices=(own,), discounts=(Discount("edp", ANY_AWS, 12.0),))
    assert [usd_of(o) for o in terms.offers([quoted(), quoted(usd=None)], (), NOW)] == [20.0, 20.0]


def test_spot_is_left_alone_unless_it_is_named() -> None:
    terms = PriceTerms(discounts=(Discount("edp", ANY_AWS, 12.0),), commitments=(plan_of(),))
    assert terms.offers([quoted(SPOT)], (), NOW) == (quoted(SPOT),)


@pytest.mark.parametrize(("day", "usd"), [(31, 40.0), (1, 30.0), (30, 30.0)])
def test_dates_are_whole_days_of_utc(day: int, usd: float) -> None:
    at = datetime(2026, 10 if day == 31 else 11, day, 23, 59, tzinfo=UTC)
    terms = PriceTerms(discounts=(Discount("edp", ANY_AWS, 25.0, NOVEMBER),))
    assert usd_of(terms.offers([quoted()], (), at)[0]) == usd


def test_a_commitment_is_an_offer_that_adds_nothing_to_the_bill() -> None:
    terms = PriceTerms(commitments=(plan_of(100.0, p5_48xlarge=30.0),))
    listed, covered = terms.offers([quoted()], (), NOW)
    assert listed == quoted()
    assert usd_of(covered) == 0.0
    assert covered.nodes_available == 3
    assert covered.until_at == datetime(2026, 12, 1, tzinfo=UTC)
    assert covered.pool.uncommitted == P5
    assert covered.account_price is not None
    assert covered.account_price.committed_usd_per_hour == 30.0


def test_living_nodes_use_up_the_commitment_in_every_pool_that_it_covers() -> None:
    terms = PriceTerms(commitments=(plan_of(100.0, p5_48xlarge=30.0, g6_xlarge=10.0),))
    nodes = [node_in(P5.committed_to("sp"))] * 2
    found = terms.offers([quoted(), quoted(G6, 1.0)], nodes, NOW)
    assert {o.pool.uncommitted: o.nodes_available for o in found if o.pool.commitment} == {
        P5: 1,
        G6: 4,
    }


def test_a_commitment_below_one_node_covers_its_part() -> None:
    terms = PriceTerms(commitments=(plan_of(10.0, p5_48xlarge=25.0),))
    _, covered = terms.offers([quoted()], (), NOW)
    assert usd_of(covered) == pytest.approx(40.0 * 0.6)
    assert covered.nodes_available == 1


def test_nodes_of_a_commitment_that_has_ended_cost_what_others_do() -> None:
    terms = PriceTerms(commitments=(plan_of(100.0, p5_48xlarge=30.0),))
    later = NOW + timedelta(days=30)
    assert len(terms.offers([quoted()], (), later)) == 1
    _, ended = terms.offers([quoted()], [node_in(P5.committed_to("sp"))], later)
    assert (usd_of(ended), ended.nodes_available) == (40.0, 0)


def test_nodes_of_a_commitment_that_the_file_no_longer_has_cost_what_others_do() -> None:
    _, ended = PriceTerms().offers([quoted()], [node_in(P5.committed_to("sp"))], NOW)
    assert (usd_of(ended), ended.nodes_available) == (40.0, 0)


def test_a_private_price_does_not_age_with_the_list() -> None:
    terms = PriceTerms(prices=(PrivatePrice("deal", ANY_AWS, 20.0),))
    (offer,) = terms.offers([quoted()], (), NOW + timedelta(days=300))
    assert offer.price_usd_per_hour is not None
    assert offer.price_usd_per_hour.observed_at is None


def test_a_reservation_is_there_whatever_the_market_has() -> None:
    held = Commitment("odcr", CommitmentKind.RESERVATION, ANY_AWS, nodes=4)
    _, covered = PriceTerms(commitments=(held,)).offers([quoted(nodes=0)], (), NOW)
    assert covered.nodes_available == 4
    assert covered.account_price is not None
    assert covered.account_price.committed_usd_per_hour == 40.0


def test_what_the_provider_says_of_a_reservation_counts() -> None:
    held = Commitment("odcr", CommitmentKind.RESERVATION, ANY_AWS, nodes=4)
    own = quoted(P5.with_capacity_type(CapacityType.RESERVED), 0.0, 2)
    assert PriceTerms(commitments=(held,)).offers([quoted(), own], (), NOW) == (quoted(), own)


def test_a_bill_follows_the_terms_day_by_day() -> None:
    terms = PriceTerms(discounts=(Discount("edp", ANY_AWS, 25.0, NOVEMBER),))
    start, end = NOW, datetime(2026, 12, 2, tzinfo=UTC)
    billed = terms.bill_prices(P5, [(start, 40.0)], end)
    assert [(at, price.usd_per_hour) for at, price in billed] == [
        (start, 30.0),
        (datetime(2026, 12, 1, tzinfo=UTC), 40.0),
    ]


def test_a_forecast_knows_when_a_discount_ends() -> None:
    terms = PriceTerms(discounts=(Discount("edp", ANY_AWS, 25.0, NOVEMBER),))
    offers = terms.offers([quoted()], (), NOW)
    found = terms.forecasts({}, offers, NOW, NOW + timedelta(days=30))[P5]
    assert (found.at[1], found.values) == (datetime(2026, 12, 1, tzinfo=UTC), (30.0, 40.0))
    listed = Series((NOW,), (20.0,), "forecast")
    assert terms.forecasts({P5: listed}, offers, NOW, NOW + timedelta(days=1))[P5].values == (15.0,)


def test_without_terms_nothing_changes() -> None:
    offers = (quoted(), quoted(SPOT))
    assert PriceTerms().offers(offers, (), NOW) == offers
    assert PriceTerms().node(node_in(P5), P5) == node_in(P5)


FAR_APART = st.permutations(
    [
        Discount("p5", PoolPattern("aws", instance_types=("p5*",)), 12.0),
        Discount("g6", PoolPattern("aws", instance_types=("g6*",)), 30.0),
        Discount("later", ANY_AWS, 50.0, Period(date(2027, 1, 1))),
        Discount("gcp", PoolPattern("gcp"), 99.0),
    ]
)


@given(FAR_APART, st.floats(0.01, 500.0))
def test_the_order_of_rules_does_not_matter(rules: list[Discount], usd: float) -> None:
    offers = [quoted(usd=usd), quoted(G6, usd)]
    ordered = PriceTerms(discounts=tuple(sorted(rules, key=lambda rule: rule.name)))
    assert PriceTerms(discounts=tuple(rules)).offers(offers, (), NOW) == ordered.offers(
        offers, (), NOW
    )


@given(
    usd=st.floats(0.01, 500.0),
    percent=st.floats(0.1, 100.0),
    committed=st.floats(0.1, 1000.0),
    rate=st.floats(0.01, 500.0),
    living=st.integers(0, 5),
)
def test_no_price_is_below_zero_and_no_commitment_is_used_twice(
    usd: float, percent: float, committed: float, rate: float, living: int
) -> None:
    commitment = replace(plan_of(committed), rates={("", "p5.48xlarge"): rate})
    terms = PriceTerms(discounts=(Discount("edp", ANY_AWS, percent),), commitments=(commitment,))
    nodes = [node_in(P5.committed_to("sp"))] * living
    priced, covered = terms.offers([quoted(usd=usd)], nodes, NOW)
    assert 0 <= usd_of(covered) <= usd_of(priced) <= usd
    assert covered.nodes_available is not None
    load = commitment.load(P5)
    assert covered.nodes_available == 0 or (
        (living + covered.nodes_available) * load <= committed * (1 + 1e-6)
    )
