"""The bucket of the store, as Cloud Storage describes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from costopt_gcp.clients import Clients
from costopt_gcp.web_api import WebApi


@dataclass(frozen=True, slots=True)
class Bucket:
    """``location`` is a region, or the name of several ("us"). ``uniform``: who may do what is said
    by the bucket and not by each object. ``keeps_deleted_s``: for how long what was deleted is
    kept, and paid for.
    """

    location: str
    versioned: bool
    uniform: bool
    keeps_deleted_s: int


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
    )
