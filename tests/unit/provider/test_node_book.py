"""The book of nodes that adapters share: in which order it lists them, and which ends it keeps."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from costopt.domain.fleet import EndCause, Node, NodeState
from costopt.domain.market import Pool
from costopt.provider.node_book import NodeBook
from costopt_slurm.gang_tags import parse_node_id

POOL = Pool.parse("slurm/here/gpu/t4x4/spot")
NOW = datetime(2026, 1, 5, tzinfo=UTC)


def _node(node_id: str) -> Node:
    return Node(node_id, "me", "job", POOL, "key", NodeState.RUNNING, NOW, 1.0)


def test_nodes_of_a_large_gang_are_in_the_order_of_their_numbers() -> None:
    book = NodeBook(order=parse_node_id)
    book.see((_node(f"7-{number}") for number in reversed(range(12))), NOW)
    assert [node.node_id for node in book.known("me")] == [f"7-{number}" for number in range(12)]


def test_an_end_that_was_only_assumed_gives_way_to_what_is_seen_later() -> None:
    book, node = NodeBook(), _node("n")
    book.see([node], NOW)
    book.end([node], None, EndCause.LOST, "not listed", NOW)
    assert book.see([node], NOW) == (node,)
    book.end([node], NOW, EndCause.INTERRUPTED, "", NOW)
    assert book.see([node], NOW)[0].end_cause is EndCause.INTERRUPTED


def test_a_known_end_is_kept_for_two_hours() -> None:
    book, node = NodeBook(), _node("n")
    at = NOW - timedelta(hours=5)
    book.see([replace(node, state=NodeState.ENDED, ended_at=at)], NOW)
    book.forget(NOW + timedelta(hours=2))
    assert book.known("me")
    book.forget(NOW + timedelta(hours=2, seconds=1))
    assert book.known("me") == ()
