"""The bucket of the store, as Cloud Storage describes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from costopt_gcp.clients import Clients
from costopt_gcp.web_api import WebApi

OF_OLD_VERSIONS = frozenset({"daysSinceNoncurrentTime", "numNewerVersions"})


@dataclass(frozen=True, slots=True)
class Bucket:
    """``location`` is a region, or the name of several ("us"). ``uniform``: who may do what is said
    by the bucket and not by each object. ``keeps_deleted_s``: for how long what was deleted is
    kept, and paid for. ``ends_versions``: a lifecycle rule deletes replaced ones wherever they are.
    """

    location: str
    versioned: bool
    uniform: bool
    keeps_deleted_s: int
    ends_versions: bool


def describe_bucket(clients: Clients, name: str) -> Bucket:
    """https://cloud.google.com/storage/docs/json_api/v1/buckets/get. Raises ProviderError."""
    api = WebApi(clients, "storage.googleapis.com")
    told = api.get("storage.buckets.get", f"bucket {name}", f"/storage/v1/b/{name}")
    uniform: Any = told.get("iamConfiguration", {}).get("uniformBucketLevelAccess", {})
    return Bucket(
        location=str(told.get("location", "")).lower(),
        versioned=bool(told.get("versioning", {}).get("enabled")),
        uniform=bool(uniform.get("enabled")),
        keeps_deleted_s=int(told.get("softDeletePolicy", {}).get("retentionDurationSeconds", 0)),
        ends_versions=any(
            _ends_versions(rule) for rule in told.get("lifecycle", {}).get("rule", [])
        ),
    )


def _ends_versions(rule: Mapping[str, Any]) -> bool:
    """https://cloud.google.com/storage/docs/lifecycle#conditions. A rule for some names, classes or
    files put in before some day is not one for all of them."""
    condition = set(rule.get("condition", {}))
    return (
        rule.get("action", {}).get("type") == "Delete"
        and bool(condition & OF_OLD_VERSIONS)
        and condition <= OF_OLD_VERSIONS | {"isLive", "age"}
    )
