"""Jobs that Slurm has forgotten, with what slurmdbd and the script's record keep of them.

A cluster takes 15 s to start with its accounts: the tests share two.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from costopt.domain.errors import ProviderUnavailableError
from costopt.domain.fleet import EndCause, LaunchRequest, Node, NodeState
from costopt.domain.market import CapacityType, Pool
from costopt.engine.loop import WallClock
from costopt.provider.base import CheckStatus
from costopt.provider.slurm_commands import CommandRunner
from costopt_slurm import SlurmOptions, SlurmProvider
from costopt_slurm.batch_script import NodeCommand
from costopt_slurm.gang_tags import job_name
from costopt_slurm.queries import SlurmQueries
from costopt_slurm.rest_queries import SlurmRest
from tests.support.slurm.accounting import skip_without_accounting
from tests.support.slurm.cluster import Partition, SlurmCluster, slurm_cluster, until
from tests.support.slurm.fixtures import skip_without_slurm
from tests.support.slurm.rest import rest_on_socket, skip_without_rest

pytestmark = [pytest.mark.slurm, pytest.mark.process, pytest.mark.slow]

SPOT = Pool("slurm", "campus", "spot", "h100", CapacityType.SPOT)
PARTITIONS = (
    Partition("high", tier=10),
    Partition("spot", preempted=True, grace_s=2, more="Default=YES MaxTime=2-00:00:00"),
)
NUMBERS = count(1)
LEAVES = "trap 'kill %1; exit 0' TERM; sleep 3600 & wait"
STAYS = "trap '' TERM; sleep 3600 & wait; sleep 3600"
FORGETS_S = 90.0
"""Within this time Slurm has forgotten a job, with MinJobAge=2."""


class Campus:
    """A cluster with accounts that forgets jobs within seconds, and one test's gang on it."""

    def __init__(self, cluster: SlurmCluster, number: int) -> None:
        self.cluster = cluster
        self.gang = LaunchRequest("me", f"job{number}", SPOT, 2, f"job-{number:04d}-aa")
        self.job = 0
        """Slurm's id of the gang, once launched."""
        self.provider = self.connect()

    def connect(self, node: str = "exec sleep 3600", timeout_s: float = 10.0) -> SlurmProvider:
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

        runner = CommandRunner(slurm_conf=str(self.cluster.conf), timeout_s=timeout_s)
        return SlurmProvider(WallClock(), options, SlurmQueries(runner), command_of)

    def launched(self, node: str = "exec sleep 3600") -> tuple[Node, ...]:
        """The nodes of a gang, once both run their steps."""
        provider = self.connect(node)
        (first, _) = provider.launch(self.gang)
        self.job = int(first.node_id.partition("-")[0])
        until(lambda: len(self.cluster.run("squeue", "-hs", "-o", "%i").split()) == 3)
        until(lambda: {n.state for n in self.nodes(provider)} == {NodeState.RUNNING})
        return self.nodes(provider)

    def nodes(self, provider: SlurmProvider) -> tuple[Node, ...]:
        """The gang's nodes as a controller sees them."""
        return tuple(node for node in provider.nodes("me") if node.job == self.gang.job)

    def is_forgotten(self) -> bool:
        """Whether Slurm has forgotten the gang."""
        return self.cluster.ask("scontrol", "show", "job", str(self.job)).returncode != 0

    def await_forgotten(self) -> tuple[str, str]:
        """Wait until Slurm has forgotten the gang; return its accounted state and end."""
        until(self.is_forgotten, FORGETS_S)
        until(self.has_end)
        return self.accounted()

    def has_end(self) -> bool:
        """Whether the accounts know when the gang ended: they lag behind the queue."""
        return self.accounted()[1].isdigit()

    def accounted(self) -> tuple[str, str]:
        """The state and the end of the gang as sacct shows them."""
        said = self.cluster.run(
            "sacct", "-nPX", "-j", str(self.job), "-o", "State,End",
            environment={"SLURM_TIME_FORMAT": "%s"},
        )  # fmt: skip
        state, _, end = said.partition("|")
        return state.partition(" ")[0], end

    def after(self, known: tuple[Node, ...], timeout_s: float = 10.0) -> tuple[Node, ...]:
        """What another controller makes of nodes that the ledger knows."""
        provider = self.connect(timeout_s=timeout_s)
        provider.restore_known_nodes(known)
        return self.nodes(provider)


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    """Its accounts keep comments where the parameter is ``job_comment``."""
    skip_without_slurm()
    skip_without_accounting()
    flags = () if request.param is None else (f"AccountingStoreFlags={request.param}",)
    settings = ("MinJobAge=2", *flags)
    with slurm_cluster(
        nodes=2, gpus=1, settings=settings, kill_wait_s=1, accounts=True, partitions=PARTITIONS
    ) as made:
        yield made


@pytest.fixture
def campus(cluster: SlurmCluster) -> Iterator[Campus]:
    yield Campus(cluster, next(NUMBERS))
    cluster.run("scancel", "--user=root")
    until(lambda: not cluster.run("squeue", "-h", "-o", "%i"))
    until(lambda: cluster.run("sinfo", "-ho", "%T", "-p", "spot") == "idle")


def with_accounts(*flags: str | None) -> pytest.MarkDecorator:
    """Run a test on the cluster with these AccountingStoreFlags; each is started once."""
    return pytest.mark.parametrize("cluster", flags, indirect=True, scope="module")


@with_accounts("job_comment")
def test_the_accounts_say_how_a_forgotten_job_ended(campus: Campus) -> None:
    known = campus.launched()
    campus.cluster.run("scancel", str(campus.job))
    state, end = campus.await_forgotten()
    nodes = campus.after(known)
    assert state == "CANCELLED"
    assert {node.end_cause for node in nodes} == {EndCause.FAILED}
    assert {node.ended_at for node in nodes} == {datetime.fromtimestamp(int(end), UTC)}
    assert {check.verdict for check in campus.provider.checks("me", None)
            if check.name == "accounting"} == {CheckStatus.OK}  # fmt: skip


@with_accounts(None)
@pytest.mark.parametrize(("node", "accounted"), [(LEAVES, "COMPLETED"), (STAYS, "PREEMPTED")])
def test_a_preemption_is_an_interruption_however_the_job_ended(
    campus: Campus, node: str, accounted: str
) -> None:
    """Where agents leave in time, as on a busy machine they may not, it is called completed."""
    known = campus.launched(node)
    campus.cluster.preempt(2)
    state, end = campus.await_forgotten()
    nodes = campus.after(known)
    assert state in {accounted, "PREEMPTED"}
    assert {node.end_cause for node in nodes} == {EndCause.INTERRUPTED}
    assert {node.ended_at for node in nodes} == {datetime.fromtimestamp(int(end), UTC)}


@with_accounts(None)
def test_released_nodes_stay_released(campus: Campus) -> None:
    first, second = (node.node_id for node in campus.launched())
    campus.provider.terminate(second)
    known = campus.nodes(campus.provider)
    campus.provider.terminate(first)
    campus.await_forgotten()
    causes = {node.node_id: node.end_cause for node in campus.after(known)}
    assert causes[second] is EndCause.RELEASED


@with_accounts("job_comment", None)
def test_a_forgotten_launch_starts_nothing_again(campus: Campus) -> None:
    campus.launched()
    campus.cluster.run("scancel", str(campus.job))
    campus.await_forgotten()
    campus.provider.launch(campus.gang)
    until(lambda: {n.state for n in campus.nodes(campus.provider)} == {NodeState.ENDED})
    ran = campus.cluster.folder / "shared" / "launches" / campus.gang.key / "job"
    assert ran.read_text() == f"{campus.job}\n"


@with_accounts("job_comment")
def test_slurmrestd_tells_the_same(campus: Campus) -> None:
    skip_without_rest()
    campus.launched()
    campus.cluster.run("scancel", str(campus.job))
    campus.await_forgotten()
    commands = SlurmQueries(CommandRunner(slurm_conf=str(campus.cluster.conf)))
    name, since = job_name(campus.gang.key), datetime.now(UTC) - timedelta(days=30)
    with rest_on_socket(campus.cluster) as client:
        rest = SlurmRest(client)
        assert rest.settings().accounting
        assert rest.ended_jobs([campus.job]) == commands.ended_jobs([campus.job]) != ()
        assert rest.named_jobs(name, since) == commands.named_jobs(name, since) != ()
        assert rest.named_jobs("costopt-other", since) == rest.ended_jobs([999]) == ()


@with_accounts(None)
def test_slurmdbd_is_down(campus: Campus) -> None:
    """The queue is enough while it shows the job; an end that nobody can tell is not made up."""
    known = campus.launched()
    campus.cluster.kill("slurmdbd")
    assert {n.state for n in campus.after(known)} == {NodeState.RUNNING}
    campus.cluster.run("scancel", str(campus.job))
    until(campus.is_forgotten, FORGETS_S)
    with pytest.raises(ProviderUnavailableError):
        campus.after(known, timeout_s=2.0)
    campus.cluster.start_slurmdbd()
    state, _ = campus.await_forgotten()
    assert state == "CANCELLED"
    assert {node.end_cause for node in campus.after(known)} == {EndCause.FAILED}
