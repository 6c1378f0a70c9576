"""What `costopt setup aws` creates in an empty account and removes again, over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from costopt.spec import load_account
from tests.support.aws.cloud import Cloud
from tests.support.aws.overlay.faults import unauthorized
from tests.support.aws.setup_cloud import REGION, digest, empty_account, held
from tests.support.command_line import invoke
from tests.support.terraform.iam_enforcement import Enforcement

BUCKET = "costopt-123456789012-us-east-1"
IMAGE = "/costopt/image"
OURS = [
    {"Key": "costopt:owner", "Value": "costopt"},
    {"Key": "costopt:setup", "Value": "aws"},
]


@pytest.fixture
def account(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_REGION", REGION)
    return empty_account(cloud)


def rows(*more: str) -> list[dict[str, Any]]:
    done = invoke("setup", "aws", *more, "-o", "json")
    assert done.exit_code == 0, done.output
    return list(json.loads(done.stdout)["rows"])


def refusal(*more: str) -> str:
    done = invoke("setup", "aws", *more)
    assert done.exit_code in (1, 2), done.output
    assert not isinstance(done.exception, (AssertionError, TypeError, KeyError))
    return done.stderr


def test_it_only_lists_without_apply(account: Cloud, tmp_path: Path) -> None:
    before = digest(account)
    found = rows()
    assert {row["state"] for row in found} == {"missing"}
    assert digest(account) == before
    assert list(tmp_path.iterdir()) == []


def test_the_listed_policies_are_those_that_doctor_prints(account: Cloud) -> None:
    rows("--apply")
    printed = json.loads(invoke("doctor", "aws", "--iam-policy").stdout)
    listed = {row["name"]: row["policy"] for row in rows() if row["kind"] == "role"}
    assert listed == {"costopt-node": printed["node"], "costopt-daemon": printed["daemon"]}
    there = account.client("iam").get_role_policy(RoleName="costopt-daemon", PolicyName="costopt")
    assert there["PolicyDocument"] == printed["daemon"]


def test_the_second_time_changes_nothing(account: Cloud, tmp_path: Path) -> None:
    assert {row["action"] for row in rows("--apply")} == {"created", "written"}
    before, text = digest(account), (tmp_path / "account.yaml").read_text()
    again = rows("--apply")
    assert {row["state"] for row in again} == {"ready", "found"}
    assert {row["action"] for row in again} == {""}
    assert digest(account) == before
    assert (tmp_path / "account.yaml").read_text() == text


def test_the_account_can_be_used_by_the_role_that_it_made(
    account: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "account.yaml"
    image = account.client("ec2").register_image(Name="deep", RootDeviceName="/dev/xvda")
    account.client("ssm").put_parameter(Name=IMAGE, Value=image["ImageId"], Type="String")
    file.write_text(yaml.safe_dump({"providers": {"aws": {"regions": [REGION], "image": IMAGE}}}))
    done = invoke("setup", "aws", "--apply")
    assert done.exit_code == 0, done.output
    document = yaml.safe_load(file.read_text())
    added = yaml.safe_load(done.stderr.partition("add to it:\n")[2].partition("\n\n")[0])
    options = document["providers"]["aws"] | added["providers"]["aws"]
    file.write_text(yaml.safe_dump({**document, **added, "providers": {"aws": options}}))
    assert load_account(str(file)).store == f"s3://{BUCKET}/costopt"
    enforced = Enforcement(account, "costopt-daemon", "costopt-node")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name, value in enforced.environment.items():
        monkeypatch.setenv(name, value)
    done = invoke("doctor", "aws", "-o", "json")
    checks = {row["check"]: row["verdict"] for row in json.loads(done.stdout)["rows"]}
    assert done.exit_code == 0, checks
    assert checks["store writes"] == checks["store"] == "ok"


def test_the_bucket_is_private_encrypted_and_forgets(account: Cloud) -> None:
    rows("--apply")
    s3 = account.client("s3")
    blocked = s3.get_public_access_block(Bucket=BUCKET)["PublicAccessBlockConfiguration"]
    assert set(blocked.values()) == {True}
    encryption = s3.get_bucket_encryption(Bucket=BUCKET)["ServerSideEncryptionConfiguration"]
    assert "AES256" in json.dumps(encryption)
    assert s3.get_bucket_versioning(Bucket=BUCKET)["Status"] == "Enabled"
    rules = json.dumps(s3.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"])
    assert "NoncurrentDays" in rules
    assert "DaysAfterInitiation" in rules
    assert "aws:SecureTransport" in s3.get_bucket_policy(Bucket=BUCKET)["Policy"]
    assert s3.get_bucket_tagging(Bucket=BUCKET)["TagSet"] == OURS


def test_an_interruption_reaches_the_queue(account: Cloud, tmp_path: Path) -> None:
    rows("--apply")
    warning = "EC2 Spot Instance Interruption Warning"
    account.tell(warning, {"instance-id": "i-1", "instance-action": "terminate"})
    account.tell("EC2 AMI State Change", {"instance-id": "i-1"})
    document = yaml.safe_load((tmp_path / "account.yaml").read_text())
    url = document["providers"]["aws"]["queues"][REGION]
    found = account.client("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10)
    assert [json.loads(m["Body"])["detail-type"] for m in found["Messages"]] == [warning]


def test_each_region_has_its_queue_and_its_group(account: Cloud, tmp_path: Path) -> None:
    found = rows("--apply", "--regions", "us-east-1,us-west-2")
    kinds = [(row["kind"], row["place"]) for row in found]
    for kind in ("security group", "queue", "event rule"):
        assert {(kind, "us-east-1"), (kind, "us-west-2")} <= set(kinds)
    options = yaml.safe_load((tmp_path / "account.yaml").read_text())["providers"]["aws"]
    assert set(options["queues"]) == set(options["security_groups"]) == set(options["regions"])
    rows("--remove", "--apply")
    assert account.client("sqs", "us-west-2").list_queues().get("QueueUrls", []) == []


def test_two_owners_share_an_account(account: Cloud, tmp_path: Path) -> None:
    rows("--apply")
    (tmp_path / "team.yaml").write_text("owner: ml-team\n")
    rows("--apply", "--account", "team.yaml")
    assert {"role costopt-node", "role costopt-ml-team-node"} <= set(held(account))
    rows("--remove", "--apply", "--account", "team.yaml")
    assert "role costopt-node" in held(account)
    assert "role costopt-ml-team-node" not in held(account)


def test_what_drifted_is_completed(account: Cloud) -> None:
    rows("--apply")
    before = digest(account)
    account.client("iam").delete_role_policy(RoleName="costopt-node", PolicyName="costopt")
    account.client("s3").put_bucket_versioning(
        Bucket=BUCKET, VersioningConfiguration={"Status": "Suspended"}
    )
    account.client("events").remove_targets(Rule="costopt-instances", Ids=["queue"])
    states = {row["kind"]: row["state"] for row in rows() if row["name"] != "costopt-daemon"}
    assert states["role"] == states["bucket"] == states["event rule"] == "incomplete"
    rows("--apply")
    assert digest(account) == before


def test_removal_leaves_the_account_as_it_was(account: Cloud, tmp_path: Path) -> None:
    account.client("s3").create_bucket(Bucket="theirs")
    before = digest(account)
    rows("--apply")
    listed = rows("--remove")
    assert {row["action"] for row in listed} == {"remove"}
    assert digest(account) != before
    assert {row["action"] for row in rows("--remove", "--apply")} == {"removed"}
    assert digest(account) == before
    assert not (tmp_path / "account.yaml").exists()
    assert {row["action"] for row in rows("--remove", "--apply")} == {""}


def test_a_bucket_with_checkpoints_stays(account: Cloud, tmp_path: Path) -> None:
    rows("--apply")
    before = digest(account)
    account.client("s3").put_object(Bucket=BUCKET, Key="costopt/checkpoints/a", Body=b"x")
    said = refusal("--remove", "--apply")
    assert "1 objects" in said
    assert "--delete-checkpoints" in said
    assert digest(account) == before
    rows("--remove", "--apply", "--delete-checkpoints")
    assert f"bucket {BUCKET}" not in held(account)


def test_nothing_is_removed_while_nodes_run(account: Cloud) -> None:
    rows("--apply")
    ec2 = account.client("ec2")
    image = ec2.register_image(Name="deep", RootDeviceName="/dev/xvda")["ImageId"]
    pool = "aws/us-east-1/use1-az6/g6.xlarge/spot"
    values = {"owner": "costopt", "job": "a", "key": "k", "pool": pool, "usd-per-hour": "0.4"}
    tags = [{"Key": f"costopt:{key}", "Value": value} for key, value in values.items()]
    found = ec2.run_instances(
        ImageId=image,
        InstanceType="g6.xlarge",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    before = digest(account)
    said = refusal("--remove", "--apply")
    assert found["Instances"][0]["InstanceId"] in said
    assert "costopt stop --all" in said
    assert digest(account) == before


@pytest.mark.parametrize("tags", [[], [{"Key": "costopt:owner", "Value": "costopt"}]])
def test_a_foreign_role_is_neither_changed_nor_removed(account: Cloud, tags: list[Any]) -> None:
    account.client("iam").create_role(
        RoleName="costopt-node", AssumeRolePolicyDocument='{"Statement": []}', Tags=tags
    )
    before = digest(account)
    assert "role costopt-node" in refusal("--apply")
    assert digest(account) == before
    rows("--remove", "--apply")
    assert digest(account) == before


def test_a_bucket_that_the_account_file_names_is_used_as_it_is(
    account: Cloud, tmp_path: Path
) -> None:
    account.client("s3").create_bucket(Bucket="runs")
    (tmp_path / "account.yaml").write_text("store: s3://runs/a\n")
    before = held(account)["bucket runs"]
    (row,) = (row for row in rows("--apply") if row["kind"] == "bucket")
    assert (row["state"], row["action"]) == ("foreign", "use")
    assert held(account)["bucket runs"] == before
    rows("--remove", "--apply", "--delete-checkpoints")
    assert "bucket runs" in held(account)


def test_an_account_file_that_exists_is_never_changed(account: Cloud, tmp_path: Path) -> None:
    file = tmp_path / "account.yaml"
    file.write_text("owner: me  # mine\nproviders: {aws: {regions: [us-west-2]}}\n")
    before = file.read_text()
    done = invoke("setup", "aws", "--apply")
    assert done.exit_code == 0, done.output
    assert "store: s3://costopt-me-123456789012-us-west-2/costopt" in done.stderr
    assert file.read_text() == before
    rows("--remove", "--apply")
    assert file.read_text() == before


def test_a_bucket_of_another_account_is_named(
    account: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_ALLOW_CROSSACCOUNT_ACCESS", "false")
    sts = account.client("sts")
    arn = "arn:aws:iam::210987654321:role/other"
    keys = sts.assume_role(RoleArn=arn, RoleSessionName="other")["Credentials"]
    other = boto3.client(
        "s3",
        region_name=REGION,
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
    )
    other.create_bucket(Bucket=BUCKET)
    before = digest(account)
    said = refusal("--apply")
    assert BUCKET in said
    assert "another account" in said
    assert "--store" in said
    assert digest(account) == before


@pytest.mark.parametrize(
    ("service", "action", "missing"),
    [("iam", "CreateRole", "iam:CreateRole"), ("sqs", "CreateQueue", "sqs:CreateQueue")],
)
def test_a_missing_permission_is_named_and_the_rest_is_done_later(
    account: Cloud, service: str, action: str, missing: str
) -> None:
    account.faults.on(service, action, unauthorized, times=1)
    said = refusal("--apply")
    assert missing in said
    assert "administrator" in said
    rows("--apply")
    assert {row["state"] for row in rows()} == {"ready", "found"}


def test_without_credentials_it_says_where_they_are_looked_for(
    account: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert "AWS_PROFILE" in refusal("--apply")


def test_the_region_of_aws_configure_is_taken(
    account: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_REGION")
    (tmp_path / "config").write_text("[default]\nregion = eu-west-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    (row,) = (row for row in rows() if row["kind"] == "bucket")
    assert row["place"] == "eu-west-1"


def test_a_region_is_asked_for_and_checked(account: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "us-east-1" in refusal("--regions", "us-eest-1")
    monkeypatch.delenv("AWS_REGION")
    assert "--regions" in refusal()


def test_a_region_without_a_default_network_is_named(account: Cloud) -> None:
    ec2 = account.client("ec2", "eu-west-1")
    for vpc in ec2.describe_vpcs()["Vpcs"]:
        for subnet in ec2.describe_subnets()["Subnets"]:
            ec2.delete_subnet(SubnetId=subnet["SubnetId"])
        for gateway in ec2.describe_internet_gateways()["InternetGateways"]:
            named = {"InternetGatewayId": gateway["InternetGatewayId"]}
            ec2.detach_internet_gateway(**named, VpcId=vpc["VpcId"])
        ec2.delete_vpc(VpcId=vpc["VpcId"])
    before = digest(account)
    assert "create-default-vpc" in refusal("--apply", "--regions", "eu-west-1")
    assert digest(account) == before


def test_a_store_of_another_cloud_is_refused(account: Cloud) -> None:
    assert "s3://" in refusal("--store", "gs://runs/a")


def test_a_provider_that_cannot_be_set_up_is_named() -> None:
    done = invoke("setup", "sim")
    assert done.exit_code in (1, 2)
    assert "sim" in done.stderr
