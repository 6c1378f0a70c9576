"""The minimal example for real: applied, run, refused, destroyed, in a cloud on the loopback."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from costopt.domain import events as ev
from costopt.ledger.sqlite import open_ledger
from costopt.spec import load_account
from costopt_aws.iam import NODE_TRUST, daemon_policy, node_policy
from costopt_aws.options import AwsOptions
from tests.aws import s3_trainer
from tests.aws.bodies import Bodies
from tests.aws.cloud import served_cloud
from tests.live_run import no_traceback, wait_until
from tests.terraform.bucket_policies import BucketPolicies
from tests.terraform.deployment import Deployment, prepared
from tests.terraform.enforcement import Enforcement, policies_of
from tests.terraform.file_backups import FileBackups
from tests.terraform.policy import allows
from tests.terraform.workspace import Workspace, missing

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
    pytest.mark.xdist_group("terraform"),
]

TYPE = "g4dn.xlarge"
STEPS = 200
PATIENCE_S = 60.0
MODULE = """
  instance_types   = ["{type}"]
  node_image_ids   = {{ us-east-1 = "{image}" }}
  placement_scores = false
  tick_s           = 1
  jobs = {{
    tiny = {{
      document = file("{job}/job.yaml")
      policy   = file("{job}/policy.yaml")
      folder   = "{job}"
    }}
  }}
"""
JOB = """
kind: job
version: 1
name: tiny
work: {{amount: {steps}, unit: steps}}
deadline: 8h
resources: {{gpu_models: [T4]}}
throughput: {{points: [{{gpu: T4, gpus: 1, units_per_s: 0.05}}]}}
checkpoint: {{uri: saves, size_gib: 0.004, save: 10s, restore: 2m, interval: auto}}
startup: 3m
run: [sh, -c, "exec {python} train.py {steps} 0.05"]
"""
POLICY = """
kind: policy
version: 1
name: eager
risk: {reserve: 10m}
strategy: greedy_spot
limits: {max_price_age: 1h, capacity_types: [spot, on_demand]}
"""


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Applied once for all tests here."""
    workspace_folder = tmp_path_factory.mktemp("terraform") / "copy"
    short = Path(tempfile.mkdtemp(prefix="costopt-"))  # a socket's path must be short
    job = short / "job"
    job.mkdir()
    (job / "job.yaml").write_text(JOB.format(steps=STEPS, python=sys.executable))
    (job / "policy.yaml").write_text(POLICY)
    shutil.copy(s3_trainer.__file__, job / "train.py")
    with served_cloud() as cloud:
        cloud.reset()
        cloud.overlay.add(FileBackups())
        cloud.overlay.add(BucketPolicies())
        image = cloud.client("ec2").register_image(Name="deep", RootDeviceName="/dev/sda1")
        for zone, usd in (("us-east-1a", 0.2), ("us-east-1b", 0.25)):
            cloud.spot.price(zone, TYPE, usd)
        cloud.listed.list("us-east-1", TYPE, 0.526, bucket=0)
        workspace = Workspace.copy(workspace_folder, **cloud.environment())
        module = MODULE.format(type=TYPE, image=image["ImageId"], job=job)
        deployment = prepared(cloud, workspace, short, module)
        workspace.init(deployment.place)
        workspace.run(deployment.place, "apply", "-auto-approve", "-parallelism=30")
        yield deployment
    shutil.rmtree(short)


def test_the_roles_have_the_policies_that_doctor_prints(deployed: Deployment) -> None:
    iam, told = deployed.cloud.client("iam"), deployed.outputs()
    embedded = iam.get_role_policy(RoleName="costopt-daemon", PolicyName="costopt")
    expected = daemon_policy("costopt", told["store"], "costopt-node")
    assert embedded["PolicyDocument"] == expected
    assert policies_of(deployed.cloud, "costopt-node") == [node_policy(told["store"])]
    role = iam.get_role(RoleName="costopt-node")["Role"]
    assert role["AssumeRolePolicyDocument"] == NODE_TRUST


def test_what_runs_the_daemon_adds_no_power_over_machines(deployed: Deployment) -> None:
    iam = deployed.cloud.client("iam")
    assert iam.list_role_policies(RoleName="costopt-daemon")["PolicyNames"] == [
        "costopt",
        "deployment",
    ]
    added = iam.get_role_policy(RoleName="costopt-daemon", PolicyName="deployment")
    statements = added["PolicyDocument"]["Statement"]
    services = {a.split(":")[0] for s in statements for a in s["Action"]}
    assert services == {"s3", "elasticfilesystem", "ssmmessages"}


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
        ("node", "s3:PutObject", f"{STORE}/costopt/jobs/tiny/x", {}, True),
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


def test_the_bucket_is_versioned_encrypted_closed_and_cleaned(deployed: Deployment) -> None:
    s3, bucket = deployed.cloud.client("s3"), deployed.outputs()["bucket"]
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
    path = deployed.folder / "account.yaml"
    path.write_text(deployed.outputs()["account_document"])
    account = load_account(str(path))
    options = AwsOptions.parse(account.providers["aws"])
    assert account.owner == "costopt"
    assert account.store == deployed.outputs()["store"]
    assert options.regions == ("us-east-1",)
    assert set(options.nodes.subnets) == {f"use1-az{n}" for n in range(1, 7)}
    assert options.queues == {"us-east-1": deployed.outputs()["queue_url"]}


def test_an_event_reaches_the_queue(deployed: Deployment) -> None:
    deployed.cloud.tell("EC2 Spot Instance Interruption Warning", {"instance-id": "i-0"})
    deployed.cloud.tell("EC2 Fleet State Change", {"instance-id": "i-1"})
    sqs, queue = deployed.cloud.client("sqs"), deployed.outputs()["queue_url"]
    heard = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
    assert [json.loads(m["Body"])["detail"]["instance-id"] for m in heard] == ["i-0"]
    for message in heard:
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])


def test_the_daemon_that_terraform_describes_runs_a_job(deployed: Deployment) -> None:
    """With its role's credentials, which are held to its policies; so are the nodes'."""
    enforced = Enforcement(deployed.cloud, "costopt-daemon", "costopt-node")
    bodies = Bodies(deployed.cloud, deployed.folder / "disks")
    role = enforced.environment

    def wait(holds: Callable[[], bool], what: str) -> None:
        try:
            wait_until(lambda: holds() or daemon.poll() is not None, what, PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{story(deployed, enforced)}") from None
        assert daemon.poll() is None, story(deployed, enforced)

    try:
        with deployed.started("daemon", role) as daemon:
            wait(lambda: deployed.costopt("mode").returncode == 0, "an answer")
            wait(lambda: healthy(deployed), "the container's health check")
            assert ended(deployed, "jobs", role) == "tiny\n"
            assert ended(deployed, "jobs", role) == "", "handed in once"
            wait(lambda: bool(of(deployed, ev.DecisionMade)), "a decision")
            assert not deployed.cloud.alive(), "it observes"
            assert deployed.costopt("mode", "enforce").returncode == 0
            wait(lambda: bool(of(deployed, ev.TrainingStarted)), "training")
            (node,) = deployed.cloud.alive()
            deployed.cloud.interrupt(node)
            wait(lambda: bool(of(deployed, ev.InterruptionNoticed)), "notice")
            deployed.cloud.strike(node)
            wait(lambda: bool(of(deployed, ev.JobFinished)), "finish")
            wait(lambda: not deployed.cloud.alive(), "ends of nodes")
            assert len(of(deployed, ev.NodeLaunched)) == 2
            lines = ended(deployed, "metrics", role, "--once").splitlines()
            filtered(deployed, [json.loads(line) for line in lines])
            daemon.terminate()
            assert daemon.wait(PATIENCE_S) == 0, story(deployed, enforced)
            assert no_traceback(deployed.log("daemon").read_text())
    finally:
        bodies.close()
        deployed.cloud.launches.reset()
        deployed.cloud.faults.reset()
    assert not enforced.refused
    used = ("ec2:RunInstances", "ec2:TerminateInstances", "iam:PassRole", "sqs:ReceiveMessage")
    assert all(enforced.allowed[action] for action in used), enforced.allowed


def test_destroy_refuses_while_nodes_live_and_then_leaves_nothing(deployed: Deployment) -> None:
    if shutil.which("aws") is None:
        pytest.skip("the AWS CLI is not installed: destroy was not tried")
    ec2, place = deployed.cloud.client("ec2"), deployed.place
    bucket = deployed.outputs()["bucket"]
    tags = [{"Key": "costopt:owner", "Value": "costopt"}]
    started = ec2.run_instances(
        ImageId=ec2.describe_images(Owners=["self"])["Images"][0]["ImageId"],
        InstanceType=TYPE,
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    node = started["Instances"][0]["InstanceId"]
    arguments = ("destroy", "-auto-approve", "-refresh=false", "-parallelism=30")
    refused = deployed.workspace.attempt(place, *arguments)
    assert refused.returncode != 0
    assert node in refused.stdout + refused.stderr
    assert deployed.containers(), "the daemon is still there to end its nodes"
    ec2.terminate_instances(InstanceIds=[node])
    empty(deployed.cloud.client("s3"), bucket)
    deployed.workspace.run(place, *arguments)
    assert "values" not in json.loads(deployed.workspace.run(place, "show", "-json"))
    assert not deployed.cloud.client("s3").list_buckets()["Buckets"]


def of(deployed: Deployment, kind: type[Any]) -> list[Any]:
    """The daemon's events of one kind."""
    path = Path(f"{deployed.folder}/var/lib/costopt/ledger.sqlite")
    if not path.exists():
        return []
    with open_ledger(path, create=False) as ledger:
        return [r.event for r in ledger.events() if isinstance(r.event, kind)]


def ended(deployed: Deployment, name: str, role: Mapping[str, str], *more: str) -> str:
    """What a container says that ends by itself, and well; notes apart."""
    with deployed.started(name, role, *more) as process:
        code = process.wait(PATIENCE_S)
    said = deployed.log(name).read_text()
    assert code == 0, said
    return "".join(f"{line}\n" for line in said.splitlines() if not line.startswith("note: "))


def story(deployed: Deployment, enforced: Enforcement) -> str:
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
    told = logs.describe_metric_filters(logGroupName=deployed.outputs()["log_group"])
    (measured,) = (line for line in lines if "costopt_ready" in line)
    for found in told["metricFilters"]:
        value = found["metricTransformations"][0]["metricValue"]
        if value.startswith("$."):
            assert found["filterPattern"] == f"{{ {value} = * }}"
            assert measured[value.removeprefix("$.")] >= 0


def empty(s3: Any, bucket: str) -> None:
    """As a user must before the bucket goes: every version."""
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        for each in (*page.get("Versions", ()), *page.get("DeleteMarkers", ())):
            s3.delete_object(Bucket=bucket, Key=each["Key"], VersionId=each["VersionId"])
