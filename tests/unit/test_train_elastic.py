"""Any number of processes computes the same bits; who is lost, stopped or told to leave does not
hold up the others."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from costopt.agent.membership import Membership
from costopt.agent.membership_address import MembershipAddress
from costopt.agent.membership_server import MembershipServer
from costopt.checkpoint.near.gang_key import GangKey
from tests.train_gang import STEPS, Nursery, result

SILENT_S = 2.0

pytestmark = pytest.mark.xdist_group("processes")


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(autouse=True)
def _ended(nursery: Nursery) -> Iterator[None]:
    yield
    nursery.clear()


@pytest.fixture(scope="module")
def undisturbed(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    output = tmp_path_factory.mktemp("undisturbed") / "one"
    assert nursery.wait(nursery.start({}, output=output, initial=True)) == 0
    found = result(output)
    assert found["guarantee"] == "exact"
    assert len(found["losses"]) == STEPS
    return found


class Gang:
    """Trainers around one membership."""

    def __init__(self, nursery: Nursery, folder: Path) -> None:
        self.nursery, self.folder = nursery, folder
        self.server = MembershipServer(Membership(silent_s=SILENT_S, settle_s=20.0)).start()
        self.pids: list[int] = []

    def start(self, count: int = 1, expected: int = 1, **options: Any) -> None:
        for _ in range(count):
            env = {"COSTOPT_MEMBERSHIP": self.server.address, "WORLD_SIZE": str(expected)}
            output = self.folder / f"trainer-{len(self.pids)}"
            self.pids.append(self.nursery.start(env, output=output, initial=True, **options))

    def reached(self, trainer: int, step: int, size: int | None = None) -> None:
        """Wait until a trainer has done so many steps, in a gang of that size."""
        path = self.folder / f"trainer-{trainer}.step"
        self.until(lambda: self._at(path, step, size))

    def until(self, holds: Callable[[], bool], timeout_s: float = 30.0) -> None:
        end = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < end, self.logs()
            time.sleep(0.005)

    def finish(self, *trainers: int) -> list[dict[str, Any]]:
        for trainer in trainers:
            assert self.nursery.wait(self.pids[trainer]) == 0, self.logs()
        self.server.close()
        return [result(self.folder / f"trainer-{trainer}") for trainer in trainers]

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    @staticmethod
    def _at(path: Path, step: int, size: int | None) -> bool:
        told = path.read_text().split() if path.exists() else []
        return len(told) == 2 and int(told[0]) >= step and size in (None, int(told[1]))


@pytest.fixture
def gang(nursery: Nursery, tmp_path: Path) -> Gang:
    return Gang(nursery, tmp_path)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_any_number_of_processes_computes_the_same_bits(
    gang: Gang, undisturbed: dict[str, Any], size: int
) -> None:
    gang.start(size, expected=size)
    for found in gang.finish(*range(size)):
        assert found["regrouped"] == []
        assert found["losses"] == undisturbed["losses"]
        assert found["weights"] == undisturbed["weights"]
        assert found["guarantee"] == "exact"


def test_a_killed_process_costs_no_step(gang: Gang, undisturbed: dict[str, Any]) -> None:
    gang.start(3, expected=3, pace_s=0.03)
    gang.reached(2, 5, size=3)
    os.kill(gang.pids[0], signal.SIGKILL)
    for found in gang.finish(1, 2):
        assert found["weights"] == undisturbed["weights"]
        assert found["losses"] == undisturbed["losses"]
        ((_, size, step, pause_s, why),) = found["regrouped"]
        assert size == 2
        assert pause_s < 1.0
        assert len(found["steps"]) in (STEPS, STEPS + 1)
        assert step >= 5
        assert why


def test_a_process_joins_and_takes_over_the_state(gang: Gang, undisturbed: dict[str, Any]) -> None:
    gang.start(2, expected=2, pace_s=0.05)
    gang.reached(1, 4)
    gang.start(pace_s=0.05)
    first, second, joined = gang.finish(0, 1, 2)
    assert joined["weights"] == first["weights"] == second["weights"] == undisturbed["weights"]
    assert joined["steps"][0] >= 4
    assert first["steps"] == list(range(STEPS))
    assert first["regrouped"][0][1] == 3


def test_who_stands_still_is_left_behind_and_corrupts_nothing(
    gang: Gang, undisturbed: dict[str, Any]
) -> None:
    gang.start(3, expected=3, pace_s=0.05)
    gang.reached(2, 4)
    os.kill(gang.pids[0], signal.SIGSTOP)
    gang.until(lambda: gang.server.generation == 2)
    gang.reached(1, 8, size=2)
    os.kill(gang.pids[0], signal.SIGCONT)
    woken, first, second = gang.finish(0, 1, 2)
    assert woken["weights"] == first["weights"] == second["weights"] == undisturbed["weights"]
    assert woken["losses"].items() <= undisturbed["losses"].items()
    assert woken["regrouped"][0][1] == 3
    assert first["regrouped"][0][3] < SILENT_S + 0.5


def test_who_sleeps_while_it_restores_joins_who_saved_meanwhile(
    gang: Gang, undisturbed: dict[str, Any]
) -> None:
    place = str(gang.folder / "place")
    gang.start(checkpoint=place, pace_s=0.05)
    gang.reached(0, 4)
    os.kill(gang.pids[0], signal.SIGTERM)
    assert gang.nursery.wait(gang.pids[0]) == 143
    head = Path(place, "HEAD")
    before = head.read_bytes()
    head.unlink()
    os.mkfifo(head)
    gang.start(checkpoint=place)
    gang.until(lambda: gang.server.generation == 2)
    with head.open("wb", buffering=0) as answer:
        os.kill(gang.pids[1], signal.SIGSTOP)
        head.unlink()
        head.write_bytes(before)
        gang.until(lambda: not gang.server.gang)
        gang.start(checkpoint=place, pace_s=0.1, interval_s=0.01)
        gang.until(lambda: head.read_bytes() != before)
        answer.write(before)
    os.kill(gang.pids[1], signal.SIGCONT)
    for found in gang.finish(1, 2):
        assert found["weights"] == undisturbed["weights"]


def test_who_has_a_notice_leaves_after_a_step_and_the_others_go_on(
    gang: Gang, undisturbed: dict[str, Any]
) -> None:
    gang.start(3, expected=3, pace_s=0.03)
    gang.reached(2, 5)
    os.kill(gang.pids[1], signal.SIGTERM)
    for found in gang.finish(0, 2):
        assert found["weights"] == undisturbed["weights"]
        assert found["steps"] == list(range(STEPS))
        assert found["regrouped"][0][1] == 2
    assert gang.nursery.wait(gang.pids[1]) == 143


def test_training_survives_the_membership(gang: Gang, undisturbed: dict[str, Any]) -> None:
    address, key = gang.folder / "address", GangKey("j", 1, "secret")
    gang.server.key = key
    MembershipAddress(gang.server.address, key).write(address)
    env = {"COSTOPT_MEMBERSHIP": address.as_uri(), "WORLD_SIZE": "2"}
    for trainer in range(2):
        output = gang.folder / f"trainer-{trainer}"
        gang.pids.append(gang.nursery.start(env, output=output, initial=True, pace_s=0.05))
    gang.reached(1, 4)
    gang.server.close()
    gang.reached(1, 8, size=2)
    key = GangKey("j", 2, "next")
    gang.server = MembershipServer(Membership(silent_s=SILENT_S, settle_s=20.0), key=key).start()
    MembershipAddress(gang.server.address, key).write(address)
    gang.until(lambda: len(gang.server.gang) == 2)
    os.kill(gang.pids[0], signal.SIGKILL)
    (found,) = gang.finish(1)
    assert found["weights"] == undisturbed["weights"]
    assert [regrouped[:2] for regrouped in found["regrouped"]] == [[2, 1]]


def test_close_mode_says_so(gang: Gang, undisturbed: dict[str, Any]) -> None:
    gang.start(2, expected=2, mode="close")
    first, second = gang.finish(0, 1)
    assert first["weights"] == second["weights"]
    assert first["guarantee"].startswith("close: gradients are summed")
    for step, loss in first["losses"].items():
        assert loss == pytest.approx(undisturbed["losses"][step], rel=1e-2)
