"""Who may do what, which APIs are on, and the store's bucket as its API shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.support.gcp.responses import Call, RefusedError, Reply, missing


class Access:
    """Everything is granted and enabled but for what is ``denied`` and ``disabled``."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Nothing is denied; there is the bucket "runs"."""
        self.denied: set[str] = set()
        self.disabled: set[str] = set()
        self.others: set[str] = set()
        """Buckets of other projects."""
        self.buckets: dict[str, Mapping[str, Any]] = {
            "runs": {
                "name": "runs",
                "location": "US-CENTRAL1",
                "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
            }
        }

    def tested(self, call: Call) -> Reply:
        """projects.testIamPermissions, serviceAccounts.… and buckets.testIamPermissions."""
        asked = call.content.get("permissions") or call.query["permissions"].split()
        if call.action.startswith("buckets.") and call.names["on"] not in self.buckets:
            raise missing("buckets", call.names["on"])
        granted = [name for name in asked if name not in self.denied]
        return Reply({"permissions": granted} if granted else {})

    def services(self, call: Call) -> Reply:
        """services.batchGet of Service Usage."""
        reported = [
            {"name": name, "state": "DISABLED" if name in self._disabled() else "ENABLED"}
            for name in call.query["names"].split()
        ]
        return Reply({"services": reported})

    def bucket(self, call: Call) -> Reply:
        """buckets.get."""
        name = call.names["on"]
        if name in self.others:
            raise RefusedError(403, "forbidden", "You do not have storage.buckets.get access")
        if name not in self.buckets:
            raise missing("b", name)
        return Reply(self.buckets[name])

    def _disabled(self) -> set[str]:
        return {f"projects/project-1/services/{name}" for name in self.disabled}
