"""Zones by their id: AWS gives each account names of its own ("us-east-1a") for the same zones."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors


class Zones:
    """Availability zones of the account. Ids and names never change, so they are asked for once.

    Local and Wavelength Zones are left out.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._names: dict[str, Mapping[str, str]] = {}
        self._lock = Lock()

    def names(self, region: str) -> Mapping[str, str]:
        """The account's name of each zone by its id. Raises ProviderError."""
        with self._lock:
            known = self._names.get(region)
        if known is None:
            known = self._ask(region)
            with self._lock:
                self._names[region] = known
        return known

    def ids(self, region: str) -> Mapping[str, str]:
        """The id of each zone by the account's name of it. Raises ProviderError."""
        return {name: zone_id for zone_id, name in self.names(region).items()}

    def _ask(self, region: str) -> Mapping[str, str]:
        with map_errors("ec2:DescribeAvailabilityZones", region):
            answer = self._clients.reading("ec2", region).describe_availability_zones()
            return {
                zone["ZoneId"]: zone["ZoneName"]
                for zone in answer["AvailabilityZones"]
                if zone.get("ZoneType", "availability-zone") == "availability-zone"
            }
