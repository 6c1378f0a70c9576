"""The account in which jobs run: its quotas, guards, tenants and cloud providers.

A quota limits what the account may hold at a time. A tenant is a team that shares the account, with
its own limits and its weight in sharing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from costopt.domain.commitments import Commitment
from costopt.domain.contracts import ElectricityContract
from costopt.domain.declared import Count, Dollars, LargeCount, Name, Positive, Text, described
from costopt.domain.limits import Resource
from costopt.domain.market import CapacityType, InstanceType, Pool
from costopt.domain.price_terms import PriceTerms


@dataclass(frozen=True, slots=True)
class AccountGuards:
    """What all jobs of the account together may cost and hold; None does not limit.

    The limits on dollars, in total and per calendar month, stop jobs; the others stop launches.
    """

    max_usd: Dollars | None = field(default=None, metadata=described("in all; default: no limit"))
    max_usd_per_month: Dollars | None = field(
        default=None, metadata=described("in a calendar month (UTC); default: no limit")
    )
    max_usd_per_hour: Dollars | None = field(default=None, metadata=described("default: no limit"))
    max_nodes: Count | None = field(default=None, metadata=described("at once; default: no limit"))
    max_launches_per_hour: LargeCount | None = field(
        default=None,
        metadata=described("nodes, those of owned clusters apart; default: no limit"),
    )


class CarbonSourceName(StrEnum):
    """A service of carbon intensities."""

    ELECTRICITY_MAPS = "electricity-maps"
    WATTTIME = "watttime"
    GB_CARBON_INTENSITY = "gb-carbon-intensity"

    @property
    def url(self) -> str:
        """Return its public address."""
        return _CARBON_URLS[self]


_CARBON_URLS = {
    CarbonSourceName.ELECTRICITY_MAPS: "https://api.electricitymaps.com",
    CarbonSourceName.WATTTIME: "https://api.watttime.org",
    CarbonSourceName.GB_CARBON_INTENSITY: "https://api.carbonintensity.org.uk",
}


@dataclass(frozen=True, slots=True)
class CarbonSource:
    """Where live carbon intensities are asked for; ``key_file`` None: no key is known."""

    name: CarbonSourceName
    url: str
    key_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """Quotas, and tenants by name. If there are tenants, job files of any other tenant are refused.

    ``owner`` tags everything that is launched: resources with another tag are never touched.
    ``store`` is the URI through which nodes and controller exchange messages, code and checkpoints,
    None where the account runs nothing. ``providers`` holds each adapter's options by its name.
    ``carbon`` None: no live carbon intensities are asked for. ``price_terms`` are its private
    prices, discounts, commitments and credits.
    """

    quotas: tuple[Quota, ...] = ()
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    owner: str = "costopt"
    store: str | None = None
    providers: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    guards: AccountGuards = AccountGuards()
    electricity_contracts: tuple[ElectricityContract, ...] = ()
    carbon: CarbonSource | None = None
    price_terms: PriceTerms = field(default_factory=PriceTerms)

    def owns(self, pool: Pool) -> bool:
        """Return whether the pool is a node of a cluster that the account owns, or a slice."""
        options = self.providers.get(pool.provider)
        is_reserved = pool.capacity_type is CapacityType.RESERVED
        return is_reserved and options is not None and bool(options.get("nodes"))

    def regions(self, provider: str) -> tuple[str, ...]:
        """Return the regions to which the account restricts a provider; empty: it does not."""
        regions = self.providers.get(provider, {}).get("regions")
        return tuple(map(str, regions)) if isinstance(regions, list | tuple) else ()

    @property
    def commitment_quotas(self) -> tuple[Quota, ...]:
        """Return as quotas how much of each commitment all nodes together may use."""
        return tuple(Quota.of_commitment(each) for each in self.price_terms.commitments)

    @property
    def limits(self) -> tuple[Quota, ...]:
        """Return the quotas, and as quotas what each tenant and all of them may hold at a time, and
        the account's commitments."""
        of_tenants = (
            Quota(f"of tenant {tenant.name}", tenant=tenant.name, **_concurrent(tenant))
            for tenant in self.tenants.values()
            if _concurrent(tenant)
        )
        of_all = _concurrent(self.guards)
        quotas = (*self.quotas, *of_tenants, *self.commitment_quotas)
        return (*quotas, Quota("of the account's guards", **of_all)) if of_all else quotas


def _concurrent(holder: Tenant | AccountGuards) -> dict[str, Any]:
    """Return the limits on concurrent use that ``holder`` sets, as fields of a Quota."""
    found = ((resource.field, resource.limit_of(holder)) for resource in Resource)
    return {field: most for field, most in found if most is not None}


UNLIMITED = Account()
"""An account without quotas, guards and tenants."""


@dataclass(frozen=True, slots=True)
class Quota:
    """How much of what matches all given fields may run at a time.

    A field that is None or empty matches everything; a limit that is None does not limit.
    ``gpu_model`` matches as a job's request does ("H100" means every H100); ``families`` may be
    of any case, and may go on with a generation ("p5" is p5, p5e and p5en, but not p4d) or with a
    series and its kind, as Google counts ("a3-megagpu"). Nodes on flex-start count as spot ones
    too.
    """

    name: Name = field(metadata=described("the quota's name, as plans and errors show it"))
    provider: Text | None = field(default=None, metadata=described("default: any"))
    region: Text | None = field(default=None, metadata=described("default: any"))
    gpu_model: Text | None = field(default=None, metadata=described("such as H100; default: any"))
    capacity_type: CapacityType | None = field(default=None, metadata=described("default: any"))
    max_nodes: Count | None = field(default=None, metadata=described("default: no limit"))
    max_gpus: LargeCount | None = field(default=None, metadata=described("default: no limit"))
    families: tuple[str, ...] = field(
        default=(),
        metadata=described(
            "leading letters of instance types, such as p for p5.48xlarge; default: any"
        ),
    )
    tenant: Name | None = field(
        default=None, metadata=described("counts its jobs only; default: all")
    )
    max_vcpus: LargeCount | None = field(default=None, metadata=described("default: no limit"))
    max_kw: Positive | None = field(
        default=None, metadata=described("at the meter of the site; default: no limit")
    )
    max_usd_per_hour: Dollars | None = field(default=None, metadata=described("default: no limit"))
    max_committed: float | None = None
    commitment: Commitment | None = None

    @classmethod
    def of_commitment(cls, commitment: Commitment) -> Quota:
        """Return the quota that the commitment's nodes may use no more than there is of it."""
        return cls(
            f"of commitment {commitment.name}",
            max_committed=commitment.quantity,
            commitment=commitment,
        )

    def node_load(self, resource: Resource, pool: Pool, machine: InstanceType | None) -> float:
        """Return how much a node of the pool holds of a resource with ``per_machine``."""
        if self.commitment is not None and resource is Resource.COMMITTED:
            return self.commitment.load(pool)
        return resource.node_load(machine)

    def limits(self) -> Iterator[tuple[Resource, float]]:
        """Yield each resource that it limits, with the maximum."""
        for resource in Resource:
            most = resource.limit_of(self)
            if most is not None:
                yield resource, most

    def matches(self, pool: Pool, machine: InstanceType) -> bool:
        """Return whether nodes of ``pool`` count against this quota."""
        if self.commitment is not None:
            return pool.commitment == self.commitment.name
        return (
            self.provider in (None, pool.provider)
            and self.region in (None, pool.region)
            and self.capacity_type in (None, pool.capacity_type, _shared_with(pool))
            and (self.gpu_model is None or machine.gpu.matches_name(self.gpu_model))
            and (not self.families or bool(_counted_as(pool.instance_type) & _lower(self.families)))
        )


def _shared_with(pool: Pool) -> CapacityType:
    """Return the capacity type whose quota is used: flex-start uses the preemptible quota, and what
    a commitment pays for is launched on demand.

    https://docs.cloud.google.com/compute/docs/instances/about-flex-start-vms
    """
    launched = pool.uncommitted.capacity_type
    return CapacityType.SPOT if launched is CapacityType.FLEX_START else launched


def _counted_as(instance_type: str) -> frozenset[str]:
    """Return "p" and "p5" for "p5en.48xlarge"; "a", "a3" and "a3-megagpu" for "a3-megagpu-8g"."""
    named = re.match(r"(([a-z]*)\d*)[a-z]*(-[a-z]+)?", instance_type.lower())
    assert named is not None
    return frozenset({named.group(2), named.group(1), named.group(0)})


def _lower(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word.lower() for word in words)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A team whose jobs share an account with others'.

    Where capacity is short, each tenant is served its fair share, ``weight`` over the sum of the
    weights of those with unfinished jobs, before any is served more. Limits that are None do not
    limit.
    """

    name: Name = field(metadata=described("the tenant of a job file"))
    weight: Positive = field(
        default=1.0,
        metadata=described("claim on what is short, relative to the other tenants'"),
    )
    max_usd: Dollars | None = field(default=None, metadata=described("default: no limit"))
    max_usd_per_month: Dollars | None = field(default=None, metadata=described("default: no limit"))
    max_usd_per_hour: Dollars | None = field(default=None, metadata=described("default: no limit"))
    max_nodes: Count | None = field(default=None, metadata=described("at once; default: no limit"))
    prefixes: tuple[Text, ...] = field(
        default=(),
        metadata=described(
            "where its jobs' checkpoints and data may lie, such as s3://bucket/research; "
            "default: each job's folder in the account's store alone"
        ),
    )
    max_open_jobs: LargeCount | None = field(
        default=None, metadata=described("submitted and not ended; default: no limit")
    )
    max_requests_per_minute: LargeCount | None = field(
        default=None,
        metadata=described("to the daemon, by all of its tokens; default: no limit"),
    )
