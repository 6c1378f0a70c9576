"""What stands ready to take a trainer's place is replaced when it dies, and not for ever."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from costopt.agent import restarts
from costopt.agent.restarts import MAX_LOST_STANDBYS, TrainerRestarts
from costopt.agent.settings import AgentSettings
from costopt.protocol.messages import Gang

pytestmark = pytest.mark.process

GANG = Gang("j", 1, ("n",), ("python", "t.py"), "", 0.0, elastic=True)


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(restarts, "time", clock)
    return clock


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[TrainerRestarts]:
    ready = TrainerRestarts(AgentSettings("j", "n", tmp_path, standby=True))
    yield ready
    ready.close()


def lost(ready: TrainerRestarts) -> int:
    """Kill the one that waits, for good, and let it be noticed."""
    assert ready._standby is not None
    pid = ready._standby._process.pid
    os.kill(pid, signal.SIGKILL)
    ready._standby._process.wait()
    ready.prepare_standby(GANG)
    return pid


def test_each_that_dies_is_replaced_later_than_the_one_before_until_it_is_enough(
    ready: TrainerRestarts, clock: Clock, capfd: pytest.CaptureFixture[str]
) -> None:
    ready.prepare_standby(GANG)
    pids = set()
    for pause_s in (1.0, 2.0, 4.0, 8.0):
        pids.add(lost(ready))
        clock.now += pause_s - 0.1
        ready.prepare_standby(GANG)
        assert ready._standby is None
        clock.now += 0.2
        ready.prepare_standby(GANG)
    pids.add(lost(ready))
    clock.now += 1e6
    ready.prepare_standby(GANG)
    assert ready._standby is None
    assert len(pids) == MAX_LOST_STANDBYS
    said = capfd.readouterr().err.splitlines()
    assert said[0] == "a standby died; the next one starts in 1 s"
    assert said[-1] == "a standby died; no other will be started"
    assert len(said) == MAX_LOST_STANDBYS


def test_one_that_cannot_be_started_is_not_tried_at_each_poll(
    ready: TrainerRestarts, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/nowhere/python")
        ready.prepare_standby(GANG)
    ready.prepare_standby(GANG)
    assert ready._standby is None
    clock.now += 1.1
    ready.prepare_standby(GANG)
    assert ready._standby is not None
