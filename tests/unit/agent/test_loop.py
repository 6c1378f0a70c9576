"""An agent that a test ticks: notices, data and scripts of all kinds."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from costopt.agent import agent, membership_server, peers, restarts
from costopt.agent.agent import Agent
from costopt.agent.launch_spec import LaunchMethod
from costopt.agent.notices.base import FileNoticeSource, NoNotices
from costopt.agent.settings import AgentSettings
from costopt.protocol.mailbox import Mailbox, MembershipEndpoint
from costopt.protocol.messages import Gang, Heartbeat, NodeActivity
from costopt.protocol.node_logs import LogPosition, NodeLog
from costopt.protocol.trainer_files import SavedCheckpoint, StopNotice, TrainerState, TrainerStatus
from costopt.store.folder import FileStore
from tests.support.live_run import wait_until
from tests.support.manual_clock import ManualClock
from tests.support.process_state import is_running

pytestmark = pytest.mark.process

PATIENCE_S = 120.0


class Node:
    """One agent and the controller's side of its mailbox; its trainer is a Python script."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.folder = folder / "node"
        self.folder.mkdir()
        self.was_served = False
        self.workdir = folder
        self.notice = folder / "notice.json"
        store = FileStore(folder / "store")
        self.mailbox = Mailbox(store, "j")
        fields = {
            "launcher": LaunchMethod.DIRECT,
            "heartbeat_s": 0.0,
            "judge_s": 0.1,
            "grace_s": PATIENCE_S,
            **settings,
        }
        self.agent = Agent(
            AgentSettings("j", "n1", self.folder, **fields),  # type: ignore[arg-type]
            store,
            FileNoticeSource(self.notice),
        )

    def close(self) -> None:
        if not self.was_served:
            self.agent.request_exit()
            self.agent.run()

    def run(self, script: str, generation: int = 1, **gang: object) -> None:
        command = (sys.executable, "-c", script)
        self.mailbox.post_gang(
            Gang("j", generation, ("n1",), command, str(self.workdir), 0.0, **gang)  # type: ignore[arg-type]
        )

    def until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            assert time.monotonic() < deadline, self.beat()
            time.sleep(0.01)
            self.agent.tick()

    def beat(self) -> Heartbeat:
        self.agent.tick()
        beat = self.mailbox.heartbeat("n1")
        assert beat is not None
        return beat

    def state(self) -> NodeActivity | None:
        """As it was told last."""
        beat = self.mailbox.heartbeat("n1")
        return None if beat is None else beat.state

    def kept_log(self) -> bytes:
        """What the store has of the trainers' log."""
        return NodeLog(self.mailbox.store, "j", "n1").read(0, 1 << 20)[1]

    def ends_as(self, state: NodeActivity) -> Heartbeat:
        self.until(lambda: self.beat().state is state)
        return self.beat()


Make = Callable[..., Node]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Node] = []

    def node_with(**settings: object) -> Node:
        made.append(Node(tmp_path, **settings))
        return made[-1]

    yield node_with
    for each in made:
        each.close()


@pytest.fixture
def node(make: Make) -> Node:
    return make()


OWN = """
import os, pathlib, signal, sys, time
saved = pathlib.Path("own.txt")
def leave(*_):
    saved.write_text("step 7")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
pathlib.Path("up").touch()
while True:
    time.sleep(0.01)
"""


@pytest.mark.parametrize("env", [("A", "x\0y"), ("A=B", "x")])
def test_a_command_that_cannot_be_started_has_failed_and_the_agent_lives(
    node: Node, env: tuple[str, str]
) -> None:
    node.run("pass", env=(env,))
    beat = node.ends_as(NodeActivity.FAILED)
    assert beat.message.startswith("cannot start")
    assert beat.exit_code == 127


def test_a_script_that_knows_nothing_of_costopt_saves_on_sigterm(node: Node) -> None:
    node.run(OWN)
    node.until((node.workdir / "up").exists)
    node.notice.write_text('{"action": "terminate", "time": null}')
    beat = node.ends_as(NodeActivity.STOPPED)
    assert (node.workdir / "own.txt").read_text() == "step 7"
    assert beat.notice
    assert beat.message == "left with 0 on SIGTERM, by its own means"


def test_a_node_trains_though_it_does_not_know_the_address_that_reaches_it(make: Make) -> None:
    node = make(host="203.0.113.7")
    node.run("pass")
    node.ends_as(NodeActivity.FINISHED)


def test_a_node_that_cannot_serve_its_membership_is_heard_of_all_the_same(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    node = make(host="203.0.113.7")
    node.run("import time; time.sleep(1000)", elastic=True, secret="s")
    node.until(lambda: node.state() is NodeActivity.STARTING)
    assert "cannot serve a membership at 203.0.113.7" in capfd.readouterr().err


def shell_around(script: str) -> str:
    """What starts a script and dies of SIGTERM before the script has done what it must."""
    return (
        f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {script!r}]); "
        "time.sleep(1000)"
    )


def test_its_children_hear_the_signal_too_and_have_time_to_save(node: Node) -> None:
    node.run(shell_around(OWN.replace("saved.write", "time.sleep(0.5); saved.write")))
    node.until((node.workdir / "up").exists)
    node.mailbox.request_drain("n1")
    beat = node.ends_as(NodeActivity.STOPPED)
    assert (node.workdir / "own.txt").read_text() == "step 7"
    assert beat.message == "left with -15 on SIGTERM, by its own means"


def test_children_that_ignore_the_signal_are_killed_when_the_grace_is_over(make: Make) -> None:
    node = make(grace_s=0.2)
    script = OWN.replace("leave)", "signal.SIG_IGN)").replace(
        ".touch()", ".write_text('%d' % os.getpid())"
    )
    node.run(shell_around(script))
    up = node.workdir / "up"
    node.until(lambda: up.exists() and up.read_text() != "")
    node.mailbox.request_drain("n1")
    node.ends_as(NodeActivity.STOPPED)
    node.until(lambda: not is_running(int(up.read_text())))


def test_a_script_that_ignores_sigterm_is_killed_when_its_grace_is_over(
    tmp_path: Path, make: Make
) -> None:
    node = make(grace_s=0.2)
    node.run(OWN.replace("leave)", "signal.SIG_IGN)"))
    node.until((node.workdir / "up").exists)
    node.notice.touch()
    beat = node.ends_as(NodeActivity.STOPPED)
    assert beat.message == "left with -9 before it had saved"


def test_it_begins_when_the_gang_before_it_has_saved(node: Node) -> None:
    saving = Heartbeat("n0", 1, NodeActivity.STOPPING, at=0.0, beat=1)
    node.mailbox.post_heartbeat(saving)
    node.run("import pathlib; pathlib.Path('up').touch()", generation=2, former=("n0",))
    assert node.beat().message == "n0 is still saving"
    assert node.beat().state is NodeActivity.STARTING
    node.mailbox.post_heartbeat(replace(saving, state=NodeActivity.STOPPED, beat=2))
    node.ends_as(NodeActivity.FINISHED)
    assert (node.workdir / "up").exists()


@pytest.mark.parametrize("patience", ["grace_s", "peer_silent_s"])
def test_it_awaits_the_gang_before_it_for_so_long(make: Make, patience: str) -> None:
    node = make(**{"peer_silent_s": PATIENCE_S, patience: 0.05})
    node.mailbox.post_heartbeat(Heartbeat("n0", 1, NodeActivity.TRAINING, at=0.0, beat=1))
    node.run("pass", generation=2, former=("n0",))
    node.ends_as(NodeActivity.FINISHED)


def test_a_trainer_that_goes_elsewhere_has_its_grace_to_save(make: Make) -> None:
    node = make(handover_s=0.0)
    node.run(OWN.replace("saved.write", "time.sleep(0.5); saved.write"))
    node.until((node.workdir / "up").exists)
    gang = Gang("j", 2, ("n9",), (), str(node.workdir), 0.0)
    node.mailbox.post_gang(gang)
    node.until(lambda: node.state() is NodeActivity.IDLE)
    assert (node.workdir / "own.txt").read_text() == "step 7"


def reporting(*checkpoints: SavedCheckpoint, resumed_units: float | None = 5.0) -> str:
    """A trainer that reports itself, and copies its notice to where the test finds it."""
    status = TrainerStatus(
        1,
        TrainerState.TRAINING,
        time.time(),
        done_units=9.0,
        checkpoints=checkpoints,
        resumed_units=resumed_units,
    )
    return f"""{said(status)}
notice = pathlib.Path(os.environ["COSTOPT_NOTICE_FILE"])
while not notice.exists():
    time.sleep(0.01)
pathlib.Path("told").write_bytes(notice.read_bytes())
TrainerStatus(1, TrainerState.STOPPED, time.time()).write(status)
"""


def said(status: TrainerStatus) -> str:
    """The program that reports this, with its file as ``status``."""
    report = repr(status).replace(repr(status.state), f"TrainerState.{status.state.name}")
    return f"""
import os, pathlib, time
status = pathlib.Path(os.environ["COSTOPT_STATUS_FILE"])
from costopt.protocol.trainer_files import *
{report}.write(status)
"""


def test_a_notice_carries_its_deadline_and_the_measured_upload(node: Node) -> None:
    node.run(reporting(SavedCheckpoint("c", 1.0, "u", 0.0, 4_000_000, 2.0)), speed=60.0)
    node.until(lambda: node.beat().state is NodeActivity.TRAINING)
    assert node.beat().upload_bytes_per_s == 2_000_000
    reported = {"noticed_at": "2026-03-01T12:00:00+00:00", "time": "2026-03-01T12:10:00+00:00"}
    node.notice.write_text(json.dumps(reported))
    node.ends_as(NodeActivity.STOPPED)
    interrupts_at = node.beat().interrupts_at
    notice = StopNotice.read(node.workdir / "told")
    assert notice is not None
    assert notice.deadline_at is not None
    assert notice.deadline_at - node.notice.stat().st_mtime == pytest.approx(10, abs=0.1)
    assert notice.deadline_at == interrupts_at
    assert notice.upload_bytes_per_s == 2_000_000
    assert notice.allows(1_000_000_000, notice.deadline_at - 10) is False


def test_a_warning_is_reported_at_once_and_stops_nothing(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.run("import time; time.sleep(1000)")
    node.beat()
    monkeypatch.setattr(FileNoticeSource, "rebalance_warning", lambda _: "rebalance recommended")
    beat = node.beat()
    assert beat.warning == "rebalance recommended"
    assert not beat.notice
    monkeypatch.setattr(FileNoticeSource, "rebalance_warning", NoNotices.rebalance_warning)
    assert node.beat().state in (NodeActivity.STARTING, NodeActivity.TRAINING)


def test_training_waits_for_its_data(tmp_path: Path, make: Make) -> None:
    node = make(data_folder=tmp_path / "disk", data_max_bytes=1000)
    script = (
        "import os, pathlib; d = pathlib.Path(os.environ['COSTOPT_DATA_DIR']); "
        "pathlib.Path('read').write_bytes((d / 'a' / 'x').read_bytes())"
    )
    node.run(script, data_uri=f"{tmp_path}/data")
    data = FileStore(tmp_path / "data")
    data.put("a/x", b"corpus")
    node.ends_as(NodeActivity.FINISHED)
    assert (tmp_path / "read").read_bytes() == b"corpus"


def test_data_that_are_unavailable_are_reported(tmp_path: Path, make: Make) -> None:
    node = make(data_folder=tmp_path / "disk", data_max_bytes=3)
    FileStore(tmp_path / "data").put("big", b"corpus")
    node.run("pass", data_uri=f"{tmp_path}/data")
    node.until(lambda: "more than the cache" in node.beat().message)
    assert node.beat().state is NodeActivity.STARTING


def test_an_elastic_trainer_that_fails_at_once_is_not_started_for_ever(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "RESTART_WINDOW_S", math.inf)
    node.run("raise ValueError('no such corpus')", elastic=True)
    beat = node.ends_as(NodeActivity.FAILED)
    assert beat.restarts == 3
    (failure,) = node.mailbox.failures()
    assert failure.message == "ValueError: no such corpus"


def test_a_trainer_that_is_not_elastic_is_not_started_again(node: Node) -> None:
    node.run("raise ValueError('no such corpus')")
    assert node.ends_as(NodeActivity.FAILED).restarts == 0


def test_a_trainer_that_does_not_tell_began_with_the_newest_checkpoint_there_was(
    node: Node,
) -> None:
    for units in (3.0, 4.0):
        node.mailbox.post_checkpoint(SavedCheckpoint(f"step-{units:g}", units, "there", 0.0, 1))
    mine = SavedCheckpoint("step-8", 8.0, "there", 0.0, 1)
    node.run(reporting(mine, resumed_units=None))
    node.until(lambda: node.beat().state is NodeActivity.TRAINING)
    assert node.beat().resumed_units == 4.0


def test_an_elastic_trainer_goes_on_in_a_newer_gang_and_another_is_handed_over(node: Node) -> None:
    script = "import os, pathlib\npathlib.Path(str(os.getpid())).touch()\n" + reporting()
    node.run(script, elastic=True)
    node.until(lambda: node.beat().state is NodeActivity.TRAINING)
    assert node.beat().resumed_units == 5.0
    node.run(script, generation=2, elastic=True)
    node.until(lambda: node.beat().generation == 2)
    assert node.beat().state is NodeActivity.TRAINING
    assert node.beat().resumed_units == 9.0, "it brought all that it had done"
    started = [path for path in node.workdir.iterdir() if path.name.isdigit()]
    assert len(started) == 1
    node.run(script, generation=3)
    node.until(lambda: node.beat().generation == 3)
    node.until(lambda: len([p for p in node.workdir.iterdir() if p.name.isdigit()]) == 2)


@pytest.mark.parametrize("first_state", [None, TrainerState.STARTING])
def test_an_elastic_trainer_that_first_trains_in_a_newer_gang_began_with_what_was_saved_by_then(
    node: Node, first_state: TrainerState | None
) -> None:
    """Its mates saved after its process had started, and before the newer gang was formed."""
    gate = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.01)\n"
    before = said(TrainerStatus(1, first_state, time.time())) if first_state else ""
    script = before + gate + reporting(resumed_units=None)
    node.run(script, elastic=True)
    node.until(lambda: node.beat().started and node.beat().reported == (first_state is not None))
    node.mailbox.post_checkpoint(SavedCheckpoint("step-4", 4.0, "there", 0.0, 1))
    node.run(script, generation=2, elastic=True)
    node.until(lambda: node.beat().generation == 2)
    assert node.beat().resumed_units is None, "it has not begun"
    (node.workdir / "go").touch()
    node.until(lambda: node.beat().state is NodeActivity.TRAINING)
    assert node.beat().resumed_units == 4.0


def test_a_node_that_is_through_leaves_the_membership_with_who_serves_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock(monkeypatch, peers, membership_server)
    served = MembershipEndpoint("n2", "127.0.0.1:1")
    node.mailbox.post_membership(served)
    command = (sys.executable, "-c", "pass")
    node.mailbox.post_gang(
        Gang("j", 1, ("n1", "n2"), command, str(node.workdir), 0.0, elastic=True)
    )
    beats = count()

    def both_beat() -> NodeActivity:
        clock.now_s += membership_server.HOST_HEARTBEAT_TIMEOUT_S / 2
        state = NodeActivity.TRAINING
        node.mailbox.post_heartbeat(Heartbeat("n2", 1, state, at=0.0, beat=next(beats)))
        return node.beat().state

    node.until(lambda: both_beat() is NodeActivity.FINISHED)
    for _ in range(5):
        both_beat()
    assert node.mailbox.membership() == served


def test_the_log_is_in_the_store_before_the_end_of_training_is_reported(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = NodeLog.append

    def slow(*given: Any) -> LogPosition:
        time.sleep(0.3)
        return append(*given)

    monkeypatch.setattr(NodeLog, "append", slow)
    monkeypatch.setattr(agent, "LOG_FLUSH_TIMEOUT_S", PATIENCE_S)
    node = make(logs_s=3600.0, poll_s=0.01)
    node.run("print('all done')")
    with served(node):
        wait_until(lambda: node.state() is NodeActivity.FINISHED, "the end", PATIENCE_S)
        assert node.kept_log() == b"all done\n"


def test_the_log_is_sent_when_the_node_is_to_be_taken(make: Make) -> None:
    node = make(logs_s=3600.0, poll_s=0.01)
    node.run(
        "import pathlib, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('step 1', flush=True)\n"
        "pathlib.Path('up').touch()\n"
        "while not pathlib.Path('enough').exists(): time.sleep(0.01)\n"
    )
    with served(node):
        wait_until((node.workdir / "up").exists, "the trainer", PATIENCE_S)
        assert node.kept_log() == b""
        node.notice.write_text('{"action": "terminate", "time": null}')
        wait_until(lambda: node.kept_log() == b"step 1\n", "its log", PATIENCE_S)
        wait_until(lambda: node.state() is NodeActivity.STOPPING, "its word", PATIENCE_S)
        (node.workdir / "enough").touch()


@contextmanager
def served(node: Node) -> Iterator[None]:
    """The agent in a thread of its own, as it runs on a node."""
    node.was_served = True
    thread = threading.Thread(target=node.agent.run)
    thread.start()
    try:
        yield
    finally:
        node.agent.request_exit()
        thread.join()
