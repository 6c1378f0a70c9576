"""costopt reconcile: what nobody answers for is listed, and given back when asked to."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from costopt.cli.main import cli
from costopt.controller.orphans import simulated_targets
from costopt.controller.state_dir import CLOCK, daemon_lock
from costopt.domain.events import (
    JobFinished,
    JobSubmitted,
    LaunchIntended,
    NodeEnded,
    NodeLaunched,
)
from costopt.domain.fleet import EndCause, LaunchRequest, Node
from costopt.domain.market import Pool
from costopt.ledger.sql_ledger import open_sqlite_ledger
from costopt_sim.process_host import is_running, kill_node
from tests.support.aws.account import SPOT, NewAccount
from tests.support.aws.overlay.faults import drop, unauthorized
from tests.support.live_run import CALM, history, wait_until

ACCOUNT = """
kind: account
version: 1
owner: me
providers:
  aws: {regions: [us-east-1, us-west-2]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An account file and a state directory whose ledger knows of job "job"."""
    (tmp_path / "account.yaml").write_text(ACCOUNT)
    _write(tmp_path, None)
    return tmp_path


def _write(folder: Path, node: Node | None) -> None:
    """Take a job down, or one of its nodes."""
    at = datetime.fromisoformat("2026-01-05T00:00:00+00:00")
    with open_sqlite_ledger(folder / "ledger.sqlite") as ledger:
        if node is None:
            ledger.append(
                JobSubmitted(
                    at=at,
                    job="job",
                    work_units=1,
                    unit="steps",
                    start_at=at,
                    deadline_at=at,
                    policy="cheapest",
                    strategy="milp",
                    tenant="default",
                )
            )
            return
        ledger.append(
            NodeLaunched(
                at=at,
                job="job",
                key=node.key,
                node_id=node.node_id,
                pool=str(node.pool),
                launched_at=node.launched_at,
                micros_per_hour=400_000,
                idle_w=1,
                busy_w=1,
                pue=1,
                gco2e_per_kwh=None,
                energy_basis="listed",
            )
        )


@contextmanager
def _controlled(folder: Path) -> Iterator[None]:
    """While another process controls the job."""
    with open_sqlite_ledger(folder / "ledger.sqlite") as ledger, ledger.exclusive("job"):
        yield


def _reconcile(folder: Path, *more: str) -> Result:
    arguments = ["--account", str(folder / "account.yaml"), "--state-dir", str(folder)]
    return CliRunner().invoke(cli, ["reconcile", *arguments, "-o", "json", *more])


def _rows(result: Result) -> dict[str, dict[str, object]]:
    assert result.exit_code == 0, result.output
    return {row["name"]: row for row in json.loads(result.stdout)["rows"]}


def test_nodes_that_no_ledger_holds_are_listed_and_ended(account: NewAccount, folder: Path) -> None:
    account.clock.sleep(-3600)
    (known,) = account.provider.launch(account.request(1, "a"))
    (orphan,) = account.provider.launch(account.request(1, "b"))
    account.clock.sleep(3595)
    (young,) = account.provider.launch(account.request(1, "c"))
    stranger = LaunchRequest("somebody else", "job", SPOT, 1, "d")
    account.cloud.launches.room("us-east-1a", "g6.xlarge", 9)
    (other,) = account.provider.launch(stranger)
    _write(folder, known)
    with _controlled(folder):
        _only_the_orphan_is_ended(account, folder, known, orphan, young, other)


def _only_the_orphan_is_ended(
    account: NewAccount, folder: Path, known: Node, orphan: Node, young: Node, other: Node
) -> None:
    listed = _reconcile(folder)
    nodes = {n: row for n, row in _rows(listed).items() if row["kind"] == "node"}
    assert set(nodes) == {orphan.node_id}
    assert nodes[orphan.node_id]["why"] == "the ledger of job 'job' does not hold it"
    assert "add --apply" in listed.stderr
    assert len(account.cloud.alive()) == 4
    done = _rows(_reconcile(folder, "--apply"))
    assert done[orphan.node_id]["done"] == "released"
    assert set(account.cloud.alive()) == {known.node_id, young.node_id, other.node_id}
    assert not [row for row in _rows(_reconcile(folder)).values() if row["kind"] == "node"]


def test_a_launch_under_way_is_not_an_orphan(account: NewAccount, folder: Path) -> None:
    account.clock.sleep(-3600)
    account.provider.launch(account.request(1, "a"))
    with open_sqlite_ledger(folder / "ledger.sqlite") as ledger:
        intent = LaunchIntended(
            at=account.clock.now(),
            job="job",
            key="a",
            pool=str(SPOT),
            nodes=1,
            planned_micros_per_hour=1,
        )
        ledger.append(intent)
    with _controlled(folder):
        assert not _rows(_reconcile(folder))
    (row,) = _rows(_reconcile(folder)).values()
    assert row["why"] == "no process controls job 'job'"


def test_a_node_whose_run_has_ended_is_found(account: NewAccount, folder: Path) -> None:
    """It lives by the ledger, and no process is there to end it."""
    account.clock.sleep(-3600)
    (node,) = account.provider.launch(account.request(1, "a"))
    _write(folder, node)
    for holder in (_controlled(folder), daemon_lock(folder)):
        with holder:
            assert not _rows(_reconcile(folder))
    (row,) = _rows(_reconcile(folder)).values()
    assert (row["name"], row["why"]) == (node.node_id, "no process controls job 'job'")
    done = _rows(_reconcile(folder, "--apply"))
    assert done[node.node_id]["done"] == "released"
    assert not account.cloud.alive()
    with open_sqlite_ledger(folder / "ledger.sqlite") as ledger:
        ended = [r.event for r in ledger.events("job") if isinstance(r.event, NodeEnded)]
    assert [(end.node_id, end.cause) for end in ended] == [(node.node_id, EndCause.RELEASED)]
    assert not _rows(_reconcile(folder))


def test_what_jobs_leave_behind_goes_when_they_are_over(account: NewAccount, folder: Path) -> None:
    account.clock.sleep(-3600)
    ec2 = account.cloud.client("ec2")
    owned = [{"Key": "costopt:owner", "Value": "me"}, {"Key": "costopt:job", "Value": "job"}]
    volume = ec2.create_volume(
        AvailabilityZone="us-east-1a",
        Size=8,
        TagSpecifications=[{"ResourceType": "volume", "Tags": owned}],
    )["VolumeId"]
    theirs = ec2.create_volume(AvailabilityZone="us-east-1a", Size=8)["VolumeId"]
    (node,) = account.provider.launch(account.request())
    account.provider.terminate(node.node_id)
    ec2.create_placement_group(
        GroupName="costopt-1",
        Strategy="cluster",
        TagSpecifications=[{"ResourceType": "placement-group", "Tags": owned}],
    )
    assert set(_rows(_reconcile(folder))) == {volume}
    with open_sqlite_ledger(folder / "ledger.sqlite") as ledger:
        ledger.append(JobFinished(at=account.clock.now(), job="job", units=1))
    left = _rows(_reconcile(folder))
    assert [row["kind"] for row in left.values()] == [
        "volume",
        "launch template",
        "placement group",
    ]
    assert left["costopt-1"]["usd_per_hour"] == 0
    assert left[volume]["usd_per_hour"] is None
    _rows(_reconcile(folder, "--apply"))
    assert not _rows(_reconcile(folder))
    there = {each["VolumeId"] for each in ec2.describe_volumes()["Volumes"]}
    assert volume not in there
    assert theirs in there


def test_a_region_that_does_not_answer_is_reported(account: NewAccount, folder: Path) -> None:
    account.clock.sleep(-3600)
    (orphan,) = account.provider.launch(account.request())
    account.cloud.faults.on("ec2", "*", drop, region="us-west-2")
    listed = _reconcile(folder)
    assert orphan.node_id in _rows(listed)
    assert "aws us-west-2" in listed.stderr


def test_what_cannot_be_released_is_an_error(account: NewAccount, folder: Path) -> None:
    account.clock.sleep(-3600)
    (orphan,) = account.provider.launch(account.request())
    account.cloud.faults.on("ec2", "TerminateInstances", unauthorized)
    done = _reconcile(folder, "--apply")
    assert done.exit_code == 1
    (row,) = (r for r in json.loads(done.stdout)["rows"] if r["name"] == orphan.node_id)
    assert "ec2:TerminateInstances" in row["done"]


def test_without_a_ledger_nothing_is_looked_at(account: NewAccount, folder: Path) -> None:
    """A wrong directory would make every node an orphan."""
    account.provider.launch(account.request())
    result = _reconcile(folder, "--state-dir", str(folder / "elsewhere"), "--apply")
    assert result.exit_code == 1
    assert "no ledger" in result.stderr
    assert len(account.cloud.alive()) == 1


def test_somewhere_must_be_looked(folder: Path) -> None:
    result = CliRunner().invoke(cli, ["reconcile", "--state-dir", str(folder)])
    assert result.exit_code == 2
    assert "--account" in result.stderr
    assert "--market" in result.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_simulated_node_without_a_ledger_is_ended(folder: Path) -> None:
    from costopt.market.history_file import write_history

    market = history(CALM)
    write_history(market, folder / "market.parquet")
    pool = Pool.parse("aws/us-east-1/us-east-1a/g4dn.xlarge/spot")
    (folder / "jobs" / "job" / "nodes").mkdir(parents=True)
    clock = {"start_at": market.starts_at.isoformat(), "speed": 100.0}
    (folder / "jobs" / "job" / CLOCK).write_text(json.dumps({**clock, "wall_s": time.time() - 60}))
    with (
        open_sqlite_ledger(folder / "ledger.sqlite") as ledger,
        simulated_targets(folder, ledger, market, "me") as (cloud,),
    ):
        (node,) = cloud.provider.launch(LaunchRequest("me", "job", pool, 1, "a"))
    disk = folder / "jobs" / "job" / "nodes" / node.node_id
    record = json.loads((disk / "node.json").read_text())
    more = ["--market", str(folder / "market.parquet"), "--grace", "1s"]
    try:
        _is_found_and_ended(folder, more, node, record)
    finally:
        kill_node(disk, record["pid"])


def _is_found_and_ended(folder: Path, more: list[str], node: Node, record: dict[str, int]) -> None:
    assert set(_rows(_reconcile(folder, *more))) == {node.node_id}
    assert is_running(record["pid"], record["started_ticks"])
    assert _rows(_reconcile(folder, *more, "--apply"))[node.node_id]["done"] == "released"
    wait_until(lambda: not is_running(record["pid"], record["started_ticks"]), "the process's end")
    assert not _rows(_reconcile(folder, *more))
