"""What the engine remembers of a job: the fold that it goes on from."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from costopt.domain.events import Event, LaunchFailed, LaunchIntended, NodeLaunched
from costopt.ledger.job_record import JobRecord

START = datetime(2026, 1, 1, tzinfo=UTC)
POOL = "aws/us-east-1/us-east-1a/g5.xlarge/spot"


def record(events: Iterable[Event]) -> JobRecord:
    folded = JobRecord("job")
    for event in events:
        folded.apply(event)
    return folded


def intended(nodes: int = 1) -> LaunchIntended:
    return LaunchIntended(
        at=START, job="job", key="k1", pool=POOL, nodes=nodes, planned_micros_per_hour=1
    )


def launched(node_id: str) -> NodeLaunched:
    return NodeLaunched(
        at=START, job="job", key="k1", node_id=node_id, pool=POOL, launched_at=START,
        micros_per_hour=1, idle_w=1.0, busy_w=2.0, pue=1.0, gco2e_per_kwh=None,
        energy_basis="modelled",
    )  # fmt: skip


def test_an_intent_is_open_until_all_its_nodes_are_there() -> None:
    folded = record([intended(nodes=2)])
    assert list(folded.intents) == ["k1"]
    folded.apply(launched("n1"))
    assert list(folded.intents) == ["k1"]
    folded.apply(launched("n1"))
    assert list(folded.intents) == ["k1"], "one node told twice is one node"
    folded.apply(launched("n2"))
    assert not folded.intents


def test_a_failed_launch_closes_its_intent() -> None:
    failed = LaunchFailed(at=START, job="job", key="k1", pool=POOL, error="E", message="none")
    assert not record([intended(), failed]).intents
