"""What the engine remembers of a job: the fold that it goes on from."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from costopt.domain.errors import NoCapacityError
from costopt.domain.events import (
    Event,
    JobSubmitted,
    LaunchFailed,
    LaunchIntended,
    NodeBilled,
    NodeEnded,
    NodeLaunched,
)
from costopt.domain.fleet import EndCause
from costopt.domain.market import Pool
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


def ended(cause: EndCause, after_s: float, *, estimated: bool) -> NodeEnded:
    at = START + timedelta(seconds=after_s)
    return NodeEnded(
        at=at, job="job", node_id="n1", pool=POOL, ended_at=at, cause=cause, estimated=estimated
    )


@pytest.mark.parametrize("cause", [EndCause.LOST, EndCause.INTERRUPTED])
def test_an_estimated_end_is_known_until_it_is_corrected_also_when_it_is_billed(
    cause: EndCause,
) -> None:
    estimate = ended(cause, 60, estimated=True)
    bill = NodeBilled(
        at=START, job="job", node_id="n1", pool=POOL, prices=((START, 1),), min_billed_s=0.0,
        source="the list price",
    )  # fmt: skip
    folded = record([intended(), launched("n1"), estimate, bill])
    assert folded.end_of("n1") == estimate
    assert not folded.unbilled
    reported = ended(EndCause.INTERRUPTED, 90, estimated=False)
    folded.apply(reported)
    assert folded.end_of("n1") is None
    assert [end for _, end in folded.unbilled.values()] == [reported], "it is billed again"


def test_a_failure_counts_once_and_not_again_when_its_time_is_corrected() -> None:
    folded = record([intended(), launched("n1"), ended(EndCause.FAILED, 60, estimated=True)])
    assert list(folded.deaths) == ["k1"]
    folded.apply(
        JobSubmitted(
            at=START, job="job", work_units=1.0, unit="step", start_at=START, deadline_at=START,
            policy="p", strategy="s", tenant="t",
        )
    )  # fmt: skip
    folded.apply(ended(EndCause.FAILED, 30, estimated=False))
    assert not folded.deaths


def test_the_correction_of_an_interruption_reopens_no_pool_that_refused_since() -> None:
    folded = record([intended(), launched("n1"), ended(EndCause.INTERRUPTED, 60, estimated=True)])
    refused_at = START + timedelta(seconds=90)
    folded.apply(intended())
    folded.apply(
        LaunchFailed(
            at=refused_at, job="job", key="k1", pool=POOL, error=NoCapacityError.code, message=""
        )
    )
    folded.apply(ended(EndCause.INTERRUPTED, 50, estimated=False))
    pool = Pool.parse(POOL)
    assert (folded.cooldown_from[pool], folded.refused_nodes[pool]) == (refused_at, 1)
