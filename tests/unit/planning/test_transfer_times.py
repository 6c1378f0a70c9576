"""Sizes that a job's machines cannot move as fast as its file says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from costopt.domain.job import (
    CheckpointSpec,
    DataLocation,
    Job,
    Phase,
    Resources,
    WorkAmount,
    WorkUnit,
)
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.planning.transfer_times import size_questions

NOW = datetime(2026, 3, 2, tzinfo=UTC)


def job(checkpoint_gib: float, *, nodes: int = 1, data_gib: float = 0.0) -> Job:
    return Job(
        name="j",
        work=WorkAmount(1e6, WorkUnit.STEPS),
        start_at=NOW,
        deadline_at=NOW + timedelta(hours=24),
        resources=Resources(instance_types=("g4dn.12xlarge",), max_nodes=nodes),
        throughput=Throughput((ThroughputSample("T4", 4, 1.0),)),
        checkpoint=CheckpointSpec("c", size_gib=checkpoint_gib, restore_s=300.0),
        phases=(Phase("all", 1.0, 1, nodes),),
        data=DataLocation("s3://b/d", data_gib) if data_gib else None,
    )


def test_a_checkpoint_of_terabytes_is_questioned_with_the_time_it_takes() -> None:
    # 10,000 GiB are 85,899 Gbit: 1,718 s at the 50 Gbit/s of a g4dn.12xlarge.
    (question,) = size_questions(job(10_000.0), NOW)
    assert "checkpoint.size_gib" in question
    assert "28 min 38 s" in question
    assert not list(size_questions(job(10_000.0, nodes=8), NOW))


@pytest.mark.parametrize("gib", [0.0, 96.0, 1_500.0])
def test_usual_checkpoints_are_not(gib: float) -> None:
    assert not list(size_questions(job(gib), NOW))


def test_data_that_take_a_large_part_of_the_time_are_questioned() -> None:
    (question,) = size_questions(job(96.0, data_gib=100_000.0), NOW)
    assert "data.size_gib" in question
    assert "4 h 46 min" in question
    assert not list(size_questions(job(96.0, data_gib=10_000.0), NOW))


def test_nothing_is_asked_where_no_network_is_known() -> None:
    unknown = replace(job(1e6), resources=Resources(instance_types=("another",)))
    assert not list(size_questions(unknown, NOW))
