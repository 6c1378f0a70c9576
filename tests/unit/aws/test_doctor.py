"""What `costopt doctor aws` finds in an account, over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from costopt.cli.main import cli
from costopt.engine.loop import WallClock
from costopt.provider.base import Check, CheckStatus, Provider
from costopt_aws import AwsOptions, AwsProvider
from costopt_aws.clients import Clients
from costopt_aws.iam import DISPENSABLE
from costopt_aws.images import DEEP_LEARNING
from tests.support.aws.cloud import Cloud
from tests.support.aws.overlay.call import Call, Forward, Reply
from tests.support.aws.overlay.faults import unauthorized
from tests.support.aws.overlay.permissions import DRY, Simulated
from tests.support.aws.overlay.refusal import refusal
from tests.support.terraform.iam_enforcement import Enforcement
from tests.unit.aws.test_iam import OPTIONAL

REGION = "us-east-1"
PARAMETER = "/costopt/image"
STORE = "s3://runs/a"


class Account:
    """What is found in it; every look is a new controller's, over the same connections."""

    def __init__(self, cloud: Cloud, clients: Clients) -> None:
        self.cloud = cloud
        self.clients = clients

    def doctor(self, **options: object) -> Provider:
        given = AwsOptions.parse({"regions": [REGION], "image": PARAMETER, **options})
        return AwsProvider(WallClock(), given, self.clients)

    def look(self, store: str | None = STORE, **options: object) -> dict[str, Check]:
        return {check.name: check for check in self.doctor(**options).checks("me", store)}


@pytest.fixture
def simulated(cloud: Cloud) -> Simulated:
    family = Simulated()
    cloud.overlay.add(family)
    return family


@pytest.fixture
def fit(cloud: Cloud, aws_clients: Clients, simulated: Simulated) -> Account:
    """An account in which everything is as it should be."""
    image = cloud.client("ec2").register_image(Name="deep", RootDeviceName="/dev/xvda")
    cloud.client("ssm").put_parameter(Name=PARAMETER, Value=image["ImageId"], Type="String")
    cloud.client("s3").create_bucket(Bucket="runs")
    cloud.client("iam").create_instance_profile(InstanceProfileName="costopt-node")
    return Account(cloud, aws_clients)


def broken(found: dict[str, Check]) -> list[str]:
    return [name for name, check in found.items() if check.verdict is CheckStatus.BROKEN]


def test_a_fit_account_is_found_well(fit: Account, simulated: Simulated) -> None:
    found = fit.look(queues={REGION: fit.cloud.queue()})
    assert broken(found) == []
    assert found["permissions"].verdict is CheckStatus.OK
    assert "runs in us-east-1, not versioned" in found["store"].detail
    assert "g/vt 96 vcpu" in found[f"quota {REGION}"].detail.lower()
    assert "P4" in (found[f"quota {REGION}"].hint or "")
    assert "assumed-role" not in simulated.principals[0]
    assert fit.cloud.alive() == []


def test_each_missing_permission_is_named(fit: Account, simulated: Simulated) -> None:
    simulated.denied = {"ec2:RunInstances", "s3:PutObject"}
    found = fit.look()
    assert broken(found) == ["permission ec2:RunInstances", "permission s3:PutObject"]
    assert "ec2:RunInstances" in (found["permission ec2:RunInstances"].hint or "")


def test_what_works_without_a_permission_is_not_a_fault(fit: Account, simulated: Simulated) -> None:
    """docs/aws.md: without these, offers lack what they tell, and everything else goes on."""
    simulated.denied = set(DISPENSABLE)
    fit.cloud.faults.on("servicequotas", "*", unauthorized)
    found = fit.look()
    assert broken(found) == []
    for action in (*(f"permission {each}" for each in DISPENSABLE), f"quota {REGION}"):
        assert found[action].verdict is CheckStatus.MISSING


@pytest.fixture
def options(cloud: Cloud) -> dict[str, object]:
    """Everything that a policy can name."""
    ec2 = cloud.client("ec2")
    (subnet, *_) = ec2.describe_subnets()["Subnets"]
    (group, *_) = ec2.describe_security_groups()["SecurityGroups"]
    return {
        "queues": {REGION: cloud.queue()},
        "subnets": {subnet["AvailabilityZoneId"]: subnet["SubnetId"]},
        "security_groups": {REGION: [group["GroupId"]]},
        "key_name": "mine",
    }


def test_the_printed_policy_is_enough_for_what_is_simulated(
    fit: Account, simulated: Simulated, options: dict[str, object]
) -> None:
    for given in ({}, options, {"image": DEEP_LEARNING}):
        printed: Any = fit.doctor(**given).access_policies("me", STORE)["daemon"]
        simulated.policies = [printed]
        assert fit.look(STORE, **given)["permissions"].verdict is CheckStatus.OK
        for statement in printed["Statement"]:
            rest = [each for each in printed["Statement"] if each is not statement]
            simulated.policies = [{**printed, "Statement": rest}]
            denied = {name for name in fit.look(STORE, **given) if name.startswith("permission ")}
            assert denied <= {f"permission {action}" for action in statement["Action"]}
            assert denied, statement["Sid"]


def test_with_the_printed_policy_alone_nothing_is_broken(
    fit: Account, simulated: Simulated, options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Held to it over HTTP; what cannot be looked at is missing."""
    iam, printed = fit.cloud.client("iam"), fit.doctor(**options).access_policies("me", STORE)
    trust = json.dumps(printed["node-trust"])
    for role in ("daemon", "node"):
        iam.create_role(RoleName=role, AssumeRolePolicyDocument=trust)
        document = json.dumps(printed[role])
        iam.put_role_policy(RoleName=role, PolicyName="printed", PolicyDocument=document)
    held = Enforcement(fit.cloud, "daemon", "node")
    for name, key in (
        ("AWS_ACCESS_KEY_ID", "AccessKeyId"),
        ("AWS_SECRET_ACCESS_KEY", "SecretAccessKey"),
        ("AWS_SESSION_TOKEN", "SessionToken"),
    ):
        monkeypatch.setenv(name, held.keys[key])
    controller = Account(fit.cloud, Clients(read_attempts=1))
    found = controller.look(STORE, **options)
    controller.clients.close()
    assert broken(found) == []
    assert found["permissions"].verdict is CheckStatus.MISSING
    assert {each.split()[0] for each in held.refused} <= OPTIONAL


def test_without_simulation_launches_are_run_dry(fit: Account, simulated: Simulated) -> None:
    simulated.may_simulate = False
    for action in DRY:
        fit.cloud.faults.on("ec2", action, simulated.dry_run)
    assert fit.look()["permissions"].verdict is CheckStatus.MISSING
    simulated.denied = {"ec2:RunInstances"}
    found = fit.look()
    assert broken(found) == [f"permission in {REGION}"]
    assert "ec2:RunInstances" in found[f"permission in {REGION}"].detail
    assert fit.cloud.alive() == []


def test_what_is_missing_is_named_with_its_remedy(fit: Account) -> None:
    fit.cloud.client("ssm").delete_parameter(Name=PARAMETER)
    fit.cloud.client("iam").delete_instance_profile(InstanceProfileName="costopt-node")
    fit.cloud.client("s3").delete_bucket(Bucket="runs")
    for code, (name, _) in fit.cloud.limits.quotas.items():
        fit.cloud.limits.quotas[code] = (name, 0.0)
    found = fit.look(queues={REGION: f"{fit.cloud.endpoint}/123456789012/nowhere"})
    assert broken(found) == [
        f"quota {REGION}", f"image {REGION}", "node role costopt-node", f"queue {REGION}", "store",
    ]  # fmt: skip
    assert "servicequotas" in (found[f"quota {REGION}"].hint or "")
    assert PARAMETER in found[f"image {REGION}"].detail
    assert "runs" in found["store"].detail


def test_each_job_s_own_role_is_looked_for(fit: Account) -> None:
    assert broken(fit.look(job_profiles={"a": "costopt-node-a"})) == ["node role costopt-node-a"]


def test_each_job_s_own_policy_is_printed(fit: Account) -> None:
    doctor = fit.doctor(job_profiles={"trust": "costopt-trust"})
    printed = doctor.access_policies("me", STORE)
    assert set(printed) == {"daemon", "node", "node-trust", "job-trust"}


def test_a_store_far_from_nodes_and_one_of_versions_are_pointed_out(fit: Account) -> None:
    far = fit.cloud.client("s3", "eu-west-1")
    where = {"LocationConstraint": "eu-west-1"}
    far.create_bucket(Bucket="far", CreateBucketConfiguration=where)
    assert "crosses regions" in (fit.look("s3://far/x")["store"].hint or "")
    fit.cloud.client("s3").put_bucket_versioning(
        Bucket="runs", VersioningConfiguration={"Status": "Enabled"}
    )
    assert "lifecycle" in (fit.look()["store"].hint or "")
    assert fit.look(None)["store"].verdict is CheckStatus.MISSING
    assert fit.look("/a/folder")["store"].verdict is CheckStatus.BROKEN


@pytest.mark.parametrize(
    ("rule", "enough"),
    [
        ({"Filter": {}}, True),
        ({"Filter": {"Prefix": "a/"}}, True),
        ({"Filter": {"Prefix": "b/"}}, False),
        ({"Filter": {"Tag": {"Key": "old", "Value": "yes"}}}, False),
        ({"Filter": {}, "Status": "Disabled"}, False),
    ],
)
def test_old_versions_that_a_lifecycle_rule_ends_need_no_other(
    fit: Account, rule: dict[str, object], enough: bool
) -> None:
    s3 = fit.cloud.client("s3")
    s3.put_bucket_versioning(Bucket="runs", VersioningConfiguration={"Status": "Enabled"})
    ends = {"NoncurrentVersionExpiration": {"NoncurrentDays": 1}}
    s3.put_bucket_lifecycle_configuration(
        Bucket="runs",
        LifecycleConfiguration={"Rules": [{"ID": "old", "Status": "Enabled", **ends, **rule}]},
    )
    assert ("lifecycle" not in (fit.look()["store"].hint or "")) == enough


def _no_lifecycle(call: Call, forward: Forward) -> Reply:
    if "lifecycle" in call.environ["QUERY_STRING"]:
        return refusal(call, "AccessDenied", "Access Denied", 403)
    return forward(call)


def test_missing_permission_for_lifecycle_rules_is_reported(fit: Account) -> None:
    versioned = {"Status": "Enabled"}
    fit.cloud.client("s3").put_bucket_versioning(Bucket="runs", VersioningConfiguration=versioned)
    fit.cloud.faults.on("s3", "GET", _no_lifecycle)
    found = fit.look()["store"]
    assert found.verdict is CheckStatus.OK
    assert "may not s3:GetLifecycleConfiguration" in (found.hint or "")


def test_a_region_that_is_wrong_or_refuses_does_not_hide_the_others(fit: Account) -> None:
    found = fit.look(regions=[REGION, "us-esat-1"])
    assert broken(found) == ["region us-esat-1"]
    assert f"quota {REGION}" in found
    fit.cloud.faults.on("ec2", "DescribeAvailabilityZones", unauthorized)
    assert "ec2:DescribeAvailabilityZones" in fit.look()[f"region {REGION}"].detail


def test_without_credentials_nothing_more_is_asked(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyless = Account(cloud, Clients(read_attempts=1))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    found = keyless.look()
    keyless.clients.close()
    assert broken(found) == ["credentials"]
    assert len(found) == 1
    assert "AWS_PROFILE" in (found["credentials"].hint or "")


@pytest.fixture
def account_file(tmp_path: Path) -> Path:
    path = tmp_path / "account.yaml"
    path.write_text(
        f"owner: team\nstore: {STORE}\nproviders:\n"
        f"  aws: {{regions: [{REGION}], image: {PARAMETER}}}\n"
    )
    return path


def test_the_command_tells_and_exits_by_what_it_found(
    fit: Cloud, simulated: Simulated, account_file: Path
) -> None:
    asked = ["doctor", "aws", "--account", str(account_file), "-o", "json"]
    done = CliRunner().invoke(cli, asked)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert {"credentials", "permissions", "store"} <= {row["check"] for row in rows}
    simulated.denied = {"ec2:TerminateInstances"}
    assert CliRunner().invoke(cli, asked).exit_code == 1


def test_the_command_prints_policies_without_asking_anything(
    account_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    done = CliRunner().invoke(
        cli, ["doctor", "aws", "--iam-policy", "--account", str(account_file)]
    )
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert set(printed) == {"daemon", "node", "node-trust"}
    assert "team" in json.dumps(printed["daemon"])


def test_what_is_about_a_provider_needs_one() -> None:
    assert CliRunner().invoke(cli, ["doctor", "--iam-policy"]).exit_code == 2
