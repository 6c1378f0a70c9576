"""A node's first boot, run for real against a bucket and a metadata service over HTTP."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.controller.payload import upload_payload
from costopt.domain.errors import BadRequestError
from costopt.domain.runtime import Payload, StoredFile
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Gang
from costopt.provider.boot import disk_options
from costopt.store import open_store
from costopt_aws import boot as node_start
from costopt_aws.bootstrap import user_data
from tests.support.aws import fake_systemctl
from tests.support.aws.cloud import Cloud
from tests.support.live_run import PATIENCE_S, wait_until
from tests.support.market_fixtures import training_job

NODE = "i-0123456789abcdef0"
BUCKET = "runs"
MAX_BYTES = 16 * 1024
EMPTY = Payload(
    job="job",
    store=f"s3://{BUCKET}/a",
    wheel=StoredFile("w/costopt_spot-1-py3-none-any.whl", "0" * 64, 1),
    bundle=StoredFile("b/bundle.tar.gz", "1" * 64, 1),
    requirements=("obstore==0.12",),
)


@dataclass(frozen=True, slots=True)
class Node:
    """A folder that stands for a node's disk."""

    folder: Path
    cloud: Cloud

    def boot(self, payload: Payload, **changed: object) -> subprocess.CompletedProcess[str]:
        """Run the user data, as cloud-init does."""
        units = self.folder / "units"
        tools = self.folder / "bin"
        for each in (units, tools):
            each.mkdir(parents=True, exist_ok=True)
        fake_systemctl.install(tools)
        script = self.folder / "user-data"
        script.write_text(
            user_data(
                payload,
                region="us-east-1",
                endpoint=self.cloud.endpoint,
                root=str(self.folder / "opt"),
                pythons=(str(changed.get("python", sys.executable)),),
                max_unreachable_s=float(str(changed.get("max_unreachable_s", 3600.0))),
            )
        )
        return subprocess.run(
            [sys.executable, script],
            env={
                "PATH": f"{tools}:{os.environ['PATH']}",
                "COSTOPT_UNIT_DIR": str(units),
                "COSTOPT_START_WAIT_S": "0.01",
                "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.cloud.metadata_endpoint(NODE),
                "AWS_ENDPOINT_URL": self.cloud.endpoint,
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    @property
    def units(self) -> Path:
        return self.folder / "units"

    def stop(self) -> None:
        """End what its systemctl has started."""
        for name in ("costopt-agent.pid", "costopt-poweroff.pid"):
            fake_systemctl.stop(self.units / name)

    def calls(self) -> list[str]:
        """What systemctl was asked."""
        return (self.folder / "units" / "calls").read_text().splitlines()


@pytest.fixture
def node(cloud: Cloud, tmp_path: Path) -> Node:
    cloud.client("s3").create_bucket(Bucket=BUCKET)
    cloud.metadata.set(NODE, "local-ipv4", "127.0.0.1")
    return Node(tmp_path / "node", cloud)


@pytest.fixture
def payload(node: Node, tmp_path: Path) -> Payload:
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text("print('hello')")
    uri = f"s3://{BUCKET}/costopt"
    return upload_payload(replace(training_job(), workdir=str(work)), open_store(uri), uri)


def test_a_node_comes_up_and_its_agent_answers(node: Node, payload: Payload) -> None:
    try:
        done = node.boot(payload)
        assert done.returncode == 0, done.stderr
        mailbox = Mailbox(open_store(payload.store), "job")
        wait_until(lambda: mailbox.heartbeat(NODE) is not None, "heartbeat")
        unit = (node.folder / "units" / "costopt-agent.service").read_text()
        (workdir,) = (node.folder / "opt").glob("job-*")
        assert (workdir / "train.py").read_text() == "print('hello')"
        assert f'"--workdir" "{workdir}"' in unit
        assert "secret" not in unit.replace('"--secrets"', "")
        assert f'"--data-folder" "{node.folder}/opt/costopt-data"' in unit
        again = node.boot(payload)
        assert again.returncode == 0, again.stderr
        agent = [call for call in node.calls() if "timer" not in call]
        assert [call.split()[0] for call in agent] == [
            "daemon-reload", "daemon-reload", "enable", "restart", "enable", "start",
        ]  # fmt: skip
    finally:
        node.stop()


def test_the_machine_ends_itself_once_its_agent_is_killed(node: Node, payload: Payload) -> None:
    pid, timer = node.units / "costopt-agent.pid", node.units / "costopt-poweroff.timer"
    try:
        assert node.boot(payload, max_unreachable_s=10.0).returncode == 0
        assert "OnActiveSec=160s" in timer.read_text()
        wait_until(lambda: node.calls().count(f"restart {timer.name}") >= 3, "renewals")
        timer.write_text(timer.read_text().replace("160s", "9s"))
        before = node.calls().count(f"restart {timer.name}")
        wait_until(lambda: node.calls().count(f"restart {timer.name}") > before + 1, "a renewal")
        assert "poweroff" not in node.calls()
        fake_systemctl.stop(pid)
        wait_until(lambda: "poweroff" in node.calls(), "the machine's end")
    finally:
        node.stop()


def test_a_file_that_is_not_what_it_should_be_is_refused(node: Node, payload: Payload) -> None:
    mailbox = Mailbox(open_store(payload.store), "job")
    mailbox.post_gang(Gang("job", 3, (NODE, "i-2"), ("python",), ".", 0.0))
    open_store(payload.store).put(payload.bundle.key, b"something else")
    done = node.boot(payload)
    assert done.returncode != 0
    (failure,) = mailbox.failures()
    assert (failure.node_id, failure.generation, failure.exit_code) == (NODE, 3, 127)
    assert "has digest" in failure.message
    assert "has digest" in done.stderr
    assert node.calls()[-1] == "poweroff"
    node.stop()
    said = open_store(payload.store).get(f"jobs/job/nodes/{NODE}/start-failed.txt")
    assert said is not None
    assert b"has digest" in said


def test_a_missing_file_and_a_missing_python_are_reported(node: Node, payload: Payload) -> None:
    done = node.boot(payload, python="/no/such/python3")
    assert "no Python (3, 11) or newer" in done.stderr
    open_store(payload.store).delete(payload.bundle.key)
    done = node.boot(replace(payload, bundle=replace(payload.bundle, sha256="2" * 64)))
    assert "404" in done.stderr
    assert node.calls().count("poweroff") == 2
    node.stop()


def test_a_service_that_stutters_is_asked_again(node: Node, payload: Payload) -> None:
    node.cloud.metadata.down.add(NODE)
    done = node.boot(payload)
    assert "503" in done.stderr
    assert not (node.folder / "units" / "calls").exists()


def test_user_data_is_small_the_same_each_time_and_holds_no_secrets() -> None:
    text = user_data(EMPTY, region="eu-west-1", endpoint="https://s3.eu-west-1.amazonaws.com")
    assert text == user_data(
        EMPTY, region="eu-west-1", endpoint="https://s3.eu-west-1.amazonaws.com"
    )
    assert len(text.encode()) < MAX_BYTES
    assert text.startswith("#!/usr/bin/env python3\n")
    for word in ("AKIA", "aws_secret", "password"):
        assert word not in text
    ast.parse(text, feature_version=(3, 8))
    (line,) = (line for line in text.splitlines() if line.startswith("boot("))
    config = json.loads(eval(line.removeprefix("boot(Ec2Platform, json.loads(").removesuffix("))")))
    assert config["store"] == {
        "uri": "s3://runs/a?region=eu-west-1",
        "bucket": "runs",
        "prefix": "a",
        "region": "eu-west-1",
        "endpoint": "https://s3.eu-west-1.amazonaws.com",
    }


def test_the_machines_own_disks_keep_data_and_snapshots(tmp_path: Path) -> None:
    fast, root = tmp_path / "nvme", tmp_path / "opt"
    root.mkdir()
    gib = shutil.disk_usage(root).total // 2**30
    data = ["--data-folder", f"{root}/costopt-data", "--data-gib", str(gib // 2)]
    assert disk_options(fast, root) == data
    fast.mkdir()
    assert disk_options(fast, root) == [
        "--data-folder", f"{fast}/costopt-data", "--data-gib", str(gib // 2),
        "--snapshot-folder", f"{fast}/costopt-snapshots", "--snapshot-disk-gib", str(gib // 4),
    ]  # fmt: skip


def test_a_store_that_nodes_cannot_open_is_refused() -> None:
    with pytest.raises(BadRequestError, match="cannot be reached"):
        user_data(replace(EMPTY, store="/runs"), region="us-east-1", endpoint="https://x")


def test_requests_are_signed_as_botocore_signs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    keys = {"AccessKeyId": "A", "SecretAccessKey": "S", "Token": "T"}
    reported = {
        "iam/security-credentials/": "role",
        "iam/security-credentials/role": json.dumps(keys),
    }
    monkeypatch.setattr(node_start, "metadata", reported.__getitem__)
    store = {
        "bucket": "runs",
        "prefix": "a b/+c",
        "region": "eu-west-1",
        "endpoint": "https://s3.eu-west-1.amazonaws.com",
    }
    ours = node_start.Ec2Platform({"store": store}).object_url("PUT", "files/x=1,2.whl", b"body")
    stamp = ours.get_header("X-amz-date") or ""
    at = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: at)
    kind = {"Content-Type": "application/octet-stream"}
    theirs = AWSRequest("PUT", ours.full_url, data=b"body", headers=kind)
    theirs.context["payload_signing_enabled"] = True
    S3SigV4Auth(Credentials("A", "S", "T"), "s3", "eu-west-1").add_auth(theirs)
    signature = theirs.headers["Authorization"].rpartition("Signature=")[2]
    assert (ours.get_header("Authorization") or "").endswith(f"Signature={signature}")
