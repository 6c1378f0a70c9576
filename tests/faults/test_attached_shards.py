"""Sharded models under ``attach``: the same bits on any number of copies that come and go."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from costopt.agent.membership import Membership
from costopt.agent.membership_server import MembershipServer
from costopt.protocol.trainer_files import StopNotice
from tests.support import attached_shards
from tests.support.attached_shards import STEPS
from tests.support.forked_trainers import TrainerFactory, result
from tests.support.near_nodes import NearNodes

pytestmark = [pytest.mark.slow, pytest.mark.worker_group("processes")]
WITHIN_S = 120.0


class Copies:
    """Groups of processes that hold one copy of the model each, or several in one world."""

    def __init__(self, factory: TrainerFactory, folder: Path) -> None:
        self.factory, self.folder = factory, folder
        self.membership = Membership(settle_s=3600.0)
        self.server = MembershipServer(self.membership).start()
        self.pids: list[list[int]] = []

    def start(self, size: int = 2, *, alone: bool = False, **options: Any) -> int:
        """The number of a new group of processes in a world of their own."""
        number = len(self.pids)
        options = {"size": size, "kind": "fsdp", **options}
        options["meeting"] = str(self.folder / f"meeting-{number}")
        address = {} if alone else {"COSTOPT_MEMBERSHIP": self.server.address}
        self.pids.append(
            [
                self.factory.start(
                    address,
                    output=self.output(number, rank),
                    rank=rank,
                    **options,
                )
                for rank in range(size)
            ]
        )
        return number

    def together(self, groups: int, **options: Any) -> list[int]:
        """Start groups that begin as one gang."""
        numbers = [self.start(**options) for _ in range(groups)]
        members = sum(len(self.pids[number]) for number in numbers)
        self.until(lambda: len(self.server.members) == members)
        self.membership.settle_s = 0.0
        return numbers

    def output(self, group: int, rank: int) -> Path:
        return self.folder / f"group{group}-{rank}.json"

    def finish(self, *groups: int) -> list[dict[str, Any]]:
        """What all processes of the groups left, which ended well."""
        for group in groups:
            for rank, pid in enumerate(self.pids[group]):
                log = self.output(group, rank).with_suffix(".log")
                assert self.factory.wait(pid) == 0, log.read_text()
        return [
            result(self.output(group, rank))
            for group in groups
            for rank in range(len(self.pids[group]))
        ]

    def reached(self, group: int, step: int) -> None:
        def there() -> bool:
            path = self.output(group, 0).with_suffix(".step")
            return path.exists() and int((path.read_text() or "0").split()[0]) >= step

        self.until(there)

    def go(self, step: int) -> None:
        (self.folder / f"go-{step}").touch()

    def until(self, what: Callable[[], bool]) -> None:
        end = time.monotonic() + WITHIN_S
        while not what():
            logs = [path.read_text() for path in self.folder.glob("*.log")]
            assert time.monotonic() < end, "\n".join(logs)
            time.sleep(0.01)


@pytest.fixture(scope="module")
def factory() -> Iterator[TrainerFactory]:
    with TrainerFactory(attached_shards.__file__) as made:
        yield made


@pytest.fixture
def copies(factory: TrainerFactory, tmp_path: Path) -> Iterator[Copies]:
    made = Copies(factory, tmp_path)
    yield made
    factory.clear()
    made.server.close()


@pytest.fixture(scope="module")
def undisturbed(
    factory: TrainerFactory, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """One copy on two processes."""
    made = Copies(factory, tmp_path_factory.mktemp("undisturbed"))
    first, second = made.finish(made.start(alone=True))
    made.server.close()
    assert first["state"] == second["state"]
    assert first["losses"] == second["losses"]
    assert len(first["losses"]) == STEPS
    assert first["guarantee"] == "exact"
    return first


def same(found: list[dict[str, Any]], undisturbed: dict[str, Any]) -> None:
    for each in found:
        assert each["state"] == undisturbed["state"]
        assert each["losses"].items() <= undisturbed["losses"].items()
        assert each["guarantee"] == "exact"


@pytest.mark.parametrize("groups", [1, 4])
def test_any_number_of_copies_computes_the_same_bits(
    copies: Copies, undisturbed: dict[str, Any], groups: int
) -> None:
    numbers = [copies.start(seed=3) for _ in range(groups)]
    copies.until(lambda: len(copies.server.members) == 2 * groups)
    copies.membership.settle_s = 0.0
    found = copies.finish(*numbers)
    assert not any(each["regrouped"] for each in found)
    same(found, undisturbed)


def test_copies_in_one_world_are_summed_as_well(
    copies: Copies, undisturbed: dict[str, Any]
) -> None:
    same(copies.finish(copies.start(4, kind="2", alone=True)), undisturbed)


@pytest.mark.parametrize("victims", [(0, 1), (1,)])
def test_a_lost_copy_costs_no_step(
    copies: Copies, undisturbed: dict[str, Any], victims: tuple[int, ...]
) -> None:
    lost, *others = copies.together(3, hold=[3])
    copies.reached(lost, 3)
    for rank in victims:
        os.kill(copies.pids[lost][rank], signal.SIGKILL)
    copies.go(3)
    found = copies.finish(*others)
    same(found, undisturbed)
    assert all(each["regrouped"][-1][1] == 2 for each in found)
    statuses = [copies.factory.wait(pid) for pid in copies.pids[lost]]
    assert all(statuses), "the rest of a broken copy ends"


def test_a_copy_that_joins_takes_up_the_shards(copies: Copies, undisturbed: dict[str, Any]) -> None:
    (first,) = copies.together(1, full=[3, 2])
    copies.reached(first, 3)
    second = copies.start(seed=9)
    found = copies.finish(first, second)
    same(found, undisturbed)
    assert found[0]["regrouped"][0][1] == 2


def test_a_process_that_hangs_ends_its_copy_alone(
    copies: Copies, undisturbed: dict[str, Any]
) -> None:
    lost, other = copies.together(2, hold=[3])
    copies.reached(lost, 3)
    os.kill(copies.pids[lost][1], signal.SIGSTOP)
    copies.go(3)
    same(copies.finish(other), undisturbed)
    assert copies.factory.wait(copies.pids[lost][0]) == 1
    os.kill(copies.pids[lost][1], signal.SIGCONT)
    assert copies.factory.wait(copies.pids[lost][1]) != 0


def test_a_notice_takes_a_whole_copy_out(copies: Copies, undisturbed: dict[str, Any]) -> None:
    leaving, other = copies.together(2, hold=[4])
    copies.reached(leaving, 4)
    os.kill(copies.pids[leaving][1], signal.SIGTERM)
    copies.go(4)
    same(copies.finish(other), undisturbed)
    assert [copies.factory.wait(pid) for pid in copies.pids[leaving]] == [143, 143]


def test_what_one_mesh_saved_another_takes_up(copies: Copies, undisturbed: dict[str, Any]) -> None:
    place: dict[str, Any] = {"checkpoint": str(copies.folder / "place"), "alone": True}
    copies.finish(copies.start(2, total=1, **place))
    copies.finish(copies.start(4, kind="2", total=2, **place))
    for size, kind, total in ((3, "fsdp", 4), (4, "tp", 6), (4, "hsdp", STEPS)):
        found = copies.finish(copies.start(size, kind=kind, total=total, **place))
        assert len({each["state"] for each in found}) == 1
        assert all("mesh" in each["guarantee"] for each in found)
        # Dropout inside of tensor-parallel layers draws otherwise than in whole ones.
        for step, loss in found[0]["losses"].items() if kind == "fsdp" else ():
            assert loss == pytest.approx(undisturbed["losses"][step], rel=1e-4)
        assert len(found[0]["losses"]) == 2


def test_on_a_notice_peers_are_enough_where_the_store_is_slow(
    copies: Copies, undisturbed: dict[str, Any]
) -> None:
    nodes = NearNodes(3, alive=2)
    store, notice = copies.folder / "place", copies.folder / "notice.json"
    place: dict[str, Any] = {"checkpoint": str(store), "interval_s": 0.0, "alone": True}
    lost, left = nodes.addresses[2], nodes.addresses[:2]
    first = copies.start(hold=[1], near=[left[0], lost], notice=str(notice), **place)
    copies.reached(first, 1)
    copies.until(lambda: "step-000000001" in (store / "HEAD").read_text())
    writers = [child for pid in copies.pids[first] for child in children(pid)]
    with (store / ".HEAD.lock").open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # no writer can commit
        StopNotice("interruption", None, time.time() + 3600.0, 0.001).write(notice)
        copies.go(1)
        assert [copies.factory.wait(pid) for pid in copies.pids[first]] == [143, 143]
        for pid in writers:
            os.kill(pid, signal.SIGKILL)
    assert "step-000000001" in (store / "HEAD").read_text()
    second = copies.start(near=left[::-1], **place)
    same(copies.finish(second), undisturbed)
    log = copies.output(second, 0).with_suffix(".log").read_text()
    assert "restored step 2 from the memory of peers" in log
    nodes.close()


def children(pid: int) -> list[int]:
    """The processes that a process started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_saved_by_copies_that_change(copies: Copies, undisturbed: dict[str, Any]) -> None:
    place: dict[str, Any] = {"checkpoint": str(copies.folder / "place"), "interval_s": 0.0}
    lost, other = copies.together(2, hold=[3], total=5, **place)
    copies.reached(lost, 3)
    for pid in copies.pids[lost]:
        os.kill(pid, signal.SIGKILL)
    copies.go(3)
    copies.finish(other)
    last = copies.start(**place)
    same(copies.finish(last), undisturbed)


def test_a_copy_with_a_flipped_bit_is_reported_by_all(copies: Copies) -> None:
    first, second = copies.start(), copies.start(flip=3)
    copies.until(lambda: len(copies.server.members) == 4)
    copies.membership.settle_s = 0.0
    for found in copies.finish(first, second):
        assert "other weights" in found["guarantee"]
        assert 3 <= int(found["guarantee"].split()[-1]) < STEPS


def test_replicas_within_a_copy_are_compared_too(copies: Copies) -> None:
    for found in copies.finish(copies.start(4, kind="hsdp", flip=3, flips=3, alone=True)):
        assert "process 3 holds other weights than process 1" in found["guarantee"]


def test_other_settings_are_refused_or_taken_as_the_user_says(
    copies: Copies, undisturbed: dict[str, Any]
) -> None:
    place: dict[str, Any] = {"checkpoint": str(copies.folder / "place"), "alone": True}
    copies.finish(copies.start(total=2, **place))
    refused = copies.start(lr=0.1, **place)
    assert [copies.factory.wait(pid) for pid in copies.pids[refused]] == [1, 1]
    assert "lr of group 0: 0.01 → 0.1" in copies.output(refused, 0).with_suffix(".log").read_text()
    kept = copies.finish(copies.start(lr=0.1, changed="keep", total=5, **place))
    assert {each["guarantee"] for each in kept} == {
        "close: lr of group 0 stayed 0.01 although the script says 0.1"
    }
    assert all(each["losses"].items() <= undisturbed["losses"].items() for each in kept)
    applied = copies.finish(copies.start(lr=0.1, changed="apply", **place))
    assert all("lr of group 0 0.01 became 0.1" in each["guarantee"] for each in applied)
    assert all(each["state"] != undisturbed["state"] for each in applied)
