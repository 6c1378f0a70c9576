"""Which APIs the project has enabled."""

from __future__ import annotations

from collections.abc import Collection

from costopt_gcp.clients import Clients
from costopt_gcp.web_api import WebApi

NEEDED = ("compute.googleapis.com", "storage.googleapis.com")
USEFUL = {
    "cloudbilling.googleapis.com": "list prices are the catalogue's, which are dated",
    "cloudresourcemanager.googleapis.com": "permissions cannot be tested",
    "iam.googleapis.com": "permissions on the nodes' account cannot be tested",
}
"""What goes without them, and how."""


def disabled_apis(clients: Clients, wanted: Collection[str]) -> frozenset[str]:
    """Of ``wanted``, at most 20, those that are off. Raises ProviderError.

    https://cloud.google.com/service-usage/docs/reference/rest/v1/services/batchGet
    """
    parent = f"projects/{clients.project}"
    api = WebApi(clients, "serviceusage.googleapis.com")
    told = api.get(
        "serviceusage.services.get",
        parent,
        f"/v1/{parent}/services:batchGet",
        {"names": [f"{parent}/services/{name}" for name in wanted]},
    )
    enabled = {
        str(service["name"]).rpartition("/")[2]
        for service in told.get("services", ())
        if service.get("state") == "ENABLED"
    }
    return frozenset(wanted) - enabled
