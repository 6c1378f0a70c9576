"""The minimal example for real: applied, run, refused, destroyed, in a cloud on the loopback."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from costopt.domain import events as ev
from costopt.domain.account import Account
from costopt.ledger.sql_ledger import open_sqlite_ledger
from costopt.spec import load_account
from costopt_aws.iam import NODE_TRUST, daemon_policy, job_policy, node_policy
from costopt_aws.instances import LAUNCHED
from costopt_aws.launch_scope import LaunchScope
from costopt_aws.options import AwsOptions
from tests.support.aws.instance_processes import Bodies
from tests.support.cloud_run import hold_of
from tests.support.live_run import PATIENCE_S, no_traceback, wait_until
from tests.support.terraform.deployment import Deployment, applied
from tests.support.terraform.iam_enforcement import (
    Enforcement,
    client,
    credentials_of,
    moto_enforces,
    policies_of,
    refused,
)
from tests.support.terraform.iam_policy import allows
from tests.support.terraform.workspace import missing

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Applied once for all tests here."""
    with applied(tmp_path_factory.mktemp("terraform") / "copy") as deployment:
        yield deployment
        if shutil.which("aws") is None:
            pytest.skip("the AWS CLI is not installed: destroy was not tried")
        destroy(deployment)


def destroy(deployed: Deployment) -> None:
    """It is refused while nodes live, and then leaves nothing."""
    ec2, place = deployed.cloud.client("ec2"), deployed.place
    bucket = deployed.outputs["bucket"]
    node = deployed.launched(ec2, **OURS)
    arguments = ("destroy", "-auto-approve", "-refresh=false", "-parallelism=30")
    refused = deployed.workspace.attempt(place, *arguments)
    assert refused.returncode != 0
    assert node in refused.stdout + refused.stderr
    assert deployed.containers(), "the daemon is still there to end its nodes"
    ec2.terminate_instances(InstanceIds=[node])
    empty(deployed.cloud.client("s3"), bucket)
    deployed.workspace.run(place, *arguments)
    assert deployed.workspace.resources(place) == []
    assert not deployed.cloud.client("s3").list_buckets()["Buckets"]


@pytest.fixture
def enforced(deployed: Deployment) -> Iterator[Enforcement]:
    """Daemon and nodes are held to their roles' policies."""
    yield Enforcement(deployed.cloud, "costopt-daemon", "costopt-node-tiny")
    deployed.cloud.faults.reset()


def test_the_roles_have_the_policies_that_doctor_prints(deployed: Deployment) -> None:
    iam, reported = deployed.cloud.client("iam"), deployed.outputs
    embedded = iam.get_role_policy(RoleName="costopt-daemon", PolicyName="costopt")
    scope = LaunchScope.from_options(options_of(deployed))
    expected = daemon_policy("costopt", reported["store"], scope)
    assert scope.node_roles == {"costopt-node", "costopt-node-tiny"}
    assert embedded["PolicyDocument"] == expected
    named = {"secrets": ["prod/shared"], "repositories": ["train"]}
    shared = node_policy(reported["store"], ["tiny"], **named)
    assert policies_of(deployed.cloud, "costopt-node") == [shared]
    assert policies_of(deployed.cloud, "costopt-node-tiny") == [
        job_policy(reported["store"], "tiny", repositories=["train"])
    ]
    for name in ("costopt-node", "costopt-node-tiny"):
        role = iam.get_role(RoleName=name)["Role"]
        assert role["AssumeRolePolicyDocument"] == NODE_TRUST


def test_what_runs_the_daemon_adds_no_power_over_machines(deployed: Deployment) -> None:
    iam = deployed.cloud.client("iam")
    names = iam.list_role_policies(RoleName="costopt-daemon")["PolicyNames"]
    assert sorted(names) == ["costopt", "deployment"]
    added = iam.get_role_policy(RoleName="costopt-daemon", PolicyName="deployment")
    statements = added["PolicyDocument"]["Statement"]
    services = {a.split(":")[0] for s in statements for a in s["Action"]}
    assert services == {"s3", "elasticfilesystem", "ssmmessages"}


OWNER = [{"Key": "costopt:owner", "Value": "costopt"}]
OURS: dict[str, Any] = {
    "TagSpecifications": [{"ResourceType": kind, "Tags": OWNER} for kind in LAUNCHED]
}
OWNED = {"aws:ResourceTag/costopt:owner": "costopt"}
PASSED = {"iam:PassedToService": "ec2.amazonaws.com"}
STORE = "arn:aws:s3:::costopt-123456789012-us-east-1"


@pytest.mark.parametrize(
    ("role", "action", "resource", "context", "may"),
    [
        ("daemon", "ec2:TerminateInstances", "arn:aws:ec2:us-east-1:1:instance/i-1", OWNED, True),
        ("daemon", "ec2:TerminateInstances", "arn:aws:ec2:us-east-1:1:instance/i-1", {}, False),
        ("daemon", "ec2:RunInstances", "arn:aws:ec2:us-east-1:1:instance/*", {}, False),
        ("daemon", "iam:PassRole", "arn:aws:iam::1:role/costopt-node", PASSED, True),
        ("daemon", "iam:PassRole", "arn:aws:iam::1:role/admin", PASSED, False),
        ("daemon", "iam:CreateUser", "*", {}, False),
        ("daemon", "s3:DeleteBucket", STORE, {}, False),
        ("daemon", "s3:GetObject", f"{STORE}/deployed/tiny/job.json", {}, True),
        ("daemon", "s3:PutObject", f"{STORE}/deployed/tiny/job.json", {}, False),
        ("node-tiny", "s3:PutObject", f"{STORE}/costopt/jobs/tiny/x", {}, True),
        ("node-tiny", "s3:PutObject", f"{STORE}/costopt/checkpoints/tiny/x", {}, True),
        ("node-tiny", "s3:GetObject", f"{STORE}/costopt/jobs/other/x", {}, False),
        ("node-tiny", "s3:PutObject", f"{STORE}/costopt/checkpoints/other/x", {}, False),
        ("node-tiny", "s3:GetObject", f"{STORE}/costopt/payloads/other/x", {}, False),
        ("node-tiny", "s3:PutObject", f"{STORE}/costopt/payloads/tiny/x", {}, False),
        ("node", "s3:PutObject", f"{STORE}/costopt/jobs/later/x", {}, True),
        ("node", "s3:GetObject", f"{STORE}/costopt/jobs/tiny/x", {}, False),
        ("node", "s3:PutObject", f"{STORE}/costopt/payloads/x", {}, False),
        ("node", "s3:GetObject", f"{STORE}/deployed/tiny/job.json", {}, False),
        ("node", "s3:GetObject", "arn:aws:s3:::other/x", {}, False),
        ("node", "ec2:RunInstances", "arn:aws:ec2:us-east-1:1:instance/*", OWNED, False),
    ],
)
def test_roles_may_what_they_must_and_no_more(
    deployed: Deployment,
    role: str,
    action: str,
    resource: str,
    context: Mapping[str, str],
    may: bool,
) -> None:
    policies = policies_of(deployed.cloud, f"costopt-{role}")
    assert allows(policies, action, resource, context) is may


def test_what_the_daemon_may_not_is_refused(deployed: Deployment, enforced: Enforcement) -> None:
    """Over HTTP, with the credentials of its role."""
    cloud, bucket = deployed.cloud, deployed.outputs["bucket"]
    ec2, s3 = (client(cloud, service, enforced.keys) for service in ("ec2", "s3"))
    stranger = deployed.launched(cloud.client("ec2"))
    network, own_role = network_of(deployed), {"Name": "costopt-node-tiny"}
    with refused("UnauthorizedOperation"):
        ec2.terminate_instances(InstanceIds=[stranger])
    with refused("UnauthorizedOperation"):
        deployed.launched(ec2)
    with refused("UnauthorizedOperation"):
        deployed.launched(ec2, **OURS, **network, IamInstanceProfile={"Name": "admin"})
    with refused("UnauthorizedOperation"):
        deployed.launched(ec2, **OURS, IamInstanceProfile=own_role)
    with refused("AccessDenied"):
        s3.put_object(Bucket=bucket, Key="deployed/tiny/job.json", Body=b"")
    ours = deployed.launched(ec2, **OURS, **network, IamInstanceProfile=own_role)
    assert len(enforced.refused) == 5, enforced.refused
    ec2.terminate_instances(InstanceIds=[ours])
    assert cloud.alive() == [stranger]
    cloud.client("ec2").terminate_instances(InstanceIds=[stranger])


def test_moto_refuses_as_far_as_it_understands_policies(deployed: Deployment) -> None:
    """With moto's own enforcement, which checks signatures, too.

    It knows no conditions of permissions and takes each for a refusal, and asks about what is not
    in S3 as the resource "*" (moto.iam.access_control). So it is asked about calls that only look
    and about objects; ``Enforcement`` holds the roles to the rest.
    """
    cloud, bucket = deployed.cloud, deployed.outputs["bucket"]
    daemon, node, tiny = (
        credentials_of(cloud, f"costopt-{role}") for role in ("daemon", "node", "node-tiny")
    )
    with moto_enforces(cloud):
        client(cloud, "ec2", daemon).describe_instances()
        with refused("AccessDenied"):
            client(cloud, "iam", daemon).create_user(UserName="me")
        for keys, key, may in (
            (tiny, "costopt/jobs/tiny/x", True),
            (tiny, "costopt/jobs/other/x", False),
            (tiny, "costopt/payloads/tiny/x", False),
            (node, "costopt/jobs/other/x", True),
            (node, "costopt/payloads/other/x", False),
            (daemon, "deployed/tiny/job.json", False),
        ):
            with nullcontext() if may else refused("AccessDenied"):
                client(cloud, "s3", keys).put_object(Bucket=bucket, Key=key, Body=b"")


def test_the_bucket_is_versioned_encrypted_closed_and_cleaned(deployed: Deployment) -> None:
    s3, bucket = deployed.cloud.client("s3"), deployed.outputs["bucket"]
    assert s3.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    (rule,) = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
    block = s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"]
    assert all(block.values())
    (statement,) = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]
    assert statement["Effect"] == "Deny"
    assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    rules = {r["ID"]: r for r in s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]}
    assert rules["old-versions"]["NoncurrentVersionExpiration"]["NoncurrentDays"] == 7
    assert "AbortIncompleteMultipartUpload" in rules["unfinished-uploads"]


def test_nothing_reaches_the_daemon(deployed: Deployment) -> None:
    groups = deployed.cloud.client("ec2").describe_security_groups(
        Filters=[{"Name": "group-name", "Values": ["costopt-daemon"]}]
    )
    (group,) = groups["SecurityGroups"]
    assert group["IpPermissions"] == []
    assert {rule["FromPort"] for rule in group["IpPermissionsEgress"]} == {443, 2049}


def test_the_account_file_is_read_by_costopt(deployed: Deployment) -> None:
    account, options = account_of(deployed), options_of(deployed)
    assert account.owner == "costopt"
    assert account.store == deployed.outputs["store"]
    assert options.regions == ("us-east-1",)
    assert set(options.subnets) == {f"use1-az{n}" for n in range(1, 7)}
    assert options.queues == {"us-east-1": deployed.outputs["queue_url"]}


def test_an_event_reaches_the_queue(deployed: Deployment) -> None:
    deployed.cloud.tell("EC2 Spot Instance Interruption Warning", {"instance-id": "i-0"})
    deployed.cloud.tell("EC2 Fleet State Change", {"instance-id": "i-1"})
    sqs, queue = deployed.cloud.client("sqs"), deployed.outputs["queue_url"]
    heard = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
    assert [json.loads(m["Body"])["detail"]["instance-id"] for m in heard] == ["i-0"]
    for message in heard:
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


@pytest.mark.exhaustive("what Terraform deploys")
def test_the_daemon_that_terraform_describes_runs_a_job(
    deployed: Deployment, enforced: Enforcement
) -> None:
    """With its role's credentials, which are held to its policies; so are the nodes'."""
    bodies = Bodies(deployed.cloud, deployed.folder / "disks")
    role = enforced.environment
    hold = hold_of(deployed.folder / "job")
    hold.touch()

    def wait(holds: Callable[[], bool], what: str) -> None:
        try:
            wait_until(lambda: holds() or daemon.poll() is not None, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{describe_run(deployed, enforced)}") from None
        assert daemon.poll() is None, describe_run(deployed, enforced)

    try:
        with deployed.started("daemon", role) as daemon:
            wait(Path(f"{deployed.folder}/run/costopt/daemon.sock").exists, "the socket")
            wait(lambda: deployed.costopt("daemon", "mode").returncode == 0, "an answer")
            wait(lambda: healthy(deployed), "the container's health check")
            assert ended(deployed, "jobs", role) == "tiny\n"
            assert ended(deployed, "jobs", role) == "", "handed in once"
            wait(lambda: bool(of(deployed, ev.DecisionMade)), "a decision")
            assert not deployed.cloud.alive(), "it observes"
            assert deployed.costopt("daemon", "mode", "enforce").returncode == 0
            wait(lambda: bool(of(deployed, ev.TrainingStarted)), "training")
            (node,) = deployed.cloud.alive()
            deployed.cloud.interrupt(node)
            wait(lambda: bool(of(deployed, ev.InterruptionNoticed)), "notice")
            deployed.cloud.reclaim(node)
            hold.unlink()
            wait(lambda: bool(of(deployed, ev.JobFinished)), "finish")
            wait(lambda: not deployed.cloud.alive(), "ends of nodes")
            assert len(of(deployed, ev.NodeLaunched)) == 2
            lines = ended(deployed, "metrics", role, "--once").splitlines()
            filtered(deployed, [json.loads(line) for line in lines])
            daemon.terminate()
            assert daemon.wait(PATIENCE_S) == 0, describe_run(deployed, enforced)
            assert no_traceback(deployed.log("daemon").read_text())
    finally:
        bodies.close()
        deployed.cloud.launches.reset()
    assert not enforced.refused
    used = ("ec2:RunInstances", "ec2:TerminateInstances", "iam:PassRole", "sqs:ReceiveMessage")
    assert all(enforced.allowed[action] for action in used), enforced.allowed
    assert deployed.profiles() == ["costopt-node-tiny"], "the job's own role"


def account_of(deployed: Deployment) -> Account:
    """The account file that the daemon reads."""
    path = deployed.folder / "account.yaml"
    path.write_text(deployed.outputs["account_document"])
    return load_account(str(path))


def options_of(deployed: Deployment) -> AwsOptions:
    """Of the adapter, as the account file has them."""
    return AwsOptions.parse(account_of(deployed).providers["aws"])


def network_of(deployed: Deployment) -> dict[str, Any]:
    """Arguments of a launch into the network that the module made for nodes."""
    nodes = options_of(deployed)
    groups = list(nodes.security_groups["us-east-1"])
    return {"SubnetId": min(nodes.subnets.values()), "SecurityGroupIds": groups}


def of(deployed: Deployment, kind: type[Any]) -> list[Any]:
    """The daemon's events of one kind."""
    path = Path(f"{deployed.folder}/var/lib/costopt/ledger.sqlite")
    if not path.exists():
        return []
    with open_sqlite_ledger(path, create=False) as ledger:
        return [r.event for r in ledger.events() if isinstance(r.event, kind)]


def ended(deployed: Deployment, name: str, role: Mapping[str, str], *more: str) -> str:
    """What a container says that ends by itself, and well; notes apart."""
    with deployed.started(name, role, *more) as process:
        code = process.wait(PATIENCE_S)
    said = deployed.log(name).read_text()
    assert code == 0, said
    return "".join(f"{line}\n" for line in said.splitlines() if not line.startswith("note: "))


def describe_run(deployed: Deployment, enforced: Enforcement) -> str:
    """What the daemon and the nodes said, and what was refused."""
    logs = sorted(deployed.folder.glob("disks/*/boot.log"))
    logs += sorted(deployed.folder.glob("disks/*/units/*.log"))
    texts = [path.read_text() for path in (deployed.log("daemon"), *logs)]
    return "\n".join((*texts, *enforced.refused, str(enforced.allowed)))[-6000:]


def healthy(deployed: Deployment) -> bool:
    """What the container's health check says."""
    kind, python, *rest = deployed.containers()["daemon"]["healthCheck"]["command"]
    assert (kind, python) == ("CMD", "python3")
    done = subprocess.run([sys.executable, *rest], env=deployed.environment("daemon"))
    return done.returncode == 0


def filtered(deployed: Deployment, lines: list[dict[str, Any]]) -> None:
    """The log group's filters find the fields that the metrics container writes."""
    logs = deployed.cloud.client("logs")
    reported = logs.describe_metric_filters(logGroupName=deployed.outputs["log_group"])
    (measured,) = (line for line in lines if "costopt_ready" in line)
    for found in reported["metricFilters"]:
        value = found["metricTransformations"][0]["metricValue"]
        if value.startswith("$."):
            assert found["filterPattern"] == f"{{ {value} = * }}"
            assert measured[value.removeprefix("$.")] >= 0


def empty(s3: Any, bucket: str) -> None:
    """As a user must before the bucket goes: every version."""
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for each in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
            s3.delete_object(Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"])
