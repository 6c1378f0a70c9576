"""Service accounts, custom roles, and the grants that join them.

Shapes: https://cloud.google.com/iam/docs/reference/rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from costopt.domain.errors import ProviderError
from costopt.provider.setup import ResourceState
from costopt_gcp.setup.resource import (
    CONFLICT,
    NOT_FOUND,
    GcpProject,
    GcpStep,
    description,
    ignored,
    marks,
    status_of,
)

Change = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
POLICY_VERSION = 3
"""The first whose bindings may have conditions."""
ABORTED = 412
"""Cloud Storage's answer where somebody else changed the policy in between."""
UNKNOWN_MEMBER = 400
UNKNOWN_S = 2.0
"""A service account that was just made may be unknown to policies for seconds:
https://cloud.google.com/iam/docs/service-accounts-create ("eventually consistent")."""
RETRIED = (CONFLICT, ABORTED, UNKNOWN_MEMBER)


class ServiceAccountStep(GcpStep):
    """A service account; what is granted to it are steps of their own."""

    kind = "service account"
    host = "iam.googleapis.com"
    collection = "iam.serviceAccounts"

    def __init__(
        self, project: GcpProject, name: str, about: str, email: str | None = None
    ) -> None:
        """``email`` is the address where another than the project's own is named."""
        super().__init__(project, name)
        self._about = about
        self._accounts = f"/v1/projects/{project.name}/serviceAccounts"
        domain = ".".join(reversed(project.name.split(":")))
        self.email = email or f"{name}@{domain}.iam.gserviceaccount.com"

    def state(self) -> ResourceState:
        found = self._find(f"{self._accounts}/{self.email}")
        if found is None:
            return ResourceState.MISSING
        return self._state(marks(str(found.get("description", ""))), True)

    def create(self) -> None:
        account = {"displayName": self._about, "description": description(self._project)}
        self._create(self._accounts, {"accountId": self.name, "serviceAccount": account})

    def remove(self) -> None:
        self._delete(f"{self._accounts}/{self.email}")


class CustomRoleStep(GcpStep):
    """A custom role of the project. Google keeps a deleted one, and its name, for weeks: it is
    undeleted then."""

    kind = "role"
    host = "iam.googleapis.com"
    collection = "iam.roles"

    def __init__(self, project: GcpProject, name: str, role: Mapping[str, Any]) -> None:
        super().__init__(project, name)
        self._role = {**role, "description": description(project)}
        self._printed = role
        self._roles = f"/v1/projects/{project.name}/roles"

    @property
    def resource(self) -> str:
        """Return the role's name as grants have it."""
        return f"projects/{self._project.name}/roles/{self.name}"

    def state(self) -> ResourceState:
        found = self._find(f"{self._roles}/{self.name}")
        if found is None or found.get("deleted"):
            return ResourceState.MISSING
        has, needs = found.get("includedPermissions", ()), self._role["includedPermissions"]
        return self._state(marks(str(found.get("description", ""))), set(has) == set(needs))

    def create(self) -> None:
        found = self._find(f"{self._roles}/{self.name}")
        if found is None:
            self._create(self._roles, {"roleId": self.name, "role": self._role})
            return
        if found.get("deleted"):
            self._ask("undelete", "POST", f"{self._roles}/{self.name}:undelete", {})
        self._ask("update", "PATCH", f"{self._roles}/{self.name}", self._role)

    def remove(self) -> None:
        found = self._find(f"{self._roles}/{self.name}")
        if found is not None and not found.get("deleted"):
            self._delete(f"{self._roles}/{self.name}")

    def policy(self) -> Mapping[str, object]:
        return self._printed


class PolicyForm(Enum):
    """How an API reads a policy: https://cloud.google.com/iam/docs/policies#versions."""

    PROJECT = "options in the body"
    ACCOUNT = "options in the query, and an empty body"
    BUCKET = "a resource of its own"


@dataclass(frozen=True, slots=True)
class PolicyPlace:
    """Where a policy is read and written: a project, a service account or a bucket."""

    host: str
    collection: str
    label: str
    path: str
    form: PolicyForm


class GrantStep(GcpStep):
    """A member has a role on something, under a condition or none. Others' grants stay as they are.

    A policy is read, changed and written with its etag, and read again where it has changed
    meanwhile: https://cloud.google.com/iam/docs/policies#etag.
    """

    kind = "grant"
    ATTEMPTS = 5

    def __init__(
        self,
        project: GcpProject,
        where: PolicyPlace,
        role: CustomRoleStep,
        account: ServiceAccountStep,
        condition: Mapping[str, str] | None = None,
    ) -> None:
        self.host, self.collection = where.host, where.collection
        super().__init__(project, f"{role.name} to {account.name}", where.label)
        self._where = where
        self._role = role.resource
        self._member = f"serviceAccount:{account.email}"
        self._condition = dict(condition) if condition else None

    def state(self) -> ResourceState:
        policy = self._read() or {}
        has = any(map(self._is_ours, policy.get("bindings", ())))
        return ResourceState.READY if has else ResourceState.MISSING

    def create(self) -> None:
        binding: dict[str, Any] = {"role": self._role, "members": [self._member]}
        if self._condition:
            binding["condition"] = self._condition

        def add(bindings: list[dict[str, Any]]) -> list[dict[str, Any]]:
            return bindings if any(map(self._is_ours, bindings)) else [*bindings, binding]

        self._change(add)

    def remove(self) -> None:
        def take(bindings: list[dict[str, Any]]) -> list[dict[str, Any]]:
            left = []
            for each in bindings:
                members = list(each["members"])
                if self._is_ours(each):
                    members.remove(self._member)
                if members:
                    left.append({**each, "members": members})
            return left

        self._change(take)

    def _is_ours(self, binding: Mapping[str, Any]) -> bool:
        return (
            binding["role"] == self._role
            and self._member in binding["members"]
            and binding.get("condition") == self._condition
        )

    def _read(self) -> Mapping[str, Any] | None:
        """Return the policy, None where what it is of does not exist."""
        found: Mapping[str, Any] | None = None
        path, verb = self._where.path, "getIamPolicy"
        with ignored(NOT_FOUND):
            match self._where.form:
                case PolicyForm.BUCKET:
                    version = {"optionsRequestedPolicyVersion": POLICY_VERSION}
                    found = self._ask(verb, "GET", f"{path}/iam", **version)
                case PolicyForm.ACCOUNT:
                    asked = {"options.requestedPolicyVersion": POLICY_VERSION}
                    found = self._ask(verb, "POST", f"{path}:{verb}", **asked)
                case PolicyForm.PROJECT:
                    options = {"options": {"requestedPolicyVersion": POLICY_VERSION}}
                    found = self._ask(verb, "POST", f"{path}:{verb}", options)
        return found

    def _change(self, change: Change) -> None:
        for attempt in range(self.ATTEMPTS):
            before = self._read()
            if before is None:
                return
            bindings = [dict(each) for each in before.get("bindings", ())]
            after = change(bindings)
            if after == bindings:
                return
            policy = {**before, "version": POLICY_VERSION, "bindings": after}
            try:
                self._write(policy)
            except ProviderError as error:
                if status_of(error) not in RETRIED or attempt + 1 == self.ATTEMPTS:
                    raise
                if status_of(error) == UNKNOWN_MEMBER:
                    time.sleep(UNKNOWN_S * (attempt + 1))
            else:
                return

    def _write(self, policy: Mapping[str, Any]) -> None:
        path = self._where.path
        if self._where.form is PolicyForm.BUCKET:
            self._ask("setIamPolicy", "PUT", f"{path}/iam", policy)
        else:
            self._ask("setIamPolicy", "POST", f"{path}:setIamPolicy", {"policy": policy})
