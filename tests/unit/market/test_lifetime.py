"""How long capacity lasts, learned by its age, and fitted to records."""

from __future__ import annotations

import json
import random
from collections.abc import Hashable
from datetime import timedelta

import pytest

from benchmarks.fit_lifetime import FROM_H, fit
from costopt.market.lifetime import (
    JOINT_PACES,
    LONE_PACES,
    PRIOR_ENDINGS,
    UNKNOWN_AGE_H,
    AgeRates,
    LifetimeModel,
    prior_rates,
)
from tests.support.market_fixtures import T0

PRIOR = AgeRates((0.0, 1.0), (2.0, 0.5), (1.0, 0.2))


TICK_H = 0.1


def _watch(lifetimes: LifetimeModel, ups: str, key: Hashable = "a", region: str = "r") -> None:
    """One look per tick; "1" is capacity."""
    for tick, up in enumerate(ups):
        lifetimes.observe(key, region, up == "1", T0 + timedelta(hours=TICK_H * tick))


def test_the_recorded_rates_fall_with_age() -> None:
    rates = prior_rates()
    assert rates.from_h[0] == 0.0
    for per_hour in (rates.up_per_hour, rates.down_per_hour):
        assert len(per_hour) == len(rates.from_h)
        assert per_hour[0] > 5 * per_hour[-1] > 0


def test_what_was_never_seen_has_the_priors_rates() -> None:
    assert LifetimeModel(PRIOR).rates("a") == PRIOR


@pytest.mark.parametrize(("age_h", "of_age"), [(0.0, 0), (0.99, 0), (1.0, 1), (50.0, 1)])
def test_classes_begin_at_their_ages(age_h: float, of_age: int) -> None:
    assert PRIOR.class_at(age_h) == of_age


def test_an_ending_counts_at_the_age_at_which_it_came() -> None:
    """Of a period whose beginning nobody saw the age is assumed to be an hour."""
    lifetimes = LifetimeModel(PRIOR, memory_h=1e9)
    _watch(lifetimes, "0" + "1" * 5 + "0")
    rates = lifetimes.rates("a")
    assert rates.up_per_hour[0] == pytest.approx(
        (PRIOR_ENDINGS + 1) / (PRIOR_ENDINGS / 2.0 + 5 * TICK_H)
    )
    assert rates.up_per_hour[1] == PRIOR.up_per_hour[1]
    assert rates.down_per_hour[0] == PRIOR.down_per_hour[0]
    assert rates.down_per_hour[1] == pytest.approx(
        (PRIOR_ENDINGS + 1) / (PRIOR_ENDINGS / 0.2 + TICK_H)
    )


def test_age_is_counted_from_the_change() -> None:
    lifetimes = LifetimeModel(PRIOR)
    _watch(lifetimes, "00")
    assert lifetimes.age_h("a") == pytest.approx(1.0 + TICK_H)
    _watch(lifetimes, "00" + "1" * 4)
    assert lifetimes.age_h("a") == pytest.approx(3 * TICK_H)


def test_a_gap_makes_the_age_unknown() -> None:
    lifetimes = LifetimeModel(PRIOR)
    _watch(lifetimes, "01")
    lifetimes.observe("a", "r", up=True, now=T0 + timedelta(hours=30))
    assert lifetimes.age_h("a") == 1.0


def test_a_second_look_at_one_instant_counts_once() -> None:
    once, twice = LifetimeModel(PRIOR), LifetimeModel(PRIOR)
    _watch(once, "011")
    _watch(twice, "011")
    twice.observe("a", "r", up=False, now=T0 + timedelta(hours=2 * TICK_H))
    assert once.rates("a") == twice.rates("a")


def test_zones_of_a_region_learn_from_each_other() -> None:
    flicker = "01" * 200
    lifetimes = LifetimeModel(PRIOR)
    _watch(lifetimes, flicker, "a", "r")
    _watch(lifetimes, "1" * 3, "b", "r")
    _watch(lifetimes, "1" * 3, "c", "elsewhere")
    near, far = lifetimes.rates("b"), lifetimes.rates("c")
    assert near.up_per_hour[0] > 2 * PRIOR.up_per_hour[0]
    assert not far.differs(PRIOR, 1.05)
    assert lifetimes.rates("a").up_per_hour[0] > near.up_per_hour[0] * 0.9


def test_of_gangs_of_several_sizes_each_other_pool_counts_once() -> None:
    flicker = "01" * 60
    alone, many = LifetimeModel(PRIOR), LifetimeModel(PRIOR)
    for lifetimes, sizes in ((alone, (2,)), (many, (1, 2, 3, 4))):
        for nodes in sizes:
            _watch(lifetimes, flicker, ("job", "near", nodes))
            _watch(lifetimes, "111", ("job", "here", nodes))
    assert many.rates(("job", "here", 2)) == alone.rates(("job", "here", 2))
    assert alone.rates(("job", "here", 2)).up_per_hour[0] > 1.2 * PRIOR.up_per_hour[0]


def test_what_was_seen_fades() -> None:
    flicker, calm = "01" * 200, "0" + "1" * 2000
    lasting, fading = LifetimeModel(PRIOR, memory_h=1e9), LifetimeModel(PRIOR, memory_h=10.0)
    for lifetimes in (lasting, fading):
        _watch(lifetimes, flicker + calm)
    assert fading.rates("a").up_per_hour[0] < 0.6 * lasting.rates("a").up_per_hour[0]


def _probabilities(lifetimes: LifetimeModel, *keys: Hashable) -> list[float]:
    return [probability for probability, _ in lifetimes.scenarios(keys)]


def test_a_pool_that_comes_and_goes_often_is_believed_to_be_fast() -> None:
    lifetimes = LifetimeModel(PRIOR)
    beforehand = _probabilities(lifetimes, "a")
    _watch(lifetimes, "01" * 20, "a", "r")
    _watch(lifetimes, "1" * 200, "b", "elsewhere")
    slow, fast = _probabilities(lifetimes, "b"), _probabilities(lifetimes, "a")
    assert beforehand[-1] == pytest.approx(LONE_PACES[-1][-1])
    assert sum(slow) == pytest.approx(1.0) == sum(fast)
    assert slow[-1] < beforehand[-1] < fast[-1]


def test_several_pools_that_go_often_and_stay_away_are_believed_to() -> None:
    lifetimes = LifetimeModel(PRIOR)
    keys = ("a", "b")
    beforehand = _probabilities(lifetimes, *keys)
    for key in keys:
        _watch(lifetimes, "10000000" * 20, key)
    assert beforehand == pytest.approx([probability for *_, probability in JOINT_PACES])
    assert _probabilities(lifetimes, *keys)[-1] > beforehand[-1]
    (_, as_prior), (_, shorter) = lifetimes.scenarios(keys)
    for its, faster in zip(as_prior, shorter, strict=True):
        assert its.up_per_hour[-1] < faster.up_per_hour[-1]
        assert its.down_per_hour == pytest.approx(faster.down_per_hour)


def test_what_gangs_of_one_pool_have_seen_counts_once() -> None:
    lifetimes = LifetimeModel(PRIOR)
    keys = [("job", "pool", nodes) for nodes in (1, 2)]
    for key in keys:
        _watch(lifetimes, "01" * 20, key)
    assert _probabilities(lifetimes, *keys) == _probabilities(lifetimes, keys[0])


def test_a_scenario_has_the_posterior_of_its_prior() -> None:
    lifetimes = LifetimeModel(PRIOR)
    _watch(lifetimes, "01" * 20)
    same, faster = (rates for _, (rates,) in lifetimes.scenarios(["a"]))
    known = lifetimes.rates("a")
    assert same.up_per_hour == pytest.approx(known.up_per_hour)
    assert same.down_per_hour == pytest.approx(known.down_per_hour)
    assert same.up_per_hour[0] < faster.up_per_hour[0] < 2 * same.up_per_hour[0]
    assert faster.up_per_hour[-1] == pytest.approx(2 * same.up_per_hour[-1])


def test_rates_differ_by_a_factor() -> None:
    other = AgeRates(PRIOR.from_h, (2.0, 0.5), (1.0, 0.25))
    assert PRIOR.differs(other, 1.2)
    assert not PRIOR.differs(other, 1.3)


def test_what_was_seen_is_known_again_to_the_last_digit() -> None:
    lifetimes = LifetimeModel(PRIOR)
    for at, up in enumerate([True, True, False, True, False, False]):
        now = T0 + timedelta(hours=0.3 * at)
        lifetimes.observe(("job", "pool", 1), "aws/here", up, now)
        lifetimes.observe(("job", "other", 2), "aws/here", not up, now)
    again = LifetimeModel(PRIOR)
    again.from_json(json.loads(json.dumps(lifetimes.to_json())))
    assert again == lifetimes
    for each in (again, lifetimes):
        each.observe(("job", "pool", 1), "aws/here", True, T0 + timedelta(hours=2))
    assert again == lifetimes


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("age_h", -1.0),
        ("up_h", float("nan")),
        ("watched_h", "much"),
        ("seen_at", "2023-01-01T00:00:00"),
        ("endings", [[0.0], [0.0]]),
        ("colour", "red"),
    ],
)
def test_other_data_is_refused_and_nothing_of_it_recalled(name: str, value: object) -> None:
    lifetimes = LifetimeModel(PRIOR)
    lifetimes.observe(("job", "pool", 1), "aws/here", True, T0)
    lifetimes.observe(("job", "other", 1), "aws/here", True, T0)
    plain = lifetimes.to_json()
    plain[1][1][name] = value
    again = LifetimeModel(PRIOR)
    with pytest.raises((ValueError, KeyError, TypeError)):
        again.from_json(plain)
    assert again == LifetimeModel(PRIOR)


def test_a_pool_that_many_jobs_watch_counts_once() -> None:
    alone, many = LifetimeModel(PRIOR), LifetimeModel(PRIOR)
    _watch(alone, "1100110" * 10, ("one", "there", 1))
    for job in ("one", "two", "three"):
        _watch(many, "1100110" * 10, (job, "there", 1))
    for lifetimes in (alone, many):
        lifetimes.observe(("me", "here", 1), "r", True, T0)
    assert many.rates(("me", "here", 1)) == alone.rates(("me", "here", 1)) != PRIOR


def test_what_is_no_longer_watched_is_forgotten_but_for_what_others_begin_from() -> None:
    all_kept, lifetimes = LifetimeModel(PRIOR), LifetimeModel(PRIOR)
    for each in (all_kept, lifetimes):
        _watch(each, "1100110", ("short", "there", 1))
        _watch(each, "1100110" * 10, ("long", "there", 1))
    lifetimes.forget(T0 + timedelta(hours=lifetimes.memory_h))
    assert lifetimes == all_kept
    lifetimes.forget(T0 + timedelta(hours=lifetimes.memory_h + 7))
    assert [key for key, _ in lifetimes.to_json()] == [("long", "there", 1)]
    for each in (all_kept, lifetimes):
        each.observe(("me", "here", 1), "r", True, T0)
    assert lifetimes.rates(("me", "here", 1)) == all_kept.rates(("me", "here", 1)) != PRIOR


def test_an_excerpt_knows_pools_as_any_job_saw_them_and_changes_nothing() -> None:
    lifetimes = LifetimeModel()
    for pool, ups in (("a", "1110"), ("b", "1111")):
        _watch(lifetimes, ups, ("job", pool, 4))
    now = T0 + timedelta(hours=0.5)
    own, elsewhere, unknown = ("", "a", 2), ("", "b", 4), ("", "c", 1)
    copied = lifetimes.excerpt([own, elsewhere, unknown], now)
    assert [copied.knows(key) for key in (own, elsewhere, unknown)] == [True, True, False]
    assert copied.rates(own) == lifetimes.rates(("job", "a", 4))
    assert copied.age_h(elsewhere) == lifetimes.age_h(("job", "b", 4))
    assert (copied.is_up(own, now), copied.is_up(elsewhere, now)) == (False, True)
    assert copied.is_up(unknown, now) is None
    before = lifetimes.to_json()
    copied.observe(own, "r", True, now + timedelta(minutes=10))
    assert lifetimes.to_json() == before


def test_what_an_excerpt_has_not_seen_for_long_is_of_unknown_age() -> None:
    lifetimes = LifetimeModel()
    _watch(lifetimes, "111111", ("job", "a", 1))
    now = T0 + timedelta(hours=5)
    copied = lifetimes.excerpt([("", "a", 1)], now)
    assert copied.is_up(("", "a", 1), now) is None
    assert copied.age_h(("", "a", 1)) == UNKNOWN_AGE_H


def test_the_rates_of_a_made_up_record_are_found() -> None:
    """Periods end at 1.2 per hour while they are young, and at 0.2 per hour from an hour on."""
    draw, up, age_h, tick_h = random.Random(7), [0], 0.0, 0.05
    for _ in range(60_000):
        ends = draw.random() < tick_h * (1.2 if age_h < 1.0 - 1e-9 else 0.2)
        up.append(1 - up[-1] if ends else up[-1])
        age_h = 0.0 if ends else age_h + tick_h
    rates = fit([(up, 3600 * tick_h)])
    for of_age, from_h in enumerate(FROM_H[:5]):
        expected = 1.2 if from_h < 1.0 else 0.2
        assert rates.up_per_hour[of_age] == pytest.approx(expected, rel=0.15)
        assert rates.down_per_hour[of_age] == pytest.approx(expected, rel=0.15)
