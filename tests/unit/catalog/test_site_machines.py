"""Machines of clusters: a cloud's under the cluster's name, and the account file's own shapes."""

from __future__ import annotations

import pytest

from costopt.catalog import load_catalog
from costopt.catalog.site_machines import account_catalog, account_clusters
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.cluster import slice_sizes
from costopt.domain.errors import CatalogError
from costopt.domain.market import CapacityType, Pool
from costopt.energy import NodePowerModel
from costopt.provider.site import SiteOptions

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


def test_owned_nodes_have_slices_with_their_share() -> None:
    account = cluster(node_types={"dgx": SHAPE}, nodes={"dgx": 2})
    part = account_catalog(account).instance_type(pool("dgx:2"))
    assert part is not None
    assert (part.gpu_count, part.vcpus, part.memory_gib) == (2, 56, 512)
    assert account_catalog(account).instance_type(pool("dgx:8")) is None
    other = account_catalog(cluster(node_types={"dgx": SHAPE}))
    assert other.instance_type(pool("dgx:2")) is None


@pytest.mark.parametrize(
    ("gpus", "sizes"), [(1, ()), (2, (1,)), (6, (1, 2, 4)), (8, (1, 2, 4)), (9, (1, 2, 4, 8))]
)
def test_slices_are_powers_of_two_below_the_node(gpus: int, sizes: tuple[int, ...]) -> None:
    assert slice_sizes(gpus) == sizes


def test_an_account_owns_clusters() -> None:
    shapes = {"dgx": SHAPE, "small": SHAPE | {"gpus": 2}}
    account = cluster(node_types=shapes, nodes={"dgx": 2, "small": 1}, usd_per_gpu_hour=1)
    owned = account_clusters(account)["kubernetes"]
    assert owned.name == "prod"
    assert owned.node_gpus == (8, 8, 2)
    assert owned.node_types == ("dgx", "dgx", "small")
    assert owned.usd_per_gpu_hour == 1
    assert account_clusters(cluster(node_types=shapes)) == {}


def test_a_clusters_nodes_may_be_of_its_clouds_types() -> None:
    options = {"cloud": "aws/us-east-1", "nodes": {"p5.48xlarge": 1}}
    assert account_clusters(cluster(**options))["kubernetes"].gpus == 8
    assert SiteOptions.problems({"cluster": "prod", **options}) == []
    with pytest.raises(CatalogError, match=r"p5\.48xlrge"):
        account_clusters(cluster(cloud="aws/us-east-1", nodes={"p5.48xlrge": 1}))


@pytest.mark.parametrize(
    ("options", "at"),
    [
        ({"nodes": {"dgy": 1}}, ("nodes",)),
        ({"nodes": {"dgx": 0}}, ("nodes", "dgx")),
        ({"nodes": {"dgx": 1.5}}, ("nodes", "dgx")),
        ({"usd_per_gpu_hour": -1}, ("usd_per_gpu_hour",)),
    ],
)
def test_wrong_nodes_are_refused_at_their_field(
    options: dict[str, object], at: tuple[str, ...]
) -> None:
    problems = SiteOptions.problems({"cluster": "prod", "node_types": {"dgx": SHAPE}, **options})
    assert [problem.at for problem in problems] == [at]


def test_a_sites_energy_is_known_with_its_pue_alone() -> None:
    shapes = {"dgx": SHAPE}
    unknown = NodePowerModel(account_catalog(cluster(node_types=shapes, nodes={"dgx": 1})))
    assert unknown.node_power(pool("dgx:2")) is None
    known = NodePowerModel(account_catalog(cluster(node_types=shapes, nodes={"dgx": 1}, pue=1.4)))
    part, whole = known.node_power(pool("dgx:2")), known.node_power(pool("dgx"))
    assert part is not None
    assert whole is not None
    assert part.pue == whole.pue == 1.4
    assert part.busy_w == pytest.approx(whole.busy_w / 4, rel=0.01)
    assert part.gco2e_per_kwh is None
    cloud = NodePowerModel(account_catalog(cluster(cloud="aws/us-east-1", pue=1.5)))
    rented = cloud.node_power(pool("p5.48xlarge"))
    assert rented is not None
    assert rented.pue == 1.5
    assert rented.gco2e_per_kwh
