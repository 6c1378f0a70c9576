"""Agents as threads, each with its trainer as a process, and the controller's mailbox."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from costopt.agent.agent import Agent
from costopt.agent.launch_spec import LaunchMethod
from costopt.agent.notices.base import FileNoticeSource
from costopt.agent.settings import AgentSettings
from costopt.protocol.mailbox import Mailbox
from costopt.protocol.messages import Heartbeat, NodeActivity
from costopt.store.folder import FileStore
from tests.support.live_run import wait_until


class AgentFleet:
    """Their trainers run trainer.py in the folder, and write two numbers to NODE.step there."""

    def __init__(self, folder: Path, script: str, **settings: Any) -> None:
        self.folder = folder
        self.mailbox = Mailbox(FileStore(folder / "mail"), "j")
        self.agents: dict[str, Agent] = {}
        brisk = AgentSettings(
            "j", "", folder, launcher=LaunchMethod.DIRECT, poll_s=0.05, heartbeat_s=0.2
        )
        self._settings = replace(brisk, **settings)
        self._threads: list[threading.Thread] = []
        (folder / "trainer.py").write_text(script)

    def launch(self, name: str, **settings: Any) -> None:
        """Start a node's agent."""
        folder = self.folder / f"node-{name}"
        chosen = replace(self._settings, node_id=name, folder=folder, **settings)
        agent = Agent(chosen, self.mailbox.store, FileNoticeSource(self.notice(name)))
        self.agents[name] = agent
        self._threads.append(threading.Thread(target=agent.run))
        self._threads[-1].start()

    def notice(self, name: str) -> Path:
        """Where a node looks for notices."""
        return self.folder / f"{name}.notice"

    def beat(self, name: str) -> Heartbeat:
        """What a node that was heard before tells now."""
        beat = self.mailbox.heartbeat(name)
        assert beat is not None
        return beat

    def written(self, name: str) -> tuple[int, int]:
        """What a node's trainer wrote last; zeros where it has written nothing yet."""
        path = self.folder / f"{name}.step"
        while path.exists():
            # It is empty for the moment in which it is written.
            if len(words := path.read_text().split()) == 2:
                return int(words[0]), int(words[1])
        return 0, 0

    def step(self, name: str) -> int:
        """Behind which a node's trainer is."""
        return self.written(name)[0]

    def trains_with(self, name: str, size: int, step: int = 0) -> bool:
        """Whether a node's trainer is at this step or later, in a gang of this size."""
        at_step, of_size = self.written(name)
        return at_step >= step and of_size == size

    def finish(self, *names: str) -> None:
        """Let the trainers hurry, and wait until those of these nodes have finished."""
        (self.folder / "hurry").touch()
        for name in names:
            self.until(
                lambda name=name: self.beat(name).state is NodeActivity.FINISHED,  # type: ignore[misc]
                f"{name} finishes",
            )

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait; AssertionError that tells of every node where it never comes to pass."""
        try:
            wait_until(holds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self._logs()}") from None

    def close(self) -> None:
        """End all nodes."""
        for agent in self.agents.values():
            agent.request_exit()
        for thread in self._threads:
            thread.join()

    def _logs(self) -> str:
        beats = "\n".join(str(self.mailbox.heartbeat(name)) for name in self.agents)
        logs = "\n".join(path.read_text()[-2000:] for path in self.folder.rglob("trainer-*.log"))
        return f"{beats}\n{logs}"
