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
from costopt_aws.iam import actions, daemon_policy, job_policy, node_policy
from tests.terraform.policy import allows

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
CALL = re.compile(r"asking\(\s*\"([a-z0-9-]+:[A-Z][A-Za-z]+)\"")
MOST_CHARACTERS = 6144
"""A managed policy's limit, without white space (IAM User Guide, "IAM quotas")."""


def daemon(owner: str = "me", store: str | None = STORE) -> Mapping[str, Any]:
    return daemon_policy(owner, store, ["costopt-node"])


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
    passed = statement(daemon_policy("me", STORE, {"n", "n-a"}), "GiveNodesTheirRole")["Resource"]
    assert passed == ["arn:aws:iam::*:role/n", "arn:aws:iam::*:role/n-a"]


def test_a_whole_bucket_may_be_the_store() -> None:
    policy: Mapping[str, Any] = node_policy("s3://runs")
    assert "Condition" not in statement(policy, "ListStore")
    assert statement(policy, "UseStore")["Resource"] == ["arn:aws:s3:::runs/*"]
    with pytest.raises(BadRequestError, match="s3"):
        node_policy("/a/folder")


def test_policies_are_small_enough_for_iam() -> None:
    for policy in (daemon(), node_policy(STORE), job_policy(STORE, "a")):
        assert len(json.dumps(policy, separators=(",", ":"))) < MOST_CHARACTERS
