"""Real nodes that are killed: the weights come out bit for bit as without, and nothing is left."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costopt.agent.runtime import MailboxRuntime
from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.job import (
    CheckpointSpec,
    GangState,
    Job,
    Phase,
    Progress,
    Resources,
    Throughput,
    Work,
    WorkUnit,
)
from costopt.domain.market import Interruption, Pool
from costopt.store.folder import FileStore
from costopt_sim.process_group import FOLDER_VARIABLE
from costopt_sim.process_host import ProcessHost

EXAMPLE = Path(__file__).parents[2] / "examples" / "finetune"
POOL = Pool.parse("sim/here/a/small/spot")
PATIENCE_S = 90.0


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
            work=Work(steps, WorkUnit.STEPS),
            start_at=now,
            deadline_at=now + timedelta(hours=1),
            resources=Resources(),
            throughput=Throughput(),
            checkpoint=CheckpointSpec(str(folder / "checkpoints"), interval_s=0.4),
            phases=(Phase("all", 1.0, 2, 2),),
            run=command,
            workdir=str(EXAMPLE),
        )
        self.host = ProcessHost(folder, folder / "store", launcher=launcher, processes=1)
        self.runtime = MailboxRuntime(FileStore(folder / "store"), Wall(), silent_s=20)
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
        self.runtime.form(self.job, self.generation, tuple(self.nodes.values()), 0.4)

    def strike(self, node_id: str) -> None:
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
            self.strike(node_id)


def trainer(output: Path, steps: int) -> tuple[str, ...]:
    return ("python", "train.py", "--steps", str(steps), "--batch", "4", "--output", str(output))


def processes_of(folder: Path) -> list[int]:
    mark = f"{FOLDER_VARIABLE}={folder}".encode()
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environ.read_bytes():
                found.append(int(environ.parent.name))
        except OSError:
            continue
    return found


def names_of(folder: Path) -> list[str]:
    return [Path(f"/proc/{pid}/comm").read_text().strip() for pid in processes_of(folder)]


@pytest.fixture
def gangs() -> Iterator[list[Gang]]:
    made: list[Gang] = []
    yield made
    for gang in made:
        gang.close()


@pytest.mark.skipif(sys.platform != "linux", reason="looks for left processes in /proc")
def test_weights_survive_three_kills_bit_for_bit(tmp_path: Path, gangs: list[Gang]) -> None:
    steps = 240
    whole = Gang(tmp_path / "a", trainer(tmp_path / "whole", steps), steps, "direct")
    broken = Gang(tmp_path / "b", trainer(tmp_path / "broken", steps), steps, "torchrun")
    gangs += [whole, broken]
    whole.launch(), whole.launch()
    whole.form()
    whole.wait(GangState.FINISHED)
    whole.close()

    first, second = broken.launch(), broken.launch()
    broken.form()
    before = broken.wait(GangState.TRAINING, done=30)
    broken.strike(first)
    third = broken.launch()
    broken.form()
    after = broken.wait(GangState.TRAINING)
    assert after.saved_units <= before.done_units + 30

    broken.wait(GangState.TRAINING, done=90)
    broken.notice(second)
    stopped = broken.wait(GangState.IDLE)
    assert stopped.saved_units == stopped.done_units >= 90, "a notice loses nothing"
    broken.strike(second)
    broken.launch()
    broken.form()

    broken.wait(GangState.TRAINING, done=150)
    broken.strike(third)
    broken.launch()
    broken.form()
    end = broken.wait(GangState.FINISHED)
    assert end.saved_units == steps
    assert broken.generation == 4
    assert (tmp_path / "broken").read_text() == (tmp_path / "whole").read_text()
    told = broken.runtime.checkpoints(broken.job, 0.0)
    assert [record.units for record in told] == sorted({record.units for record in told})
    assert told[-1].units == steps
    broken.close()
    assert processes_of(tmp_path) == []


def test_a_command_that_fails_is_tried_again_then_blamed(tmp_path: Path, gangs: list[Gang]) -> None:
    code = "raise ValueError('no such corpus')"
    gang = Gang(tmp_path, ("python", "-c", code), 10, "direct")
    gangs.append(gang)
    node_id = gang.launch()
    for _ in range(2):
        gang.form()
        assert "next attempt" in gang.wait(GangState.IDLE).message
    gang.form()
    deadline = time.monotonic() + PATIENCE_S
    while gang.progress().state is not GangState.FAILED and time.monotonic() < deadline:
        time.sleep(0.05)
    message = gang.progress().message
    assert "exited with 1" in message
    assert node_id in message
    assert "ValueError: no such corpus" in message
    assert "trainer-000003.log" in message


def test_a_script_that_knows_nothing_of_costopt_is_told_by_sigterm(
    tmp_path: Path, gangs: list[Gang]
) -> None:
    saved = tmp_path / "saved"
    code = f"trap 'echo yes > {saved}; exit 0' TERM; while :; do sleep 0.05; done"
    gang = Gang(tmp_path, ("sh", "-c", code), 10, "torchrun")
    gangs.append(gang)
    node_id = gang.launch()
    gang.form()
    deadline = time.monotonic() + PATIENCE_S
    log = gang.host.folder(node_id) / "trainer-000001.log"
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    gang.runtime.drain(gang.job, [node_id])
    while not gang.runtime.drained(gang.job) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert gang.runtime.drained(gang.job) == {node_id}
    assert saved.read_text() == "yes\n"


def test_an_agent_that_is_killed_takes_its_trainer_along(tmp_path: Path, gangs: list[Gang]) -> None:
    gang = Gang(tmp_path, ("sleep", "300"), 10, "direct")
    gangs.append(gang)
    node_id = gang.launch()
    gang.form()
    folder = gang.host.folder(node_id)
    deadline = time.monotonic() + PATIENCE_S
    while "sleep" not in names_of(folder) and time.monotonic() < deadline:
        time.sleep(0.05)
    pid = gang.host._records[node_id].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while (gang.host.dead() == [] or len(processes_of(folder)) > 0) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert [dead for dead, _ in gang.host.dead()] == [node_id]
    assert processes_of(folder) == []
