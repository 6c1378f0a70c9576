"""The security group of nodes in a region's default network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from costopt.domain.errors import BadRequestError
from costopt.provider.setup import ResourceState
from costopt_aws.errors import code_of
from costopt_aws.instances import parse_tags
from costopt_aws.setup.resource import AwsAccount, AwsStep


class SecurityGroupStep(AwsStep):
    """Nodes reach each other and all the world, and nothing else reaches them.

    EFA needs the rule for what goes to the group itself, too, which the network's own group lacks:
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-start.html
    """

    kind = "security group"
    service = "ec2"

    def __init__(self, account: AwsAccount, name: str, region: str) -> None:
        super().__init__(account, name, region, region)

    def group_id(self) -> str | None:
        """Return the group's id, None where there is none."""
        found = self._group()
        return None if found is None else str(found["GroupId"])

    def state(self) -> ResourceState:
        found = self._group()
        if found is None:
            self._network()
            return ResourceState.MISSING
        return self._state(
            parse_tags(found.get("Tags", ())),
            _reaches(found["IpPermissions"], found["GroupId"])
            and _reaches(found["IpPermissionsEgress"], found["GroupId"]),
        )

    def create(self) -> None:
        if self._group() is None:
            kind = "security-group"
            self._create(
                "create_security_group",
                GroupName=self.name,
                Description="costopt: training nodes reach each other",
                VpcId=self._network(),
                TagSpecifications=[{"ResourceType": kind, "Tags": self._account.tag_list()}],
            )
        group_id = self.group_id()
        rule = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group_id}]}
        for direction in ("ingress", "egress"):
            self._create(
                f"authorize_security_group_{direction}", GroupId=group_id, IpPermissions=[rule]
            )

    def remove(self) -> None:
        group_id = self.group_id()
        if group_id is None:
            return
        try:
            self._delete("delete_security_group", GroupId=group_id)
        except BadRequestError as error:
            if code_of(error) != "DependencyViolation":
                raise
            raise BadRequestError(
                error.message,
                hint="a node that has just ended holds its group for a minute: run it again",
            ) from error

    def _group(self) -> Mapping[str, Any] | None:
        filters = [{"Name": "group-name", "Values": [self.name]}]
        found = self._call("describe_security_groups", Filters=filters)["SecurityGroups"]
        return found[0] if found else None

    def _network(self) -> str:
        filters = [{"Name": "is-default", "Values": ["true"]}]
        found = self._call("describe_vpcs", Filters=filters)["Vpcs"]
        if not found:
            raise BadRequestError(
                f"{self.place} has no default network for nodes",
                hint=f"`aws ec2 create-default-vpc --region {self.place}` makes one, or name "
                "subnets and security_groups of your own in the account file",
            )
        return str(found[0]["VpcId"])


def _reaches(rules: list[Mapping[str, Any]], group_id: str) -> bool:
    return any(
        pair["GroupId"] == group_id
        for rule in rules
        if rule["IpProtocol"] == "-1"
        for pair in rule.get("UserIdGroupPairs", ())
    )
