"""What nodes cost in the end, by their providers' own rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from costopt.domain.errors import ProviderError
from costopt.domain.events import NodeBilled, NodeEnded, NodeLaunched
from costopt.domain.fleet import Node, NodeState
from costopt.domain.market import Pool
from costopt.engine.journal import Journal
from costopt.engine.world import World
from costopt.provider.base import Capability, Provider

PAUSE = timedelta(minutes=10)


class BillCollector:
    """Asks for the bill of each node that has ended, again after a while where there is none yet.

    Until then the ledger holds what follows from the prices that were seen.
    """

    def __init__(self, world: World, journal: Journal, owner: str) -> None:
        self._journal = journal
        self._owner = owner
        self._sources: Mapping[str, Provider] = {
            name: provider
            for provider in world.providers
            if Capability.BILLS in provider.capabilities()
            for name in provider.names
        }
        self._ask_from: dict[str, datetime] = {}

    def collect(self, now: datetime) -> None:
        """Write down every bill that can be had."""
        if not self._sources:
            return
        ask_from: dict[str, datetime] = {}
        for record in self._journal.records.values():
            for launched, ended in tuple(record.unbilled.values()):
                from_at = self._ask_from.get(launched.node_id, now)
                if from_at > now:
                    ask_from[launched.node_id] = from_at
                elif not self._settle(launched, ended, now):
                    ask_from[launched.node_id] = now + PAUSE
        self._ask_from = ask_from

    def is_pending(self, job: str, since: datetime) -> bool:
        """Whether the bill of a node that ended after ``since``, or its true end, may yet come."""
        record = self._journal.records[job]
        return any(
            ended.ended_at > since
            and (node.node_id in record.lost or Pool.parse(ended.pool).provider in self._sources)
            for node, ended in record.unbilled.values()
        )

    def _settle(self, launched: NodeLaunched, ended: NodeEnded, now: datetime) -> bool:
        """Whether there was a bill to be had."""
        node = self._node(launched, ended)
        source = self._sources.get(node.pool.provider)
        if source is None:
            return False
        try:
            bill = source.bill(node)
        except ProviderError:
            bill = None
        if bill is None:
            return False
        self._journal.write(
            NodeBilled(
                at=now,
                job=node.job,
                node_id=node.node_id,
                pool=launched.pool,
                prices=tuple((at, round(usd * 1_000_000)) for at, usd in bill.prices),
                least_s=bill.least_s,
                source=bill.source,
            )
        )
        return True

    def _node(self, launched: NodeLaunched, ended: NodeEnded) -> Node:
        return Node(
            node_id=launched.node_id,
            owner=self._owner,
            job=launched.job,
            pool=Pool.parse(launched.pool),
            key=launched.key,
            state=NodeState.ENDED,
            launched_at=launched.launched_at,
            usd_per_hour=launched.micros_per_hour / 1_000_000,
            ended_at=ended.ended_at,
            end_cause=ended.cause,
        )
