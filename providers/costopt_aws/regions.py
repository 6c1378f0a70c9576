"""The regions that the account may use, and their zones by id.

AWS gives each account names of its own ("us-east-1a") for the same zones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from threading import Lock

from costopt.domain.errors import BadRequestError, ForbiddenError, ProviderError
from costopt.provider.cache import TtlCache
from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors

DAY_S = 86400.0
NOT_ENABLED = "not-opted-in"


class Regions:
    """The status of every region, fetched once a day through the first region that answers."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._kept: TtlCache[str, Mapping[str, str]] = TtlCache(DAY_S, 7 * DAY_S)

    def check(self, region: str, now: datetime, through: tuple[str, ...] = ()) -> None:
        """Raise BadRequestError for an unknown region, ForbiddenError for a disabled one.

        ``through`` are regions to ask if ``region`` does not answer. If none does, botocore's list
        decides which regions exist, and the first call to the region reports any other failure.
        """
        known = self._clients.known_regions()
        askable = [each for each in dict.fromkeys((*through, region)) if each in known]
        statuses = self._statuses(askable, now)
        names = known if statuses is None else tuple(statuses)
        if region not in names:
            near = get_close_matches(region, names, n=3)
            raise BadRequestError(
                f"AWS has no region {region!r}",
                hint=f"did you mean {' or '.join(near)}?" if near else None,
            )
        if statuses is not None and statuses[region] == NOT_ENABLED:
            raise ForbiddenError(
                f"{region}: the region is not enabled in this account",
                hint=f"aws account enable-region --region-name {region}",
            )

    def _statuses(self, through: Iterable[str], now: datetime) -> Mapping[str, str] | None:
        for region in through:
            try:
                return self._kept.get(region, now, lambda region=region: self._ask(region))  # type: ignore[misc]
            except ProviderError:
                continue
        return None

    def _ask(self, region: str) -> Mapping[str, str]:
        with map_errors("ec2:DescribeRegions", region):
            response = self._clients.reading("ec2", region).describe_regions(AllRegions=True)
            return {each["RegionName"]: each.get("OptInStatus", "") for each in response["Regions"]}


class Zones:
    """Availability zones of the account. Ids and names never change, so they are fetched once.

    Local and Wavelength Zones are left out.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._names: dict[str, Mapping[str, str]] = {}
        self._lock = Lock()

    def names(self, region: str) -> Mapping[str, str]:
        """Return the account's name of each zone by its id. Raise ProviderError."""
        with self._lock:
            known = self._names.get(region)
        if known is None:
            known = self._ask(region)
            with self._lock:
                self._names[region] = known
        return known

    def ids(self, region: str) -> Mapping[str, str]:
        """Return the id of each zone by the account's name of it. Raise ProviderError."""
        return {name: zone_id for zone_id, name in self.names(region).items()}

    def _ask(self, region: str) -> Mapping[str, str]:
        with map_errors("ec2:DescribeAvailabilityZones", region):
            response = self._clients.reading("ec2", region).describe_availability_zones()
            return {
                zone["ZoneId"]: zone["ZoneName"]
                for zone in response["AvailabilityZones"]
                if zone.get("ZoneType", "availability-zone") == "availability-zone"
            }
