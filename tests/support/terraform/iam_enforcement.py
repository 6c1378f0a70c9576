"""A test cloud that holds roles to the policies that they have in it, as AWS does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, unquote
from urllib.request import Request, urlopen

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from tests.support.aws.cloud import Cloud
from tests.support.aws.overlay.call import Answer, Call, Forward, Reply
from tests.support.aws.overlay.faults import unauthorized
from tests.support.aws.overlay.instances import backend
from tests.support.aws.overlay.refusal import refusal
from tests.support.terraform.iam_policy import Policy, allows
from tests.support.terraform.launch_requests import (
    ACCOUNT,
    Asked,
    ec2_arn,
    launch_requests,
    request_tags,
)

CREDENTIALS = "/task-credentials"
NODE_KEY = "ASIATESTNODE"
"""What the test cloud's metadata service gives to nodes."""
SERVICES = ("ec2", "iam", "pricing", "s3", "servicequotas", "sqs", "ssm", "ce")


class Enforcement:
    """Calls of the daemon's role and of the nodes' role pass where their policies let them."""

    def __init__(self, cloud: Cloud, daemon_role: str, node_role: str) -> None:
        self.refused: list[str] = []
        self.allowed: Counter[str] = Counter()
        self._cloud = cloud
        self.keys = credentials_of(cloud, daemon_role)
        self._policies = {
            self.keys["AccessKeyId"]: policies_of(cloud, daemon_role),
            NODE_KEY: policies_of(cloud, node_role),
        }
        cloud.overlay.add(self)
        for service in SERVICES:
            cloud.faults.on(service, "*", self.guard)

    @property
    def environment(self) -> dict[str, str]:
        """What ECS adds to a task's environment, so that it finds its role's credentials."""
        return {"AWS_CONTAINER_CREDENTIALS_FULL_URI": self._cloud.endpoint + CREDENTIALS}

    def answers(self) -> Mapping[tuple[str, str], Answer]:
        """The credentials of the task."""
        return {("", CREDENTIALS): self.credentials}

    def reset(self) -> None:
        """Nothing to forget."""

    def credentials(self, call: Call, forward: Forward) -> Reply:
        """As the ECS agent answers."""
        ends_at = datetime.now(UTC) + timedelta(hours=6)
        reported = {name: self.keys[name] for name in ("AccessKeyId", "SecretAccessKey")}
        reported["Token"] = self.keys["SessionToken"]
        reported["Expiration"] = f"{ends_at:%Y-%m-%dT%H:%M:%SZ}"
        return Reply.json(reported)

    def guard(self, call: Call, forward: Forward) -> Reply:
        """Refuse what the caller's policies do not allow; a caller who is neither may do all."""
        policies = self._policies.get(_key_of(call))
        if policies is None:
            return forward(call)
        for action, resource, context in requests_of(call):
            if not allows(policies, action, resource, context):
                return self._refuse(call, forward, action, resource, context)
            self.allowed[action] += 1
        reply = forward(call)
        if call.service == "s3" and reply.status == 404:
            asked = _whether_there(call)
            if not allows(policies, *asked):
                return self._refuse(call, forward, *asked)
        return reply

    def _refuse(
        self, call: Call, forward: Forward, action: str, resource: str, context: Mapping[str, str]
    ) -> Reply:
        self.refused.append(f"{action} {resource} {dict(context)}")
        if call.service == "s3":
            return refusal(call, "AccessDenied", "Access Denied", 403)
        return unauthorized(call, forward)


def credentials_of(cloud: Cloud, role: str) -> dict[str, str]:
    """Those of a session of the role."""
    arn = f"arn:aws:iam::123456789012:role/{role}"
    taken = cloud.client("sts").assume_role(RoleArn=arn, RoleSessionName="task")
    keys: dict[str, str] = taken["Credentials"]
    return keys


def client(cloud: Cloud, service: str, keys: Mapping[str, str]) -> Any:
    """A client of boto3 with these credentials, which tries once."""
    return boto3.client(
        service,
        region_name="us-east-1",
        endpoint_url=cloud.endpoint,
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
        config=Config(retries={"total_max_attempts": 1}),
    )


@contextmanager
def refused(code: str) -> Iterator[None]:
    """What AWS refuses with this code."""
    with pytest.raises(ClientError) as caught:
        yield
    assert caught.value.response["Error"]["Code"] == code


@contextmanager
def moto_enforces(cloud: Cloud) -> Iterator[None]:
    """moto itself holds every caller to signature and policies until the context ends."""
    _post(f"{cloud.endpoint}/moto-api/reset-auth", b"0")
    try:
        yield
    finally:
        _post(f"{cloud.endpoint}/moto-api/reset-auth", b"inf")


def policies_of(cloud: Cloud, role: str) -> list[Policy]:
    """The policies that are embedded in a role."""
    iam = cloud.client("iam")
    return [
        iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]
    ]


def requests_of(call: Call) -> Iterator[Asked]:
    """What IAM is asked about one call."""
    match call.service, call.action:
        case "s3", _:
            yield _s3(call)
        case "ec2", "RunInstances":
            yield from launch_requests(call)
            yield from _passed_role(call)
        case "ec2", "CreateLaunchTemplate" | "CreatePlacementGroup":
            kind = re.sub(r"(?<!^)([A-Z])", r"-\1", call.action.removeprefix("Create")).lower()
            yield f"ec2:{call.action}", ec2_arn(call, kind, "new"), request_tags(call, kind)
            yield from _passed_role(call)
        case "ec2", "TerminateInstances":
            for instance_id in call.numbered("InstanceId"):
                tags = backend(call.region).get_instance(instance_id).get_tags()
                context = {f"aws:ResourceTag/{tag['key']}": tag["value"] for tag in tags}
                yield "ec2:TerminateInstances", ec2_arn(call, "instance", instance_id), context
        case "ssm", "GetParameter":
            name = call.content["Name"].lstrip("/")
            account = "" if name.startswith("aws/service/") else ACCOUNT
            yield "ssm:GetParameter", f"arn:aws:ssm:{call.region}:{account}:parameter/{name}", {}
        case "sqs", _:
            queue = call.content.get("QueueUrl", "").rpartition("/")[2]
            # A batch needs the permission of its single call.
            action = call.action.removesuffix("Batch")
            yield f"sqs:{action}", f"arn:aws:sqs:{call.region}:{ACCOUNT}:{queue}", {}
        case service, action:
            yield f"{service}:{action}", "*", {}


def _post(url: str, body: bytes) -> None:
    with urlopen(Request(url, body, {"Content-Type": "text/plain"})) as answer:
        answer.read()


def _key_of(call: Call) -> str:
    authorization = str(call.environ.get("HTTP_AUTHORIZATION", ""))
    return authorization.partition("Credential=")[2].partition("/")[0]


def _passed_role(call: Call) -> Iterator[Asked]:
    for name, value in call.params.items():
        if name.endswith("IamInstanceProfile.Name"):
            role = f"arn:aws:iam::123456789012:role/{value}"
            yield "iam:PassRole", role, {"iam:PassedToService": "ec2.amazonaws.com"}


def _s3(call: Call) -> Asked:
    bucket, _, key = unquote(call.path).lstrip("/").partition("/")
    query = parse_qs(str(call.environ.get("QUERY_STRING", "")), keep_blank_values=True)
    arn = f"arn:aws:s3:::{bucket}"
    if key:
        return f"s3:{_object_action(call.method, query)}", f"{arn}/{key}", {}
    if "location" in query:
        return "s3:GetBucketLocation", arn, {}
    if "versioning" in query:
        return "s3:GetBucketVersioning", arn, {}
    context = {"s3:prefix": query["prefix"][0]} if "prefix" in query else {}
    return "s3:ListBucket", arn, context


def _whether_there(call: Call) -> Asked:
    """What S3 asks IAM before it tells that there is no such object (API reference, GetObject).

    The key counts as the prefix: kopia saw 404 with ListBucket allowed for its prefix alone (its
    pull request 3072).
    """
    bucket, _, key = unquote(call.path).lstrip("/").partition("/")
    return "s3:ListBucket", f"arn:aws:s3:::{bucket}", {"s3:prefix": key}


def _object_action(method: str, query: Mapping[str, Any]) -> str:
    match method:
        case "GET" | "HEAD":
            return "GetObject"
        case "DELETE":
            return "AbortMultipartUpload" if "uploadId" in query else "DeleteObject"
    return "PutObject"
