"""Real nodes that are killed: the weights come out bit for bit as without, and nothing is left."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costopt.controller.runtime import MailboxRuntime
from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.job import CheckpointSpec, Job, Phase, Resources, WorkAmount, WorkUnit
from costopt.domain.market import Interruption, Pool
from costopt.domain.progress import GangState, Progress
from costopt.domain.throughput import Throughput
from costopt.store.folder import FileStore
from costopt_sim.process_host import ProcessHost
from tests.support.live_run import PATIENCE_S, wait_until
from tests.support.node_folder import ROOT, processes_under

POOL = Pool.parse("sim/here/a/small/spot")
STEPS = 30
PACE_S = 0.5
"""Of a step while ``slowly`` is there: no machine is through before all has happened to it."""


class Wall:
    """The wall clock."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Gang:
    """Two nodes that train, and the means to hurt them."""

    def __init__(self, folder: Path, command: tuple[str, ...], steps: int, launcher: str) -> None:
        now = datetime.now(UTC)
        self.job = Job(
            name="tiny",
            work=WorkAmount(steps, WorkUnit.STEPS),
            start_at=now,
            deadline_at=now + timedelta(hours=1),
            resources=Resources(),
            throughput=Throughput(),
            checkpoint=CheckpointSpec(str(folder / "checkpoints"), interval_s=0.4),
            phases=(Phase("all", 1.0, 2, 2),),
            run=command,
            workdir=str(ROOT),
        )
        self.host = ProcessHost(folder, folder / "store", launcher=launcher, processes=1)
        self.runtime = MailboxRuntime(FileStore(folder / "store"), Wall(), silent_s=PATIENCE_S)
        self.nodes: dict[str, Node] = {}
        self.generation = 0
        self._count = 0

    def launch(self) -> str:
        self._count += 1
        node = Node(
            node_id=f"sim-{self._count:04d}",
            owner="test",
            job="tiny",
            pool=POOL,
            key=f"k{self._count}",
            state=NodeState.RUNNING,
            launched_at=datetime.now(UTC),
            usd_per_hour=1.0,
        )
        self.host.start(node)
        self.nodes[node.node_id] = node
        return node.node_id

    def form(self) -> None:
        self.generation += 1
        self.runtime.form_gang(self.job, self.generation, tuple(self.nodes.values()), 0.4)

    def reclaim(self, node_id: str) -> None:
        node = self.nodes.pop(node_id)
        at = datetime.now(UTC)
        cause = EndCause.INTERRUPTED
        self.host.stop(replace(node, state=NodeState.ENDED, ended_at=at, end_cause=cause))

    def notice(self, node_id: str) -> None:
        now = datetime.now(UTC)
        self.host.notice(Interruption(node_id, POOL, now, now + timedelta(seconds=30)))

    def progress(self) -> Progress:
        return self.runtime.progress(self.job, datetime.now(UTC))

    def wait(self, *states: GangState, done: float = 0.0) -> Progress:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            progress = self.progress()
            if progress.state in states and progress.done_units >= done:
                return progress
            assert progress.state is not GangState.FAILED, progress.message
            time.sleep(0.05)
        raise AssertionError(f"still {self.progress()}, not {states} at {done}")

    def close(self) -> None:
        for node_id in tuple(self.nodes):
            self.reclaim(node_id)


def trainer(output: Path, slowly: Path) -> tuple[str, ...]:
    return (
        *("python", str(ROOT / "tests" / "support" / "slowed_training.py")),
        *(str(PACE_S), str(slowly)),
        *("--steps", str(STEPS), "--batch", "4", "--output", str(output)),
    )


def runs_under(folder: Path, name: str) -> bool:
    """Whether a process of the node is called so."""
    for pid in processes_under(folder):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == name:
                return True
    return False


@pytest.fixture
def gangs() -> Iterator[list[Gang]]:
    made: list[Gang] = []
    yield made
    for gang in made:
        gang.close()


@pytest.mark.exhaustive("gangs of processes")
@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc")
def test_weights_survive_kills_bit_for_bit(tmp_path: Path, gangs: list[Gang]) -> None:
    slowly = tmp_path / "slowly"
    whole = Gang(tmp_path / "a", trainer(tmp_path / "whole", slowly), STEPS, "direct")
    broken = Gang(tmp_path / "b", trainer(tmp_path / "broken", slowly), STEPS, "direct")
    gangs += [whole, broken]
    whole.launch()
    whole.form()
    whole.wait(GangState.FINISHED)
    whole.close()

    slowly.touch()
    first, second = broken.launch(), broken.launch()
    broken.form()
    before = broken.wait(GangState.TRAINING, done=5)
    broken.reclaim(first)
    broken.launch()
    broken.form()
    after = broken.wait(GangState.TRAINING)
    assert before.saved_units <= after.saved_units < STEPS

    broken.wait(GangState.TRAINING, done=12)
    broken.notice(second)
    stopped = broken.wait(GangState.IDLE)
    assert stopped.saved_units == stopped.done_units >= 12, "a notice loses nothing"
    broken.reclaim(second)
    broken.launch()
    broken.form()
    slowly.unlink()
    end = broken.wait(GangState.FINISHED)
    assert end.saved_units == STEPS
    assert broken.generation == 3
    assert (tmp_path / "broken").read_text() == (tmp_path / "whole").read_text()
    reported = broken.runtime.checkpoints(broken.job, 0.0)
    assert [record.units for record in reported] == sorted({record.units for record in reported})
    assert reported[-1].units == STEPS
    broken.close()
    assert processes_under(tmp_path) == []


def test_an_agent_that_is_killed_takes_its_trainer_along(tmp_path: Path, gangs: list[Gang]) -> None:
    gang = Gang(tmp_path, ("sleep", "300"), 10, "direct")
    gangs.append(gang)
    node_id = gang.launch()
    gang.form()
    folder = gang.host.folder(node_id)
    wait_until(lambda: runs_under(folder, "sleep"), "trainer")
    pid = gang.host._records[node_id].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: processes_under(folder) == [], "end of all processes")
    assert [dead for dead, _ in gang.host.dead()] == [node_id]
