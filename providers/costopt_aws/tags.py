"""The tags by which costopt knows its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

OWNER = "costopt:owner"
JOB = "costopt:job"
KEY = "costopt:key"
POOL = "costopt:pool"
PRICE = "costopt:usd-per-hour"
"""The price at launch, so that a restarted controller knows it."""

LAUNCHED = ("instance", "network-interface", "volume")
"""What a launch makes and tags, as EC2 names the kinds."""

Tags = list[dict[str, str]]


def make_tags(**named: str) -> Tags:
    """As the API wants them: ``tags(owner="me")`` is the owner tag, ``Name`` stays as it is."""
    names = {"owner": OWNER, "job": JOB, "key": KEY, "pool": POOL, "usd_per_hour": PRICE}
    return [{"Key": names.get(name, name), "Value": value} for name, value in named.items()]


def parse_tags(listed: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """As a mapping."""
    return {tag["Key"]: tag["Value"] for tag in listed}


def owner_filter(owner: str) -> dict[str, object]:
    """The filter of a Describe call for what carries this owner tag."""
    return {"Name": f"tag:{OWNER}", "Values": [_literal(owner)]}


def launch_key_filter(key: str) -> dict[str, object]:
    """The filter of a Describe call for the nodes of one launch."""
    return {"Name": f"tag:{KEY}", "Values": [_literal(key)]}


def _literal(value: str) -> str:
    """EC2 takes * and ? in filters for wildcards, unless they are escaped."""
    return value.replace("\\", "\\\\").replace("*", "\\*").replace("?", "\\?")
