"""The policies of the controller and of nodes: enough for every call, and no more than ours."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import costopt_aws
from costopt.domain.errors import BadRequestError
from costopt.spec import load_account
from costopt_aws.iam import actions, daemon_policy, job_policy, node_policy
from costopt_aws.images import DEEP_LEARNING
from costopt_aws.launch_scope import LaunchScope, zone_id_prefix
from costopt_aws.options import AwsOptions
from tests.support.terraform.iam_policy import allows

EXAMPLE = Path(__file__).parents[3] / "examples" / "aws" / "account.yaml"
STORE = "s3://runs/team/a"
OPTIONAL = frozenset(
    {
        "iam:GetInstanceProfile",
        "iam:SimulatePrincipalPolicy",
        "s3:GetLifecycleConfiguration",
        "sqs:GetQueueAttributes",
    }
)
"""What only ``doctor`` asks; without it the finding says what could not be told."""
ALWAYS_ALLOWED = frozenset({"sts:GetCallerIdentity"})
QUEUES = {"us-east-1": "https://sqs.us-east-1.amazonaws.com/123456789012/interruptions"}
OWNED, TAGGED = {"aws:ResourceTag/costopt:owner": "me"}, {"aws:RequestTag/costopt:owner": "me"}
CALL = re.compile(r"map_errors\(\s*\"([a-z0-9-]+:[A-Z][A-Za-z]+)\"")
MAX_CHARACTERS = 6144
"""A managed policy's limit, without white space (IAM User Guide, "IAM quotas")."""


def daemon(owner: str = "me", store: str | None = STORE, **options: object) -> Mapping[str, Any]:
    given = AwsOptions.parse({"regions": ["us-east-1", "eu-west-1"], "queues": QUEUES, **options})
    return daemon_policy(owner, store, LaunchScope.from_options(given))


def statement(policy: Mapping[str, Any], sid: str) -> Mapping[str, Any]:
    (found,) = (each for each in policy["Statement"] if each["Sid"] == sid)
    return dict(found)


def test_the_controller_may_do_what_the_adapter_does() -> None:
    package = Path(costopt_aws.__file__).parent
    called = {a for path in package.glob("*.py") for a in CALL.findall(path.read_text("utf-8"))}
    assert len(called) > 20
    assert called - actions(daemon()) <= OPTIONAL | ALWAYS_ALLOWED


@pytest.mark.parametrize("sid", ["LaunchOurs", "MakeOurs"])
def test_only_what_bears_our_tag_is_made(sid: str) -> None:
    condition = statement(daemon("team"), sid)["Condition"]
    assert condition == {"StringEquals": {"aws:RequestTag/costopt:owner": "team"}}


def test_only_what_bears_our_tag_is_ended_and_tags_come_at_birth_only() -> None:
    policy = daemon("team")
    ended = statement(policy, "EndOurs")["Condition"]
    assert ended == {"StringEquals": {"aws:ResourceTag/costopt:owner": "team"}}
    assert "ec2:CreateAction" in statement(policy, "TagOnCreate")["Condition"]["StringEquals"]
    for each in policy["Statement"]:
        for action in each["Action"]:
            harmful = re.search(r":(Run|Create|Delete|Terminate|Put|Pass)", action)
            assert not harmful or each["Resource"] != ["*"] or "Condition" in each, each


def launches(policy: Mapping[str, Any], resource: str, **context: str) -> bool:
    """Whether a launch may use a resource, named from its region on."""
    return allows([policy], "ec2:RunInstances", f"arn:aws:ec2:{resource}", context)


@pytest.mark.parametrize("kind", ["instance", "network-interface", "volume"])
def test_all_that_a_launch_makes_bears_our_tag(kind: str) -> None:
    resource = f"us-east-1:1:{kind}/*"
    assert launches(daemon(), resource, **TAGGED)
    assert not launches(daemon(), resource)
    assert not launches(daemon(), resource, **{"aws:RequestTag/costopt:owner": "another"})


@pytest.mark.parametrize("kind", ["launch-template", "placement-group"])
def test_launches_use_templates_and_groups_of_ours_alone(kind: str) -> None:
    assert launches(daemon(), f"us-east-1:1:{kind}/x", **OWNED)
    assert not launches(daemon(), f"us-east-1:1:{kind}/x")


def test_launches_use_images_of_amazon_where_a_public_parameter_names_them() -> None:
    for owner, may in {"amazon": True, "1": False, "2": False}.items():
        context = {"ec2:Owner": owner, "aws:PrincipalAccount": "1"}
        assert launches(daemon(), "us-east-1::image/ami-0a", **context) is may
        own = daemon(image="/ours/image")
        assert launches(own, "us-east-1::image/ami-0a", **context) is (owner != "2")


def test_launches_use_the_images_that_are_named_and_no_other() -> None:
    policy = daemon(image={"us-east-1": "ami-0123456789abcdef0"})
    context = {"ec2:Owner": "amazon"}
    assert launches(policy, "us-east-1::image/ami-0123456789abcdef0", **context)
    assert not launches(policy, "us-east-1::image/ami-0a", **context)
    assert not launches(policy, "eu-west-1::image/ami-0123456789abcdef0", **context)


def test_launches_use_the_networks_that_are_named() -> None:
    """Where a region's are not named, EC2 takes the default ones, and any may be used."""
    groups, subnets = {"us-east-1": "sg-0a"}, {"use1-az1": "subnet-0a", "use1-az2": "subnet-0b"}
    policy = daemon(security_groups=groups, subnets=subnets)
    for resource, may in {
        "us-east-1:1:subnet/subnet-0a": True,
        "us-east-1:1:subnet/subnet-0b": True,
        "us-east-1:1:subnet/subnet-0c": False,
        "us-east-1:1:security-group/sg-0a": True,
        "us-east-1:1:security-group/sg-0b": False,
        "eu-west-1:1:subnet/subnet-0c": True,
        "eu-west-1:1:security-group/sg-0b": True,
        "eu-west-2:1:subnet/subnet-0c": False,
        "us-east-1:1:key-pair/mine": False,
    }.items():
        assert launches(policy, resource) is may, resource
    keyed = daemon(key_name="mine")
    assert launches(keyed, "us-east-1:1:key-pair/mine")
    assert not launches(keyed, "us-east-1:1:key-pair/other")


@pytest.mark.parametrize(
    ("region", "prefix"),
    [
        ("us-east-1", "use1-"),
        ("ap-northeast-3", "apne3-"),
        ("ap-southeast-2", "apse2-"),
        ("eu-central-1", "euc1-"),
        ("us-gov-west-1", "usgw1-"),
        ("cn-northwest-1", "cnnw1-"),
    ],
)
def test_zone_ids_tell_their_region(region: str, prefix: str) -> None:
    assert zone_id_prefix(region) == prefix


@pytest.mark.parametrize(
    ("image", "readable", "closed"),
    [
        (DEEP_LEARNING, f":parameter{DEEP_LEARNING}", "1:parameter/ours"),
        ("/ours/image:3", "1:parameter/ours/image", "1:parameter/ours/password"),
        ("image", "1:parameter/image", f":parameter{DEEP_LEARNING}"),
        ({"us-east-1": "ami-0123456789abcdef0"}, None, "1:parameter/ours/image"),
    ],
)
def test_only_the_parameters_that_name_images_are_read(
    image: object, readable: str | None, closed: str
) -> None:
    policy = daemon(image=image)

    def may(name: str) -> bool:
        return allows([policy], "ssm:GetParameter", f"arn:aws:ssm:us-east-1:{name}")

    assert readable is None or may(readable)
    assert not may(closed)


def test_only_the_queues_that_are_named_are_read() -> None:
    arn = "arn:aws:sqs:us-east-1:123456789012:interruptions"
    assert allows([daemon()], "sqs:ReceiveMessage", arn)
    assert not allows([daemon()], "sqs:ReceiveMessage", f"{arn}-dead")
    assert not allows([daemon(queues={})], "sqs:ReceiveMessage", arn)


def test_the_example_s_queue_is_that_of_its_policy() -> None:
    account = load_account(str(EXAMPLE))
    options = AwsOptions.parse(account.providers["aws"])
    policy = daemon_policy(account.owner, account.store, LaunchScope.from_options(options))
    for region, url in options.queues.items():
        arn = f"arn:aws:sqs:{region}:{url.split('/')[-2]}:{url.split('/')[-1]}"
        assert allows([policy], "sqs:ReceiveMessage", arn)


def test_nodes_reach_the_store_and_nothing_else() -> None:
    policy: Mapping[str, Any] = node_policy(STORE)
    assert {action.split(":")[0] for action in actions(policy)} == {"s3"}
    listing = statement(policy, "ListStore")
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["team/a", "team/a/*"]}}
    assert statement(policy, "UseStore")["Resource"] == ["arn:aws:s3:::runs/team/a/*"]
    kept = statement(policy, "KeepPayloads")
    assert kept["Effect"] == "Deny"
    assert kept["Resource"] == ["arn:aws:s3:::runs/team/a/payloads/*"]
    assert "s3:PutObject" in kept["Action"]
    assert "s3:GetObject" not in kept["Action"]


@pytest.mark.parametrize(
    ("action", "key", "may"),
    [
        ("s3:PutObject", "jobs/a/nodes/i-1/heartbeat.json", True),
        ("s3:PutObject", "checkpoints/a/HEAD", True),
        ("s3:GetObject", "payloads/a/0f/costopt.whl", True),
        ("s3:PutObject", "payloads/a/0f/costopt.whl", False),
        ("s3:GetObject", "payloads/b/0f/bundle.tar.gz", False),
        ("s3:GetObject", "jobs/b/gang.json", False),
        ("s3:PutObject", "jobs/ab/gang.json", False),
        ("s3:DeleteObject", "checkpoints/b/HEAD", False),
    ],
)
@pytest.mark.parametrize("prefix", ["", "team/a/"])
def test_nodes_of_a_job_reach_no_other_job(action: str, key: str, may: bool, prefix: str) -> None:
    policy = job_policy(f"s3://runs/{prefix}", "a")
    assert allows([policy], action, f"arn:aws:s3:::runs/{prefix}{key}") is may


def test_what_a_job_with_its_own_role_keeps_is_closed_to_the_others() -> None:
    shared = node_policy(STORE, ["a"])
    for key, may in {"jobs/a/gang.json": False, "payloads/a/0f/x": False, "jobs/b/x": True}.items():
        assert allows([shared], "s3:GetObject", f"arn:aws:s3:::runs/team/a/{key}") is may


@pytest.mark.parametrize(
    ("prefix", "may"),
    [
        ("team/a/jobs/a/nodes/", True),
        ("team/a/jobs/a/", True),
        ("team/a/jobs/a", False),  # lists the job ab as well
        ("team/a/jobs/b/", False),
        ("team/a/", False),
        ("", False),
    ],
)
def test_nodes_of_a_job_list_no_other_job(prefix: str, may: bool) -> None:
    context = {"s3:prefix": prefix} if prefix else {}
    assert allows([job_policy(STORE, "a")], "s3:ListBucket", "arn:aws:s3:::runs", context) is may


def test_the_controller_passes_the_roles_of_nodes_alone() -> None:
    policy = daemon(instance_profile="n", job_profiles={"a": "n-a"})
    passed = statement(policy, "GiveNodesTheirRole")["Resource"]
    assert passed == ["arn:aws:iam::*:role/n", "arn:aws:iam::*:role/n-a"]


def test_a_whole_bucket_may_be_the_store() -> None:
    policy: Mapping[str, Any] = node_policy("s3://runs")
    assert "Condition" not in statement(policy, "ListStore")
    assert statement(policy, "UseStore")["Resource"] == ["arn:aws:s3:::runs/*"]
    with pytest.raises(BadRequestError, match="s3"):
        node_policy("/a/folder")


def test_nodes_read_the_secrets_and_images_that_are_named_and_no_others() -> None:
    own = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:own-AbCdEf"
    policies = [
        node_policy(STORE, secrets=["prod/wandb", own], repositories=["train"]),
        job_policy(STORE, "a", ["prod/wandb", own], ["train"]),
    ]
    secret = "arn:aws:secretsmanager:us-east-1:123456789012:secret:"
    for policy in policies:
        for arn, may in {
            own: True,
            f"{secret}prod/wandb-AbCdEf": True,
            f"{secret}b": False,
        }.items():
            assert allows([policy], "secretsmanager:GetSecretValue", arn) is may
        for name, may in {"train": True, "other": False}.items():
            arn = f"arn:aws:ecr:us-east-1:123456789012:repository/{name}"
            assert allows([policy], "ecr:BatchGetImage", arn) is may


def test_policies_are_small_enough_for_iam() -> None:
    for policy in (daemon(), node_policy(STORE), job_policy(STORE, "a")):
        assert len(json.dumps(policy, separators=(",", ":"))) < MAX_CHARACTERS
