"""The loop's saves: begun without waiting, told of when they end, and failed only three times."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from costopt.checkpoint.replicas.agent_socket import SnapshotSocketServer
from costopt.checkpoint.replicas.local import MemoryTier
from costopt.checkpoint.replicas.manager import ReplicaGroup, ReplicaManager
from costopt.checkpoint.replicas.peer import PeerClient, PeerServer
from costopt.checkpoint.replicas.wire import GangKey
from costopt.domain.errors import CheckpointError
from costopt.protocol.trainer_files import StopNotice, TrainerStatus
from costopt.train.checkpoint_manager import CheckpointManager, SaveInterval
from costopt.train.checkpointer import Checkpointer
from costopt.train.group import PeerLostError, RankGroup
from costopt.train.reporter import Reporter
from tests.support.process_state import pause
from tests.support.snapshot_fixtures import be_patient_with_peers

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient_with_peers(monkeypatch)


def saving(folder: Path, status: Path, weights: torch.Tensor, **options: Any) -> CheckpointManager:
    return CheckpointManager(
        Checkpointer(folder),
        SaveInterval(interval_s=1e-9),
        Reporter(status, 0),
        RankGroup(),
        lambda: {"weights": weights},
        **options,
    )


def hear(
    saves: CheckpointManager, status: Path, so_long_as: Callable[[TrainerStatus], bool]
) -> TrainerStatus:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        saves.is_due()
        reported = TrainerStatus.read(status)
        if reported is not None and not so_long_as(reported):
            return reported
        time.sleep(0.005)
    raise AssertionError("nothing was reported")


class Asleep(RankGroup):
    """The second of two, who stood still after the first had said what to restore."""

    size, rank = 2, 1

    def __init__(self) -> None:
        pass

    def broadcast(self, value: Any, source: int = 0) -> Any:
        return "step-000000001.0.0", "store"

    def fence(self) -> None:
        raise PeerLostError("this process was suspended")


def test_who_finds_what_it_should_restore_removed_was_asleep(tmp_path: Path) -> None:
    checkpointer, reporter = Checkpointer(tmp_path), Reporter(tmp_path / "status.json", 0)
    saves = CheckpointManager(checkpointer, SaveInterval(), reporter, Asleep(), dict)
    with pytest.raises(PeerLostError, match="suspended"):
        saves.restore()


def stopped_writer(saves: CheckpointManager) -> int:
    """The process that writes for it, which stands still from here on."""
    assert isinstance(saves._checkpointer, Checkpointer)
    saves._checkpointer.claim()
    writer = saves._checkpointer.writer_pid
    assert writer is not None
    pause(writer)
    return writer


def test_a_save_is_reported_once_it_is_durable(tmp_path: Path) -> None:
    status = tmp_path / "status.json"
    saves = saving(tmp_path / "c", status, torch.ones(300_000), overlap=True)
    assert saves.is_due()
    saves.save(7)
    saves.copied()
    reported = hear(saves, status, lambda t: not t.checkpoints)
    assert (reported.saved_units, reported.checkpoints[0].units) == (7.0, 7.0)
    assert Path(reported.checkpoints[0].uri, "manifest.json").exists()


def test_a_save_that_is_due_waits_for_the_one_in_flight_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saves = saving(tmp_path / "c", tmp_path / "status.json", torch.ones(300_000))
    writer = stopped_writer(saves)
    saves.save(1)
    assert not saves.is_due()
    assert not saves.is_due()
    saves.save(2)
    os.kill(writer, signal.SIGCONT)
    assert capsys.readouterr().err.count("still being written") == 1
    saves.save_or_raise(3)
    restored = Checkpointer(tmp_path / "c").restore()
    assert restored is not None
    assert (restored.manifest.step, restored.manifest.parent) == (3, "step-000000001.0.0")


def test_the_third_failure_in_a_row_is_raised(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = tmp_path / "status.json"
    (tmp_path / "file").write_text("no folder")
    saves = saving(tmp_path / "file" / "c", status, torch.ones(10))
    for step in (1, 2):
        saves.save(step)
        hear(saves, status, lambda reported: "Not a directory" not in reported.message)
        status.unlink()
    saves.save(3)
    with pytest.raises(CheckpointError, match="Not a directory"):
        hear(saves, status, lambda t: True)
    assert capsys.readouterr().err.count("Not a directory") == 3


def test_the_interval_grows_to_what_a_save_takes_to_be_durable() -> None:
    cadence = SaveInterval(interval_s=600, hazard_per_hour=0.5, speed=100)
    cadence.saved(0.0, 9.0)
    assert cadence.interval_s == pytest.approx(900)
    assert not cadence.is_due()


class Notice:
    """A node that dies soon, whose uploads are slow."""

    def __init__(self, left_s: float, upload_bytes_per_s: float | None = 1e6) -> None:
        self.left_s, self.upload = left_s, upload_bytes_per_s

    def __call__(self) -> StopNotice:
        return StopNotice("notice: stop", None, time.time() + self.left_s, self.upload)


@pytest.fixture
def desk() -> Iterator[SnapshotSocketServer]:
    memory = MemoryTier(1 << 30)
    server, key = PeerServer(memory), GangKey("j", 1, "secret")
    server.key = key
    peers = (PeerClient("n2", server.address, "b"),)
    circle = ReplicaGroup(key, peers, peers)
    made = SnapshotSocketServer(ReplicaManager(MemoryTier(1 << 30), circle=circle))
    yield made
    made.close()
    server.close()


def near_saving(
    folder: Path, desk: SnapshotSocketServer, notice: Notice, speed: float = 1.0
) -> tuple[CheckpointManager, Checkpointer]:
    checkpointer = Checkpointer(folder / "c", near=desk.address)
    saves = CheckpointManager(
        checkpointer,
        SaveInterval(interval_s=1e9, speed=speed),
        Reporter(folder / "status.json", 0),
        RankGroup(),
        lambda: {"weights": torch.ones(1_000_000)},
        notice=notice,
    )
    return saves, checkpointer


def test_where_the_upload_does_not_fit_in_the_notice_a_peer_is_reported(
    tmp_path: Path, desk: SnapshotSocketServer, capsys: pytest.CaptureFixture[str]
) -> None:
    saves, checkpointer = near_saving(tmp_path, desk, Notice(left_s=5.0))
    checkpointer.claim()
    resource.prlimit(checkpointer.writer_pid or 0, resource.RLIMIT_FSIZE, (9999, 9999))
    saves.save_on_notice(3)
    reported = TrainerStatus.read(tmp_path / "status.json")
    assert reported is not None
    assert reported.saved_units == 0.0
    assert "4 MB at 1.0 MB/s do not reach the store in the " in reported.message
    assert "step 3 is in the memory of n2 (b)" in reported.message
    assert reported.message in capsys.readouterr().err
    checkpointer.close()


def test_what_the_store_has_already_is_not_sent_again_on_a_notice_too_short_for_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = torch.ones(1_000_000)
    saves = saving(tmp_path / "c", tmp_path / "status.json", weights, notice=Notice(5.0))
    saves.save_or_raise(1)
    saves.save_on_notice(2)
    reported = TrainerStatus.read(tmp_path / "status.json")
    assert reported is not None
    assert reported.saved_units == 2.0
    assert "step 2 is in the store, 0 MB of it uploaded just now" in capsys.readouterr().err
    restored = Checkpointer(tmp_path / "c").restore()
    assert restored is not None
    assert restored.manifest.delta is not None
    assert restored.manifest.step == 2
    assert torch.equal(restored.state["weights"], weights)


@pytest.mark.parametrize(
    ("notice", "speed"), [(Notice(60.0), 1.0), (Notice(5.0, None), 1.0), (Notice(5.0), 300.0)]
)
def test_where_it_fits_or_is_unknown_the_store_is_waited_for(
    tmp_path: Path, desk: SnapshotSocketServer, notice: Notice, speed: float
) -> None:
    """What is held back besides is shorter where the notice was, on a simulated node."""
    saves, checkpointer = near_saving(tmp_path, desk, notice, speed)
    saves.save_on_notice(3)
    reported = TrainerStatus.read(tmp_path / "status.json")
    assert reported is not None
    assert reported.saved_units == 3.0
    checkpointer.close()


def test_what_comes_from_a_near_tier_is_done_but_not_saved_and_saved_at_once(
    tmp_path: Path, desk: SnapshotSocketServer
) -> None:
    saves, checkpointer = near_saving(tmp_path, desk, Notice(60.0))
    checkpointer.save(1, {"step": 1})
    resource.prlimit(checkpointer.writer_pid or 0, resource.RLIMIT_FSIZE, (9999, 9999))
    with pytest.raises(CheckpointError, match="file size limit"):
        checkpointer.save(2, {"weights": torch.ones(1_000_000)})
    checkpointer.close()
    saves, checkpointer = near_saving(tmp_path, desk, Notice(60.0))
    restored = saves.restore()
    assert restored is not None
    assert (restored.manifest.step, saves.has_saved(2)) == (2, False)
    saves.report_restored(2, "exact")
    reported = TrainerStatus.read(tmp_path / "status.json")
    assert reported is not None
    assert (reported.done_units, reported.saved_units, reported.checkpoints) == (2.0, 1.0, ())
    assert reported.resumed_units == 2.0
    assert reported.message == "restored step 2 from the memory of this node"
    assert saves.is_due()
    saves.save(2)
    saves.copied()
    reported = hear(saves, tmp_path / "status.json", lambda t: t.saved_units < 2)
    assert (reported.message, saves.is_due()) == ("", False)
    checkpointer.close()


def test_a_tier_that_fails_is_reported_once_and_training_goes_on(
    tmp_path: Path, desk: SnapshotSocketServer, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.close()
    saves, checkpointer = near_saving(tmp_path, desk, Notice(60.0))
    for step in (1, 2):
        saves.save_or_raise(step)
    reported = TrainerStatus.read(tmp_path / "status.json")
    assert reported is not None
    assert (reported.saved_units, "no copy in the memory tier" in reported.message) == (2.0, True)
    assert capsys.readouterr().err.count("no copy in the memory tier") == 1
    checkpointer.close()
