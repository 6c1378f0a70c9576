"""An elastic gang under agents: a trainer dies, nodes come and go, and the others train on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from costopt.agent.agent import Agent
from costopt.agent.gang import Gang
from costopt.agent.heartbeat import Heartbeat, NodeActivity
from costopt.agent.launcher import Launcher
from costopt.agent.mailbox import Mailbox
from costopt.agent.notices.notice_file import FileNotices
from costopt.agent.settings import AgentSettings
from costopt.store.folder import FileStore

ROOT = Path(__file__).parents[2]
STEPS = 300
OPTIONS = {"initial": True, "total": STEPS, "pace_s": 0.5}
"""So slow that no machine is through before all has happened to it; then it may hurry."""
SCRIPT = """\
import json, os, pathlib, sys
from tests.train_gang import train
options = json.loads(sys.argv[1])
train(options | {"output": str(pathlib.Path(os.environ.get("COSTOPT_NODE", "alone")).resolve())})
"""


class Fleet:
    """Agents as threads, each with its trainer as a process, and the controller's mailbox."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = FileStore(folder / "store")
        self.mailbox = Mailbox(self.store, "j")
        self.agents: dict[str, Agent] = {}
        self.threads: list[threading.Thread] = []
        (folder / "trainer.py").write_text(SCRIPT)

    def launch(self, *names: str) -> None:
        for name in names:
            folder = self.folder / f"node-{name}"
            settings = AgentSettings(
                "j",
                name,
                folder,
                launcher=Launcher.DIRECT,
                poll_s=0.02,
                heartbeat_s=0.1,
                standby=name == "n2",
            )
            agent = Agent(settings, self.store, FileNotices(self.folder / f"{name}.notice"))
            self.agents[name] = agent
            self.threads.append(threading.Thread(target=agent.run))
            self.threads[-1].start()

    def form(self, generation: int, *members: str) -> None:
        command = ("python", "trainer.py", json.dumps(OPTIONS))
        gang = Gang("j", generation, members, command, str(self.folder), 0.0, elastic=True)
        self.mailbox.post_gang(replace(gang, secret=f"of generation {generation}"))

    def beat(self, name: str) -> Heartbeat | None:
        return self.mailbox.heartbeat(name)

    def trains_with(self, name: str, size: int, step: int = 0) -> bool:
        path = self.folder / f"{name}.step"
        told = path.read_text().split() if path.exists() else []
        return len(told) == 2 and int(told[0]) >= step and int(told[1]) == size

    def step(self, name: str) -> int:
        """Waits while the file is being written."""
        while not (told := (self.folder / f"{name}.step").read_text().split()):
            continue
        return int(told[0])

    def pid(self, name: str) -> int:
        attempt = self.agents[name]._attempt
        assert attempt is not None
        assert attempt.trainer is not None
        return attempt.trainer._processes[0].pid

    def warm_standby(self, name: str) -> int:
        """The pid of the one that waits there, once it is warm."""
        attempt = self.agents[name]._attempt
        assert attempt is not None
        found = attempt._revivals
        self.until(lambda: (s := found._standby) is not None and s.is_warm(), "a warm standby")
        standby = found._standby
        assert standby is not None
        return standby._process.pid

    def until(self, holds: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + 180
        while not holds():
            assert time.monotonic() < end, f"{what}: {self.logs()}"
            time.sleep(0.02)

    def logs(self) -> str:
        beats = "\n".join(str(self.beat(name)) for name in self.agents)
        logs = "\n".join(path.read_text()[-2000:] for path in self.folder.rglob("trainer-*.log"))
        return f"{beats}\n{logs}"

    def close(self) -> None:
        for agent in self.agents.values():
            agent.leave()
        for thread in self.threads:
            thread.join()


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{ROOT / 'providers'}")
    made = Fleet(tmp_path)
    yield made
    made.close()


def weights(path: Path) -> str:
    return str(json.loads(path.read_text())["weights"])


@pytest.mark.skipif(sys.platform != "linux", reason="tethers trainers to their agents")
def test_the_others_train_on_and_the_weights_are_the_same(fleet: Fleet, tmp_path: Path) -> None:
    fleet.launch("n1", "n2")
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
    fleet.until(lambda: (b := fleet.beat("n2")) is not None and b.restarts == 1, "it is told")
    assert fleet.pid("n2") == standby

    fleet.launch("n3")
    fleet.form(2, "n1", "n2", "n3")
    fleet.until(lambda: fleet.trains_with("n3", 3), "a third joins")
    assert fleet.pid("n1") == first, "who trains is not started anew"

    (tmp_path / "n1.notice").touch()
    fleet.until(
        lambda: (b := fleet.beat("n1")) is not None and b.state is NodeActivity.STOPPED, "one left"
    )
    fleet.form(3, "n2", "n3")
    fleet.until(
        lambda: (told := fleet.mailbox.membership()) is not None and told.node_id in ("n2", "n3"),
        "the membership moves on",
    )
    (tmp_path / "hurry").touch()
    for name in ("n2", "n3"):
        fleet.until(
            lambda name=name: (
                (b := fleet.beat(name)) is not None  # type: ignore[misc]
                and b.state is NodeActivity.FINISHED
            ),
            f"{name} finishes",
        )

    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "trainer.py", json.dumps(OPTIONS)]
    subprocess.run(command, cwd=tmp_path, env=alone, check=True)
    undisturbed = weights(tmp_path / "alone")
    assert weights(tmp_path / "n2") == weights(tmp_path / "n3") == undisturbed
