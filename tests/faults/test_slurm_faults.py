"""What goes wrong at a site: nothing is launched twice, nothing lost, and ends are true."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.domain.errors import ForbiddenError, NoCapacityError, ProviderUnavailableError
from costopt.domain.fleet import EndCause, LaunchRequest, Node, NodeState
from costopt.domain.market import CapacityType, Pool
from costopt.engine.loop import WallClock
from costopt.provider.slurm_commands import CommandRunner
from costopt_slurm import SlurmOptions, SlurmProvider, inventory
from costopt_slurm.batch_script import NodeCommand, step_name
from costopt_slurm.gang_tags import parse_node_id
from costopt_slurm.queries import SlurmQueries
from tests.support.slurm.cluster import SlurmCluster, slurm_cluster, until
from tests.support.slurm.fixtures import skip_without_slurm

pytestmark = [pytest.mark.slurm, pytest.mark.process, pytest.mark.slow]

POOL = Pool("slurm", "campus", "batch", "h100", CapacityType.ON_DEMAND)
SPOT = Pool("slurm", "campus", "spot", "h100", CapacityType.SPOT)
QUEUE = Pool("slurm", "campus", "high", "h100", CapacityType.FLEX_START)


def sleeping(_: LaunchRequest, __: NodeCommand) -> str:
    return "exec sleep 3600"


def connect(slurm: SlurmCluster, timeout_s: float = 10.0, **more: object) -> SlurmProvider:
    """A controller that remembers nothing."""
    options = SlurmOptions.parse(
        {
            "cluster": "campus",
            "node_types": {"h100": {"gpu": "H100", "gpus": 8, "vcpus": 8, "memory_gib": 31}},
            "partitions": {
                "spot": {"usd_per_gpu_hour": 0.5},
                "batch": {"usd_per_node_hour": 12, "firm": True},
                "high": {"usd_per_gpu_hour": 1, "wait_s": 3600},
            },
            "max_run_h": 24,
            "folder": str(slurm.folder / "shared"),
            **more,
        }
    )
    runner = CommandRunner(slurm_conf=str(slurm.conf), timeout_s=timeout_s)
    return SlurmProvider(WallClock(), options, SlurmQueries(runner), sleeping)


def request(nodes: int = 2, key: str = "job-0001-aa", pool: Pool = POOL) -> LaunchRequest:
    return LaunchRequest("me", "job", pool, nodes, key)


def running(provider: SlurmProvider, nodes: tuple[Node, ...]) -> None:
    """Wait until nodes run, and their steps: a step that is being started needs all of Slurm."""
    ids = {node.node_id for node in nodes}
    numbers = [parsed for node_id in ids if (parsed := parse_node_id(node_id))]
    until(
        lambda: (
            ids == {n.node_id for n in provider.nodes("me") if n.state is NodeState.RUNNING} & ids
            and all(step_name(number) in provider._queries.steps(job) for job, number in numbers)
        )
    )


def ended(provider: SlurmProvider, nodes: tuple[Node, ...]) -> set[EndCause | None]:
    """Wait until nodes have ended; return the causes."""
    ids = {node.node_id for node in nodes}

    def listed() -> list[Node]:
        return [node for node in provider.nodes("me") if node.node_id in ids]

    until(lambda: all(node.state is NodeState.ENDED for node in listed()))
    return {node.end_cause for node in listed()}


def our_jobs(slurm: SlurmCluster, *states: str) -> list[str]:
    wanted = ("-t", ",".join(states or ("all",)))
    return slurm.run("squeue", "-h", *wanted, "--name=costopt-job-0001-aa", "-o", "%i").split()


def test_a_controller_of_slurm_that_is_killed_and_comes_back(slurm: SlurmCluster) -> None:
    provider = connect(slurm, timeout_s=2.0)
    nodes = provider.launch(request())
    running(provider, nodes)
    saved = slurm.folder / "state" / "job_state"
    began = time.time()
    slurm.run("scontrol", "update", "JobId=1", "TimeLimit=100")
    until(lambda: saved.stat().st_mtime > began)
    slurm.kill("slurmctld")
    with pytest.raises(ProviderUnavailableError):
        provider.nodes("me")
    with pytest.raises(ProviderUnavailableError):
        provider.launch(request(1, "job-0002-bb"))
    slurm.start_controller()
    assert {n.node_id for n in provider.nodes("me") if n.state.is_alive} == {"1-0", "1-1"}
    assert connect(slurm).launch(request()) == tuple(provider.nodes("me"))
    assert len(our_jobs(slurm)) == 1


def test_an_answer_that_never_comes(slurm: SlurmCluster) -> None:
    """slurmctld hangs while sbatch waits, and takes the request when it goes on: one job."""
    provider = connect(slurm, timeout_s=2.0)
    provider.nodes("me")
    provider.offers(datetime.now(UTC))
    slow = connect(slurm, timeout_s=2.0)
    slow.offers(datetime.now(UTC))
    real, hung = slow._queries.submit, []

    def submit(script: str, options: tuple[str, ...]) -> int:
        slurm.pause("slurmctld")
        hung.append(True)
        return real(script, options)

    slow._queries.submit = submit  # type: ignore[method-assign, assignment]
    with pytest.raises(ProviderUnavailableError):
        slow.launch(request())
    slow._queries.submit = real  # type: ignore[method-assign]
    with pytest.raises(ProviderUnavailableError):
        slow.launch(request())
    slurm.resume("slurmctld")
    nodes: list[Node] = []

    def launched() -> bool:
        try:
            nodes[:] = slow.launch(request())
        except ProviderUnavailableError:
            return False
        return True

    until(launched)
    running(slow, tuple(nodes))
    assert len(our_jobs(slurm, "R")) == 1
    slow.nodes("me")
    until(lambda: not our_jobs(slurm, "PD"))
    assert len([n for n in slow.nodes("me") if n.state.is_alive]) == 2


def test_the_second_job_of_a_launch_starts_nothing(slurm: SlurmCluster) -> None:
    """Two jobs for one key, as where an answer is late: the script of the second gives up."""
    provider = connect(slurm)
    nodes = provider.launch(request())
    running(provider, nodes)
    text = slurm.run("scontrol", "write", "batch_script", "1", "-")
    slurm.run("scancel", "1")
    slurm.await_state(1, "CANCELLED")
    path = slurm.folder / "again.sh"
    path.write_text(text)
    comment = slurm.job(1)["Comment"]
    again = slurm.run(
        "sbatch", "--parsable", "-p", "batch", "-N2", "--job-name=costopt-job-0001-aa",
        f"--comment={comment}", "--output=/dev/null", str(path),
    )  # fmt: skip
    assert slurm.await_state(int(again), "FAILED") == "FAILED"
    assert slurm.job(int(again))["ExitCode"] == "75:0"
    assert {n.node_id for n in provider.nodes("me")} == {"1-0", "1-1"}


def test_munge_is_down(slurm: SlurmCluster) -> None:
    provider = connect(slurm, timeout_s=5.0)
    nodes = provider.launch(request())
    running(provider, nodes)
    slurm.kill("munged")
    with pytest.raises((ProviderUnavailableError, ForbiddenError)) as error:
        provider.nodes("me")
    assert isinstance(error.value, ProviderUnavailableError)
    slurm.start_munge()
    assert [n.state for n in provider.nodes("me")] == [NodeState.RUNNING] * 2


def test_a_node_is_drained_and_another_fails(slurm: SlurmCluster) -> None:
    """A draining node keeps its job; the jobs of a failed node are interrupted."""
    provider = connect(slurm)
    nodes = provider.launch(request(2))
    running(provider, nodes)
    free = {o.pool: o.nodes_available for o in provider.offers(datetime.now(UTC))}
    slurm.run("scontrol", "update", "nodename=n1,n4", "state=drain", "reason=fans")
    later = {o.pool: o.nodes_available for o in provider.offers(datetime.now(UTC))}
    assert (free[POOL], later[POOL]) == (2, 1)
    assert {n.state for n in provider.nodes("me")} == {NodeState.RUNNING}
    slurm.run("scontrol", "update", "nodename=n2", "state=down", "reason=dead")
    assert ended(provider, nodes) == {EndCause.INTERRUPTED}


def test_a_job_held_by_an_administrator_does_not_wait_for_ever(
    slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "IDLE_START_S", 0.0)
    provider = connect(slurm, partitions={"high": {"usd_per_gpu_hour": 1, "wait_s": 5}})
    slurm.preempt(4)
    nodes = provider.launch(request(1, pool=QUEUE))
    slurm.run("scontrol", "hold", nodes[0].node_id.partition("-")[0])
    (node,) = provider.nodes("me")
    assert node.state is NodeState.WAITING
    assert "JobHeld" in node.message
    assert ended(provider, nodes) == {EndCause.NO_CAPACITY}


def test_a_users_own_scancel_is_a_failure(slurm: SlurmCluster) -> None:
    provider = connect(slurm)
    nodes = provider.launch(request())
    running(provider, nodes)
    slurm.run("scancel", "1")
    assert ended(provider, nodes) == {EndCause.FAILED}
    assert provider.launch(request()) == provider.nodes("me")
    assert len(our_jobs(slurm)) == 1


def test_one_node_of_a_gang_is_released(slurm: SlurmCluster) -> None:
    """Its step ends, and it costs until the job does; another controller knows that too."""
    provider = connect(slurm)
    nodes = provider.launch(request(2))
    running(provider, nodes)
    until(lambda: len(slurm.run("squeue", "-h", "-s", "-o", "%i").splitlines()) >= 3)
    provider.terminate("1-1")
    until(lambda: "node-1" not in slurm.run("squeue", "-h", "-s", "-o", "%j"))
    states = {n.node_id: n.state for n in connect(slurm).nodes("me")}
    assert states == {"1-0": NodeState.RUNNING, "1-1": NodeState.STOPPING}
    provider.terminate("1-0")
    assert ended(connect(slurm), nodes) == {EndCause.RELEASED}


@pytest.fixture
def forgetful() -> Iterator[SlurmCluster]:
    """A cluster that forgets a job within seconds."""
    skip_without_slurm()
    with slurm_cluster(nodes=2, settings=("MinJobAge=2",)) as cluster:
        yield cluster


def test_slurm_forgets_a_job_before_the_controller_looks(forgetful: SlurmCluster) -> None:
    """Without accounting, the script's own record says when it ended; and it runs only once."""
    slurm, provider = forgetful, connect(forgetful)
    nodes = provider.launch(request())
    running(provider, nodes)
    before = provider.nodes("me")
    until(lambda: len(slurm.run("squeue", "-h", "-s", "-o", "%i").splitlines()) >= 3)
    for step in slurm.run("squeue", "-h", "-s", "-o", "%i").split():
        if not step.endswith("batch"):
            slurm.run("scancel", step)
    until(lambda: slurm.ask("scontrol", "show", "job", "1").returncode != 0, 90.0)
    ended_at = int((slurm.folder / "shared/launches/job-0001-aa/ended").read_text())
    later = connect(slurm)
    later.restore_known_nodes(before)
    causes = ended(later, nodes)
    assert causes == {EndCause.FAILED}
    assert {node.ended_at for node in later.nodes("me")} == {datetime.fromtimestamp(ended_at, UTC)}


def test_an_unknown_command_folder_says_what_to_do(slurm: SlurmCluster, tmp_path: Path) -> None:
    runner = CommandRunner(slurm_conf=str(slurm.conf), programs=str(tmp_path))
    with pytest.raises(Exception, match="squeue") as error:
        SlurmQueries(runner).jobs()
    assert error.value.code == "no_command"  # type: ignore[attr-defined]


def test_sbatch_gets_nothing_of_our_environment(
    slurm: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the controller knows, such as credentials, is not passed on to nodes."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    provider = connect(slurm)
    provider._launcher._command_of = lambda *_: "env; exec sleep 1"
    provider.launch(request(1))
    log = slurm.folder / "shared" / "launches" / "job-0001-aa.log"
    until(lambda: log.exists() and "SLURM_JOB_ID" in log.read_text())
    assert "hidden" not in log.read_text()
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == "hidden"


def test_a_maintenance_ends_offers_and_launches(slurm: SlurmCluster) -> None:
    slurm.run(
        "scontrol", "create", "reservation", "reservationname=maint", "starttime=now+60minutes",
        "duration=120", "nodes=ALL", "flags=maint,ignore_jobs", "users=root",
    )  # fmt: skip
    provider = connect(slurm)
    now = datetime.now(UTC)
    offers = {offer.pool: offer for offer in provider.offers(now)}
    left_s = (offers[POOL].until_at - now).total_seconds()  # type: ignore[operator]
    assert 2400 < left_s < 3600
    nodes = provider.launch(request())
    running(provider, nodes)
    assert slurm.job(1)["TimeLimit"] in ("00:58:00", "00:59:00")


def test_too_few_idle_nodes_are_refused_and_a_queue_is_waited_in(slurm: SlurmCluster) -> None:
    provider = connect(slurm)
    slurm.preempt(4)
    until(lambda: "alloc" in slurm.run("sinfo", "-h", "-o", "%t"))
    with pytest.raises(NoCapacityError):
        provider.launch(request(1, pool=SPOT))
    nodes = provider.launch(request(2, "job-0002-bb", QUEUE))
    assert {node.state for node in nodes} == {NodeState.WAITING}
    offers = {offer.pool: offer for offer in provider.offers(datetime.now(UTC))}
    assert offers[SPOT].nodes_available == 0
    assert (offers[QUEUE].nodes_available, offers[QUEUE].wait_s) == (None, 3600)
    provider.terminate("2-0")
    assert {node.state for node in provider.nodes("me")} == {NodeState.WAITING}
    provider.terminate("2-1")
    assert ended(provider, nodes) == {EndCause.RELEASED}
