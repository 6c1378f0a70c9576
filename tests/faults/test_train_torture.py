"""Trainers are killed, stopped, woken, told to leave and joined at random: the weights come out
as if nothing had happened, bit for bit.

COSTOPT_ELASTIC_EVENTS is the number of events, COSTOPT_ELASTIC_SEED where to begin; with pytest -s
it says how many have struck.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from costopt.agent.membership import Membership
from costopt.agent.membership_server import MembershipServer
from tests.support.forked_trainers import TrainerFactory, result

EVENTS = int(os.environ.get("COSTOPT_ELASTIC_EVENTS", "10"))
SEED = int(os.environ.get("COSTOPT_ELASTIC_SEED", "11"))
EVENTS_PER_RUN = 25
MOST = 4
SILENT_S = 1.0

pytestmark = pytest.mark.worker_group("processes")


@pytest.fixture(scope="module")
def nursery() -> Iterator[TrainerFactory]:
    with TrainerFactory() as nursery:
        yield nursery


class Torture:
    """A job whose trainers have no peace until so many events have struck."""

    def __init__(
        self, nursery: TrainerFactory, folder: Path, draw: random.Random, events: int
    ) -> None:
        self._nursery, self._folder, self._draw = nursery, folder, draw
        self._events = events
        self._steps = 6 * events + 30
        self._server = MembershipServer(Membership(silent_s=SILENT_S, settle_s=0.2)).start()
        self._trainers: dict[int, Path] = {}
        self._ended: dict[int, int] = {}
        self._stopped: dict[int, float] = {}
        self.events: list[str] = []

    @property
    def steps(self) -> int:
        return self._steps

    def run(self) -> list[Path]:
        """What those left behind that finished."""
        for _ in range(3):
            self._join()
        until = time.monotonic() + 120 + 20 * self._events
        while not self._finished():
            assert time.monotonic() < until, self.logs()
            self._wake()
            if len(self.events) < self._events:
                self._disturb()
            time.sleep(self._draw.uniform(0.0, 0.25))
        for pid in self._alive():
            if pid in self._stopped:
                os.kill(pid, signal.SIGCONT)
        for pid in list(self._trainers):
            self._ended[pid] = self._nursery.wait(pid)
        self._server.close()
        return [self._trainers[pid] for pid, code in self._ended.items() if code == 0]

    def logs(self) -> str:
        texts = [f"{self.events}"]
        for pid, output in self._trainers.items():
            log = output.with_suffix(".log")
            texts.append(f"--- {pid} {self._ended.get(pid)} {log.read_text()[-2000:]}")
        return "\n".join(texts)

    def codes(self) -> set[int]:
        return set(self._ended.values())

    def _finished(self) -> bool:
        for pid in self._alive():
            code = self._nursery.status(pid)
            if code is not None:
                self._ended[pid] = code
        if not self._alive():
            self._join()
        return 0 in self._ended.values()

    def _alive(self) -> list[int]:
        return [pid for pid in self._trainers if pid not in self._ended]

    def _join(self) -> None:
        output = self._folder / f"trainer-{len(self._trainers)}"
        env = {"COSTOPT_MEMBERSHIP": self._server.address}
        pid = self._nursery.start(
            env,
            output=output,
            initial=True,
            total=self._steps,
            pace_s=0.01,
            checkpoint=str(self._folder / "checkpoints"),
            interval_s=0.5,
        )
        self._trainers[pid] = output

    def _disturb(self) -> None:
        alive = [pid for pid in self._alive() if pid not in self._stopped]
        event = self._draw.choice(("kill", "kill", "leave", "stop", "join", "join"))
        if len(self._alive()) < 2 or not alive:
            event = "join"
        elif len(self._alive()) >= MOST and event == "join":
            event = "kill"
        if event == "join":
            self._join()
        else:
            pid = self._draw.choice(alive)
            number = {"kill": signal.SIGKILL, "leave": signal.SIGTERM, "stop": signal.SIGSTOP}
            with suppress(ProcessLookupError):
                os.kill(pid, number[event])
            if event == "stop":
                self._stopped[pid] = time.monotonic() + self._draw.choice((0.1, 0.8, 1.6, 3.0))
        self.events.append(event)

    def _wake(self) -> None:
        for pid, at in list(self._stopped.items()):
            if time.monotonic() >= at:
                del self._stopped[pid]
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)


def test_no_torture_changes_a_bit(nursery: TrainerFactory, tmp_path: Path) -> None:
    left, seed = EVENTS, SEED
    while left > 0:
        folder = tmp_path / str(seed)
        folder.mkdir()
        torture = Torture(nursery, folder, random.Random(seed), min(left, EVENTS_PER_RUN))
        finished = torture.run()
        alone = folder / "alone"
        pid = nursery.start({}, output=alone, initial=True, total=torture.steps)
        assert nursery.wait(pid) == 0
        undisturbed = result(alone)
        assert finished, torture.logs()
        for output in finished:
            found = result(output)
            assert found["weights"] == undisturbed["weights"], torture.logs()
            assert found["guarantee"] == "exact"
            for step, loss in found["losses"].items():
                assert undisturbed["losses"][step] == loss
        assert torture.codes() <= {0, -signal.SIGKILL, -signal.SIGTERM, 143}, torture.logs()
        left, seed = left - len(torture.events), seed + 1
        print(f"{EVENTS - left} of {EVENTS} events: the same weights", flush=True)  # noqa: T201
        nursery.clear()
