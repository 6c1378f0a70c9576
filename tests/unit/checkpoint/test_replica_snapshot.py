"""Which snapshots training may go on from: nothing older than the store, nothing of the fenced."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.checkpoint.identity import JobIdentity
from costopt.checkpoint.manifest import Manifest
from costopt.checkpoint.replicas.snapshot import Snapshot, mismatch_reason
from costopt.checkpoint.repository import Head
from tests.support.snapshot_fixtures import held

NEWEST = "step-000000010.3.0"
HEAD = Head(3, "w", (NEWEST, "step-000000005.3.0"), at=0.0)


def in_store(step: int = 10, at: float = 1000.0) -> Manifest:
    """That of HEAD's first: it was taken at 990 and stored by 1000."""
    snapshot = held(step, generation=3).snapshot
    return replace(snapshot.manifest, at=at, save_s=10.0, name=NEWEST)


def taken(step: int, at: float, **fields: object) -> Snapshot:
    given = {"generation": 3, "parent": NEWEST, **fields}
    return held(step, at=at, **given).snapshot  # type: ignore[arg-type]


def test_what_goes_on_from_the_newest_in_the_store_may_be_taken_up() -> None:
    assert mismatch_reason(taken(14, 1010), HEAD, in_store()) is None


def test_what_was_taken_while_the_newest_was_on_its_way_may_be_taken_up() -> None:
    assert mismatch_reason(taken(14, 995, parent="step-000000005.3.0"), HEAD, in_store()) is None


def test_what_holds_the_same_bytes_as_the_newest_may_be_restored() -> None:
    assert mismatch_reason(taken(10, 990, writer="other", generation=2), HEAD, in_store()) is None


@pytest.mark.parametrize(
    ("snapshot", "says"),
    [
        (taken(9, 985, parent="step-000000005.3.0"), "newer checkpoint"),
        (taken(14, 1010, writer="other"), "generation 3 has superseded"),
        (taken(14, 1010, writer="other", generation=2), "generation 3 has superseded"),
        (taken(14, 1010, writer="other", generation=4, parent="step-000000005.3.0"), "newer"),
    ],
)
def test_what_is_older_or_of_a_superseded_process_is_refused(snapshot: Snapshot, says: str) -> None:
    assert says in str(mismatch_reason(snapshot, HEAD, in_store()))


def test_a_snapshot_of_another_job_is_refused() -> None:
    ours, other = JobIdentity("acme", "default", "a"), JobIdentity("acme", "default", "b")
    head = Head(3, "w", (), at=0.0, identity=ours)
    first = taken(14, 1010, writer="other", generation=4, parent=None)
    for identity, refused in ((ours, False), (None, False), (other, True)):
        snapshot = replace(first, manifest=replace(first.manifest, identity=identity))
        assert (mismatch_reason(snapshot, head, None) is not None) is refused


def test_a_later_generation_that_had_no_time_to_take_the_place_counts() -> None:
    assert mismatch_reason(taken(14, 1010, writer="other", generation=4), HEAD, in_store()) is None


def test_after_a_rollback_nothing_of_before_is_taken_up() -> None:
    rolled_back = Head(4, "operator", ("step-000000005.3.0",), at=0.0)
    old = replace(in_store(5), name="step-000000005.3.0")
    assert "generation 4 has superseded" in str(mismatch_reason(taken(14, 1010), rolled_back, old))


def test_without_a_head_nothing_is_taken_up() -> None:
    assert "no HEAD" in str(mismatch_reason(taken(14, 1010), None, None))


def test_a_first_snapshot_counts_before_anything_is_in_the_store() -> None:
    empty = Head(3, "w", (), at=0.0)
    assert mismatch_reason(taken(2, 10, parent=None), empty, None) is None
    assert "newer" in str(mismatch_reason(taken(2, 10), empty, None))


def test_it_comes_through_messages_as_it_was() -> None:
    snapshot = taken(14, 1010)
    assert Snapshot.decode(snapshot.encode()) == snapshot
    torn = {**snapshot.encode(), "manifest": snapshot.encode()["manifest"][:-9]}
    with pytest.raises(ValueError, match="checksum"):
        Snapshot.decode(torn)
