"""What `costopt setup gcp` creates: service accounts, custom roles, buckets, grants and a firewall
rule, in the shapes of Google's REST APIs.

Newer APIs (IAM, Resource Manager) word errors with a status, older ones with a reason. A policy has
an etag, and one that is written with another is refused. A deleted role is kept, and its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.gcp.permissions import Access
from tests.support.gcp.responses import Answer, Call, RefusedError, Reply, missing

PAGE = 2
Policy = dict[str, Any]


class NewApiError(RefusedError):
    """An error as IAM words it."""

    def __init__(self, code: int, status: str, message: str) -> None:
        super().__init__(code, status, message)
        self.reply = Reply({"error": {"code": code, "message": message, "status": status}}, code)


class AccountResources:
    """By name. ``access`` holds the buckets, which doctor looks at as well."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self.reset()

    def reset(self) -> None:
        """There are none; every policy is empty."""
        self.accounts: dict[str, dict[str, Any]] = {}
        self.roles: dict[str, dict[str, Any]] = {}
        self.firewalls: dict[str, dict[str, Any]] = {}
        self.objects: dict[str, list[dict[str, str]]] = {}
        self.policies: dict[str, Policy] = {}

    def answers(self) -> Iterator[tuple[str, str, str, Answer]]:
        """HTTP method, path, name and answer of every call."""
        accounts = "/v1/projects/[^/]+/serviceAccounts"
        one = f"{accounts}/(?P<name>[^/:]+)"
        yield "POST", accounts, "serviceAccounts.create", self.create_account
        yield "GET", one, "serviceAccounts.get", self.get_account
        yield "DELETE", one, "serviceAccounts.delete", self.delete_account
        yield "POST", f"{one}:getIamPolicy", "serviceAccounts.getIamPolicy", self.get_policy
        yield "POST", f"{one}:setIamPolicy", "serviceAccounts.setIamPolicy", self.set_policy
        roles = "/v1/projects/[^/]+/roles"
        one = f"{roles}/(?P<name>[^/:]+)"
        yield "POST", roles, "roles.create", self.create_role
        yield "GET", one, "roles.get", self.get_role
        yield "PATCH", one, "roles.patch", self.patch_role
        yield "DELETE", one, "roles.delete", self.delete_role
        yield "POST", f"{one}:undelete", "roles.undelete", self.undelete_role
        project = "/v1/projects/(?P<name>[^/:]+)"
        yield "POST", f"{project}:getIamPolicy", "projects.getIamPolicy", self.get_policy
        yield "POST", f"{project}:setIamPolicy", "projects.setIamPolicy", self.set_policy
        bucket = "/storage/v1/b/(?P<name>[^/]+)"
        yield "POST", "/storage/v1/b", "buckets.insert", self.create_bucket
        yield "PATCH", bucket, "buckets.patch", self.patch_bucket
        yield "DELETE", bucket, "buckets.delete", self.delete_bucket
        yield "GET", f"{bucket}/iam", "buckets.getIamPolicy", self.get_policy
        yield "PUT", f"{bucket}/iam", "buckets.setIamPolicy", self.set_policy
        yield "GET", f"{bucket}/o", "objects.list", self.list_objects
        yield "DELETE", f"{bucket}/o/(?P<object>.+)", "objects.delete", self.delete_object
        walls = "/compute/v1/projects/[^/]+/global/firewalls"
        one = f"{walls}/(?P<name>[^/]+)"
        yield "POST", walls, "firewalls.insert", self.create_firewall
        yield "GET", one, "firewalls.get", self.get_firewall
        yield "PATCH", one, "firewalls.patch", self.patch_firewall
        yield "DELETE", one, "firewalls.delete", self.delete_firewall

    def create_account(self, call: Call) -> Reply:
        """projects.serviceAccounts.create."""
        name = call.content["accountId"]
        assert 6 <= len(name) <= 30, name
        email = f"{name}@project-1.iam.gserviceaccount.com"
        if email in self.accounts:
            raise NewApiError(409, "ALREADY_EXISTS", f"Service account {name} already exists")
        self.accounts[email] = {"email": email, **call.content["serviceAccount"]}
        return Reply(self.accounts[email])

    def get_account(self, call: Call) -> Reply:
        """projects.serviceAccounts.get."""
        return Reply(_found(self.accounts, call))

    def delete_account(self, call: Call) -> Reply:
        """projects.serviceAccounts.delete."""
        _found(self.accounts, call)
        del self.accounts[call.names["name"]]
        self.policies.pop(call.names["name"], None)
        return Reply({})

    def create_role(self, call: Call) -> Reply:
        """projects.roles.create."""
        name = call.content["roleId"]
        if name in self.roles:
            raise NewApiError(409, "ALREADY_EXISTS", f"A role named {name} already exists")
        self.roles[name] = {"name": f"projects/project-1/roles/{name}", **call.content["role"]}
        return Reply(self.roles[name])

    def get_role(self, call: Call) -> Reply:
        """projects.roles.get; a deleted one says so."""
        return Reply(_found(self.roles, call))

    def patch_role(self, call: Call) -> Reply:
        """projects.roles.patch."""
        _found(self.roles, call).update(call.content)
        return Reply(self.roles[call.names["name"]])

    def delete_role(self, call: Call) -> Reply:
        """projects.roles.delete."""
        role = _found(self.roles, call)
        if role.get("deleted"):
            raise NewApiError(400, "FAILED_PRECONDITION", "The role is deleted already")
        role["deleted"] = True
        return Reply(role)

    def undelete_role(self, call: Call) -> Reply:
        """projects.roles.undelete."""
        role = _found(self.roles, call)
        role.pop("deleted")
        return Reply(role)

    def create_bucket(self, call: Call) -> Reply:
        """buckets.insert."""
        name = call.content["name"]
        assert call.query["project"] == "project-1"
        if name in self._access.others or name in self._access.buckets:
            raise RefusedError(409, "conflict", "The requested bucket name is not available")
        location = call.content["location"].upper()
        self._access.buckets[name] = {**call.content, "location": location}
        return Reply(self._access.buckets[name])

    def patch_bucket(self, call: Call) -> Reply:
        """buckets.patch."""
        name = call.names["name"]
        self._access.buckets[name] = {**self._access.buckets[name], **call.content}
        return Reply(self._access.buckets[name])

    def delete_bucket(self, call: Call) -> Reply:
        """buckets.delete."""
        name = call.names["name"]
        if name not in self._access.buckets:
            raise missing("b", name)
        if self.objects.get(name):
            raise RefusedError(409, "conflict", "The bucket you tried to delete is not empty")
        del self._access.buckets[name]
        self.policies.pop(name, None)
        return Reply(status=204, page=b"")

    def list_objects(self, call: Call) -> Reply:
        """objects.list, two at a time; old versions where they are asked for."""
        listed = self.objects.get(call.names["name"], [])
        if call.query.get("versions") != "true":
            listed = [item for item in listed if "timeDeleted" not in item]
        first = int(call.query.get("pageToken") or 0)
        more = {"nextPageToken": str(first + PAGE)} if len(listed) > first + PAGE else {}
        return Reply({"items": listed[first : first + PAGE], **more})

    def delete_object(self, call: Call) -> Reply:
        """objects.delete of one generation."""
        objects = self.objects[call.names["name"]]
        key = call.names["object"], call.query["generation"]
        self.objects[call.names["name"]] = [
            item for item in objects if (item["name"], item["generation"]) != key
        ]
        return Reply(status=204, page=b"")

    def get_policy(self, call: Call) -> Reply:
        """getIamPolicy of a project, a service account or a bucket."""
        self._raise_if_missing(call)
        asked = {
            "projects": call.content.get("options", {}).get("requestedPolicyVersion"),
            "serviceAccounts": call.query.get("options.requestedPolicyVersion"),
            "buckets": call.query.get("optionsRequestedPolicyVersion"),
        }
        assert str(asked[call.action.partition(".")[0]]) == "3", "others' conditions would be lost"
        return Reply(self.policies.setdefault(call.names["name"], {"version": 1, "etag": "0"}))

    def set_policy(self, call: Call) -> Reply:
        """setIamPolicy; refused where the etag is an old one."""
        self._raise_if_missing(call)
        name = call.names["name"]
        policy = call.content.get("policy", call.content)
        before = self.policies.setdefault(name, {"version": 1, "etag": "0"})
        if policy["etag"] != before["etag"]:
            raise NewApiError(409, "ABORTED", "There were concurrent policy changes")
        if any("condition" in each for each in policy["bindings"]):
            assert policy["version"] == 3, "conditions need version 3"
        self.policies[name] = {**policy, "etag": str(int(before["etag"]) + 1)}
        return Reply(self.policies[name])

    def create_firewall(self, call: Call) -> Reply:
        """firewalls.insert."""
        name = call.content["name"]
        if name in self.firewalls:
            raise RefusedError(409, "alreadyExists", f"The resource '{name}' already exists")
        self.firewalls[name] = dict(call.content)
        return Reply({"name": "operation-1", "status": "RUNNING"})

    def get_firewall(self, call: Call) -> Reply:
        """firewalls.get."""
        name = call.names["name"]
        if name not in self.firewalls:
            raise missing("firewalls", name)
        return Reply(self.firewalls[name])

    def patch_firewall(self, call: Call) -> Reply:
        """firewalls.patch."""
        self.firewalls[call.names["name"]].update(call.content)
        return Reply({"name": "operation-2", "status": "RUNNING"})

    def delete_firewall(self, call: Call) -> Reply:
        """firewalls.delete."""
        if self.firewalls.pop(call.names["name"], None) is None:
            raise missing("firewalls", call.names["name"])
        return Reply({"name": "operation-3", "status": "RUNNING"})

    def _raise_if_missing(self, call: Call) -> None:
        kind, name = call.action.partition(".")[0], call.names["name"]
        if kind == "serviceAccounts":
            _found(self.accounts, call)
        if kind == "buckets" and name not in self._access.buckets:
            raise missing("b", name)


def _found(held: Mapping[str, dict[str, Any]], call: Call) -> dict[str, Any]:
    name = call.names["name"]
    if name not in held:
        raise NewApiError(404, "NOT_FOUND", f"{name} does not exist")
    return held[name]
