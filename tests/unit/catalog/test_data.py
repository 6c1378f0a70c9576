"""The shipped tables: complete, consistent, sourced, and true to the recorded facts."""

from __future__ import annotations

import csv
import os
from collections import defaultdict
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median, median_low

import pytest

import costopt.catalog
from costopt.catalog import find_traits, load_catalog
from costopt.catalog.csv_table import parse_number, read_table
from costopt.catalog.tables import read_list_prices, read_spot_quotes
from costopt.domain.errors import CatalogError
from costopt.domain.hazards import InterruptionBucket, hazard_from_interruption_bucket
from costopt.domain.market import CapacityType, Pool
from costopt.domain.transfers import volume_usd_per_hour, with_root_volumes

TABLES = (
    "embodied",
    "instance_types",
    "regions",
    "list_prices",
    "spot_quotes",
    "storage_prices",
    "transfer_prices",
    "power_caps",
    "training_times",
    "upkeep",
    "providers",
)
KEYS = {
    "embodied": ("provider", "instance_type"),
    "instance_types": ("provider", "instance_type"),
    "regions": ("provider", "region"),
    "list_prices": ("provider", "region", "instance_type"),
    "spot_quotes": ("provider", "region", "instance_type"),
    "storage_prices": ("provider", "region"),
    "transfer_prices": ("from", "to"),
    "power_caps": ("gpu_model", "cap_w"),
    "training_times": ("gpu_model", "benchmark"),
    "upkeep": ("provider", "setup", "part"),
    "providers": ("provider",),
}
SEEN_AT = datetime(2025, 6, 28, tzinfo=UTC)


def recorded(name: str) -> list[dict[str, str]]:
    folder = os.environ.get("COSTOPT_DATA")
    if not folder:
        pytest.skip("COSTOPT_DATA names no folder with the recorded facts")
    with (Path(folder) / name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", TABLES)
def test_every_row_has_a_source_and_a_key_of_its_own(name: str) -> None:
    rows = read_table(name)
    assert all(row["source"].strip() for row in rows)
    keys = [tuple(row[column] for column in KEYS[name]) for row in rows]
    assert all(all(key) for key in keys)
    assert len(keys) == len(set(keys))


def test_the_readme_names_every_table() -> None:
    folder = Path(costopt.catalog.__file__).parent / "data"
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert {path.stem for path in folder.glob("*.csv")} == set(TABLES)
    assert all(f"{name}.csv" in text for name in TABLES)


def test_no_figure_is_zero_or_negative() -> None:
    for row in read_table("list_prices") + read_table("spot_quotes"):
        assert float(row["usd_per_hour"]) > 0, row
    for row in read_table("regions"):
        for column in ("pue", "average_gco2e_per_kwh", "marginal_gco2e_per_kwh"):
            figure = parse_number(row[column])
            assert figure is None or figure > 0, row


def test_every_price_is_of_a_known_machine() -> None:
    machines = {(row["provider"], row["instance_type"]) for row in read_table("instance_types")}
    for row in read_table("list_prices") + read_table("spot_quotes"):
        assert (row["provider"], row["instance_type"]) in machines, row


@pytest.mark.parametrize(("provider", "spread"), [("aws", 2.0), ("gcp", 2.0)])
def test_list_prices_of_a_type_differ_little_between_regions(provider: str, spread: float) -> None:
    """A price without its GPU, or a slip of the comma, would stand out."""
    by_type: dict[str, list[float]] = defaultdict(list)
    for row in read_table("list_prices"):
        if row["provider"] == provider:
            by_type[row["instance_type"]].append(float(row["usd_per_hour"]))
    for name, prices in by_type.items():
        assert max(prices) / min(prices) < spread, name


def test_every_aws_type_with_a_list_price_has_it_in_both_main_regions() -> None:
    catalog = load_catalog()
    for machine in catalog.find(provider="aws"):
        prices = {
            region: catalog.list_price_usd_per_hour("aws", region, machine.name)
            for region in ("us-east-1", "us-west-2")
        }
        if machine.name == "p5e.48xlarge":
            assert set(prices.values()) == {None}
        else:
            assert all(prices.values()), machine.name


def test_a_worse_bucket_means_more_hazard() -> None:
    hazards = [hazard_from_interruption_bucket(bucket, SEEN_AT) for bucket in InterruptionBucket]
    for better, worse in pairwise(hazards):
        assert better.value < worse.value
        assert better.low < worse.low
        assert better.high < worse.high


def test_the_prior_spans_a_day_and_a_month() -> None:
    hazard = hazard_from_interruption_bucket(InterruptionBucket.FROM_5_TO_10_PERCENT, SEEN_AT)
    assert hazard.low == pytest.approx(0.0513 / 730, rel=1e-3)
    assert hazard.high == pytest.approx(0.1054 / 24, rel=1e-3)
    assert hazard.value == pytest.approx(0.07796 / 132.4, rel=1e-3)
    assert hazard.observed_at == SEEN_AT


def test_the_google_prior_holds_the_published_bounds() -> None:
    hazard = find_traits("gcp").spot_hazard_per_hour(SEEN_AT)
    assert hazard is not None
    assert hazard.value == pytest.approx(0.10536 / 24, rel=1e-3)
    assert hazard.low < 0.0513 / 24 < hazard.value < 0.1625 / 24 < hazard.high


def test_zones_are_named_as_the_provider_does() -> None:
    for provider, zone in (("aws", "us-east-1a"), ("gcp", "us-east-1-a")):
        traits = find_traits(provider)
        assert traits.zone("us-east-1", "a") == zone
        assert traits.region_of_zone(zone) == "us-east-1"
    unknown = find_traits("none-such")
    assert (unknown.pue, unknown.spot_hazard_per_hour(SEEN_AT)) == (None, None)
    with pytest.raises(CatalogError):
        unknown.zone("r", "a")


def test_every_provider_of_the_catalogue_has_its_row() -> None:
    for provider in load_catalog().providers():
        assert find_traits(provider).zone_name is not None
        assert find_traits(provider).pue is not None


def test_specifications_are_those_recorded() -> None:
    facts = recorded("instances.csv")
    assert len(facts) == 72
    catalog = load_catalog()
    for fact in facts:
        machine = catalog.get_instance_type(fact["provider"], fact["instance_type"])
        assert machine.gpu_count == int(fact["gpu_count"])
        assert machine.vcpus == int(fact["vcpu"])
        assert machine.memory_gib == float(fact["ram_gib"])
        assert machine.network_gbps == float(fact["network_gbps"])
        assert machine.gpu.tdp_w == parse_number(fact["gpu_tdp_w"])
        assert machine.gpu.idle_w == parse_number(fact["gpu_idle_w"])
        assert machine.gpu.peak_tflops == float(fact["peak_dense_tflops_each"])
        assert machine.cpu_idle_w_per_vcpu == float(fact["cpu_w_per_vcpu_min"])
        assert machine.cpu_max_w_per_vcpu == float(fact["cpu_w_per_vcpu_max"])
        if machine.name != "p3dn.24xlarge":  # recorded with 16 GiB, its own source says 32
            assert machine.gpu.model == fact["gpu_model"]
            assert machine.gpu.memory_gib == float(fact["gpu_mem_gb_each"])


def test_regions_hold_the_newest_recorded_year() -> None:
    names = {"Amazon Web Services": "aws", "Google Cloud": "gcp"}
    newest: dict[tuple[str, str], dict[str, str]] = {}
    for fact in recorded("cloud_regions.csv"):
        provider = names.get(fact["cloud-provider"])
        if provider is None:
            continue
        key = provider, fact["cloud-region"]
        if key not in newest or int(fact["year"]) > int(newest[key]["year"]):
            newest[key] = fact
    regions = {(region.provider, region.name): region for region in load_catalog().regions()}
    assert regions.keys() == newest.keys()
    for key, fact in newest.items():
        region = regions[key]
        average = fact["grid-carbon-intensity-average-consumption-annual"]
        marginal = fact["grid-carbon-intensity-marginal-consumption-annual"]
        assert region.year == int(fact["year"])
        assert region.pue == parse_number(fact["power-usage-effectiveness"])
        assert region.average_gco2e_per_kwh == parse_number(average)
        assert region.marginal_gco2e_per_kwh == parse_number(marginal)
        assert region.electricity_maps_zone == (fact["em-zone-id"] or None)
        assert region.watttime_region == (fact["wt-region-id"] or None)


RECHECKED = "zone quotes of skypilot-catalog"


def rechecked_quotes() -> dict[tuple[str, str], dict[str, str]]:
    return {
        (row["region"], row["instance_type"]): row
        for row in read_table("spot_quotes")
        if row["source"].startswith(RECHECKED)
    }


def test_the_rechecked_spot_quotes_are_medians_of_the_recorded_zones() -> None:
    """Local zones and zones at the list price apart, unless no zone is below it."""
    zones: dict[tuple[str, str], list[tuple[float, bool]]] = defaultdict(list)
    for row in recorded("prices/aws_vms_excerpt.csv"):
        spot, listed = parse_number(row["SpotPrice"]), parse_number(row["Price"])
        if spot is not None and row["AvailabilityZone"].count("-") == 1:
            at_list = listed is not None and spot >= listed * 0.9999
            zones[row["Region"], row["InstanceType"]].append((spot, at_list))
    rechecked = rechecked_quotes()
    assert len(rechecked) == 15
    for key, row in rechecked.items():
        below = [spot for spot, at_list in zones[key] if not at_list]
        expected = median_low(below or [spot for spot, _ in zones[key]])
        assert float(row["usd_per_hour"]) == pytest.approx(expected, rel=1e-5)
        assert row["observed_on"] == "2026-01-01", "the list bears no date: not before"
        assert row["bucket_observed_on"] == "2025-06-28"


def test_the_quote_that_was_twice_the_market_is_corrected() -> None:
    quote = load_catalog().spot_price_usd_per_hour("aws", "us-east-2", "p5.48xlarge")
    assert quote is not None
    assert 11.25 < quote.value < 12.0


def test_the_other_aws_spot_quotes_follow_the_recorded_advisor() -> None:
    catalog = load_catalog()
    quotes = read_spot_quotes(read_list_prices())
    rechecked = rechecked_quotes()
    checked = 0
    for fact in recorded("aws_spot_advisor_gpu_2025-06-28.csv"):
        key = "aws", fact["region"], fact["instance_type"]
        price, listed = catalog.spot_price_usd_per_hour(*key), catalog.list_price_usd_per_hour(*key)
        if price is None or listed is None:
            continue
        saving = float(fact["savings_pct"]) / 100
        if key[1:] not in rechecked:
            assert price.value == pytest.approx(listed.value * (1 - saving), rel=1e-4)
        hazard = hazard_from_interruption_bucket(InterruptionBucket(int(fact["bucket"])), SEEN_AT)
        assert quotes[key].hazard_per_hour == hazard
        checked += 1
    assert checked > 500


def test_data_that_stay_in_a_region_move_free() -> None:
    catalog = load_catalog()
    for region in catalog.regions():
        name = f"{region.provider}/{region.name}"
        moved = catalog.transfer(name, name)
        assert moved is not None
        assert moved.usd_per_gib == 0


@pytest.mark.parametrize(
    ("origin", "destination", "usd_per_gib"),
    [
        ("aws/us-east-1", "aws/us-east-2", 0.01),
        ("aws/us-east-1", "aws/eu-west-1", 0.02),
        ("aws/us-east-1", "gcp/us-east1", 0.09),
        ("aws/sa-east-1", "aws/us-east-1", 0.138),
        ("gcp/us-central1", "gcp/us-east4", 0.02),
        ("gcp/us-central1", "gcp/europe-west4", 0.05),
        ("gcp/europe-west10", "gcp/asia-east1", 0.08),
        ("gcp/us-central1", "gcp/southamerica-east1", 0.14),
        ("gcp/us-central1", "aws/us-east-1", 0.12),
    ],
)
def test_the_first_row_that_fits_prices_a_transfer(
    origin: str, destination: str, usd_per_gib: float
) -> None:
    moved = load_catalog().transfer(origin, destination)
    assert moved is not None
    assert moved.usd_per_gib == usd_per_gib
    assert moved.gbps is None
    assert moved.source


@pytest.mark.parametrize(
    ("origin", "destination"),
    [
        ("aws/cn-north-1", "aws/us-east-1"),
        ("aws/us-east-1", "aws/cn-north-1"),
        ("azure/eastus", "aws/us-east-1"),
    ],
)
def test_an_unknown_transfer_price_is_none(origin: str, destination: str) -> None:
    assert load_catalog().transfer(origin, destination) is None


def test_every_listed_transfer_costs_something() -> None:
    for row in read_table("transfer_prices"):
        price = parse_number(row["usd_per_gib"])
        assert price is None or price > 0, row


def test_storage_prices_are_of_known_regions_and_none_is_zero() -> None:
    rows = read_table("storage_prices")
    places = {f"{row['provider']}/{row['region']}" for row in rows}
    assert len(places) == len(rows)
    assert "aws/us-east-1" in places
    for row in rows:
        assert row["source"]
        for name in ("volume_usd_per_gib_month", "store_usd_per_gib_month", "usd_per_1000_puts"):
            price = parse_number(row[name])
            assert price is None or 0 < price < 0.2, (row, name)


def test_storage_dollars_follow_from_the_prices() -> None:
    here = load_catalog().transfer("aws/us-east-1", "aws/us-east-1")
    assert here is not None
    assert here.storage is not None
    assert here.usd_per_gib == 0
    assert here.storage.volume_usd_per_hour("g5.xlarge") == pytest.approx(200 * 0.08 / 730)
    assert here.storage.save_usd(840) == pytest.approx(13_440 * 0.005 / 1000)
    assert here.storage.kept_usd_per_hour(840) == pytest.approx(840 * 0.023 / 730)


@pytest.mark.parametrize(
    ("region", "machine"), [("aws/cn-north-1", "p5.48xlarge"), ("gcp/us-central1", "a4-highgpu-8g")]
)
def test_a_volume_without_a_price_is_unknown(region: str, machine: str) -> None:
    provider, _, name = region.partition("/")
    pool = Pool(provider, name, f"{name}-a", machine, CapacityType.SPOT)
    assert volume_usd_per_hour(pool, load_catalog().transfer) is None


@pytest.mark.parametrize(
    ("options", "usd_per_month"),
    [
        ({"aws": {"root_gib": 500}}, 500 * 0.08),
        ({"aws": {"regions": ["us-east-1"]}}, 200 * 0.08),
        ({"gcp": {"root_gib": 500}}, 200 * 0.08),
        ({"aws": {"disk_type": "io2"}}, None),
    ],
)
def test_a_volume_is_as_large_as_its_provider_s_options_say(
    options: dict[str, dict[str, object]], usd_per_month: float | None
) -> None:
    prices = with_root_volumes(load_catalog().transfer, options)
    pool = Pool("aws", "us-east-1", "us-east-1a", "p5.48xlarge", CapacityType.SPOT)
    usd = volume_usd_per_hour(pool, prices)
    assert usd == (None if usd_per_month is None else pytest.approx(usd_per_month / 730))


RECORDED_GPU = {
    "V100-PCIe-32GB": "V100-PCIe-32GB(250W)",
    "A100-PCIe-80GB": "A100-PCIe-80GB",
    "A40": "A40",
}


def test_measured_power_caps_are_the_medians_of_the_record() -> None:
    shares: dict[tuple[str, float, str], set[tuple[str, ...]]] = defaultdict(set)
    for fact in recorded("energy/power_cap_facts.csv"):
        if fact["knob"] == "power_limit_W":
            key = (fact["gpu"], float(fact["knob_value"]), fact["model"])
            shares[key].add(tuple(fact.values()))
    for row in read_table("power_caps"):
        if row["basis"] != "measured":
            continue
        gpu, cap_w = RECORDED_GPU[row["gpu_model"]], float(row["cap_w"])
        of_cap = [facts for key, facts in shares.items() if key[:2] == (gpu, cap_w)]
        speeds = [median(float(fact[-2]) for fact in facts) for facts in of_cap]
        powers = [median(float(f[-2]) * float(f[-1]) for f in facts) for facts in of_cap]
        assert len(of_cap) == int(row["workloads"])
        assert float(row["speed"]) == pytest.approx(median(speeds), abs=6e-4)
        assert float(row["gpu_power"]) == pytest.approx(median(powers), abs=6e-4)


def test_power_caps_save_gpu_energy_and_a_lower_one_is_slower() -> None:
    models = {row["gpu_model"] for row in read_table("power_caps")}
    for model in models:
        caps = load_catalog().power_caps(model)
        assert all(cap.gpu_power < cap.speed < 1 for cap in caps)
        for low, high in pairwise(caps):
            assert low.cap_w < high.cap_w
            assert low.speed < high.speed
            assert low.gpu_power < high.gpu_power


def test_modelled_power_caps_lie_below_the_boards_own_limit() -> None:
    tdp_w = {m.gpu.model: m.gpu.tdp_w for m in load_catalog().instance_types()}
    for row in read_table("power_caps"):
        limit_w = tdp_w.get(row["gpu_model"])
        assert limit_w is None or float(row["cap_w"]) < limit_w


def test_an_unmeasured_gpu_has_no_caps() -> None:
    assert load_catalog().power_caps("H100-SXM5-80GB") == ()
