"""A run ends at once on a fault of the account that no other pool would cure."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result

from costopt.domain import events as ev
from costopt.ledger.sql_ledger import open_sqlite_ledger
from tests.support.aws.cloud import Cloud
from tests.support.aws.overlay.faults import refuse, throttle
from tests.support.cloud_run import write_job
from tests.support.command_line import invoke

TYPE = "g4dn.xlarge"
REGIONS = ("us-east-1", "us-west-2")
ACCOUNT = """
owner: me
store: s3://runs/costopt
providers:
  aws:
    regions: [{regions}]
    instance_types: [{type}]
    scored_nodes: null
    image: {{{images}}}
"""


class Account:
    """A folder with a job and the account file of a fit account, which a test spoils."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        self.cloud = cloud
        self.folder = folder
        self.images: dict[str, str] = {}
        cloud.client("s3").create_bucket(Bucket="runs")
        cloud.client("iam").create_instance_profile(InstanceProfileName="costopt-node")
        for region in REGIONS:
            image = cloud.client("ec2", region).register_image(
                Name="deep", RootDeviceName="/dev/sda1"
            )
            self.images[region] = image["ImageId"]
            for zone in "ab":
                cloud.spot.price(f"{region}{zone}", TYPE, 0.2)
            cloud.listed.list(region, TYPE, 0.526, bucket=0)
        write_job(folder / "job", "T4", 90)

    def run(self) -> Result:
        images = ", ".join(f"{region}: {image}" for region, image in self.images.items())
        text = ACCOUNT.format(regions=", ".join(REGIONS), type=TYPE, images=images)
        (self.folder / "account.yaml").write_text(text)
        words = ("--policy", "job/policy.yaml", "--tick", "1", "--cooldown", "1", "--apply")
        return invoke("run", "job/job.yaml", *words, "--state-dir", "state")

    def events(self) -> list[object]:
        with open_sqlite_ledger(self.folder / "state" / "ledger.sqlite") as ledger:
            return [recorded.event for recorded in ledger.events()]


@pytest.fixture
def account(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Account:
    monkeypatch.chdir(tmp_path)
    return Account(cloud, tmp_path)


def refusal(account: Account) -> str:
    done = account.run()
    assert done.exit_code == 1, done.output
    assert done.stderr.count("error: ") == 1
    assert account.cloud.alive() == []
    return done.stderr


def test_the_account_file_of_the_folder_is_used_and_named(account: Account) -> None:
    account.cloud.client("s3").delete_bucket(Bucket="runs")
    said = refusal(account)
    assert "account.yaml" in said.splitlines()[0]


def test_a_missing_image_in_every_region_ends_it_before_a_launch(account: Account) -> None:
    account.images = dict.fromkeys(REGIONS, "/no/such/parameter")
    said = refusal(account)
    assert "/no/such/parameter" in said
    assert "costopt doctor" in said
    assert account.events() == []


def test_a_missing_bucket_ends_it_before_a_launch(account: Account) -> None:
    account.cloud.client("s3").delete_bucket(Bucket="runs")
    assert "bucket runs" in refusal(account)
    assert account.events() == []


def test_a_missing_role_ends_it_before_a_launch(account: Account) -> None:
    account.cloud.client("iam").delete_instance_profile(InstanceProfileName="costopt-node")
    said = refusal(account)
    assert "costopt-node" in said
    assert "costopt setup aws" in said
    assert account.events() == []


def test_a_fault_of_one_region_leaves_the_others(account: Account) -> None:
    account.images[REGIONS[0]] = "/no/such/parameter"
    account.cloud.faults.on("ec2", "RunInstances", refuse("InvalidParameterValue", "is wrong"))
    refusal(account)
    launches = [e for e in account.events() if isinstance(e, ev.LaunchFailed)]
    assert {event.pool.split("/")[1] for event in launches} >= {REGIONS[1]}


def test_the_same_refusal_in_every_pool_ends_it(account: Account) -> None:
    account.cloud.faults.on("ec2", "RunInstances", refuse("InvalidParameterValue", "is wrong"))
    said = refusal(account)
    assert "InvalidParameterValue" in said
    failed = [e for e in account.events() if isinstance(e, ev.LaunchFailed)]
    assert len({event.pool for event in failed}) >= 2


def test_what_may_pass_does_not_end_it(account: Account) -> None:
    account.cloud.faults.on("iam", "GetInstanceProfile", throttle)
    account.cloud.faults.on("ec2", "RunInstances", refuse("InvalidParameterValue", "is wrong"))
    assert "InvalidParameterValue" in refusal(account), "it came as far as to launch"
