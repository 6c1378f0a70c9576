"""Screening: what may be used, and the reason where not."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta

import pytest

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.job import Resources
from costopt.domain.market import CapacityType, InstanceType, Pool
from costopt.domain.policy import Limits, Policy
from costopt.market.screening import screen_for_job, screen_offers, screen_outdated
from tests.support.optimize_fixtures import NOW, job, machine, machines_of, offer, pool

POLICY = Policy("p")


def priced(value: float, basis: Basis = Basis.MEASURED, age_s: float = 0.0) -> Estimate:
    return Estimate.exact(value, basis, "made up", NOW - timedelta(seconds=age_s))


def test_a_fresh_allowed_offer_passes() -> None:
    fine = offer(pool(), 3.0)
    assert screen_offers([fine], POLICY, NOW) == ((fine,), ())


def test_an_unknown_price_excludes() -> None:
    usable, (rejection,) = screen_offers(
        [replace(offer(pool(), 3.0), price_usd_per_hour=None)], POLICY, NOW
    )
    assert usable == ()
    assert rejection.code == "price_unknown"


def test_an_unknown_price_says_why_where_the_provider_does() -> None:
    unknown = replace(offer(pool(), 3.0), price_usd_per_hour=None, unknown_because="not enabled")
    _, (rejection,) = screen_offers([unknown], POLICY, NOW)
    assert (rejection.code, rejection.reason) == ("price_unknown", "not enabled")


def test_a_stale_price_excludes_and_says_its_age() -> None:
    old = replace(offer(pool(), 3.0), price_usd_per_hour=priced(3.0, age_s=7200))
    _, (rejection,) = screen_offers([old], POLICY, NOW)
    assert rejection.code == "price_stale"
    assert "2.0 h old" in rejection.reason
    assert "1.0 h" in rejection.reason


def test_a_price_just_within_the_limit_passes() -> None:
    edge = replace(offer(pool(), 3.0), price_usd_per_hour=priced(3.0, age_s=3600))
    assert screen_offers([edge], POLICY, NOW)[0] == (edge,)


def test_a_list_price_is_never_stale() -> None:
    listed = replace(offer(pool(), 3.0), price_usd_per_hour=priced(3.0, Basis.LISTED, 1e8))
    assert screen_offers([listed], POLICY, NOW)[0] == (listed,)


def test_catalogue_quotes_are_spared_on_request() -> None:
    quote = replace(offer(pool(), 3.0), price_usd_per_hour=priced(3.0, Basis.MODELLED, 1e8))
    assert screen_offers([quote], POLICY, NOW)[0] == ()
    assert screen_offers([quote], POLICY, NOW, check_age=False)[0] == (quote,)


def test_no_age_limit_allows_any_age() -> None:
    policy = Policy("p", limits=Limits(max_price_age_s=None))
    old = replace(offer(pool(), 3.0), price_usd_per_hour=priced(3.0, age_s=1e8))
    assert screen_offers([old], policy, NOW)[0] == (old,)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf])
def test_an_impossible_price_excludes(value: float) -> None:
    bad = replace(offer(pool(), 3.0), price_usd_per_hour=priced(value))
    usable, (rejection,) = screen_offers([bad], POLICY, NOW)
    assert usable == ()
    assert rejection.code == "price_invalid"


def test_the_policy_excludes_before_the_price_is_read() -> None:
    policy = Policy("p", limits=Limits(capacity_types=(CapacityType.ON_DEMAND,)))
    _, (rejection,) = screen_offers(
        [replace(offer(pool(), 3.0), price_usd_per_hour=None)], policy, NOW
    )
    assert rejection.code == "policy"
    assert "spot" in rejection.reason


def test_an_unknown_machine_excludes() -> None:
    _, (rejection,) = screen_for_job([offer(pool(), 3.0)], job(), {})
    assert rejection.code == "unknown_instance_type"


def test_resources_exclude() -> None:
    offers = [offer(pool(), 3.0)]
    wants = job(resources=Resources(gpu_models=("H100",)))
    _, (rejection,) = screen_for_job(offers, wants, machines_of(offers))
    assert rejection.code == "resources"
    assert "A100" in rejection.reason


def test_an_unknown_speed_excludes() -> None:
    offers = [offer(pool(), 3.0)]
    _, (rejection,) = screen_for_job(offers, job(points=[("H100", 8, 1.0)]), machines_of(offers))
    assert rejection.code == "throughput_unknown"


@pytest.mark.parametrize("speed", [0.0, -1.0, math.inf])
def test_an_impossible_speed_excludes(speed: float) -> None:
    offers = [offer(pool(), 3.0)]
    usable, (rejection,) = screen_for_job(
        offers, job(points=[("A100", 8, speed)]), machines_of(offers)
    )
    assert usable == ()
    assert rejection.code == "throughput_unknown"


def test_machines_may_be_a_catalogue() -> None:
    class Catalogue:
        def instance_type(self, pool: Pool) -> InstanceType | None:
            return machine() if pool.zone == "r1a" else None

    known, unknown = offer(pool("a"), 3.0), offer(pool("b"), 3.0)
    usable, (rejection,) = screen_for_job([known, unknown], job(), Catalogue())
    assert usable == (known,)
    assert rejection.pool == unknown.pool


@pytest.mark.parametrize(
    ("old_usd", "old_days", "fresh_usd", "fresh_days", "counts"),
    [
        (2.0, 500, 2.5, 0, False),
        (2.0, 500, 2.7, 0, True),
        (2.0, 20, 2.05, 0, True),
        (2.0, 130, 2.2, 120, True),
        (2.6, 500, 2.5, 0, True),
    ],
)
def test_an_old_spot_price_does_not_carry_the_choice_where_a_fresher_one_is_within_its_error(
    old_usd: float, old_days: float, fresh_usd: float, fresh_days: float, counts: bool
) -> None:
    day_s = 86_400.0
    old = replace(
        offer(pool("a"), old_usd),
        price_usd_per_hour=priced(old_usd, Basis.LISTED, old_days * day_s),
    )
    fresh = replace(
        offer(pool("b"), fresh_usd),
        price_usd_per_hour=priced(fresh_usd, Basis.LISTED, fresh_days * day_s),
    )
    safe = replace(old, pool=pool("c", kind=CapacityType.ON_DEMAND))
    offers = (old, fresh, safe)
    usable, rejections = screen_outdated(offers, machines_of(offers), NOW)
    assert usable == (offers if counts else (fresh, safe))
    assert [each.code for each in rejections] == ([] if counts else ["price_outdated"])
