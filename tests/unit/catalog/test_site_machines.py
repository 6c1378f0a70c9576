"""Machines of clusters: a cloud's under the cluster's name, and the account file's own shapes."""

from __future__ import annotations

import pytest

from costopt.catalog import load_catalog
from costopt.catalog.site_machines import account_catalog
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.errors import CatalogError
from costopt.domain.market import CapacityType, Pool

SHAPE = {"gpu": "H100", "gpus": 8, "vcpus": 224, "memory_gib": 2048}


def cluster(**options: object) -> Account:
    return Account(providers={"kubernetes": {"cluster": "prod", **options}})


def pool(name: str) -> Pool:
    return Pool("kubernetes", "prod", "a", name, CapacityType.SPOT)


def test_a_cluster_has_the_machines_and_the_grid_of_its_cloud() -> None:
    known = account_catalog(cluster(cloud="aws/us-east-1"))
    machine = known.instance_type(pool("g6.xlarge"))
    assert machine is not None
    assert machine.gpu == load_catalog().get_instance_type("aws", "g6.xlarge").gpu
    region = known.region("kubernetes", "prod")
    original = load_catalog().region("aws", "us-east-1")
    assert region is not None
    assert original is not None
    assert region.average_gco2e_per_kwh == original.average_gco2e_per_kwh
    assert load_catalog().instance_type(pool("g6.xlarge")) is None


def test_a_cluster_has_node_types_of_its_own() -> None:
    machine = account_catalog(cluster(node_types={"dgx": SHAPE})).instance_type(pool("dgx"))
    assert machine is not None
    assert (machine.gpu_count, machine.vcpus) == (8, 224)
    assert machine.gpu.matches_name("H100")


@pytest.mark.parametrize(
    "options", [{"cloud": "aws/mars-1"}, {"node_types": {"dgx": SHAPE | {"gpu": "H1000"}}}]
)
def test_what_the_catalogue_does_not_hold_is_named(options: dict[str, object]) -> None:
    with pytest.raises(CatalogError, match=r"mars-1|H1000"):
        account_catalog(cluster(**options))


def test_without_a_cluster_it_is_the_shipped_catalogue() -> None:
    assert account_catalog(UNLIMITED) is load_catalog()
