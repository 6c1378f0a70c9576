"""An elastic gang under agents: a trainer dies, nodes come and go, and the others train on."""

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

from costopt.agent.attempt import Attempt
from costopt.protocol.messages import Gang, NodeActivity
from tests.support.agent_fleet import AgentFleet
from tests.support.node_folder import ROOT

pytestmark = pytest.mark.exhaustive("gangs of processes")

STEPS = 50
OPTIONS = {"initial": True, "total": STEPS, "patience_s": 60.0}
"""So slow that no machine is through before all has happened to it: 270 s; then it may hurry."""
SCRIPT = """\
import json, os, pathlib, sys
from tests.support.forked_trainers import train
options = json.loads(sys.argv[1])
train(options | {"output": str(pathlib.Path(os.environ.get("COSTOPT_NODE", "alone")).resolve())})
"""


class Fleet(AgentFleet):
    """Of an elastic gang."""

    def form(self, generation: int, *members: str) -> None:
        command = ("python", "trainer.py", json.dumps(OPTIONS))
        gang = Gang("j", generation, members, command, str(self.folder), 0.0, elastic=True)
        self.mailbox.post_gang(replace(gang, secret=f"of generation {generation}"))

    def pid(self, name: str) -> int:
        attempt = self.agents[name]._attempt
        assert attempt is not None
        assert attempt.trainer is not None
        return attempt.trainer._processes[0].pid

    def warm_standby(self, name: str) -> int:
        """The pid of the one that waits there, once it is warm."""
        attempt = self.agents[name]._attempt
        assert attempt is not None
        assert isinstance(attempt, Attempt)
        found = attempt._revivals
        warm: list[int] = []

        def found_one() -> bool:
            if (standby := found._standby) is not None and standby.is_warm():
                warm.append(standby._process.pid)
            return warm != []

        self.until(found_one, "a warm standby")
        return warm[0]


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'providers'}")
    made = Fleet(tmp_path, SCRIPT)
    yield made
    made.close()


def weights(path: Path) -> str:
    return str(json.loads(path.read_text())["weights"])


@pytest.mark.skipif(sys.platform != "linux", reason="tethers trainers to their agents")
def test_the_others_train_on_and_the_weights_are_the_same(fleet: Fleet, tmp_path: Path) -> None:
    fleet.launch("n1")
    fleet.launch("n2", standby=True)
    fleet.form(1, "n1", "n2")
    fleet.until(lambda: fleet.trains_with("n1", 2, 2), "two train")
    first = fleet.pid("n1")

    lost = fleet.warm_standby("n2")
    os.kill(lost, signal.SIGKILL)
    fleet.until(lambda: fleet.warm_standby("n2") != lost, "another standby")
    standby = fleet.warm_standby("n2")
    os.kill(fleet.pid("n2"), signal.SIGKILL)
    at_step = fleet.step("n1")
    fleet.until(lambda: fleet.trains_with("n1", 2, at_step + 3), "the lost one is back")
    fleet.until(lambda: fleet.beat("n2").restarts == 1, "it is reported")
    assert fleet.pid("n2") == standby

    fleet.launch("n3")
    fleet.form(2, "n1", "n2", "n3")
    fleet.until(lambda: fleet.trains_with("n3", 3), "a third joins")
    assert fleet.pid("n1") == first, "who trains is not started again"

    fleet.notice("n1").touch()
    fleet.until(lambda: fleet.beat("n1").state is NodeActivity.STOPPED, "one left")
    fleet.form(3, "n2", "n3")
    fleet.until(
        lambda: (
            (reported := fleet.mailbox.membership()) is not None
            and reported.node_id in ("n2", "n3")
        ),
        "the membership moves on",
    )
    fleet.finish("n2", "n3")

    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "trainer.py", json.dumps(OPTIONS)]
    subprocess.run(command, cwd=tmp_path, env=alone, check=True)
    undisturbed = weights(tmp_path / "alone")
    assert weights(tmp_path / "n2") == weights(tmp_path / "n3") == undisturbed
