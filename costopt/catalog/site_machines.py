"""The catalogue with the machines of clusters, as an account file describes them.

A cluster names the cloud region whose machines, prices and grid it has (``cloud: aws/us-east-1``),
its own machines (``node_types``), or both: see ``costopt.provider.site``, which checks these
options. Its pools have the provider's name and, as region, the cluster's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from costopt.catalog.catalog import Catalog, load_catalog
from costopt.domain.account import Account
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
        machines += _machines(known, provider, options)
        regions += _regions(known, provider, options)
    return known.extended(machines, regions) if machines or regions else known


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
        yield replace(region, provider=provider, name=str(options["cluster"]))
