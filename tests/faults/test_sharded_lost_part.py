"""A rank that loses its part of a save: the others do not wait for it until the time limit."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import nn

from costopt.checkpoint.history import CheckpointHistory, RetentionPolicy
from costopt.checkpoint.repository import CheckpointRepository
from costopt.checkpoint.sharded.commit import ShardGroup
from costopt.checkpoint.sharded.writers import box_keys
from costopt.domain.errors import CheckpointError
from costopt.protocol.trainer_files import SavedCheckpoint
from costopt.train.save_queue import FailedSave, SaveOutcome, SaveQueue, SaveState
from costopt.train.sharded_checkpointer import claim_place
from costopt.train.sharded_state import ShardCopyLayout, ShardedState, ShardPlan
from tests.faults.test_sharded_kill import until
from tests.support.process_state import is_running, pause

RANKS = 2
TIMEOUT_S = 60.0
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is shared by descriptors")


class Rank:
    """A rank of a gang, alone on its node: it has a writer of its own."""

    def __init__(self, folder: Path, gang: tuple[str, int, int], rank: int) -> None:
        word, attempt, generation = gang
        group = ShardGroup(word, attempt, rank, RANKS, (), TIMEOUT_S)
        place = CheckpointRepository.open(str(folder))
        self.queue = SaveQueue(place, RetentionPolicy(9), generation, None, group)
        self.shards = ShardedState(nn.Linear(64, 64), None).shards()
        held = [shard.held for shard in self.shards]
        self.plan = ShardPlan(held, [box_keys(held)] * RANKS, rank)

    def begin(self, step: int) -> int:
        """Add this rank's part of a save."""
        layout = ShardCopyLayout.of(self.plan, self.shards, b"objects")
        state = SaveState(step, {}, RANKS, ())
        return self.queue.add_shards(state, layout, len(self.plan.layout), overlap=False)

    def wait(self) -> list[SaveOutcome]:
        """How all saves ended."""
        return list(self.queue.outcomes(wait=True))

    @property
    def writer(self) -> int:
        """The writer's process."""
        assert self.queue.writer_pid is not None
        return self.queue.writer_pid


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[Rank]]:
    """Two of a gang that has claimed the place, on nodes of their own."""
    gang = claim_place(CheckpointRepository.open(str(tmp_path)), 1)
    made = [Rank(tmp_path, gang, rank) for rank in range(RANKS)]
    yield made
    for rank in made:
        rank.queue.close()


def begin(ranks: list[Rank], step: int) -> None:
    """As all ranks do."""
    for rank in ranks:
        rank.begin(step)


def save(ranks: list[Rank], step: int) -> None:
    """A whole checkpoint of all ranks."""
    begin(ranks, step)
    assert [type(each) for rank in ranks for each in rank.wait()] == [SavedCheckpoint] * RANKS


def lose_part(ranks: list[Rank]) -> None:
    """Of step 2, after step 1 was saved: the last rank's writer is killed before it writes."""
    save(ranks, 1)
    *_, other = ranks
    pause(other.writer)
    begin(ranks, 2)
    os.kill(other.writer, signal.SIGKILL)
    (lost,) = other.wait()
    assert isinstance(lost, FailedSave)


def steps(folder: Path) -> list[int]:
    """Of the checkpoints that are whole."""
    found = CheckpointHistory.open(str(folder)).list()
    return [entry.manifest.step for entry in found if entry.manifest is not None]


def test_a_writer_that_ends_abandons_its_save_for_all(tmp_path: Path, ranks: list[Rank]) -> None:
    healthy, _ = ranks
    lose_part(ranks)
    begin(ranks, 3)
    abandoned, saved = healthy.wait()
    assert isinstance(abandoned, FailedSave)
    assert abandoned.error.message.endswith("rank 1: its part was lost")
    assert isinstance(saved, SavedCheckpoint)
    assert steps(tmp_path) == [3, 1]


def test_a_lost_step_that_is_saved_again_is_whole(tmp_path: Path, ranks: list[Rank]) -> None:
    healthy, other = ranks
    lose_part(ranks)
    other.begin(2)
    assert [type(each) for each in (*healthy.wait(), *other.wait())] == [SavedCheckpoint] * 2
    assert steps(tmp_path) == [2, 1]


def test_a_writer_that_ended_between_saves_is_started_again(
    tmp_path: Path, ranks: list[Rank]
) -> None:
    """Also where nobody polls."""
    save(ranks, 1)
    gone = ranks[1].writer
    os.kill(gone, signal.SIGKILL)
    until(lambda: not is_running(gone))
    save(ranks, 2)
    assert steps(tmp_path) == [2, 1]


def test_a_part_that_could_not_be_copied_is_abandoned_for_all(
    tmp_path: Path, ranks: list[Rank], monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy, other = ranks
    healthy.begin(1)
    with monkeypatch.context() as patch:
        patch.setattr("costopt.train.state_layout.SnapshotCopy.__init__", without_memory)
        with pytest.raises(CheckpointError, match="no memory"):
            other.begin(1)
    begin(ranks, 2)
    abandoned, saved = healthy.wait()
    assert isinstance(abandoned, FailedSave)
    assert isinstance(saved, SavedCheckpoint)
    assert steps(tmp_path) == [2]


def without_memory(*_: object, **__: object) -> None:
    """As where none is left for a snapshot."""
    raise CheckpointError("no memory for a snapshot")
