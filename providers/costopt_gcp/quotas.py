"""What the project may run: GPUs by model, on spot or on demand, by region and in all of them.

https://cloud.google.com/compute/resource-usage: a GPU model has a quota of its own and one for
preemptible GPUs, which Spot VMs count against. Where none was ever granted of the latter, they
count against the former, together with on-demand ones. Regions are read here with their zones and
the project's quotas there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.account import Quota
from costopt.domain.errors import BadRequestError
from costopt.domain.market import CapacityType, Pool
from costopt.provider.cache import TtlCache
from costopt_gcp.clients import Clients
from costopt_gcp.errors import MISSING, asking, code_of
from costopt_gcp.machine_types import last

PREEMPTIBLE = "PREEMPTIBLE_"
MODELS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "NVIDIA_A100_80GB_GPUS": ("A100-SXM4-80GB", ()),
    "NVIDIA_A100_GPUS": ("A100-SXM4-40GB", ()),
    "NVIDIA_B200_GPUS": ("B200", ()),
    "NVIDIA_H100_GPUS": ("H100", ("a3-edgegpu", "a3-highgpu")),
    "NVIDIA_H100_MEGA_GPUS": ("H100", ("a3-megagpu",)),
    "NVIDIA_H200_GPUS": ("H200", ()),
    "NVIDIA_L4_GPUS": ("L4", ()),
    "NVIDIA_P100_GPUS": ("P100", ()),
    "NVIDIA_P4_GPUS": ("P4", ()),
    "NVIDIA_T4_GPUS": ("T4", ()),
    "NVIDIA_V100_GPUS": ("V100", ()),
}
"""Of each metric the GPU model, by the catalogue's names or a leading part, and the kinds of
machines that count, () for all that have it. Those that flex-start takes from are in "The Startup's
Guide to GPU Access on Google Cloud", part 2 (https://gist.github.com/ankdeshm)."""
ALL_REGIONS = "GPUS_ALL_REGIONS"


class AccountQuotas:
    """regions.get and projects.get, once an hour."""

    def __init__(self, clients: Clients, regions: Regions) -> None:
        self._clients = clients
        self._regions = regions
        self._kept: TtlCache[None, tuple[Quota, ...]] = TtlCache(HOUR_S, USABLE_S)

    def of(self, region: str, now: datetime) -> tuple[Quota, ...]:
        """Return the GPU quotas of a region. Raise ProviderError."""
        return tuple(read_quotas(region, self._regions.facts(region, now).limits))

    def everywhere(self, now: datetime) -> tuple[Quota, ...]:
        """Return the GPU quota of all regions together. Raise ProviderError."""
        return self._kept.get(None, now, self._ask)

    def _ask(self) -> tuple[Quota, ...]:
        project = self._clients.project
        with asking("compute.projects.get", project):
            response = self._clients.of("projects").get(project=project, **self._clients.reading())
        limits = {str(getattr(q.metric, "name", q.metric)): q.limit for q in response.quotas}
        if ALL_REGIONS not in limits:
            return ()
        name = f"{ALL_REGIONS} of {project}"
        return (Quota(name=name, provider="gcp", max_gpus=int(limits[ALL_REGIONS])),)


def read_quotas(region: str, limits: Mapping[str, float]) -> Iterator[Quota]:
    """Quotas of GPU models, from limits by metric."""
    for metric in MODELS:
        preemptible = limits.get(PREEMPTIBLE + metric, 0.0)
        if preemptible > 0:
            yield _quota(region, metric, CapacityType.SPOT, PREEMPTIBLE, preemptible)
        if metric in limits:
            terms = CapacityType.ON_DEMAND if preemptible > 0 else None
            yield _quota(region, metric, terms, "", limits[metric])


def _quota(
    region: str, metric: str, terms: CapacityType | None, prefix: str, limit: float
) -> Quota:
    model, kinds = MODELS[metric]
    return Quota(
        name=f"{prefix}{metric} in {region}",
        provider="gcp",
        region=region,
        gpu_model=model,
        families=kinds,
        capacity_type=terms,
        max_gpus=int(limit),
    )


HOUR_S = 3600.0
USABLE_S = 24 * HOUR_S


@dataclass(frozen=True, slots=True)
class RegionInfo:
    """``limits`` are the project's quotas by metric ("PREEMPTIBLE_NVIDIA_L4_GPUS")."""

    zones: tuple[str, ...]
    limits: dict[str, float]


class Regions:
    """regions.get, once an hour for each region."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._kept: TtlCache[str, RegionInfo] = TtlCache(HOUR_S, USABLE_S)

    def facts(self, region: str, now: datetime) -> RegionInfo:
        """Return the region. Raise BadRequestError if it does not exist, ProviderError."""
        return self._kept.get(region, now, lambda: self._ask(region))

    def check(self, pool: Pool, now: datetime) -> None:
        """Raise BadRequestError if the pool's zone is not one of its region."""
        zones = self.facts(pool.region, now).zones
        if pool.zone not in zones:
            raise BadRequestError(
                f"{pool}: {pool.region} has no zone {pool.zone!r}",
                hint=f"its zones are {', '.join(zones)}",
            )

    def _ask(self, region: str) -> RegionInfo:
        project = self._clients.project
        try:
            with asking("compute.regions.get", region):
                response = self._clients.of("regions").get(
                    project=project, region=region, **self._clients.reading()
                )
        except BadRequestError as error:
            if code_of(error) not in MISSING:
                raise
            raise BadRequestError(
                f"Google Cloud has no region {region!r}",
                hint="`gcloud compute regions list` lists those there are",
            ) from error
        zones = tuple(sorted(last(url) for url in response.zones))
        return RegionInfo(zones, {_metric(q.metric): q.limit for q in response.quotas})


def _metric(metric: object) -> str:
    return str(getattr(metric, "name", metric))
