"""Whether the credentials may do what costopt does, asked without doing any of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from costopt_gcp.clients import Clients
from costopt_gcp.web_api import WebApi

ASKING = "testIamPermissions"


class Permissions:
    """Which permissions are missing. Every method raises ProviderError.

    https://cloud.google.com/iam/docs/testing-permissions: whoever asks may ask for themselves.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._projects = WebApi(clients, "cloudresourcemanager.googleapis.com")
        self._accounts = WebApi(clients, "iam.googleapis.com")
        self._buckets = WebApi(clients, "storage.googleapis.com")

    def missing_on_project(self, wanted: Collection[str]) -> tuple[str, ...]:
        """Of ``wanted``, at most 100, those that the project does not grant."""
        project = self._clients.project
        path, content = f"/v1/projects/{project}:{ASKING}", {"permissions": sorted(wanted)}
        return _missing(wanted, self._projects.post(ASKING, project, path, content))

    def missing_on_account(self, email: str, wanted: Collection[str]) -> tuple[str, ...]:
        """Of ``wanted``, those that a service account does not grant."""
        path = f"/v1/projects/-/serviceAccounts/{email}:{ASKING}"
        told = self._accounts.post(ASKING, email, path, {"permissions": sorted(wanted)})
        return _missing(wanted, told)

    def missing_on_bucket(self, bucket: str, wanted: Collection[str]) -> tuple[str, ...]:
        """Of ``wanted``, those that a bucket does not grant."""
        path, query = f"/storage/v1/b/{bucket}/iam/testPermissions", {"permissions": sorted(wanted)}
        return _missing(wanted, self._buckets.get(ASKING, f"bucket {bucket}", path, query))


def _missing(wanted: Collection[str], told: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(set(wanted) - set(told.get("permissions", ()))))
