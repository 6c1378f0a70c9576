"""A test cloud as ``costopt setup aws`` finds it, and what it holds afterwards."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tests.support.aws.cloud import Cloud
from tests.support.terraform.bucket_policies import BucketPolicies

REGION = "us-east-1"


def empty_account(cloud: Cloud) -> Cloud:
    """An account without a bucket or a role; buckets keep their policies with all conditions."""
    cloud.overlay.add(BucketPolicies())
    return cloud


def held(cloud: Cloud) -> dict[str, Any]:
    """Return what setup may have made or changed in the account, in full, without times."""
    iam, s3, events = cloud.client("iam"), cloud.client("s3"), cloud.client("events")
    sqs, ec2 = cloud.client("sqs"), cloud.client("ec2")
    found: dict[str, Any] = {}
    for role in iam.list_roles()["Roles"]:
        name = role["RoleName"]
        policies = iam.list_role_policies(RoleName=name)["PolicyNames"]
        found[f"role {name}"] = [
            iam.list_role_tags(RoleName=name)["Tags"],
            *(iam.get_role_policy(RoleName=name, PolicyName=p)["PolicyDocument"] for p in policies),
        ]
    for profile in iam.list_instance_profiles()["InstanceProfiles"]:
        found[f"profile {profile['InstanceProfileName']}"] = [
            role["RoleName"] for role in profile["Roles"]
        ]
    for bucket in s3.list_buckets()["Buckets"]:
        found[f"bucket {bucket['Name']}"] = s3.get_bucket_versioning(Bucket=bucket["Name"]).get(
            "Status"
        )
    for url in sqs.list_queues().get("QueueUrls", ()):
        found[f"queue {url.rpartition('/')[2]}"] = sqs.list_queue_tags(QueueUrl=url).get("Tags")
    for rule in events.list_rules()["Rules"]:
        targets = events.list_targets_by_rule(Rule=rule["Name"])["Targets"]
        found[f"rule {rule['Name']}"] = [rule["EventPattern"], len(targets)]
    for group in ec2.describe_security_groups()["SecurityGroups"]:
        rules = group["IpPermissions"], group["IpPermissionsEgress"]
        found[f"group {group['GroupId']}"] = json.dumps([group.get("Tags"), rules])
    return found


def digest(cloud: Cloud) -> str:
    """Return a digest of all of it."""
    return hashlib.sha256(json.dumps(held(cloud), sort_keys=True).encode()).hexdigest()
