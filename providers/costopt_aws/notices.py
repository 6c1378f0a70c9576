"""Interruption notices of EC2, through EventBridge and a queue: which nodes, and when."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import RLock
from typing import Any

from costopt.domain.errors import ProviderError
from costopt.domain.fleet import Node
from costopt.domain.market import Interruption
from costopt.provider.cache import fan_out, split_answers
from costopt.provider.node_book import NodeBook
from costopt_aws.clients import Clients
from costopt_aws.errors import map_errors

WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"
STATE_CHANGE = "EC2 Instance State-change Notification"
NOTICE_LEAD = timedelta(minutes=2)
"""From the notice to the interruption (EC2 User Guide, "Spot Instance interruption notices")."""

WITHDRAWN_AFTER = timedelta(minutes=10)
"""A node alive this long after its announced interruption is not being interrupted."""

FREE_FIRST = timedelta(hours=1)
"""A spot node interrupted in its first hour costs nothing (EC2 User Guide, "Billing for
interrupted Spot Instances")."""

RECLAIM_BY = timedelta(minutes=2)
BATCH = 10
MAX_BATCHES = 50


@dataclass(frozen=True, slots=True)
class _Message:
    """One event: the instance, what happened to it, and when."""

    instance_id: str
    kind: str
    state: str
    at: datetime


class InterruptionQueue:
    """Drains the queues. A message may arrive twice, late, or for nodes that are not ours.

    A message is deleted at the next drain, after the caller has had time to record it: a caller
    that dies before finds it in the queue again. Without a queue there are no notices here; the
    nodes still read their own.
    """

    def __init__(self, clients: Clients, queues: Mapping[str, str], book: NodeBook) -> None:
        self._clients = clients
        self._queues = queues
        self._book = book
        self._lock = RLock()
        self._warned: dict[str, datetime] = {}
        self._rebalance: dict[str, datetime] = {}
        self._receipts: dict[str, list[str]] = {}
        self.silent: Mapping[str, ProviderError] = {}
        """The regions whose queue did not answer the last time, and what went wrong."""

    def drain(self) -> None:
        """Read the messages of the queues. Regions without an answer are in ``silent``."""
        _, self.silent = split_answers(fan_out(self._queues, self._drain))

    def pending_notices(self, owner: str, now: datetime) -> tuple[Interruption, ...]:
        """Return the interruptions announced for the owner's live nodes, by their time."""
        found = (self.of(node, now) for node in self._book.known(owner) if node.state.is_alive)
        return tuple(
            sorted(filter(None, found), key=lambda notice: (notice.interrupts_at, notice.node_id))
        )

    def of(self, node: Node, now: datetime) -> Interruption | None:
        """Return the notice of one node, None without one."""
        with self._lock:
            noticed_at = self._warned.get(node.node_id)
        if noticed_at is None or now > noticed_at + NOTICE_LEAD + WITHDRAWN_AFTER:
            return None
        return Interruption(node.node_id, node.pool, noticed_at, noticed_at + NOTICE_LEAD)

    def is_unbilled_interruption(self, node: Node, now: datetime) -> bool:
        """Return whether EC2 is about to interrupt the node within its first hour, at no cost.

        Terminating it now would cause its whole time to be billed.
        """
        notice = self.of(node, now)
        if notice is None or not node.pool.capacity_type.is_interruptible:
            return False
        first_hour = notice.interrupts_at <= node.launched_at + FREE_FIRST
        return first_hour and now < notice.interrupts_at + RECLAIM_BY

    def rebalance_recommended(self, node_id: str) -> datetime | None:
        """Return when EC2 sent a rebalance recommendation for the node, or None."""
        with self._lock:
            return self._rebalance.get(node_id)

    def _drain(self, region: str) -> None:
        url = self._queues[region]
        client = self._clients.reading("sqs", region)
        self._delete_messages(client, region, url)
        for _ in range(MAX_BATCHES):
            with map_errors("sqs:ReceiveMessage", url):
                response = client.receive_message(QueueUrl=url, MaxNumberOfMessages=BATCH)
                messages = [(m["Body"], m["ReceiptHandle"]) for m in response.get("Messages", [])]
            for body, receipt in messages:
                message = _read(body)
                if message is not None:
                    self._take_in(message)
                self._receipts.setdefault(region, []).append(receipt)
            if not messages:
                return

    def _delete_messages(self, client: Any, region: str, url: str) -> None:
        receipts = self._receipts.get(region, [])
        while receipts:
            entries = [
                {"Id": str(number), "ReceiptHandle": receipt}
                for number, receipt in enumerate(receipts[:BATCH])
            ]
            with map_errors("sqs:DeleteMessage", url):
                client.delete_message_batch(QueueUrl=url, Entries=entries)
            del receipts[:BATCH]

    def _take_in(self, message: _Message) -> None:
        with self._lock:
            match message.kind:
                case "warning":
                    self._warned.setdefault(message.instance_id, message.at)
                    self._book.announce_end(message.instance_id, message.at + NOTICE_LEAD)
                case "rebalance":
                    self._rebalance.setdefault(message.instance_id, message.at)
                case "state" if message.state == "terminated":
                    self._book.announce_end(message.instance_id, message.at)


def _read(body: str) -> _Message | None:
    """Return the event in a message; None if it is not one of the three, or is malformed.

    The id comes from the detail: the ARN in ``resources`` has a zone in place of the account.
    """
    kinds = {WARNING: "warning", REBALANCE: "rebalance", STATE_CHANGE: "state"}
    try:
        event = json.loads(body)
        kind = kinds[event["detail-type"]]
        detail = event["detail"]
        at = datetime.fromisoformat(event["time"]).astimezone(UTC)
        return _Message(str(detail["instance-id"]), kind, str(detail.get("state", "")), at)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
