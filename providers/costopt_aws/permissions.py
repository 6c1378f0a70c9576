"""Whether the credentials may do what costopt does, asked without doing any of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from costopt.domain.errors import BadRequestError, ForbiddenError, ProviderError
from costopt_aws import tags
from costopt_aws.clients import Clients
from costopt_aws.errors import code_of, map_errors

HOME = "us-east-1"
WOULD_WORK = "DryRunOperation"
PROBE = "costopt-doctor"
_ASSUMED = re.compile(
    r"arn:(?P<partition>[\w-]+):sts::(?P<account>\d+):assumed-role/(?P<role>[^/]+)/"
)


class Permissions:
    """SimulatePrincipalPolicy where that is allowed, dry runs of what can be dry-run otherwise.

    A dry run also sees limits that are set on the account as a whole; the simulation does not.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def simulated(
        self, arn: str, needed: Mapping[str, Any], region: str
    ) -> Mapping[str, tuple[str, ...]]:
        """By action, the resources on which the principal may not do what a policy needs.

        Each statement of ``needed`` is asked about one resource of each kind that it names, under
        the conditions that it sets. Raises ProviderError.
        """
        denied: dict[str, list[str]] = {}
        for statement in needed["Statement"]:
            for action, resource in self._denied(arn, statement, region):
                denied.setdefault(action, []).append(resource)
        return {action: tuple(sorted(set(found))) for action, found in sorted(denied.items())}

    def _denied(
        self, arn: str, statement: Mapping[str, Any], region: str
    ) -> Iterator[tuple[str, str]]:
        account = arn.split(":")[4]
        resources = [_example(each, region, account) for each in statement["Resource"]]
        with map_errors("iam:SimulatePrincipalPolicy", arn):
            pages = (
                self._clients.reading("iam", HOME)
                .get_paginator("simulate_principal_policy")
                .paginate(
                    PolicySourceArn=_principal(arn),
                    ActionNames=statement["Action"],
                    ResourceArns=resources,
                    ContextEntries=list(_contexts(statement)),
                )
            )
            results = [result for page in pages for result in page["EvaluationResults"]]
            denied = [
                (result["EvalActionName"], result.get("EvalResourceName", "*"))
                for result in results
                if result["EvalDecision"] != "allowed"
            ]
        yield from denied

    def dry_runs(
        self, region: str, image_id: str, owner: str, network: Mapping[str, Any]
    ) -> Iterator[ForbiddenError]:
        """The refusals of a launch and of what goes with it, in one region.

        ``network``: the arguments SubnetId and SecurityGroupIds of a launch there.
        """
        client = self._clients.launching(region)
        owned = tags.make_tags(owner=owner)
        tries: Mapping[str, tuple[str, dict[str, Any]]] = {
            "ec2:RunInstances": (
                "run_instances",
                {
                    "ImageId": image_id,
                    "InstanceType": "g5.xlarge",
                    "MinCount": 1,
                    "MaxCount": 1,
                    "TagSpecifications": [
                        {"ResourceType": kind, "Tags": owned} for kind in tags.LAUNCHED
                    ],
                    **network,
                },
            ),
            "ec2:CreateLaunchTemplate": (
                "create_launch_template",
                {
                    "LaunchTemplateName": PROBE,
                    "LaunchTemplateData": {"InstanceType": "g5.xlarge"},
                    "TagSpecifications": [{"ResourceType": "launch-template", "Tags": owned}],
                },
            ),
            "ec2:CreatePlacementGroup": (
                "create_placement_group",
                {
                    "GroupName": PROBE,
                    "Strategy": "cluster",
                    "TagSpecifications": [{"ResourceType": "placement-group", "Tags": owned}],
                },
            ),
        }
        for action, (method, arguments) in tries.items():
            try:
                with map_errors(action, region):
                    getattr(client, method)(DryRun=True, **arguments)
            except ForbiddenError as error:
                if code_of(error) != WOULD_WORK:
                    yield error
            except BadRequestError:
                # Allowed, or wrong in a way that only a real launch would tell.
                continue
            except ProviderError:
                continue


def _example(arn: str, region: str, account: str) -> str:
    """A resource that a policy's pattern matches."""
    if arn == "*":
        return arn
    head, partition, service, where, owner, name = arn.split(":", 5)
    where, owner = where.replace("*", region), owner.replace("*", account)
    return ":".join((head, partition, service, where, owner, name.replace("*", PROBE)))


def _contexts(statement: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    """What meets the conditions of a statement."""
    for keys in statement.get("Condition", {}).values():
        for name, values in keys.items():
            value = values if isinstance(values, str) else values[0]
            yield {
                "ContextKeyName": name,
                "ContextKeyValues": [value.replace("*", PROBE)],
                "ContextKeyType": "string",
            }


def _principal(arn: str) -> str:
    """The role behind a session: what can be simulated. A role with a path is not found by it."""
    session = _ASSUMED.match(arn)
    if session is None:
        return arn
    return f"arn:{session['partition']}:iam::{session['account']}:role/{session['role']}"
