"""Prices of machines from the SKUs of Cloud Billing, over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from costopt.domain.errors import ForbiddenError
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.market import CapacityType
from costopt_gcp.clients import Clients
from costopt_gcp.machine_types import MachineShape, MachineTypeInfo
from costopt_gcp.prices import GcePrices, SkuCatalog, node_usd_per_hour, part_of, read_skus
from tests.support.gcp.account import ELSEWHERE, REGION, SPOT, NewAccount
from tests.support.gcp.faults import fail, refuse, unauthorized
from tests.support.gcp.responses import Reply

ON_DEMAND = SPOT.with_capacity_type(CapacityType.ON_DEMAND)
"""0.02 × 4 vCPUs + 0.005 × 16 GiB + 1.56 for the L4; spot costs a quarter."""
G2_USD_PER_HOUR = 1.72
B200 = "A4 Nvidia B200 (1 gpu slice)"


def price(project: NewAccount, pool: object = ON_DEMAND, **options: object) -> Estimate | None:
    offers = project.connect(None, **options).offers(project.clock.now())
    return next(offer.price_usd_per_hour for offer in offers if offer.pool == pool)


def test_on_demand_costs_the_sum_of_its_parts_as_of_now(project: NewAccount) -> None:
    project.cloud.skus.g2(REGION)
    found = price(project)
    assert found is not None
    assert found.value == pytest.approx(G2_USD_PER_HOUR)
    assert (found.basis, found.source) == (Basis.LISTED, "Cloud Billing SKUs")
    assert found.observed_at == project.clock.now()
    elsewhere = price(project, ELSEWHERE.with_capacity_type(CapacityType.ON_DEMAND))
    assert elsewhere is not None
    assert elsewhere.source == "a list", "where no SKU is listed the catalogue counts"


def test_spot_prices_fall_back_to_the_skus_and_are_not_billed_on_demand(
    project: NewAccount,
) -> None:
    project.cloud.skus.g2(REGION)
    reported = price(project, SPOT)
    assert reported is not None
    assert reported.basis is Basis.MEASURED
    project.cloud.place.spot.clear()
    listed = price(project, SPOT)
    assert listed is not None
    assert listed.value == pytest.approx(G2_USD_PER_HOUR / 4)
    assert listed.source == "Cloud Billing SKUs"


@pytest.mark.parametrize("part", ["G2 Instance Core", "G2 Instance Ram", "Nvidia L4 GPU"])
def test_a_part_without_a_price_leaves_the_whole_unknown(project: NewAccount, part: str) -> None:
    skus = project.cloud.skus
    skus.g2(REGION)
    skus.all[:] = [sku for sku in skus.all if part not in sku["description"]]
    provider = project.connect(list_prices=lambda *_: None)
    (offer,) = (o for o in provider.offers(project.clock.now()) if o.pool == ON_DEMAND)
    assert offer.price_usd_per_hour is None
    assert part.lower() in offer.unknown_because
    fallback = price(project)
    assert fallback is not None
    assert fallback.source == "a list"


def test_a_list_that_is_none_is_an_answer_that_fails(project: NewAccount) -> None:
    project.cloud.faults.on("skus.list", lambda *_: Reply(["no object"]), times=None)
    found = price(project)
    assert found is not None
    assert found.source == "a list"


def test_the_list_is_asked_for_once_a_day_and_used_for_a_week(project: NewAccount) -> None:
    project.cloud.skus.g2(REGION)
    provider = project.connect()
    asked_at = project.clock.now()
    for _ in range(3):
        provider.offers(project.clock.now())
    assert project.cloud.faults.calls["skus.list"] == 3, "six SKUs are three pages"
    project.cloud.faults.on("skus.list", fail, times=None)
    for days, source in ((2, "Cloud Billing SKUs"), (6, "a list")):
        project.clock.sleep(days * 86400)
        offers = provider.offers(project.clock.now())
        (found,) = (o.price_usd_per_hour for o in offers if o.pool == ON_DEMAND)
        assert found is not None
        assert found.source == source
        assert source == "a list" or found.observed_at == asked_at


def test_an_api_that_is_not_enabled_is_named(project: NewAccount) -> None:
    skus = SkuCatalog(project.clients())
    project.cloud.faults.on("skus.list", unauthorized)
    with pytest.raises(ForbiddenError, match=r"cloudbilling\.services\.skus\.list"):
        skus.prices(project.clock.now())
    project.cloud.faults.on("skus.list", refuse("accessNotConfigured", 403))
    with pytest.raises(ForbiddenError) as refused:
        skus.prices(project.clock.now() + timedelta(hours=1))
    assert "gcloud services enable" in str(refused.value.hint)


def test_a_list_that_cannot_be_read_is_not_a_price(project: NewAccount) -> None:
    project.cloud.skus.all.append({"description": "G2 Instance Core running in Iowa"})
    found = price(project)
    assert found is not None
    assert found.source == "a list"


@pytest.mark.parametrize(
    ("description", "part"),
    [
        ("N1 Predefined Instance Core running in Americas", "n1 predefined instance core"),
        ("Spot Preemptible A3Plus Instance Ram running in Tokyo", "a3plus instance ram"),
        ("Nvidia Tesla T4 GPU attached to VMs running in Iowa", "nvidia tesla t4 gpu"),
        ("Nvidia Tesla A100 80GB GPU attached to Spot Preemptible VMs running in Iowa",
         "nvidia tesla a100 80gb gpu"),
        ("NVIDIA L4 GPU attached to Spot VMs running in us-east1", "nvidia l4 gpu"),
        ("SSD backed Local Storage in Hong Kong", "ssd backed local storage"),
        ("Commitment v1: G2 Core in Iowa for 1 Year", "commitment v1: g2 core"),
        ("DWS Defined Duration A3 Core running in Iowa", "a3 core"),
        ("Nvidia H100 80GB GPU attached to DWS Defined Duration VMs running in Iowa",
         "nvidia h100 80gb gpu"),
        ("N1 Custom Instance Core running in Iowa", "n1 custom instance core"),
    ],
)  # fmt: skip
def test_a_description_says_which_part_it_prices(description: str, part: str) -> None:
    assert part_of(description) == part


def test_only_one_price_in_dollars_counts(project: NewAccount) -> None:
    skus = project.cloud.skus
    skus.add("A2 Instance Core running in Iowa", "OnDemand", 0.03, REGION)
    skus.add("A2 Instance Core running in Iowa", "OnDemand", 0.04, REGION)
    skus.add("A2 Instance Ram running in Iowa", "OnDemand", 0.0, REGION)
    skus.add("Nvidia L4 GPU running in Iowa", "OnDemand", 0.5, REGION, currency="EUR")
    skus.add("G2 Instance Core running in Iowa", "Commit1Yr", 0.01, REGION)
    skus.add("A4 Nvidia B200 (1 gpu slice) running in Iowa", "OnDemand", 16.11, REGION)
    skus.add(f"Spot Preemptible {B200} running in Iowa", "OnDemand", 4.95, REGION)
    skus.add(f"Spot Preemptible {B200} running in Iowa", "Commit1Yr", 4.0, REGION)
    skus.add("G2 Instance Ram running in Iowa", "OnDemand", 0.01, REGION)
    skus.all[-1]["pricingInfo"][0]["pricingExpression"]["tieredRates"] *= 2
    found = read_skus(skus.all)
    assert found == {
        (B200.lower(), CapacityType.ON_DEMAND, REGION): 16.11,
        (B200.lower(), CapacityType.SPOT, REGION): 4.95,
    }


def test_b200_is_priced_by_its_part_of_the_whole_machine() -> None:
    prices = {(B200.lower(), CapacityType.SPOT, REGION): 4.95}
    a4 = MachineTypeInfo("a4-highgpu-8g", 224, 3968, "nvidia-b200", 8, ssd_partitions=32)
    shape = MachineShape.parse(a4.name)
    assert node_usd_per_hour(prices, REGION, shape, a4, CapacityType.SPOT) == (39.6, "")


@pytest.mark.parametrize("name", ["a3-highgpu-1g", "a3-ultragpu-8g", "a4-highgpu-8g"])
def test_what_google_rents_on_other_terms_alone_has_no_price_on_demand(name: str) -> None:
    listed = Estimate.exact(9.0, Basis.LISTED, "a list")
    skus: Any = SimpleNamespace(node=lambda *_: (listed, ""))
    prices = GcePrices(cast("Clients", None), skus, None, None)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    price, why_not = prices.on_demand(REGION, name, now)
    assert price is None
    assert "does not rent" in why_not
    assert prices.on_demand(REGION, "a3-highgpu-8g", now) == (listed, "")


def test_attached_gpus_and_bundled_disks_are_charged_for() -> None:
    terms = CapacityType.SPOT
    listed = {
        "n1 predefined instance core": 0.01,
        "n1 predefined instance ram": 0.001,
        "nvidia tesla t4 gpu": 0.1,
        "a2 instance core": 0.01,
        "a2 instance ram": 0.001,
        "nvidia tesla a100 80gb gpu": 1.0,
        "ssd backed local storage": 0.04,
    }
    prices = {(part, terms, REGION): usd for part, usd in listed.items()}
    n1 = MachineTypeInfo("n1-standard-8", 8, 30, None, 0)
    shape = MachineShape.parse("n1-standard-8+2xT4")
    assert node_usd_per_hour(prices, REGION, shape, n1, terms)[0] == pytest.approx(
        0.08 + 0.03 + 0.2
    )
    a2 = MachineTypeInfo("a2-ultragpu-1g", 12, 170, "nvidia-a100-80gb", 1, ssd_partitions=1)
    whole = node_usd_per_hour(prices, REGION, MachineShape.parse("a2-ultragpu-1g"), a2, terms)[0]
    assert whole == pytest.approx(0.12 + 0.17 + 1.0 + 375 * 0.04 / 730)
