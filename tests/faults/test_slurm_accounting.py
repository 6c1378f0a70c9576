"""Jobs that Slurm has forgotten, with what slurmdbd and the script's record keep of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from costopt.domain.errors import ProviderUnavailableError
from costopt.domain.fleet import EndCause, LaunchRequest, Node, NodeState
from costopt.domain.market import CapacityType, Pool
from costopt.engine.loop import WallClock
from costopt.provider.base import CheckStatus
from costopt_slurm import SlurmOptions, SlurmProvider
from costopt_slurm.batch_script import NodeCommand
from costopt_slurm.commands import CommandRunner
from costopt_slurm.queries import SlurmQueries
from tests.support.slurm.accounting import skip_without_accounting
from tests.support.slurm.cluster import SlurmCluster, slurm_cluster, until
from tests.support.slurm.fixtures import skip_without_slurm

pytestmark = [pytest.mark.slurm, pytest.mark.process, pytest.mark.slow]

SPOT = Pool("slurm", "campus", "spot", "h100", CapacityType.SPOT)
WHOLE_GANG = LaunchRequest("me", "job", SPOT, 2, "job-0001-aa")
LEAVES = "trap 'kill %1; exit 0' TERM; sleep 3600 & wait"
STAYS = "trap '' TERM; sleep 3600 & wait; sleep 3600"
FORGETS_S = 90.0
"""Within this time Slurm has forgotten a job, with MinJobAge=2."""


class Campus:
    """A cluster with accounts that forgets jobs within seconds."""

    def __init__(self, cluster: SlurmCluster) -> None:
        self.cluster = cluster
        self.provider = self.connect()

    def connect(self, node: str = "exec sleep 3600") -> SlurmProvider:
        """A controller that remembers nothing, whose nodes run this."""
        options = SlurmOptions.parse(
            {
                "cluster": "campus",
                "node_types": {"h100": {"gpu": "H100", "gpus": 1, "vcpus": 8, "memory_gib": 31}},
                "partitions": {"spot": {"usd_per_gpu_hour": 0.5}},
                "folder": str(self.cluster.folder / "shared"),
            }
        )

        def command_of(_: LaunchRequest, __: NodeCommand) -> str:
            return node

        runner = CommandRunner(slurm_conf=str(self.cluster.conf), timeout_s=10.0)
        return SlurmProvider(WallClock(), options, SlurmQueries(runner), command_of)

    def launched(self, node: str = "exec sleep 3600") -> tuple[Node, ...]:
        """The nodes of a gang, once both run their steps."""
        provider = self.connect(node)
        provider.launch(WHOLE_GANG)
        until(lambda: len(self.cluster.run("squeue", "-hs", "-o", "%i").split()) == 3)
        until(lambda: {n.state for n in provider.nodes("me")} == {NodeState.RUNNING})
        return tuple(provider.nodes("me"))

    def await_forgotten(self) -> tuple[str, str]:
        """Wait until Slurm has forgotten job 1; return its accounted state and end."""
        until(lambda: self.cluster.ask("scontrol", "show", "job", "1").returncode != 0, FORGETS_S)
        until(self.has_end)
        return self.accounted()

    def has_end(self) -> bool:
        """Whether the accounts know when job 1 ended: they lag behind the queue."""
        return self.accounted()[1].isdigit()

    def accounted(self) -> tuple[str, str]:
        """The state and the end of job 1 as sacct shows them."""
        said = self.cluster.run(
            "sacct", "-nPX", "-j", "1", "-o", "State,End",
            environment={"SLURM_TIME_FORMAT": "%s"},
        )  # fmt: skip
        state, _, end = said.partition("|")
        return state.partition(" ")[0], end

    def after(self, known: tuple[Node, ...]) -> tuple[Node, ...]:
        """What another controller makes of nodes that the ledger knows."""
        provider = self.connect()
        provider.restore_known_nodes(known)
        return tuple(provider.nodes("me"))


@pytest.fixture
def campus(request: pytest.FixtureRequest) -> Iterator[Campus]:
    """By default accounts keep no comments; ``job_comment`` as the parameter lets them."""
    skip_without_slurm()
    skip_without_accounting()
    flags = getattr(request, "param", None)
    settings = ("MinJobAge=2", *([f"AccountingStoreFlags={flags}"] if flags else []))
    with slurm_cluster(nodes=2, gpus=1, settings=settings, kill_wait_s=1, accounts=True) as cluster:
        yield Campus(cluster)


@pytest.mark.parametrize("campus", ["job_comment"], indirect=True)
def test_the_accounts_say_how_a_forgotten_job_ended(campus: Campus) -> None:
    known = campus.launched()
    campus.cluster.run("scancel", "1")
    state, end = campus.await_forgotten()
    nodes = campus.after(known)
    assert state == "CANCELLED"
    assert {node.end_cause for node in nodes} == {EndCause.FAILED}
    assert {node.ended_at for node in nodes} == {datetime.fromtimestamp(int(end), UTC)}
    assert {check.verdict for check in campus.provider.checks("me", None)
            if check.name == "accounting"} == {CheckStatus.OK}  # fmt: skip


@pytest.mark.parametrize(("node", "accounted"), [(LEAVES, "COMPLETED"), (STAYS, "PREEMPTED")])
def test_a_preemption_is_an_interruption_however_the_job_ended(
    campus: Campus, node: str, accounted: str
) -> None:
    """Where agents leave in time, the accounts call the job completed."""
    known = campus.launched(node)
    campus.cluster.preempt(2)
    state, end = campus.await_forgotten()
    nodes = campus.after(known)
    assert state == accounted
    assert {node.end_cause for node in nodes} == {EndCause.INTERRUPTED}
    assert {node.ended_at for node in nodes} == {datetime.fromtimestamp(int(end), UTC)}


def test_released_nodes_stay_released(campus: Campus) -> None:
    campus.launched()
    campus.provider.terminate("1-1")
    known = tuple(campus.provider.nodes("me"))
    campus.provider.terminate("1-0")
    campus.await_forgotten()
    causes = {node.node_id: node.end_cause for node in campus.after(known)}
    assert causes["1-1"] is EndCause.RELEASED


@pytest.mark.parametrize("campus", ["job_comment", None], indirect=True)
def test_a_forgotten_launch_starts_nothing_again(campus: Campus) -> None:
    campus.launched()
    campus.cluster.run("scancel", "1")
    campus.await_forgotten()
    campus.provider.launch(WHOLE_GANG)
    until(lambda: {n.state for n in campus.provider.nodes("me")} == {NodeState.ENDED})
    assert (campus.cluster.folder / "shared/launches/job-0001-aa/job").read_text() == "1\n"


def test_slurmdbd_is_down(campus: Campus) -> None:
    """The queue is enough while it shows the job; an end that nobody can tell is not made up."""
    known = campus.launched()
    campus.cluster.kill("slurmdbd")
    assert {n.state for n in campus.after(known)} == {NodeState.RUNNING}
    campus.cluster.run("scancel", "1")
    until(lambda: campus.cluster.ask("scontrol", "show", "job", "1").returncode != 0, FORGETS_S)
    with pytest.raises(ProviderUnavailableError):
        campus.after(known)
    campus.cluster.start_slurmdbd()
    state, _ = campus.await_forgotten()
    assert state == "CANCELLED"
    assert {node.end_cause for node in campus.after(known)} == {EndCause.FAILED}
