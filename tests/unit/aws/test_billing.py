"""What EC2 charges for a node, in figures computed by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from costopt.domain.events import NodeBilled, NodeEnded, NodeLaunched
from costopt.domain.fleet import EndCause, Node, NodeBill, NodeState
from costopt.domain.market import CapacityType, Pool
from costopt.ledger.job_account import JobAccount
from costopt_aws.billing import compute_bill
from costopt_aws.spot_prices import SpotPrice
from tests.support.aws.account import SPOT, TYPE, NewAccount

LAUNCH = datetime(2026, 3, 1, 10, 30, tzinfo=UTC)
CHANGES = (
    SpotPrice("use1-az6", TYPE, LAUNCH - timedelta(days=3), 1.0),
    SpotPrice("use1-az6", TYPE, LAUNCH + timedelta(minutes=30), 5.0),
    SpotPrice("use1-az6", TYPE, LAUNCH + timedelta(minutes=50), 2.0),
    SpotPrice("use1-az6", TYPE, LAUNCH + timedelta(minutes=150), 0.5),
)


def node(
    seconds: float, cause: EndCause = EndCause.RELEASED, pool: Pool = SPOT, usd: float = 9.0
) -> Node:
    return Node(
        "i-1",
        "me",
        "job",
        pool,
        "key",
        NodeState.ENDED,
        LAUNCH,
        usd,
        LAUNCH + timedelta(seconds=seconds),
        cause,
    )


def charged_micros(ended: Node, bill: NodeBill) -> int:
    """What the ledger counts for the node before and after its bill; the latter."""
    assert ended.ended_at is not None
    account = JobAccount("job")
    account.apply(
        NodeLaunched(
            at=LAUNCH,
            job="job",
            key="key",
            node_id="i-1",
            pool=str(ended.pool),
            launched_at=LAUNCH,
            micros_per_hour=9_000_000,
            idle_w=1.0,
            busy_w=1.0,
            pue=1.0,
            gco2e_per_kwh=None,
            energy_basis="modelled",
        )
    )
    account.apply(
        NodeEnded(
            at=ended.ended_at,
            job="job",
            node_id="i-1",
            pool=str(ended.pool),
            ended_at=ended.ended_at,
            cause=ended.end_cause or EndCause.FAILED,
        )
    )
    billed = NodeBilled(
        at=ended.ended_at,
        job="job",
        node_id="i-1",
        pool=str(ended.pool),
        prices=tuple((at, round(usd * 1e6)) for at, usd in bill.prices),
        min_billed_s=bill.min_billed_s,
        source=bill.source,
    )
    account.apply(billed)
    account.apply(billed)
    summary = account.summary(ended.ended_at)
    (interval,) = account.intervals(ended.ended_at)
    assert summary.usd_micros == interval.usd_micros
    assert account.curves(ended.ended_at).spend[-1].usd_micros == summary.usd_micros
    return summary.usd_micros


@pytest.mark.parametrize(
    ("seconds", "cause", "micros"),
    [
        # Ends in the first hour by our hand: 1800 s at 1 $/h, the change at 30 min not in force.
        (1800, EndCause.RELEASED, 500_000),
        # 90 min: an hour at 1, then half an hour at 2, the price in force when it began.
        (5400, EndCause.RELEASED, 2_000_000),
        # 3 h 10 min: 1 + 2 + 2 (0.5 comes in mid-hour) + 600 s at 0.5.
        (11_400, EndCause.RELEASED, 5_083_333),
        # Taken after 3 h 10 min: charged as well.
        (11_400, EndCause.INTERRUPTED, 5_083_333),
        # Taken within the first hour: free; at the full hour: charged.
        (3599, EndCause.INTERRUPTED, 0),
        (3600, EndCause.INTERRUPTED, 1_000_000),
        # A node that failed by itself was not taken by EC2.
        (3599, EndCause.FAILED, 999_722),
        # 10 s, ended by us: 60 s are charged. 1 $/h × 60 s.
        (10, EndCause.RELEASED, 16_666),
        (0, EndCause.RELEASED, 16_666),
    ],
)
def test_a_spot_node_pays_the_price_of_each_hour(
    seconds: float, cause: EndCause, micros: int
) -> None:
    ended = node(seconds, cause)
    bill = compute_bill(ended, CHANGES)
    assert bill is not None
    # Micro-dollars are rounded down per stretch, and the least charge once more.
    assert charged_micros(ended, bill) == pytest.approx(micros, abs=1)


def test_on_demand_pays_its_list_price_and_a_block_nothing_more() -> None:
    uninterruptible = node(5400, pool=SPOT.with_capacity_type(CapacityType.ON_DEMAND), usd=4.0)
    bill = compute_bill(uninterruptible, ())
    assert bill is not None
    assert charged_micros(uninterruptible, bill) == 6_000_000
    reserved = node(5400, pool=SPOT.with_capacity_type(CapacityType.RESERVED))
    bill = compute_bill(reserved, ())
    assert bill is not None
    assert charged_micros(reserved, bill) == 0


def test_without_the_price_of_some_hour_there_is_no_bill() -> None:
    assert compute_bill(node(5400), CHANGES[1:]) is None
    assert compute_bill(node(5400), ()) is None
    unknown = SpotPrice("use1-az6", TYPE, LAUNCH - timedelta(hours=1), None)
    assert compute_bill(node(5400), (unknown,)) is None
    assert compute_bill(node(1800, EndCause.INTERRUPTED), ()) is not None


def test_prices_come_from_the_zone_s_history(account: NewAccount) -> None:
    zone = "us-east-1a"
    for change in CHANGES:
        account.cloud.spot.price(zone, TYPE, change.usd_per_hour or 0.0, change.at)
        account.cloud.spot.price("us-east-1b", TYPE, 77.0, change.at)
    bill = account.provider.bill(node(11_400))
    assert bill == compute_bill(node(11_400), CHANGES)
    living = node(11_400)
    assert account.provider.bill(Node(*[getattr(living, f) for f in (
        "node_id", "owner", "job", "pool", "key", "state", "launched_at", "usd_per_hour"
    )])) is None  # fmt: skip
