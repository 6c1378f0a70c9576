"""The firewall rule by which nodes reach each other."""

from __future__ import annotations

from costopt.provider.setup import ResourceState
from costopt_gcp.setup.accounts import ServiceAccountStep
from costopt_gcp.setup.resource import GcpProject, GcpStep, description, marks


class FirewallStep(GcpStep):
    """What has the nodes' service account reaches what has it, and nothing else is let in.

    https://cloud.google.com/compute/docs/reference/rest/v1/firewalls. Google creates and deletes a
    rule within seconds of the answer.
    """

    kind = "firewall rule"
    host = "compute.googleapis.com"
    collection = "compute.firewalls"

    def __init__(
        self, project: GcpProject, name: str, network: str, account: ServiceAccountStep
    ) -> None:
        super().__init__(project, name)
        self._firewalls = f"/compute/v1/projects/{project.name}/global/firewalls"
        self._rule = {
            "name": name,
            "description": description(project),
            "network": network,
            "direction": "INGRESS",
            "sourceServiceAccounts": [account.email],
            "targetServiceAccounts": [account.email],
            "allowed": [{"IPProtocol": "all"}],
        }

    def state(self) -> ResourceState:
        found = self._find(f"{self._firewalls}/{self.name}")
        if found is None:
            return ResourceState.MISSING
        is_complete = all(
            found.get(key) == self._rule[key]
            for key in ("sourceServiceAccounts", "targetServiceAccounts", "allowed")
        )
        return self._state(marks(str(found.get("description", ""))), is_complete)

    def create(self) -> None:
        if self._find(f"{self._firewalls}/{self.name}") is None:
            self._create(self._firewalls, self._rule)
        else:
            self._ask("update", "PATCH", f"{self._firewalls}/{self.name}", self._rule)

    def remove(self) -> None:
        self._delete(f"{self._firewalls}/{self.name}")
