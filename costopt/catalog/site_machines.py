"""The catalogue with the machines of clusters, as an account file describes them.

A cluster names the cloud region whose machines, prices and grid it has (``cloud: aws/us-east-1``),
its own machines (``node_types``), or both: see ``costopt.provider.site``, which checks these
options. Its pools have the provider's name and, as region, the cluster's. Each type of node that
the cluster owns (``nodes``) has slices, which are machines too: ``dgx:2`` is two GPUs of a ``dgx``
with their share of the node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from costopt.catalog.catalog import Catalog, load_catalog
from costopt.domain.account import Account
from costopt.domain.cluster import Cluster, slice_sizes, slice_type
from costopt.domain.errors import CatalogError
from costopt.domain.market import InstanceType, Region


def account_catalog(account: Account) -> Catalog:
    """Return the shipped catalogue with the machines and regions of the account's clusters.

    Raises CatalogError for a cloud, region or GPU model that the catalogue does not hold.
    """
    known = load_catalog()
    machines: list[InstanceType] = []
    regions: list[Region] = []
    for provider, options in account.providers.items():
        if not options.get("cluster"):
            continue
        own = tuple(_machines(known, provider, options))
        machines += own
        for node in _owned(own, options):
            machines += _slices(node)
        regions += _regions(known, provider, options)
    return known.extended(machines, regions) if machines or regions else known


def account_clusters(account: Account) -> Mapping[str, Cluster]:
    """Return the clusters whose nodes the account owns, by their provider's name.

    Raises CatalogError as ``account_catalog``, and for a node type that a cluster's cloud lacks.
    """
    known, clusters = load_catalog(), {}
    providers: Mapping[str, Mapping[str, Any]] = account.providers
    for provider, options in providers.items():
        if not options.get("cluster") or not options.get("nodes"):
            continue
        nodes = [
            node
            for node in _owned(tuple(_machines(known, provider, options)), options)
            for _ in range(options["nodes"][node.name])
        ]
        clusters[provider] = Cluster(
            name=str(options["cluster"]),
            node_gpus=tuple(node.gpu_count for node in nodes),
            usd_per_gpu_hour=float(options.get("usd_per_gpu_hour") or 0.0),
            node_types=tuple(node.name for node in nodes),
        )
    return clusters


def _owned(
    machines: tuple[InstanceType, ...], options: Mapping[str, Any]
) -> Iterator[InstanceType]:
    """The machine of each node type that the cluster owns."""
    by_name = {machine.name: machine for machine in machines}
    for name in options.get("nodes") or ():
        if name not in by_name:
            raise CatalogError(
                f"cluster {options['cluster']} owns nodes of type {name!r}, which is unknown",
                hint="describe it under node_types, or name an instance type of the cloud",
            )
        yield by_name[name]


def _slices(node: InstanceType) -> Iterator[InstanceType]:
    """The parts of a node that a job may have for itself."""
    for gpus in slice_sizes(node.gpu_count):
        share = gpus / node.gpu_count
        yield replace(
            node,
            name=slice_type(node.name, gpus),
            gpu_count=gpus,
            vcpus=max(1, int(node.vcpus * share)),
            memory_gib=node.memory_gib * share,
            network_gbps=None if node.network_gbps is None else node.network_gbps * share,
            source=f"{gpus} of the {node.gpu_count} GPUs of {node.name}: {node.source}",
        )


def _machines(known: Catalog, provider: str, options: Mapping[str, Any]) -> Iterator[InstanceType]:
    if options.get("cloud"):
        for machine in known.find(provider=str(options["cloud"]).partition("/")[0]):
            yield replace(machine, provider=provider)
    for name, shape in (options.get("node_types") or {}).items():
        same = known.find(gpu=shape["gpu"])
        if not same:
            raise CatalogError(f"no GPU model {shape['gpu']!r} in the catalogue")
        like = same[0]
        yield InstanceType(
            provider=provider,
            name=name,
            gpu=like.gpu,
            gpu_count=shape["gpus"],
            vcpus=shape["vcpus"],
            memory_gib=float(shape["memory_gib"]),
            network_gbps=shape.get("network_gbps"),
            cpu_idle_w_per_vcpu=like.cpu_idle_w_per_vcpu,
            cpu_max_w_per_vcpu=like.cpu_max_w_per_vcpu,
            source=f"the account file; watts of CPUs as of {like.provider} {like.name}",
        )


def _regions(known: Catalog, provider: str, options: Mapping[str, Any]) -> Iterator[Region]:
    if options.get("cloud"):
        cloud, _, name = str(options["cloud"]).partition("/")
        region = known.region(cloud, name)
        if region is None:
            raise CatalogError(
                f"no region {options['cloud']!r} in the catalogue",
                hint="costopt catalog --regions lists them all",
            )
        pue = options.get("pue") or region.pue
        yield replace(region, provider=provider, name=str(options["cluster"]), pue=pue)
    elif options.get("pue"):
        yield Region(
            provider=provider,
            name=str(options["cluster"]),
            pue=float(options["pue"]),
            average_gco2e_per_kwh=None,
            marginal_gco2e_per_kwh=None,
            electricity_maps_zone=None,
            year=0,
            source="the account file",
        )
