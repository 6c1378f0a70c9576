"""What Compute Engine offers, at what price and risk, and what the project may have."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from costopt.domain.errors import BadRequestError, ForbiddenError, ProviderError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.provider.base import PriceSeriesKey
from costopt_gcp.capacity import DailyPreemptions, hazard_from_shares
from costopt_gcp.machine_types import MachineShape
from costopt_gcp.quotas import read_quotas
from tests.support.gcp.account import ELSEWHERE, EMPTY, OTHER_REGION, REGION, SPOT, TYPE, NewAccount
from tests.support.gcp.faults import fail, unauthorized
from tests.support.optimize_fixtures import machine


def offers(project: NewAccount, **options: object) -> dict[Pool, Offer]:
    provider = project.connect(None, **options)
    return {offer.pool: offer for offer in provider.offers(project.clock.now())}


def days(project: NewAccount, *shares: float) -> list[DailyPreemptions]:
    now = project.clock.now()
    return [DailyPreemptions(now + timedelta(days=i), share) for i, share in enumerate(shares)]


def test_spot_prices_are_measured_and_on_demand_ones_listed(project: NewAccount) -> None:
    found = offers(project)
    spot = found[SPOT].price_usd_per_hour
    assert spot is not None
    assert spot.value == pytest.approx(0.25)
    assert spot.basis is Basis.MEASURED
    assert spot.age_s(project.clock.now()) == 0
    listed = found[SPOT.with_capacity_type(CapacityType.ON_DEMAND)].price_usd_per_hour
    assert listed is not None
    assert (listed.value, listed.basis) == (0.8, Basis.LISTED)


def test_a_price_is_asked_for_once_in_ten_minutes_and_region(project: NewAccount) -> None:
    provider = project.connect()
    for _ in range(3):
        provider.offers(project.clock.now())
        project.clock.sleep(120)
    # Two regions' prices and three zones' preemptions.
    assert project.cloud.faults.calls["advice.capacityHistory"] == 5
    project.clock.sleep(600)
    provider.offers(project.clock.now())
    assert project.cloud.faults.calls["advice.capacityHistory"] == 7


def test_types_are_chosen_by_wildcards_and_attached_gpus_by_name(project: NewAccount) -> None:
    found = offers(project, instance_types=["g2-*", "n1-standard-8+1xT4"])
    names = {pool.instance_type for pool in found}
    assert names == {"g2-standard-4", "g2-standard-48", "n1-standard-8+1xT4"}
    everything = {pool.instance_type for pool in offers(project, instance_types=[])}
    assert everything == {"g2-standard-4", "g2-standard-48", "a2-highgpu-1g"}


def test_a_type_that_is_not_sold_says_so(project: NewAccount) -> None:
    project.cloud.place.missing_types.add(("europe-west4-a", TYPE))
    found = offers(project)
    pool = Pool("gcp", OTHER_REGION, f"{OTHER_REGION}*", TYPE, CapacityType.SPOT)
    assert ELSEWHERE not in found
    assert found[pool].price_usd_per_hour is None
    assert found[pool].unknown_because == f"{OTHER_REGION} does not sell {TYPE}"


def test_without_google_s_price_the_dated_one_is_taken_and_is_old(project: NewAccount) -> None:
    old = project.clock.now() - timedelta(days=90)

    def dated(provider: str, region: str, instance_type: str) -> Estimate | None:
        return Estimate.exact(0.3, Basis.MODELLED, "the catalogue", old)

    project.cloud.faults.on("advice.capacityHistory", unauthorized, times=None)
    price = offers(project, spot_prices=dated)[SPOT].price_usd_per_hour
    assert price is not None
    assert (price.value, price.source, price.observed_at) == (0.3, "the catalogue", old)
    without = offers(project)[SPOT]
    assert without.price_usd_per_hour is None
    assert "compute.advice.capacityHistory" in without.unknown_because


def test_a_price_that_is_over_is_unknown(project: NewAccount) -> None:
    now = project.clock.now()
    past = (now - timedelta(days=9), now - timedelta(days=2), 0.25)
    project.cloud.place.spot[REGION, TYPE] = [past]
    found = offers(project)
    assert found[SPOT].price_usd_per_hour is None
    assert found[SPOT].unknown_because
    assert found[ELSEWHERE].price_usd_per_hour is not None


def test_a_region_that_fails_leaves_the_other(project: NewAccount) -> None:
    provider = project.connect(regions=[REGION, "mars-east1"])
    found = {offer.pool: offer for offer in provider.offers(project.clock.now())}
    assert found[SPOT].price_usd_per_hour is not None
    lost = Pool("gcp", "mars-east1", "mars-east1*", TYPE, CapacityType.SPOT)
    assert "no region 'mars-east1'" in found[lost].unknown_because
    project.cloud.faults.on("*", fail, times=None)
    with pytest.raises(ProviderError):
        project.connect().offers(project.clock.now())


def test_the_share_of_stops_becomes_a_wide_prior(project: NewAccount) -> None:
    """h = share ÷ mean stay, over stays from two hours to a week."""
    now = project.clock.now()
    hazard = hazard_from_shares(days(project, *[0.5] * 30), now)
    assert hazard is not None
    assert hazard.basis is Basis.PRIOR
    assert hazard.low == pytest.approx(0.5 / 168)
    assert hazard.value == pytest.approx(0.5 / (2 * 168) ** 0.5)
    assert hazard.high == pytest.approx(0.5 / 2)
    assert hazard_from_shares([], now) is None


def test_no_preemption_in_a_month_is_not_none_ever(project: NewAccount) -> None:
    hazard = hazard_from_shares(days(project, *[0.0] * 29), project.clock.now())
    assert hazard is not None
    assert (hazard.value, hazard.low) == (0, 0)
    assert hazard.high == pytest.approx(1 / 30 / 2)


def test_one_wild_day_widens_the_interval_and_not_more(project: NewAccount) -> None:
    calm = hazard_from_shares(days(project, *[0.1] * 20), project.clock.now())
    wild = hazard_from_shares(days(project, *[0.1] * 17, 1.0, 1.0, 1.0), project.clock.now())
    assert calm is not None
    assert wild is not None
    assert wild.low == calm.low
    assert wild.high > calm.high
    assert calm.value < wild.value < 10 * calm.value


def test_hazards_are_by_zone(project: NewAccount) -> None:
    project.cloud.place.shares[SPOT.zone, TYPE] = [0.2] * 30
    project.cloud.place.shares[EMPTY.zone, TYPE] = [0.9] * 30
    found = offers(project)
    calm, wild = found[SPOT].hazard_per_hour, found[EMPTY].hazard_per_hour
    assert calm is not None
    assert wild is not None
    assert wild.value == pytest.approx(4.5 * calm.value)
    assert found[ELSEWHERE].hazard_per_hour is None


def test_quotas_are_gpus_by_model_and_terms(project: NewAccount) -> None:
    project.cloud.place.limits["NVIDIA_T4_GPUS"] = 4
    found = {quota.name: quota for quota in project.provider.quotas(project.clock.now())}
    spot = found[f"PREEMPTIBLE_NVIDIA_L4_GPUS in {REGION}"]
    assert (spot.capacity_type, spot.gpu_model, spot.max_gpus) == (CapacityType.SPOT, "L4", 16)
    on_demand = found[f"NVIDIA_L4_GPUS in {REGION}"]
    assert (on_demand.capacity_type, on_demand.max_gpus) == (CapacityType.ON_DEMAND, 8)
    # Where no preemptible quota was granted, spot counts against the other.
    assert found[f"NVIDIA_T4_GPUS in {REGION}"].capacity_type is None
    everywhere = found["GPUS_ALL_REGIONS of project-1"]
    assert (everywhere.region, everywhere.max_gpus) == (None, 32)


def test_a3_mega_has_a_quota_of_its_own() -> None:
    limits = {"NVIDIA_H100_GPUS": 8.0, "PREEMPTIBLE_NVIDIA_H100_MEGA_GPUS": 16.0}
    high, mega = read_quotas(REGION, limits)
    for name, quota in {"a3-highgpu-8g": high, "a3-megagpu-8g": mega}.items():
        pool, h100 = replace(SPOT, instance_type=name), machine("H100-SXM5-80GB")
        assert [q for q in (high, mega) if q.matches(pool, h100)] == [quota]
    assert (high.max_gpus, mega.max_gpus) == (8, 16)


def test_past_prices_come_as_changes_of_every_zone(project: NewAccount) -> None:
    now = project.clock.now()
    for hours, usd in ((30, 0.4), (5, 0.5)):
        project.cloud.price("us-central1", "a2-highgpu-1g", usd, now - timedelta(hours=hours))
    provider = project.connect(instance_types=[])
    series = provider.price_series(REGION, ["a2-*"], now)
    assert series == (PriceSeriesKey("gcp", REGION, "a2-highgpu-1g"),)
    reported = provider.price_changes(series[0], now - timedelta(hours=20), now)
    assert {change.pool.zone for change in reported} == {"us-central1-a", "us-central1-b"}
    here = [(c.at, c.usd_per_hour) for c in reported if c.pool.zone == "us-central1-a"]
    assert here == [(now - timedelta(hours=30), 0.4), (now - timedelta(hours=5), 0.5)]


def test_a_missing_permission_is_named(project: NewAccount) -> None:
    project.cloud.faults.on("regions.get", unauthorized, times=None)
    with pytest.raises(ForbiddenError, match=r"may not compute\.regions\.get"):
        project.connect(regions=[REGION]).offers(project.clock.now())


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("a3-highgpu-8g", MachineShape("a3-highgpu-8g")),
        ("n1-standard-8+1xT4", MachineShape("n1-standard-8", "nvidia-tesla-t4", 1)),
        ("n1-standard-96+8xV100", MachineShape("n1-standard-96", "nvidia-tesla-v100", 8)),
    ],
)
def test_an_instance_type_s_name_says_what_is_asked_for(name: str, shape: MachineShape) -> None:
    assert MachineShape.parse(name) == shape


@pytest.mark.parametrize("name", ["p5.48xlarge", "n1-standard-8+1xH100", "", "A3"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(BadRequestError, match="not a machine type"):
        MachineShape.parse(name)


@pytest.mark.parametrize(
    "options",
    [
        {"regions": "us-central1"},
        {"regions": []},
        {"regions": ["us-central1-a"]},
        {"regions": ["us-central1"], "project": "My Project"},
        {"regions": ["us-central1"], "preemption_notice_s": 60},
        {"regions": ["us-central1"], "colour": "blue"},
        {"regions": ["us-central1"], "service_account": "me"},
        {"regions": ["us-central1"], "root_gib": 1},
        {"regions": ["us-central1"], "endpoint": "here"},
        {"regions": ["us-central1"], "instance_types": "g2-*"},
    ],
)
def test_wrong_options_are_named(options: dict[str, object]) -> None:
    from costopt_gcp.options import GcpOptions

    with pytest.raises(BadRequestError, match="costopt_gcp"):
        GcpOptions.parse(options)


def test_now_is_when_it_was_asked(project: NewAccount) -> None:
    provider = project.connect()
    asked_at: datetime = project.clock.now()
    provider.offers(asked_at)
    project.clock.sleep(300)
    (price,) = {
        offer.price_usd_per_hour
        for offer in provider.offers(project.clock.now())
        if offer.pool == SPOT
    }
    assert price is not None
    assert price.observed_at == asked_at
