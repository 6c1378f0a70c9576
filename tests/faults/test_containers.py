"""Agents that run commands in real containers: results, signals, and nothing left after SIGKILL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from costopt.agent.preparation import private_folder
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Gang, NodeActivity
from costopt.store.folder import FileStore
from costopt_sim.process_host import FOLDER_VARIABLE, kill_node
from tests.support.containers import IMAGE, Podman, podman_here
from tests.support.live_run import wait_until

pytestmark = [pytest.mark.process, pytest.mark.exhaustive("commands in containers")]
VALUE = "correct-horse-battery"
ROWS = (("TOKEN", "host", "default/token", False), ("KEY", "host", "default/key", True))


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    with podman_here(tmp_path_factory.mktemp("podman")) as found:
        if isinstance(found, str):
            pytest.skip(found)
        yield found


class Node:
    """An agent in a process of its own, on a store in ``folder``."""

    def __init__(self, folder: Path, podman: Podman) -> None:
        self.folder = folder / "node"
        self.secrets = folder / "secrets"
        self.workdir = folder / "work"
        self.workdir.mkdir()
        (self.secrets / "default").mkdir(parents=True)
        for name in ("token", "key"):
            path = self.secrets / "default" / name
            path.write_text(f"{VALUE}-{name}\n")
            path.chmod(0o600)
        self.store = FileStore(folder / "store")
        self.mailbox = Mailbox(self.store, "j")
        mark = {FOLDER_VARIABLE: str(self.folder)}
        self._environment = {**os.environ, **podman.environment, **mark}
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        command: list[str | Path] = [
            *(sys.executable, "-m", "costopt.agent", "--store", self.store.root, "--job", "j"),
            *("--node", "n1", "--folder", self.folder, "--notices", "none", "--meter", "none"),
            *("--secrets", f"host:{self.secrets}", "--launcher", "direct", "--heartbeat-s", "0.05"),
        ]
        self.process = subprocess.Popen(command, env=self._environment, start_new_session=True)
        return self.process

    def run(self, script: str, generation: int = 1, **more: object) -> None:
        gang = Gang("j", generation, ("n1",), ("/bin/sh", "-c", script), str(self.workdir), 0.0)
        self.mailbox.post_gang(replace(gang, image=IMAGE, **more))  # type: ignore[arg-type]

    def state(self) -> tuple[NodeActivity, str] | None:
        beat = self.mailbox.heartbeat("n1")
        return None if beat is None else (beat.state, beat.message)

    def is_in(self, activity: NodeActivity) -> bool:
        state = self.state()
        return state is not None and state[0] is activity

    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("trainer-*.log")))

    def written(self) -> bytes:
        """All that the agent and the controller have stored or logged."""
        roots = (Path(self.store.root), self.folder)
        files = (path for root in roots for path in root.rglob("*") if path.is_file())
        return b"".join(path.read_bytes() for path in files)


@pytest.fixture
def node(tmp_path: Path, podman: Podman) -> Iterator[Node]:
    node = Node(tmp_path, podman)
    yield node
    node.process.kill()
    node.process.wait()


def test_a_command_runs_in_its_image_after_its_setup_with_its_secrets(
    node: Node, podman: Podman
) -> None:
    show = (
        'echo "ran $TOKEN and $(cat $KEY) at $(stat -c %a $KEY) after $(cat /made)"; '
        "test -d /proc/1 && echo done > result.txt"
    )
    node.run(show, secrets=ROWS, setup=('echo "with $TOKEN"; echo setup >> /made',))
    wait_until(lambda: node.is_in(NodeActivity.FINISHED), "end of the command")
    assert (node.workdir / "result.txt").read_text() == "done\n"
    assert "ran *** and *** at 600 after setup" in node.log()
    assert VALUE.encode() not in node.written()
    assert not podman.containers()
    (image,) = podman.call("images", "-q", "localhost/costopt-setup").split()
    assert VALUE not in podman.call("image", "inspect", image)
    node.run(
        "cat /made", generation=2, secrets=ROWS, setup=('echo "with $TOKEN"; echo setup >> /made',)
    )
    wait_until(
        lambda: node.log().count("setup\n") >= 1 and node.is_in(NodeActivity.FINISHED), "2nd"
    )


def test_sigterm_reaches_the_command_and_killing_the_agent_leaves_no_container(
    node: Node, podman: Podman
) -> None:
    node.run("trap 'echo saved > saved.txt; exit 0' TERM; touch up; while :; do sleep 0.1; done")
    wait_until((node.workdir / "up").exists, "start of the command")
    assert len(podman.containers()) == 1
    node.mailbox.request_drain("n1")
    wait_until((node.workdir / "saved.txt").exists, "save on SIGTERM")
    wait_until(lambda: node.is_in(NodeActivity.STOPPED), "end of the command")
    wait_until(lambda: not podman.containers(), "removal")
    node.mailbox.cancel_drain("n1")

    node.run("touch again; sleep 1000", generation=2, secrets=ROWS)
    wait_until((node.workdir / "again").exists, "second start")
    assert private_folder(node.folder).is_dir()
    assert not _arguments_with(VALUE)
    node.process.send_signal(signal.SIGKILL)
    node.process.wait()
    wait_until(lambda: not podman.containers(), "removal after SIGKILL")
    wait_until(lambda: not private_folder(node.folder).exists(), "removal of secrets")

    node.start()
    node.run("touch third; sleep 1000", generation=3)
    wait_until((node.workdir / "third").exists, "third start")
    kill_node(node.folder, node.process.pid)
    wait_until(lambda: not podman.containers(), "removal after the end of the machine")


def test_a_setup_that_fails_is_the_end_of_the_command_with_its_output(node: Node) -> None:
    node.run("echo never", setup=("echo first", "echo no such package >&2; exit 3"))
    wait_until(lambda: node.is_in(NodeActivity.FAILED), "failure")
    (failure,) = node.mailbox.failures()
    assert "no such package" in failure.message
    assert "first\n" in node.log()
    assert "never\n" not in node.log()


def _arguments_with(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes().decode(errors="replace"))
    return [line for line in found if text in line]
