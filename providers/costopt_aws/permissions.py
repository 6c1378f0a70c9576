"""Whether the credentials may do what costopt does, asked without doing any of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from costopt.domain.errors import BadRequestError, ForbiddenError, ProviderError
from costopt_aws import tags
from costopt_aws.clients import Clients
from costopt_aws.errors import asking, code_of

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

    def simulated(self, arn: str, allowed: frozenset[str], owner: str) -> tuple[str, ...]:
        """Which of these actions the principal may not do. Raises ProviderError."""
        context = [
            _context("aws:RequestTag/" + tags.OWNER, owner),
            _context("aws:ResourceTag/" + tags.OWNER, owner),
            _context("ec2:CreateAction", "RunInstances"),
            _context("iam:PassedToService", "ec2.amazonaws.com"),
            _context("iam:AWSServiceName", "spot.amazonaws.com"),
        ]
        with asking("iam:SimulatePrincipalPolicy", arn):
            pages = (
                self._clients.reading("iam", HOME)
                .get_paginator("simulate_principal_policy")
                .paginate(
                    PolicySourceArn=_principal(arn),
                    ActionNames=sorted(allowed),
                    ContextEntries=context,
                )
            )
            results = [result for page in pages for result in page["EvaluationResults"]]
            return tuple(r["EvalActionName"] for r in results if r["EvalDecision"] != "allowed")

    def dry_runs(self, region: str, image_id: str, owner: str) -> Iterator[ForbiddenError]:
        """The refusals of a launch and of what goes with it, in one region."""
        client = self._clients.launching(region)
        owned = tags.tags(owner=owner)
        tries: Mapping[str, tuple[str, dict[str, Any]]] = {
            "ec2:RunInstances": (
                "run_instances",
                {
                    "ImageId": image_id,
                    "InstanceType": "g5.xlarge",
                    "MinCount": 1,
                    "MaxCount": 1,
                    "TagSpecifications": [{"ResourceType": "instance", "Tags": owned}],
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
                with asking(action, region):
                    getattr(client, method)(DryRun=True, **arguments)
            except ForbiddenError as error:
                if code_of(error) != WOULD_WORK:
                    yield error
            except BadRequestError:
                # Allowed, or wrong in a way that only a real launch would tell.
                continue
            except ProviderError:
                continue


def _context(name: str, value: str) -> dict[str, object]:
    return {"ContextKeyName": name, "ContextKeyValues": [value], "ContextKeyType": "string"}


def _principal(arn: str) -> str:
    """The role behind a session: what can be simulated. A role with a path is not found by it."""
    session = _ASSUMED.match(arn)
    if session is None:
        return arn
    return f"arn:{session['partition']}:iam::{session['account']}:role/{session['role']}"
