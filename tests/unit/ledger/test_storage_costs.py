"""What kept checkpoints and root volumes add to a job's dollars."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from costopt.domain.events import CheckpointCommitted, JobFinished, NodeEnded, NodeLaunched
from costopt.domain.fleet import EndCause
from costopt.domain.storage import HOURS_PER_MONTH, KEPT_CHECKPOINTS
from costopt.ledger.job_account import JobAccount

T0 = datetime(2026, 5, 1, tzinfo=UTC)
POOL = "aws/us-east-1/us-east-1a/g5.xlarge/spot"
MONTHLY = HOURS_PER_MONTH * 1_000_000
"""A dollar per hour of each kept checkpoint."""


def hours(number: float) -> datetime:
    return T0 + timedelta(hours=number)


def saved(
    number: int, *, put: int | None = 10, kept: int | None = MONTHLY, **fields: Any
) -> CheckpointCommitted:
    return CheckpointCommitted(
        at=hours(number), job="j", units=float(number), uri=f"s3://b/{number}", size_bytes=1,
        save_s=1.0, put_usd_micros=put, kept_usd_micros_per_month=kept, **fields,
    )  # fmt: skip


def launched(volume: int | None) -> NodeLaunched:
    return NodeLaunched(
        at=T0, job="j", key="k", node_id="n", pool=POOL, launched_at=T0, micros_per_hour=1_000_000,
        idle_w=None, busy_w=None, pue=None, gco2e_per_kwh=None, energy_basis="unknown",
        volume_micros_per_hour=volume,
    )  # fmt: skip


def account(*events: object) -> JobAccount:
    one = JobAccount("j")
    for event in events:
        one.apply(event)  # type: ignore[arg-type]
    return one


def test_each_checkpoint_is_kept_until_three_newer_ones_are_there() -> None:
    one = account(*(saved(number) for number in range(1, 7)))
    assert KEPT_CHECKPOINTS == 3
    kept_h = [3, 3, 3, 2.5, 1.5, 0.5]
    summary = one.summary(hours(6.5))
    assert summary.storage_usd_micros == round(sum(kept_h) * 1e6) + 6 * 10
    assert summary.usd_micros == summary.storage_usd_micros
    assert one.usd_micros_between(hours(2.5), hours(3.5)) == round((2 + 0.5 + 0.0) * 1e6) + 10


def test_the_jobs_own_rule_says_what_is_kept() -> None:
    one = account(*(saved(number, keep=2, is_milestone=number == 2) for number in range(1, 6)))
    kept_h = [2, 3.5, 2, 1.5, 0.5]
    assert one.summary(hours(5.5)).storage_usd_micros == round(sum(kept_h) * 1e6) + 5 * 10
    many = account(*(saved(number, keep=9) for number in range(1, 6)))
    assert many.summary(hours(5)).storage_usd_micros == 10 * 1_000_000 + 4 * 10


def test_storage_counts_until_the_job_is_over() -> None:
    one = account(saved(1), JobFinished(at=hours(2), job="j", units=1.0))
    assert one.summary(hours(50)).storage_usd_micros == 1_000_010
    assert one.summary(hours(50)) == one.summary(hours(50))


def test_a_volume_is_paid_while_its_node_runs_and_ends_in_the_curve() -> None:
    node = launched(22_000)
    end = NodeEnded(
        at=hours(2), job="j", node_id="n", pool=POOL, ended_at=hours(2), cause=EndCause.RELEASED
    )
    one = account(node, end)
    summary = one.summary(hours(9))
    assert (summary.usd_micros, summary.storage_usd_micros) == (2_044_000, 44_000)
    assert summary.spot_usd_micros == 2_000_000
    assert one.usd_micros_between(hours(1), hours(9)) == 1_022_000
    assert one.curves(hours(9)).spend[-1].usd_micros == summary.usd_micros
    assert account(node).summary(hours(1)).usd_micros_per_hour == 1_022_000


@pytest.mark.parametrize("event", [launched(None), saved(1, put=None), saved(1, kept=None)])
def test_an_unknown_price_makes_the_figure_unknown_and_not_zero(event: object) -> None:
    one = account(launched(22_000), saved(2), event)
    if isinstance(event, NodeLaunched):
        one = account(event, saved(2))
    summary = one.summary(hours(3))
    assert summary.storage_usd_micros is None
    assert summary.usd_micros > 3_000_000
