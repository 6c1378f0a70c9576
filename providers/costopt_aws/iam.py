"""Minimal IAM policies for the controller and for nodes, and checks of the permissions.

Launching and terminating are bound to the owner tag, so that neither can touch what is not ours,
and launches use only what the account's options name (``launch_scope``).
Condition keys: https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html

The checks ask whether the credentials may do what costopt does, without doing any of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from costopt.domain.errors import BadRequestError, ForbiddenError, ProviderError
from costopt_aws import instances
from costopt_aws.bootstrap import bucket_of
from costopt_aws.clients import Clients
from costopt_aws.errors import code_of, map_errors
from costopt_aws.instances import LAUNCHED, OWNER
from costopt_aws.launch_scope import LaunchScope

Statement = dict[str, object]

READ = (
    "ce:GetCostAndUsage",
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeInstances",
    "ec2:DescribeLaunchTemplates",
    "ec2:DescribePlacementGroups",
    "ec2:DescribeRegions",
    "ec2:DescribeSpotPriceHistory",
    "ec2:DescribeVolumes",
    "ec2:GetSpotPlacementScores",
    "pricing:GetProducts",
    "servicequotas:ListServiceQuotas",
    "sts:DecodeAuthorizationMessage",
)
"""Read-only actions; EC2 knows no narrower resource for these."""
DISPENSABLE: Mapping[str, str] = {
    "ce:GetCostAndUsage": "`costopt report` cannot ask what AWS charged",
    "ec2:DescribeCapacityReservations": "Capacity Blocks are not offered",
    "ec2:GetSpotPlacementScores": "offers carry no likelihood of capacity",
    "iam:CreateServiceLinkedRole": "needed until the account has used Spot for the first time",
    "pricing:GetProducts": "on-demand prices come from the public price files",
    "servicequotas:ListServiceQuotas": "quotas are unknown until EC2 refuses a launch",
    "sts:DecodeAuthorizationMessage": "a refused launch does not name the missing permission",
}
"""Actions without which the rest works, with what does not work then (docs/aws.md)."""

MAKE = ("ec2:CreateLaunchTemplate", "ec2:CreatePlacementGroup")
END = (
    "ec2:DeleteLaunchTemplate",
    "ec2:DeletePlacementGroup",
    "ec2:DeleteVolume",
    "ec2:TerminateInstances",
)
MADE = ("launch-template", "placement-group")
"""Resources made for a job before its launches, with our tag, and named by the launches."""

OBJECTS = ("s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject")
OF_JOB = ("checkpoints", "jobs")
"""Folders of the store in which nodes write, each below its job's: states, and messages."""
PAYLOADS = "payloads"
"""The folder of the store with what nodes start from, one folder for each job."""
NODE_TRUST: Mapping[str, object] = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": {"Service": "ec2.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
    ],
}


SECRETS = "arn:aws:secretsmanager:*:*:secret:"
PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
"""https://docs.aws.amazon.com/AmazonECR/latest/userguide/image-pull.html"""


def daemon_policy(owner: str, store: str | None, scope: LaunchScope) -> Mapping[str, object]:
    """Return the controller's policy; its nodes carry the owner tag and are within ``scope``."""
    tagged = {"StringEquals": {f"aws:RequestTag/{OWNER}": owner}}
    ours = {"StringEquals": {f"aws:ResourceTag/{OWNER}": owner}}
    makes = ["RunInstances", *(action.removeprefix("ec2:") for action in MAKE)]
    created = {"StringEquals": {"ec2:CreateAction": makes}}
    service = {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
    roles = [f"arn:aws:iam::*:role/{role}" for role in sorted(scope.node_roles)]
    spot = {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}}
    owners = {"StringEquals": {"ec2:Owner": list(scope.image_owners)}}
    return _document(
        _allow("Look", READ),
        *_if_any("FindImage", ["ssm:GetParameter"], scope.parameters),
        _allow("LaunchOurs", ["ec2:RunInstances"], _ec2(*LAUNCHED), tagged),
        _allow("LaunchFromOurs", ["ec2:RunInstances"], _ec2(*MADE), ours),
        _allow("LaunchWith", ["ec2:RunInstances"], scope.used),
        *_if_any("LaunchImage", ["ec2:RunInstances"], scope.images_of_owners, owners),
        _allow("MakeOurs", MAKE, _ec2(*MADE), tagged),
        _allow("TagOnCreate", ["ec2:CreateTags"], _ec2(*LAUNCHED, *MADE), created),
        _allow("EndOurs", END, _ec2("instance", "volume", *MADE), ours),
        _allow("GiveNodesTheirRole", ["iam:PassRole"], roles, service),
        _allow("UseSpot", ["iam:CreateServiceLinkedRole"], condition=spot),
        *_if_any("HearOfInterruptions", ["sqs:DeleteMessage", "sqs:ReceiveMessage"], scope.queues),
        *_store_statements(store),
    )


def node_policy(
    store: str | None,
    apart: Iterable[str] = (),
    secrets: Iterable[str] = (),
    repositories: Iterable[str] = (),
) -> Mapping[str, object]:
    """Return the policy for nodes of any job: the store, these secrets and repositories of images,
    and nothing else of the account.

    Nodes can read, but not change, what they start from. They cannot read what is stored for the
    jobs ``apart``, which have roles of their own (``job_policy``); they can for all other jobs.
    """
    named = _reads(secrets, repositories)
    if store is None:
        return _document(*named)
    store_objects = f"{_bucket(store)}/{_within(store)}"
    change = [action for action in OBJECTS if action != "s3:GetObject"]
    closed = [
        f"{store_objects}{folder}/{job}/*"
        for job in sorted(apart)
        for folder in (*OF_JOB, PAYLOADS)
    ]
    return _document(
        *_store_statements(store),
        _deny("KeepPayloads", change, [f"{store_objects}{PAYLOADS}/*"]),
        *([_deny("KeepApart", OBJECTS, closed)] if closed else []),
        *named,
    )


def job_policy(
    store: str | None, job: str, secrets: Iterable[str] = (), repositories: Iterable[str] = ()
) -> Mapping[str, object]:
    """Return the policy for nodes of one job: its messages and states, its code to read, and its
    secrets and repositories of images."""
    named = _reads(secrets, repositories)
    if store is None:
        return _document(*named)
    own = [f"{_within(store)}{folder}/{job}" for folder in OF_JOB]
    bucket = _bucket(store)
    return _document(
        _find(bucket),
        _list(bucket, [f"{folder}/*" for folder in own]),
        _allow("UseStore", OBJECTS, [f"{bucket}/{folder}/*" for folder in own]),
        _allow("FetchCode", ["s3:GetObject"], [f"{bucket}/{_within(store)}{PAYLOADS}/{job}/*"]),
        *named,
    )


def actions(policy: Mapping[str, object]) -> frozenset[str]:
    """Return every action that a policy of this module allows."""
    statements = policy["Statement"]
    assert isinstance(statements, list)
    return frozenset(
        action for each in statements if each["Effect"] == "Allow" for action in each["Action"]
    )


def _store_statements(store: str | None) -> list[Statement]:
    if store is None:
        return []
    bucket, within = _bucket(store), _within(store)
    return [
        _find(bucket),
        _list(bucket, [within.rstrip("/"), f"{within}*"] if within else []),
        _allow("UseStore", OBJECTS, [f"{bucket}/{within}*"]),
    ]


def _reads(secrets: Iterable[str], repositories: Iterable[str]) -> list[Statement]:
    """Six random characters end the ARN of a secret, and a name says no region:
    https://docs.aws.amazon.com/secretsmanager/latest/userguide/auth-and-access_examples.html"""
    values = [name if name.startswith("arn:") else f"{SECRETS}{name}-??????" for name in secrets]
    images = [f"arn:aws:ecr:*:*:repository/{name}" for name in sorted(repositories)]
    return [
        *_if_any("ReadSecrets", ["secretsmanager:GetSecretValue"], sorted(values)),
        *([_allow("LogInToRegistry", ["ecr:GetAuthorizationToken"])] if images else []),
        *_if_any("PullImages", list(PULL), images),
    ]


def _find(bucket: str) -> Statement:
    return _allow("FindBucket", ["s3:GetBucketLocation", "s3:GetBucketVersioning"], [bucket])


def _list(bucket: str, prefixes: Sequence[str]) -> Statement:
    """For these prefixes, or the whole bucket without any. One without a slash at its end
    lists what else begins with it, too."""
    condition = {"StringLike": {"s3:prefix": prefixes}} if prefixes else None
    return _allow("ListStore", ["s3:ListBucket"], [bucket], condition)


def _bucket(store: str) -> str:
    return f"arn:aws:s3:::{bucket_of(store)}"


def _within(store: str) -> str:
    """Return the store's prefix in its bucket with a slash at its end, "" without a prefix."""
    prefix = urlsplit(store).path.strip("/")
    return f"{prefix}/" if prefix else ""


def _ec2(*kinds: str) -> list[str]:
    return [f"arn:aws:ec2:*:*:{kind}/*" for kind in kinds]


def _allow(
    sid: str,
    allowed: tuple[str, ...] | list[str],
    resources: list[str] | None = None,
    condition: Mapping[str, object] | None = None,
) -> Statement:
    statement: Statement = {
        "Sid": sid,
        "Effect": "Allow",
        "Action": sorted(allowed),
        "Resource": resources or ["*"],
    }
    return statement if condition is None else {**statement, "Condition": condition}


def _if_any(
    sid: str,
    allowed: list[str],
    resources: list[str],
    condition: Mapping[str, object] | None = None,
) -> list[Statement]:
    """Return the statement in a list, [] if there are no resources."""
    return [_allow(sid, allowed, resources, condition)] if resources else []


def _deny(sid: str, denied: Sequence[str], resources: list[str]) -> Statement:
    return {"Sid": sid, "Effect": "Deny", "Action": list(denied), "Resource": resources}


def _document(*statements: Statement) -> Mapping[str, object]:
    return {"Version": "2012-10-17", "Statement": list(statements)}


HOME = "us-east-1"
WOULD_WORK = "DryRunOperation"
PROBE = "costopt-doctor"
_ASSUMED = re.compile(
    r"arn:(?P<partition>[\w-]+):sts::(?P<account>\d+):assumed-role/(?P<role>[^/]+)/"
)


class Permissions:
    """SimulatePrincipalPolicy if that is allowed, else dry runs of the calls that have them.

    A dry run also observes limits that are set on the whole account; the simulation does not.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def simulated(
        self, arn: str, needed: Mapping[str, Any], region: str
    ) -> Mapping[str, tuple[str, ...]]:
        """Return, by action, the resources on which the principal lacks a needed permission.

        Each statement of ``needed`` is simulated for one resource of each kind that it names,
        under the conditions that it sets. Raise ProviderError.
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
        """Return the refusals of a launch and its related calls, in one region.

        ``network`` holds the arguments SubnetId and SecurityGroupIds of a launch there.
        """
        client = self._clients.launching(region)
        owned = instances.make_tags(owner=owner)
        tries: Mapping[str, tuple[str, dict[str, Any]]] = {
            "ec2:RunInstances": (
                "run_instances",
                {
                    "ImageId": image_id,
                    "InstanceType": "g5.xlarge",
                    "MinCount": 1,
                    "MaxCount": 1,
                    "TagSpecifications": [
                        {"ResourceType": kind, "Tags": owned} for kind in instances.LAUNCHED
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
                # Allowed, or wrong in a way that only a real launch would show.
                continue
            except ProviderError:
                continue


def _example(arn: str, region: str, account: str) -> str:
    """Return a resource that a policy's pattern matches."""
    if arn == "*":
        return arn
    head, partition, service, where, owner, name = arn.split(":", 5)
    where, owner = where.replace("*", region), owner.replace("*", account)
    return ":".join((head, partition, service, where, owner, name.replace("*", PROBE)))


def _contexts(statement: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    """Return context entries that meet the conditions of a statement."""
    for keys in statement.get("Condition", {}).values():
        for name, values in keys.items():
            value = values if isinstance(values, str) else values[0]
            yield {
                "ContextKeyName": name,
                "ContextKeyValues": [value.replace("*", PROBE)],
                "ContextKeyType": "string",
            }


def _principal(arn: str) -> str:
    """Return the role behind a session, which can be simulated; it cannot have a path."""
    session = _ASSUMED.match(arn)
    if session is None:
        return arn
    return f"arn:{session['partition']}:iam::{session['account']}:role/{session['role']}"
