"""The catalogue: finding, refusing, and the built-in snapshot of offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from costopt.catalog import Catalog, load_catalog
from costopt.domain.errors import CatalogError
from costopt.domain.estimate import Basis
from costopt.domain.market import CapacityType, Offer, Pool
from costopt.domain.ports import InstanceCatalog


@pytest.fixture
def catalog() -> Catalog:
    return load_catalog()


def offer(catalog: Catalog, text: str) -> Offer | None:
    pool = Pool.parse(text)
    return next((offer for offer in catalog.offers() if offer.pool == pool), None)


def test_machine_answers_for_a_pool(catalog: Catalog) -> None:
    machines: InstanceCatalog = catalog
    machine = machines.instance_type(Pool.parse("aws/us-west-2/us-west-2b/p4d.24xlarge/spot"))
    assert machine is not None
    assert machine.gpu.model == "A100-SXM4-40GB"
    assert (machine.gpu_count, machine.vcpus, machine.memory_gib) == (8, 96, 1152)


def test_machine_of_an_unknown_pool_is_none(catalog: Catalog) -> None:
    assert catalog.instance_type(Pool.parse("aws/us-west-2/us-west-2b/p9.huge/spot")) is None
    assert catalog.instance_type(Pool.parse("gcp/us-west1/us-west1-a/p4d.24xlarge/spot")) is None


def test_recorded_markets_find_their_retired_machines(catalog: Catalog) -> None:
    k80 = catalog.get_instance_type("aws", "p2.8xlarge")
    assert k80.gpu.matches_name("k80")
    assert catalog.terms("aws", "p2.8xlarge") == frozenset()
    assert catalog.list_price_usd_per_hour("aws", "us-east-1", "p2.8xlarge") is not None
    assert not [o for o in catalog.offers() if o.pool.instance_type.startswith("p2.")]


@pytest.mark.parametrize("asked", ["p5.48xlrage", "p5.48xlarg", "p5-48xlarge"])
def test_a_misspelt_type_names_the_nearest(catalog: Catalog, asked: str) -> None:
    with pytest.raises(CatalogError) as caught:
        catalog.get_instance_type("aws", asked)
    assert asked in caught.value.message
    assert "p5.48xlarge" in (caught.value.hint or "")
    assert caught.value.exit_code == 2


def test_a_type_of_another_provider_is_refused(catalog: Catalog) -> None:
    with pytest.raises(CatalogError, match=r"gcp has no instance type 'p5\.48xlarge'"):
        catalog.get_instance_type("gcp", "p5.48xlarge")


def test_an_unknown_gpu_names_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(CatalogError, match="H1000") as caught:
        catalog.find(gpu="H1000")
    assert "H100" in (caught.value.hint or "")


def test_a_gpu_like_no_other_lists_all(catalog: Catalog) -> None:
    with pytest.raises(CatalogError) as caught:
        catalog.find(gpu="Voodoo2")
    assert all(model in (caught.value.hint or "") for model in catalog.gpu_models())


def test_an_unknown_provider_is_refused(catalog: Catalog) -> None:
    with pytest.raises(CatalogError, match="azure"):
        catalog.find(provider="azure")


def test_find_filters_by_gpu_and_provider(catalog: Catalog) -> None:
    found = catalog.find(gpu="h100", provider="gcp")
    assert {machine.name for machine in found} >= {"a3-highgpu-1g", "a3-highgpu-8g"}
    assert {machine.provider for machine in found} == {"gcp"}
    assert not [machine for machine in found if not machine.gpu.model.startswith("H100")]
    assert catalog.find() == catalog.instance_types()


def test_a_known_gpu_that_the_provider_lacks_is_not_an_error(catalog: Catalog) -> None:
    assert catalog.find(gpu="L40S", provider="gcp") == ()


def test_the_vendor_publishes_no_power_for_trainium(catalog: Catalog) -> None:
    gpu = catalog.get_instance_type("aws", "trn1.32xlarge").gpu
    assert gpu.tdp_w is None
    assert gpu.idle_w is None


def test_unknown_prices_are_none(catalog: Catalog) -> None:
    assert catalog.list_price_usd_per_hour("aws", "us-east-1", "p5e.48xlarge") is None
    assert catalog.list_price_usd_per_hour("aws", "eu-west-9", "p5.48xlarge") is None
    assert catalog.spot_price_usd_per_hour("aws", "us-east-1", "p5e.48xlarge") is None
    assert catalog.region("aws", "eu-west-9") is None


def test_list_prices_say_where_and_when(catalog: Catalog) -> None:
    price = catalog.list_price_usd_per_hour("aws", "us-west-2", "g5.xlarge")
    assert price is not None
    assert (price.value, price.basis) == (1.006, Basis.LISTED)
    assert price.observed_at is not None
    assert price.observed_at.tzinfo is not None
    assert "price list" in price.source


def test_an_aws_spot_price_is_modelled_from_the_saving(catalog: Catalog) -> None:
    price = catalog.spot_price_usd_per_hour("aws", "us-east-1", "g5.xlarge")
    assert price is not None
    assert price.basis is Basis.MODELLED
    assert price.value == pytest.approx(1.006 * (1 - 0.59), rel=1e-4)
    assert price.low < price.value < price.high
    assert "59 %" in price.source


def test_a_modelled_spot_price_never_exceeds_on_demand(catalog: Catalog) -> None:
    for spot in catalog.offers():
        if spot.pool.capacity_type is not CapacityType.SPOT:
            continue
        pool, price = spot.pool, spot.price_usd_per_hour
        listed = catalog.list_price_usd_per_hour(pool.provider, pool.region, pool.instance_type)
        assert price is not None
        if listed is not None:
            assert price.high <= listed.value, pool


def test_on_demand_offers_are_never_interrupted(catalog: Catalog) -> None:
    found = offer(catalog, "aws/us-east-1/us-east-1*/p5.48xlarge/on_demand")
    assert found is not None
    assert found.hazard_per_hour is not None
    assert (found.hazard_per_hour.low, found.hazard_per_hour.high) == (0.0, 0.0)
    assert found.nodes_available is None


def test_spot_offers_carry_a_wide_prior(catalog: Catalog) -> None:
    for spot in catalog.offers():
        if spot.pool.capacity_type is CapacityType.SPOT:
            hazard = spot.hazard_per_hour
            assert hazard is not None, spot.pool
            assert hazard.basis is Basis.PRIOR
            assert hazard.value > 0
            assert hazard.high >= 5 * hazard.value
            assert hazard.observed_at is not None


def test_offers_cover_both_providers_and_terms(catalog: Catalog) -> None:
    kinds = {(o.pool.provider, o.pool.capacity_type) for o in catalog.offers()}
    assert kinds == {
        (provider, terms)
        for provider in ("aws", "gcp")
        for terms in (CapacityType.SPOT, CapacityType.ON_DEMAND)
    }


def test_no_pool_is_offered_twice_and_each_has_a_machine(catalog: Catalog) -> None:
    pools = [o.pool for o in catalog.offers()]
    assert len(pools) == len(set(pools))
    assert all(catalog.instance_type(pool) for pool in pools)


def test_what_is_rented_as_spot_only_has_no_on_demand_offer(catalog: Catalog) -> None:
    assert offer(catalog, "gcp/us-central1/us-central1*/a3-highgpu-1g/spot") is not None
    assert offer(catalog, "gcp/us-central1/us-central1*/a3-highgpu-1g/on_demand") is None


def test_google_regions_without_the_machine_have_no_offer(catalog: Catalog) -> None:
    """Google's price list names every region; Johannesburg has no A100."""
    assert offer(catalog, "gcp/us-central1/us-central1*/a2-highgpu-8g/spot") is not None
    assert offer(catalog, "gcp/africa-south1/africa-south1*/a2-highgpu-8g/spot") is None


def test_an_unpublished_intensity_is_none(catalog: Catalog) -> None:
    region = catalog.region("gcp", "europe-north2")
    assert region is not None
    assert region.pue is None
    assert region.marginal_gco2e_per_kwh is None
    assert region.electricity_maps_zone is None


def test_hazards_carry_the_labels_of_the_advisor(catalog: Catalog) -> None:
    found = offer(catalog, "aws/us-east-1/us-east-1*/p5.48xlarge/spot")
    assert found is not None
    assert found.hazard_per_hour is not None
    assert ">20 %" in found.hazard_per_hour.source


def test_the_catalogue_is_read_once() -> None:
    assert load_catalog() is load_catalog()


def test_the_catalogue_imports_nothing_heavy() -> None:
    heavy = "{'pandas', 'numpy', 'pydantic', 'pyarrow', 'pulp'}"
    code = f"import sys, costopt.catalog, costopt.energy; print(*({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
