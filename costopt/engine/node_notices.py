"""What nodes report of their own interruption, as long as the provider does not confirm it.

A job's command can write the reports of its nodes. So a node's own notice takes no capacity from
other jobs, never brings a job more nodes than it asks for, and ends after a few minutes.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from costopt.domain.events import Event, InterruptionNoticed, NodeLaunched, NoticeWithdrawn
from costopt.domain.market import Pool
from costopt.domain.runtime import NodeReport
from costopt.ledger.record import JobRecord

MAX_LEAD = timedelta(minutes=2)
"""The longest notice of a cloud in use: EC2 takes a spot node two minutes after it (EC2 User Guide,
"Spot Instance interruption notices"), Compute Engine after 30 s or two minutes."""
MAX_DELAY = timedelta(minutes=3)
"""A node that lives this much longer than it was announced to is not being taken."""


def notice_news(
    record: JobRecord, node: NodeLaunched, report: NodeReport, now: datetime
) -> Iterable[Event]:
    """A notice that the node alone reports, or takes back; once in its life."""
    node_id = node.node_id
    if report.interrupts_at is None:
        if node_id in record.unconfirmed and node_id not in record.draining:
            yield NoticeWithdrawn(at=now, job=record.name, node_id=node_id, pool=node.pool)
    elif node_id not in record.noticed and node_id not in record.disbelieved:
        yield InterruptionNoticed(
            at=now,
            job=record.name,
            node_id=node_id,
            pool=node.pool,
            interrupts_at=min(report.interrupts_at, now + MAX_LEAD),
            confirmed=False,
        )


def outlived(record: JobRecord, now: datetime) -> Iterable[str]:
    """Nodes that still live though their interruption was due, whoever announced it."""
    return (n for n, interrupts_at in record.noticed.items() if interrupts_at + MAX_DELAY <= now)


def resting_pools(record: JobRecord, cooldown: timedelta, now: datetime) -> Iterable[Pool]:
    """Pools that the job leaves alone, and it only, as a node there has reported a notice."""
    return (pool for pool, since in record.resting_from.items() if since + cooldown > now)
