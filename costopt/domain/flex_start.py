"""Flex-start: a launch that waits for capacity, and nodes that run for days and are not taken.

Google Cloud's Dynamic Workload Scheduler: a request waits for up to two hours, and what it gives
runs for seven days at most
(https://docs.cloud.google.com/compute/docs/instances/about-flex-start-vms).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from costopt.domain.fleet import Node, NodeState
from costopt.domain.market import Offer

MAX_WAIT = timedelta(hours=2)
MAX_RUN = timedelta(days=7)
DRAIN_LEAD = timedelta(minutes=15)
"""So long before its end a node is left: time for the last save. Ours, not published."""


def flex_start_offer(offer: Offer, nodes: Iterable[Node], now: datetime) -> Offer:
    """The offer with its wait, and until when its pool may be planned on, whose nodes these are.

    A node that is launched now could run until then at least; while some run, none is planned on
    for longer than the first of them.
    """
    begun = [
        node.launched_at for node in nodes if node.state not in (NodeState.WAITING, NodeState.ENDED)
    ]
    until_at = min(begun, default=now) + MAX_RUN - DRAIN_LEAD
    return replace(offer, until_at=until_at, wait_s=MAX_WAIT.total_seconds())
