"""Roles of the controller and of nodes, and the instance profiles that give them to machines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from costopt.provider.setup import ResourceState
from costopt_aws.instances import parse_tags
from costopt_aws.setup.resource import AwsAccount, AwsStep

POLICY = "costopt"
Policy = Callable[[], Mapping[str, object]]


class RoleStep(AwsStep):
    """A role with one policy within it, whose size may be 10,240 characters."""

    kind = "role"
    service = "iam"

    def __init__(
        self,
        account: AwsAccount,
        name: str,
        region: str,
        about: str,
        trust: Mapping[str, object],
        permissions: Policy,
    ) -> None:
        super().__init__(account, name, "global", region)
        self._about = about
        self._trust = trust
        self._permissions = permissions

    def tags(self) -> dict[str, str] | None:
        """Return the role's tags, None where there is no role."""
        found = self._find("get_role", RoleName=self.name)
        return None if found is None else parse_tags(found["Role"].get("Tags", ()))

    def tag(self, key: str, value: str) -> None:
        """Add a tag to the role."""
        self._call("tag_role", RoleName=self.name, Tags=[{"Key": key, "Value": value}])

    def state(self) -> ResourceState:
        found = self._find("get_role", RoleName=self.name)
        if found is None:
            return ResourceState.MISSING
        role = found["Role"]
        return self._state(
            parse_tags(role.get("Tags", ())),
            role["AssumeRolePolicyDocument"] == self._trust
            and self._embedded() == self._permissions(),
        )

    def create(self) -> None:
        trust = json.dumps(self._trust)
        if self._find("get_role", RoleName=self.name) is None:
            self._create(
                "create_role",
                RoleName=self.name,
                AssumeRolePolicyDocument=trust,
                Description=self._about,
                Tags=self._account.tag_list(),
            )
            self._wait("role_exists", RoleName=self.name)
        self._call("update_assume_role_policy", RoleName=self.name, PolicyDocument=trust)
        self._call(
            "put_role_policy",
            RoleName=self.name,
            PolicyName=POLICY,
            PolicyDocument=json.dumps(self._permissions()),
        )

    def remove(self) -> None:
        self._delete("delete_role_policy", RoleName=self.name, PolicyName=POLICY)
        self._delete("delete_role", RoleName=self.name)

    def policy(self) -> Mapping[str, object]:
        return self._permissions()

    def _embedded(self) -> object:
        found = self._find("get_role_policy", RoleName=self.name, PolicyName=POLICY)
        return None if found is None else found["PolicyDocument"]


class InstanceProfileStep(AwsStep):
    """An instance profile that holds the role of its name."""

    kind = "instance profile"
    service = "iam"

    def __init__(self, account: AwsAccount, name: str, region: str) -> None:
        super().__init__(account, name, "global", region)

    def state(self) -> ResourceState:
        found = self._find("get_instance_profile", InstanceProfileName=self.name)
        if found is None:
            return ResourceState.MISSING
        profile = found["InstanceProfile"]
        roles = [role["RoleName"] for role in profile["Roles"]]
        return self._state(parse_tags(profile.get("Tags", ())), roles == [self.name])

    def create(self) -> None:
        if self._find("get_instance_profile", InstanceProfileName=self.name) is None:
            self._create(
                "create_instance_profile",
                InstanceProfileName=self.name,
                Tags=self._account.tag_list(),
            )
            self._wait("instance_profile_exists", InstanceProfileName=self.name)
        if self.state() is ResourceState.INCOMPLETE:
            self._call(
                "add_role_to_instance_profile", InstanceProfileName=self.name, RoleName=self.name
            )

    def remove(self) -> None:
        named = {"InstanceProfileName": self.name}
        found = self._find("get_instance_profile", **named)
        if found is None:
            return
        if any(role["RoleName"] == self.name for role in found["InstanceProfile"]["Roles"]):
            self._delete("remove_role_from_instance_profile", RoleName=self.name, **named)
        self._delete("delete_instance_profile", **named)
