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
from costopt.agent.membership_server import MembershipServer
from costopt.checkpoint.replicas.wire import GangKey
from costopt.protocol.membership import MembershipAddress
from tests.support.forked_trainers import STEPS, TrainerFactory, result

SILENT_S = 2.0
NEVER_S = 120.0
"""A process that a busy machine lets wait for so long is not counted out."""

pytestmark = pytest.mark.worker_group("processes")


@pytest.fixture(scope="module")
def nursery() -> Iterator[TrainerFactory]:
    with TrainerFactory() as nursery:
        yield nursery


@pytest.fixture(autouse=True)
def _ended(nursery: TrainerFactory) -> Iterator[None]:
    yield
    nursery.clear()


@pytest.fixture(scope="module")
def undisturbed(
    nursery: TrainerFactory, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    output = tmp_path_factory.mktemp("undisturbed") / "one"
    assert nursery.wait(nursery.start({}, output=output, initial=True)) == 0
    found = result(output)
    assert found["guarantee"] == "exact"
    assert len(found["losses"]) == STEPS
    return found


class Gang:
    """Trainers around one membership."""

    def __init__(self, nursery: TrainerFactory, folder: Path, silent_s: float) -> None:
        self.nursery, self.folder, self.silent_s = nursery, folder, silent_s
        self.membership, self.server = self.serve()
        self.pids: list[int] = []

    def serve(self, key: GangKey | None = None) -> tuple[Membership, MembershipServer]:
        membership = Membership(silent_s=self.silent_s, settle_s=NEVER_S)
        return membership, MembershipServer(membership, key=key).start()

    def start(self, count: int = 1, expected: int = 1, **options: Any) -> None:
        for _ in range(count):
            env = {"COSTOPT_MEMBERSHIP": self.server.address, "WORLD_SIZE": str(expected)}
            output = self.folder / f"trainer-{len(self.pids)}"
            self.pids.append(self.nursery.start(env, output=output, initial=True, **options))

    def go(self, step: int) -> None:
        """Let those who hold before a step begin it."""
        (self.folder / f"go-{step}").touch()

    def reached(self, trainer: int, step: int, size: int | None = None) -> None:
        """Wait until a trainer has done so many steps, in a gang of that size."""
        self.until(lambda: self.at(trainer, step, size))

    def at(self, trainer: int, step: int, size: int | None = None) -> bool:
        path = self.folder / f"trainer-{trainer}.step"
        reported = path.read_text().split() if path.exists() else []
        return len(reported) == 2 and int(reported[0]) >= step and size in (None, int(reported[1]))

    def until(self, holds: Callable[[], bool], timeout_s: float = 120.0) -> None:
        end = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < end, self.logs()
            time.sleep(0.005)

    def calm(self) -> None:
        """Count out nobody from here on, who might come back too late."""
        self.membership.silent_s = NEVER_S

    def finish(self, *trainers: int) -> list[dict[str, Any]]:
        for trainer in trainers:
            assert self.nursery.wait(self.pids[trainer]) == 0, self.logs()
        self.server.close()
        return [result(self.folder / f"trainer-{trainer}") for trainer in trainers]

    def logs(self) -> str:
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))


@pytest.fixture
def gang(nursery: TrainerFactory, tmp_path: Path) -> Gang:
    return Gang(nursery, tmp_path, NEVER_S)


@pytest.fixture
def wary(nursery: TrainerFactory, tmp_path: Path) -> Gang:
    """A gang that counts out who is silent: on a busy machine perhaps one that only waits for its
    turn, who then comes back."""
    return Gang(nursery, tmp_path, SILENT_S)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_any_number_of_processes_computes_the_same_bits(
    gang: Gang, undisturbed: dict[str, Any], size: int
) -> None:
    gang.start(size, expected=size)
    for number, found in enumerate(gang.finish(*range(size))):
        assert gang.at(number, STEPS, size)
        assert found["losses"] == undisturbed["losses"]
        assert found["weights"] == undisturbed["weights"]
        assert found["guarantee"] == "exact"


def test_a_killed_process_costs_no_step(gang: Gang, undisturbed: dict[str, Any]) -> None:
    gang.start(3, expected=3, hold=[5])
    gang.reached(2, 5, size=3)
    os.kill(gang.pids[0], signal.SIGKILL)
    gang.go(5)
    for found in gang.finish(1, 2):
        assert found["weights"] == undisturbed["weights"]
        assert found["losses"] == undisturbed["losses"]
        ((_, size, step, _, why),) = found["regrouped"]
        assert size == 2
        assert len(found["steps"]) in (STEPS, STEPS + 1)
        assert step >= 5
        assert why
        assert "silent" not in why, "it was heard of at once"


def test_a_process_joins_and_takes_over_the_state(gang: Gang, undisturbed: dict[str, Any]) -> None:
    gang.start(2, expected=2, full=[4, 3])
    gang.reached(1, 4)
    gang.start()
    first, second, joined = gang.finish(0, 1, 2)
    assert joined["weights"] == first["weights"] == second["weights"] == undisturbed["weights"]
    assert joined["steps"][0] >= 4
    assert first["steps"] == list(range(STEPS))
    assert first["regrouped"][0][1] == 3


def test_who_stands_still_is_left_behind_and_corrupts_nothing(
    wary: Gang, undisturbed: dict[str, Any]
) -> None:
    wary.start(3, expected=3, hold=[4], full=[8, 3])
    wary.reached(2, 4)
    os.kill(wary.pids[0], signal.SIGSTOP)
    wary.go(4)
    wary.reached(1, 8, size=2)
    wary.calm()
    os.kill(wary.pids[0], signal.SIGCONT)
    woken, first, second = wary.finish(0, 1, 2)
    assert woken["weights"] == first["weights"] == second["weights"] == undisturbed["weights"]
    assert woken["losses"].items() <= undisturbed["losses"].items()
    assert 3 in [size for _, size, *_ in woken["regrouped"]]


@pytest.mark.parametrize("size", [1, 2])
def test_who_sleeps_before_its_last_save_ends_as_the_others_have(
    wary: Gang, undisturbed: dict[str, Any], size: int
) -> None:
    options: dict[str, Any] = {"checkpoint": str(wary.folder / "place"), "doze": True}
    wary.start(size, expected=size, **options)
    doze = wary.folder / "doze"
    wary.until(lambda: doze.exists() and doze.read_text() != "")
    asleep = wary.pids.index(int(doze.read_text()))
    if size == 1:
        wary.until(lambda: not wary.server.gang)
        wary.start(**options)
    other = 1 - asleep
    assert wary.nursery.wait(wary.pids[other]) == 0, wary.logs()
    wary.membership.settle_s = 0.0
    wary.calm()
    os.kill(wary.pids[asleep], signal.SIGCONT)
    for found in wary.finish(asleep, other):
        assert found["weights"] == undisturbed["weights"]


def test_who_sleeps_while_it_restores_joins_who_saved_meanwhile(
    wary: Gang, undisturbed: dict[str, Any]
) -> None:
    place = str(wary.folder / "place")
    wary.start(checkpoint=place, hold=[4])
    wary.reached(0, 4)
    os.kill(wary.pids[0], signal.SIGTERM)
    wary.go(4)
    assert wary.nursery.wait(wary.pids[0]) == 143
    head, held = Path(place, "HEAD"), wary.folder / "held"
    before = head.read_bytes()
    os.mkfifo(held)
    options: dict[str, Any] = {"checkpoint": place, "full": [10, 2]}
    wary.start(first_head=str(held), **options)
    with held.open("wb", buffering=0) as response:
        os.kill(wary.pids[1], signal.SIGSTOP)
        wary.until(lambda: not wary.server.gang)
        wary.calm()
        wary.start(interval_s=0.01, **options)
        wary.until(lambda: head.read_bytes() != before)
        response.write(before)
    os.kill(wary.pids[1], signal.SIGCONT)
    for found in wary.finish(1, 2):
        assert found["weights"] == undisturbed["weights"]


def test_who_has_a_notice_leaves_after_a_step_and_the_others_go_on(
    gang: Gang, undisturbed: dict[str, Any]
) -> None:
    gang.start(3, expected=3, hold=[5])
    gang.reached(2, 5)
    os.kill(gang.pids[1], signal.SIGTERM)
    gang.go(5)
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
        gang.pids.append(gang.nursery.start(env, output=output, initial=True, hold=[4, 9]))
    gang.reached(1, 4)
    gang.server.close()
    gang.go(4)
    gang.reached(1, 9, size=2)
    key = GangKey("j", 2, "next")
    gang.membership, gang.server = gang.serve(key)
    MembershipAddress(gang.server.address, key).write(address)
    gang.until(lambda: len(gang.server.gang) == 2)
    os.kill(gang.pids[0], signal.SIGKILL)
    gang.go(9)
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
