"""An elastic gang of a sharded model under agents: the trainers of a node hold a copy of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from costopt.protocol.messages import Gang, NodeActivity
from tests.support.agent_fleet import AgentFleet
from tests.support.node_folder import ROOT

STEPS = 50
PROCESSES = 2
OPTIONS = {"kind": "fsdp", "total": STEPS, "patience_s": 45.0}
"""So slow that no machine is through before all has happened to it: 200 s; then it may hurry."""
SCRIPT = """\
import json, os, pathlib, sys
from tests.support.attached_shards import train
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
name = os.environ.get("COSTOPT_NODE", "alone") if rank == 0 else os.devnull
output = str(pathlib.Path(name).resolve())
train(json.loads(sys.argv[1]) | {"rank": rank, "size": size, "output": output})
"""
pytestmark = [
    pytest.mark.exhaustive("gangs of processes"),
    pytest.mark.skipif(sys.platform != "linux", reason="tethers trainers to their agents"),
]


class Fleet(AgentFleet):
    """Of an elastic gang whose nodes hold copies."""

    def form(self, generation: int, *members: str) -> None:
        command = ("python", "trainer.py", json.dumps(OPTIONS))
        gang = Gang("j", generation, members, command, str(self.folder), 0.0, elastic=True)
        secret = f"of generation {generation}"
        self.mailbox.post_gang(replace(gang, is_sharded=True, secret=secret))

    def trainers(self, name: str) -> list[int]:
        """The processes of a node that train, and not what they fork to run git."""
        folder = f"COSTOPT_NODE={name}\0".encode()
        found: dict[int, int] = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                # First: it reads as 0 once the process has ended, whose environment is then empty.
                parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
                variables = (process / "environ").read_bytes()
                command = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if folder in variables and b"LOCAL_RANK" in variables and b"trainer.py" in command[:3]:
                found[int(process.name)] = parent
        return [pid for pid, parent in found.items() if parent not in found]


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'providers'}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = Fleet(tmp_path, SCRIPT, processes=PROCESSES)
    yield made
    made.close()


def state(path: Path) -> str:
    return str(json.loads(path.read_text())["state"])


def test_copies_are_lost_join_and_leave_and_the_state_is_the_same(
    fleet: Fleet, tmp_path: Path
) -> None:
    fleet.launch("n1")
    fleet.launch("n2")
    fleet.form(1, "n1", "n2")
    fleet.until(lambda: fleet.trains_with("n1", 2, 2), "two copies train")
    first, lost = fleet.trainers("n1"), fleet.trainers("n2")
    assert (len(first), len(lost)) == (PROCESSES, PROCESSES)

    os.kill(lost[-1], signal.SIGKILL)
    at_step = fleet.step("n1")
    fleet.until(lambda: fleet.beat("n2").restarts == 1, "the copy is started again")
    fleet.until(lambda: fleet.trains_with("n1", 2, at_step + 3), "the lost copy is back")
    assert not set(lost) & set(fleet.trainers("n2")), "a copy is lost as a whole"

    fleet.launch("n3")
    fleet.form(2, "n1", "n2", "n3")
    fleet.until(lambda: fleet.trains_with("n3", 3), "a third joins")
    assert fleet.trainers("n1") == first, "who trains is not started again"

    fleet.notice("n1").touch()
    fleet.until(lambda: fleet.beat("n1").state is NodeActivity.STOPPED, "one left")
    fleet.form(3, "n2", "n3")
    fleet.finish("n2", "n3")

    torchrun = ("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={PROCESSES}")
    command = [sys.executable, *torchrun, "trainer.py", json.dumps(OPTIONS)]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert state(tmp_path / "n2") == state(tmp_path / "n3") == state(tmp_path / "alone")
