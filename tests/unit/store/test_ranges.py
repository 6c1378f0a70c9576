"""Ranges that lie near each other are one request, within bounds."""

from __future__ import annotations

from costopt.store.ranges import MAX_GAP_BYTES, MAX_REQUEST_BYTES, coalesce


def test_neighbours_are_read_together() -> None:
    near = MAX_GAP_BYTES + 10
    (request,) = coalesce([("a", near, near + 5), ("a", 0, 10), ("a", 4, 8)])
    assert (request.start, request.end) == (0, near + 5)
    assert sorted(request.members) == [0, 1, 2]


def test_what_lies_apart_is_read_apart() -> None:
    far = MAX_GAP_BYTES + 11
    requests = coalesce([("a", 0, 10), ("a", far, far + 5), ("b", 0, 10)])
    assert [(r.key, r.members) for r in requests] == [("a", [0]), ("a", [1]), ("b", [2])]


def test_a_request_is_bounded_but_for_one_long_range() -> None:
    piece = MAX_REQUEST_BYTES // 4
    requests = coalesce([("a", n * piece, (n + 1) * piece) for n in range(9)])
    assert [len(request.members) for request in requests] == [4, 4, 1]
    assert len(coalesce([("a", 0, 3 * MAX_REQUEST_BYTES)])) == 1
    assert coalesce([]) == ()
