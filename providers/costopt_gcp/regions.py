"""Regions as the project sees them: their zones, and its quotas there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from costopt.domain.errors import BadRequestError
from costopt.domain.market import Pool
from costopt.provider.cache import TtlCache
from costopt_gcp.clients import Clients
from costopt_gcp.errors import MISSING, asking, code_of
from costopt_gcp.shape import last

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
        """Raises BadRequestError for a region that does not exist, ProviderError."""
        return self._kept.get(region, now, lambda: self._ask(region))

    def check(self, pool: Pool, now: datetime) -> None:
        """Raises BadRequestError where the pool's zone is not one of its region."""
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
                told = self._clients.of("regions").get(
                    project=project, region=region, **self._clients.reading()
                )
        except BadRequestError as error:
            if code_of(error) not in MISSING:
                raise
            raise BadRequestError(
                f"Google Cloud has no region {region!r}",
                hint="`gcloud compute regions list` lists those there are",
            ) from error
        zones = tuple(sorted(last(url) for url in told.zones))
        return RegionInfo(zones, {_metric(q.metric): q.limit for q in told.quotas})


def _metric(metric: object) -> str:
    return str(getattr(metric, "name", metric))
