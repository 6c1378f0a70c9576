"""The instances that moto holds, as a test may look at them and change them."""

from __future__ import annotations

from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends


def backend(region: str) -> Any:
    """moto's EC2 of one region."""
    return ec2_backends[DEFAULT_ACCOUNT_ID][region]


def alive(region: str) -> list[Any]:
    """Every instance of the region that is not terminated, in launch order."""
    instances = (i for r in backend(region).reservations.values() for i in r.instances)
    return [i for i in instances if i.state != "terminated"]


def zone_of_subnet(region: str, subnet_id: str) -> str:
    """The name of the zone in which a subnet lies."""
    name: str = backend(region).get_subnet(subnet_id).availability_zone
    return name


def market_of(instance: Any) -> str:
    """ "spot" or "on-demand"."""
    return "spot" if instance.lifecycle == "spot" else "on-demand"
