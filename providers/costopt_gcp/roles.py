"""Minimal custom roles of IAM for the controller and for nodes, and checks of the permissions.

The checks ask whether the credentials may do what costopt does, without doing any of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from costopt_gcp.clients import Clients, WebApi
from costopt_gcp.instances import NAMES

PROJECT = (
    "compute.acceleratorTypes.list",
    "compute.advice.capacity",
    "compute.advice.capacityHistory",
    "compute.disks.create",
    "compute.disks.delete",
    "compute.disks.list",
    "compute.disks.setLabels",
    "compute.futureReservations.list",
    "compute.images.get",
    "compute.images.getFromFamily",
    "compute.images.useReadOnly",
    "compute.instanceTemplates.delete",
    "compute.instanceTemplates.list",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setServiceAccount",
    "compute.machineTypes.list",
    "compute.networks.use",
    "compute.networks.useExternalIp",
    "compute.projects.get",
    "compute.regionOperations.get",
    "compute.regions.get",
    "compute.reservations.list",
    "compute.resourcePolicies.create",
    "compute.resourcePolicies.delete",
    "compute.resourcePolicies.list",
    "compute.resourcePolicies.use",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
    "compute.zoneOperations.get",
    "compute.zoneOperations.list",
    "serviceusage.services.get",
)
ACCOUNT = ("iam.serviceAccounts.actAs",)
"""On the nodes' service account."""
STORE = (
    "storage.multipartUploads.abort",
    "storage.multipartUploads.create",
    "storage.objects.create",
    "storage.objects.delete",
    "storage.objects.get",
    "storage.objects.list",
    "storage.objects.update",
)
"""Large objects are uploaded in parts: https://cloud.google.com/storage/docs/access-control/iam-xml."""
READ = ("storage.objects.get", "storage.objects.list")
"""Of these, what nodes may do with what they only read."""
BUCKET = ("storage.buckets.get", *STORE)
"""The controller's permissions on the store's bucket."""
BY_NAME = {"Instance": "instances", "Disk": "disks"}
"""Types of resources recognized by their names, with the collections that they are in."""
PREDEFINED = {
    "compute.advice.": "roles/compute.viewer",
    "compute.futureReservations.": "roles/compute.viewer",
    "compute.": "roles/compute.instanceAdmin.v1",
    "iam.serviceAccounts.": "roles/iam.serviceAccountUser",
    "serviceusage.": "roles/serviceusage.serviceUsageViewer",
    "storage.buckets.": "roles/storage.legacyBucketReader",
    "storage.multipartUploads.": "roles/storage.objectUser",
    "storage.objects.": "roles/storage.objectUser",
}
"""Google's own roles by the beginning of what they grant; the first that fits
(cloud.google.com/iam/docs/roles-permissions)."""


def role_with(permission: str) -> str:
    """Return a predefined role that grants one of these permissions, and more."""
    return next(role for begin, role in PREDEFINED.items() if permission.startswith(begin))


def setup_roles(bucket: str | None) -> Mapping[str, dict[str, object]]:
    """Return the custom roles of the controller and of nodes, for ``gcloud iam roles create
    --file``; each is granted where its description says and nowhere else."""
    where = "the store's bucket" if bucket is None else f"bucket {bucket}"
    return {
        "daemon": _role(
            "daemon", "Starts, lists and deletes nodes; grant it on the project", PROJECT
        ),
        "daemon-account": _role(
            "daemon account", "Gives nodes their account; grant it on that account alone", ACCOUNT
        ),
        "daemon-store": _role(
            "daemon store", f"Finds, reads and writes the store; grant it on {where} alone", BUCKET
        ),
        "node": _role("node", f"Reads and writes the store; grant it on {where} alone", STORE),
        "node-read": _role("node read", f"Reads the store; grant it on {where} alone", READ),
    }


def _role(title: str, about: str, permissions: Collection[str]) -> dict[str, object]:
    return {
        "title": f"costopt {title}",
        "description": about,
        "stage": "GA",
        "includedPermissions": list(permissions),
    }


def daemon_condition() -> dict[str, str]:
    """For ``gcloud projects add-iam-policy-binding --condition-from-file``, with the role "daemon".

    Of machines and disks it leaves those whose names begin as ours do. Conditions see names, types
    and Resource Manager tags, and no labels
    (cloud.google.com/iam/docs/conditions-resource-attributes).
    """
    types = " && ".join(f"resource.type != 'compute.googleapis.com/{kind}'" for kind in BY_NAME)
    names = (
        f"resource.name.extract('/{collection}/{{name}}').startsWith('{NAMES}')"
        for collection in BY_NAME.values()
    )
    return {
        "title": "costopt machines",
        "description": "Of machines and disks, those that costopt made",
        "expression": " || ".join((f"({types})", *names)),
    }


def node_conditions(store: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the conditions under which nodes write, and read: within the store's prefix, and never
    writing what they start from. Names of objects are listed for the whole bucket or not at all."""
    parts = urlsplit(store)
    prefix = parts.path.strip("/")
    within = f"projects/_/buckets/{parts.netloc}/objects/{prefix}{'/' if prefix else ''}"
    writes = (
        f"resource.name.startsWith('{within}') && !resource.name.startsWith('{within}payloads/')"
    )
    reads = (
        f"resource.type != 'storage.googleapis.com/Object' || resource.name.startsWith('{within}')"
    )
    return {"title": "writes", "expression": writes}, {"title": "reads", "expression": reads}


READS = {
    "secrets": "secretmanager.versions.access",
    "repositories": "artifactregistry.repositories.downloadArtifacts",
}
"""What nodes need on secrets, and on repositories of images."""
MAX_DESCRIPTION = 256


def read_role(kind: str, names: Collection[str]) -> dict[str, object]:
    """Return the role with which nodes read these "secrets", or pull from these "repositories";
    grant it on each of them, not on the project."""
    listed = f"Grant it on these {kind} alone: {', '.join(sorted(names))}"
    fits = len(listed) <= MAX_DESCRIPTION
    about = listed if fits else f"Grant it on each of the {kind} alone"
    return _role(f"node {kind}", about, [READS[kind]])


ASKING = "testIamPermissions"


class Permissions:
    """Which permissions are missing. Every method raises ProviderError.

    https://cloud.google.com/iam/docs/testing-permissions: every caller may test its own
    permissions.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._projects = WebApi(clients, "cloudresourcemanager.googleapis.com")
        self._accounts = WebApi(clients, "iam.googleapis.com")
        self._buckets = WebApi(clients, "storage.googleapis.com")

    def missing_on_project(self, wanted: Collection[str]) -> tuple[str, ...]:
        """Return those of ``wanted``, at most 100, that the project does not grant."""
        project = self._clients.project
        path, content = f"/v1/projects/{project}:{ASKING}", {"permissions": sorted(wanted)}
        return _missing(wanted, self._projects.post(ASKING, project, path, content))

    def missing_on_account(self, email: str, wanted: Collection[str]) -> tuple[str, ...]:
        """Return those of ``wanted`` that a service account does not grant."""
        path = f"/v1/projects/-/serviceAccounts/{email}:{ASKING}"
        response = self._accounts.post(ASKING, email, path, {"permissions": sorted(wanted)})
        return _missing(wanted, response)

    def missing_on_bucket(self, bucket: str, wanted: Collection[str]) -> tuple[str, ...]:
        """Return those of ``wanted`` that a bucket does not grant."""
        path, query = f"/storage/v1/b/{bucket}/iam/testPermissions", {"permissions": sorted(wanted)}
        return _missing(wanted, self._buckets.get(ASKING, f"bucket {bucket}", path, query))


def _missing(wanted: Collection[str], response: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(set(wanted) - set(response.get("permissions", ()))))
