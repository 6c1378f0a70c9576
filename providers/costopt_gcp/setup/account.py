"""All that the controller and its nodes need in a Google Cloud project, by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from costopt.provider.setup import AccountSetup, NamePrefix, SetupStep
from costopt_gcp.bootstrap import bucket_of
from costopt_gcp.clients import Clients
from costopt_gcp.options import GcpOptions
from costopt_gcp.roles import daemon_condition, node_conditions, setup_roles
from costopt_gcp.setup.accounts import (
    CustomRoleStep,
    GrantStep,
    PolicyForm,
    PolicyPlace,
    ServiceAccountStep,
)
from costopt_gcp.setup.bucket import StorageBucketStep
from costopt_gcp.setup.network import FirewallStep
from costopt_gcp.setup.resource import GcpProject


class GcpSetup(AccountSetup):
    """What the options name keeps its name, and the rest is named after the owner.

    Raise ForbiddenError where there are no credentials, BadRequestError for a store elsewhere.
    """

    def __init__(
        self, clients: Clients, options: GcpOptions, owner: str, store: str | None
    ) -> None:
        self._options = options
        self._project = GcpProject(clients, owner)
        self._prefix = str(NamePrefix(owner))
        self._has_store = store is not None
        plain = self._project.name.replace(":", "-").replace(".", "-")
        self._store = store or f"gs://{plain}-{self._prefix}/costopt"
        bucket_of(self._store)
        email = options.service_account
        name = email.partition("@")[0] if email else f"{self._prefix}-node"
        self._node = ServiceAccountStep(self._project, name, "costopt's training nodes", email)
        self._node.is_named = email is not None

    @property
    def store(self) -> str:
        return self._store

    @cached_property
    def steps(self) -> Sequence[SetupStep]:
        project, node = self._project, self._node
        daemon = ServiceAccountStep(project, f"{self._prefix}-daemon", "the costopt controller")
        bucket = StorageBucketStep(project, bucket_of(self._store), self._options.regions[0])
        bucket.is_named = self._has_store
        roles = {
            kind: CustomRoleStep(project, self._role_id(kind), role)
            for kind, role in setup_roles(bucket.name).items()
        }
        firewall = FirewallStep(project, f"{self._prefix}-gang", self._options.network, node)
        on_project = PolicyPlace(
            "cloudresourcemanager.googleapis.com",
            "resourcemanager.projects",
            "project",
            f"/v1/projects/{project.name}",
            PolicyForm.PROJECT,
        )
        on_node = PolicyPlace(
            "iam.googleapis.com",
            "iam.serviceAccounts",
            node.name,
            f"/v1/projects/{project.name}/serviceAccounts/{node.email}",
            PolicyForm.ACCOUNT,
        )
        on_bucket = PolicyPlace(
            "storage.googleapis.com",
            "storage.buckets",
            "bucket",
            f"/storage/v1/b/{bucket.name}",
            PolicyForm.BUCKET,
        )
        writes, reads = node_conditions(self._store)
        return (
            node,
            daemon,
            *roles.values(),
            bucket,
            firewall,
            GrantStep(project, on_project, roles["daemon"], daemon, daemon_condition()),
            GrantStep(project, on_node, roles["daemon-account"], daemon),
            GrantStep(project, on_bucket, roles["daemon-store"], daemon),
            GrantStep(project, on_bucket, roles["node"], node, writes),
            GrantStep(project, on_bucket, roles["node-read"], node, reads),
        )

    def options(self) -> Mapping[str, object]:
        return {
            "project": self._project.name,
            "regions": list(self._options.regions),
            "service_account": self._node.email,
        }

    def _role_id(self, kind: str) -> str:
        return f"{self._prefix}_{kind}".replace("-", "_")
