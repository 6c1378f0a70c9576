"""The bucket where nodes and controller exchange code, messages and checkpoints.

Shapes: https://cloud.google.com/storage/docs/json_api/v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from costopt.domain.errors import BadRequestError, ForbiddenError, ProviderError
from costopt.provider.setup import ResourceState, covers
from costopt_gcp.setup.resource import CONFLICT, GcpProject, GcpStep, status_of

KEEP_OLD_DAYS = 7
ABORT_UPLOADS_DAYS = 2
"""Both as in terraform/modules/gcp/store.tf."""
MAX_LISTED = 1000
TAKEN = "bucket names are shared by all projects: choose another with --store gs://NAME/costopt"
SETTINGS: Mapping[str, Any] = {
    "iamConfiguration": {
        "uniformBucketLevelAccess": {"enabled": True},
        "publicAccessPrevention": "enforced",
    },
    "versioning": {"enabled": True},
    # Versions keep what was deleted; Google would keep these, too, and charge for it.
    "softDeletePolicy": {"retentionDurationSeconds": "0"},
    "lifecycle": {
        "rule": [
            {
                "action": {"type": "Delete"},
                "condition": {"daysSinceNoncurrentTime": KEEP_OLD_DAYS},
            },
            {
                "action": {"type": "AbortIncompleteMultipartUpload"},
                "condition": {"age": ABORT_UPLOADS_DAYS},
            },
        ]
    },
}
"""Private, versioned, and without what is old; Google encrypts every bucket."""


class StorageBucketStep(GcpStep):
    """A bucket, which is created with its labels and settings in one call."""

    kind = "bucket"
    host = "storage.googleapis.com"
    collection = "storage.buckets"

    def __init__(self, project: GcpProject, name: str, region: str) -> None:
        super().__init__(project, name, region)
        self._path = f"/storage/v1/b/{name}"

    def state(self) -> ResourceState:
        found = self._bucket()
        if found is None:
            return ResourceState.MISSING
        self.place = str(found.get("location", self.place)).lower()
        return self._state(found.get("labels", {}), covers(found, SETTINGS))

    def create(self) -> None:
        if self._bucket() is not None:
            self._ask("update", "PATCH", self._path, SETTINGS)
            return
        bucket = {
            **SETTINGS,
            "name": self.name,
            "location": self.place,
            "labels": self._project.labels,
        }
        try:
            self._ask("create", "POST", "/storage/v1/b", bucket, project=self._project.name)
        except ProviderError as error:
            if status_of(error) != CONFLICT:
                raise
            if self.state() is ResourceState.FOREIGN:
                raise BadRequestError(f"bucket {self.name} is another's", hint=TAKEN) from error

    def remove(self) -> None:
        if self._bucket() is None:
            return
        # The first page each time, until there is none.
        while items := self._objects(versions="true"):
            for item in items:
                generation = {"generation": item["generation"]}
                self._delete(f"{self._path}/o/{quote(item['name'], safe='')}", **generation)
        self._delete(self._path)

    def contents(self) -> str:
        count = len(self._objects())
        more = " or more" if count == MAX_LISTED else ""
        return f"{count}{more} objects" if count else ""

    def _bucket(self) -> Mapping[str, Any] | None:
        try:
            return self._find(self._path)
        except ForbiddenError as error:
            if status_of(error) != 403:
                raise
            raise ForbiddenError(
                f"bucket {self.name}: it belongs to another project, or the credentials may not "
                "storage.buckets.get",
                hint=TAKEN,
            ) from error

    def _objects(self, **query: object) -> list[Mapping[str, Any]]:
        """Return the first page of the bucket's objects."""
        page = self._ask("list", "GET", f"{self._path}/o", maxResults=MAX_LISTED, **query)
        return list(page.get("items", ()))
