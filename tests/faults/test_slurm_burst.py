"""Slurm's jobs on a simulated cloud's nodes, which a real slurmctld powers up and down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt.domain import events as ev
from tests.support.live_run import UNINTERRUPTIBLE
from tests.support.slurm.burst import PATIENCE_S, BurstCloud, burst_cloud
from tests.support.slurm.cluster import until
from tests.support.slurm.fixtures import skip_without_slurm

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.process]

ON_BURST = ("-p", "burst", "-N2", "-t", "2")
POWERED_DOWN = "idle~"
SPOT_GOES = UNINTERRUPTIBLE | {
    "a/g4dn.xlarge/spot": ((0, 4, 0.16), (75, 0, 0.16)),
    "b/g4dn.xlarge/spot": ((0, None, None), (60, 4, 0.17)),
}


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[BurstCloud]:
    skip_without_slurm()
    with burst_cloud(tmp_path) as made:
        yield made


@pytest.mark.exhaustive("jobs on Slurm")
def test_a_gang_gets_spot_nodes_and_releases_them(cloud: BurstCloud) -> None:
    with cloud.daemon():
        job = cloud.slurm.sbatch("srun hostname", *ON_BURST, "--deadline=now+2hours")
        assert cloud.slurm.await_state(job, "COMPLETED", seconds=PATIENCE_S)
        assert [pool.rpartition("/")[2] for pool in cloud.pools()] == ["spot", "spot"]
        until(cloud.all_released, PATIENCE_S)
        until(lambda: cloud.node("c1")[0] == cloud.node("c2")[0] == POWERED_DOWN, PATIENCE_S)
        (served,) = cloud.jobs()
        assert served["job"].startswith(f"slurm-{job}-")
        assert served["desired_state"] == "cancelled"
        assert 0 < served["usd"] < 0.02
    assert cloud.slurm.job(job)["Restarts"] == "0"
    assert "Traceback" not in cloud.log()


@pytest.mark.exhaustive("jobs on Slurm")
def test_without_time_to_run_again_it_is_on_demand(cloud: BurstCloud) -> None:
    with cloud.daemon():
        cloud.slurm.sbatch("srun sleep 600", *ON_BURST, "--deadline=now+25minutes")
        until(lambda: len(cloud.pools()) == 2, PATIENCE_S)
        assert [pool.rpartition("/")[2] for pool in cloud.pools()] == ["on_demand"] * 2


def test_a_program_that_slurm_runs_again_launches_nothing_twice(cloud: BurstCloud) -> None:
    again = ("daemon", "slurm", "resume", "c[3-4]", "--template", "node.yaml")
    with cloud.daemon():
        for _ in range(2):
            done = cloud.costopt(*again)
            assert done.returncode == 0, done.stderr
        assert len(cloud.jobs()) == 1
        assert len(cloud.pools()) == 2
        until(lambda: cloud.node("c3")[0] == cloud.node("c4")[0] == "idle", PATIENCE_S)
        cloud.slurm.run("scontrol", "update", "nodename=c4", "state=down", "reason=a test")
        other = cloud.costopt(*again[:3], "c[2-3]", *again[4:])
        assert other.returncode == 0, other.stderr
        assert len(cloud.jobs()) == 2
        assert cloud.costopt("daemon", "slurm", "suspend", "c[2-3]").returncode == 0
        until(cloud.all_released, PATIENCE_S)


def test_nodes_that_cannot_be_launched_are_down_with_the_reason_at_once(cloud: BurstCloud) -> None:
    """Without a daemon, under one that only observes, and without any plan in time."""
    first = cloud.slurm.sbatch("true", *ON_BURST, "--deadline=now+2hours")
    until(lambda: cloud.node("c1")[0].startswith("down"))
    assert cloud.node("c1")[1].startswith("costopt: no daemon answers")
    assert cloud.slurm.job(first)["Restarts"] == "1"
    with cloud.daemon("--mode", "observe"):
        for arguments, reason in ((("c3",), "mode is observe"), (("c4",), "stopped all launches")):
            done = cloud.costopt("daemon", "slurm", "resume", *arguments, "--template", "node.yaml")
            assert done.returncode == 1
            assert reason in cloud.node(arguments[0])[1]
            cloud.costopt("daemon", "mode", "enforce")
            cloud.costopt("daemon", "halt", "a test")
        cloud.costopt("daemon", "unhalt")
        cloud.slurm.run("scontrol", "update", "nodename=c[1-4]", "state=power_down_force")
        cloud.slurm.run("scancel", str(first))
        until(lambda: cloud.node("c1")[0] == POWERED_DOWN)
        cloud.slurm.sbatch("true", *ON_BURST, "--deadline=now+3minutes")
        until(lambda: cloud.node("c1")[0].startswith("down"))
        assert cloud.node("c1")[1].startswith("costopt:")
        assert cloud.pools() == []


@pytest.mark.exhaustive("jobs on Slurm")
def test_slurm_requeues_a_job_whose_nodes_are_noticed(tmp_path: Path) -> None:
    """Spot goes in mid-run; the nodes that replace it are the same ones to Slurm."""
    skip_without_slurm()
    went, ended = tmp_path / "went", tmp_path / "ended"
    # It waits to be killed: without the node's step it would go on with its next line.
    script = f"[ -e {went} ] || {{ srun sleep 600; sleep 600; }}\nsrun sh -c 'echo >>{ended}'"
    with burst_cloud(tmp_path, SPOT_GOES) as cloud, cloud.daemon():
        job = cloud.slurm.sbatch(script, "-p", "burst", "-N2", "-t", "10", "--deadline=now+2hours")
        log = cloud.slurm.folder / "log" / "slurmctld.log"
        until(
            lambda: "node c1 reason set to: costopt: the node goes" in log.read_text(), PATIENCE_S
        )
        went.touch()
        until(lambda: len(cloud.events(ev.NodeEnded)) >= 2, PATIENCE_S)

        def completed() -> bool:
            """Let a requeued job begin now, rather than in two minutes."""
            cloud.slurm.ask("scontrol", "update", f"jobid={job}", "starttime=now")
            shown = cloud.slurm.job(job)
            assert shown["JobState"] not in {"TIMEOUT", "DEADLINE"}, shown
            return shown["JobState"] == "COMPLETED"

        until(completed, PATIENCE_S)
        assert cloud.slurm.job(job)["Restarts"] != "0"
        assert len(ended.read_text().splitlines()) == 2
        until(cloud.all_released, PATIENCE_S)
    assert "Traceback" not in cloud.log()
