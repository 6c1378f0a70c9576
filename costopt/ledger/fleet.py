"""The nodes that a job has had: which live, which were lost, and what all of them came to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime

from costopt.domain.events import (
    CarbonIntensityRecorded,
    NodeBilled,
    NodeEnded,
    NodeLaunched,
    NodeMeasured,
    NodeReturned,
    PriceChanged,
)
from costopt.domain.fleet import EndCause
from costopt.ledger.bill import CostTotals
from costopt.ledger.carbon import HourlyIntensities, carbon_basis
from costopt.ledger.meter import MS_PER_HOUR, to_milliseconds
from costopt.ledger.node import NodeAccount, energy_basis


class FleetAccount:
    """The accounts of a job's nodes by id. The end of a lost node is a guess, and may be taken
    back; ``interruptions`` are the nodes that their provider took."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeAccount] = {}
        self.alive: dict[str, NodeAccount] = {}
        self.interruptions = 0
        self._lost: dict[str, NodeAccount] = {}
        self._ended = CostTotals()
        self._prices: dict[str, list[tuple[int, int]]] = {}
        self._intensities: dict[str, HourlyIntensities] = {}

    def launch(self, event: NodeLaunched) -> bool:
        """A node lives; False where it was known already."""
        if event.node_id in self.nodes:
            return False
        node = NodeAccount(event, self._intensities)
        for at_ms, micros_per_hour in self._prices.get(event.pool, ()):
            if at_ms > node.launched_ms:
                node.cost.change(at_ms, micros_per_hour)
        self.nodes[event.node_id] = self.alive[event.node_id] = node
        return True

    def change_price(self, event: PriceChanged) -> None:
        """The pool's nodes cost this from here on, also those whose launch is told later."""
        at_ms = to_milliseconds(event.at)
        self._prices.setdefault(event.pool, []).append((at_ms, event.micros_per_hour))
        for node in self._unsettled():
            if node.launched.pool == event.pool:
                node.cost.change(at_ms, event.micros_per_hour)

    def record_intensity(self, event: CarbonIntensityRecorded) -> None:
        """What the region's nodes drew in that hour counts at this intensity."""
        hour_ms = to_milliseconds(event.hour_at) // MS_PER_HOUR * MS_PER_HOUR
        known = self._intensities.setdefault(event.region, HourlyIntensities())
        nodes = [node for node in self.nodes.values() if node.region == event.region]
        with self._recounting(node for node in nodes if _ended_after(node, hour_ms)):
            known.by_hour[hour_ms // MS_PER_HOUR] = event.gco2e_per_kwh
            for node in nodes:
                node.emission.reopen(hour_ms)

    def has_intensity(self, region: str, hour_at: datetime) -> bool:
        """Whether the region's intensity of the hour that begins at ``hour_at`` is recorded."""
        known = self._intensities.get(region)
        return known is not None and to_milliseconds(hour_at) // MS_PER_HOUR in known.by_hour

    def start_training(self, node_ids: Iterable[str], at_ms: int) -> None:
        """These nodes train from then on: those that have ended since, until their end."""
        nodes = [self.nodes[node_id] for node_id in node_ids if node_id in self.nodes]
        going_on = [n for n in nodes if n.alive or n.node_id in self._lost]
        ended = [n for n in nodes if _ended_after(n, at_ms) and n.node_id not in self._lost]
        with self._recounting(ended):
            for node in (*going_on, *ended):
                node.start_training(at_ms)

    def measure(self, event: NodeMeasured) -> None:
        """A living node measured its energy."""
        node = self.alive.get(event.node_id)
        if node is not None:
            node.measure(event)

    def record_end(self, event: NodeEnded) -> None:
        """A node is gone, or a lost one's end is known."""
        node = self.alive.pop(event.node_id, None) or self._lost.pop(event.node_id, None)
        if node is None:
            return
        node.ended = event
        if event.cause is EndCause.LOST:
            self._lost[event.node_id] = node
        else:
            self._ended.add(node, to_milliseconds(event.ended_at))
        if event.cause is EndCause.INTERRUPTED:
            self.interruptions += 1

    def reinstate(self, event: NodeReturned) -> None:
        """A lost node never ended."""
        node = self._lost.pop(event.node_id, None)
        if node is not None:
            node.ended = None
            self.alive[event.node_id] = node

    def settle(self, event: NodeBilled) -> None:
        """A node that has ended costs what its provider charges."""
        node = self.nodes.get(event.node_id)
        if event.node_id in self._lost:
            self._lost[event.node_id].settle(event)
        elif node is not None and node.ended is not None:
            with self._ended.recounting(node):
                node.settle(event)

    def unsettled(self, node_ids: Iterable[str]) -> list[NodeAccount]:
        """Those of the nodes that live, or are lost and may yet turn out to have gone on."""
        found = (self.alive.get(node_id) or self._lost.get(node_id) for node_id in node_ids)
        return [node for node in found if node is not None]

    def bill(self, now_ms: int) -> CostTotals:
        """What all nodes came to. Living and lost ones are added up anew each time."""
        bill = self._ended.copy()
        for node in self._unsettled():
            bill.add(node, now_ms)
        return bill

    def carbon_basis(self, bill: CostTotals) -> str | None:
        """On what the emissions of ``bill`` rest; None where no energy was drawn, or any is
        unknown."""
        if bill.unpowered_ms:
            return None
        signals = frozenset(node.launched.carbon_signal for node in self.nodes.values())
        return carbon_basis(signals, bill.emitted.hourly_uwh, bill.idle_uwh + bill.busy_uwh)

    def energy_basis(self, bill: CostTotals) -> str | None:
        """On what the energy of ``bill`` rests; None before the first node."""
        bases = {node.launched.energy_basis for node in self.nodes.values()}
        basis = " and ".join(sorted(bases))
        if bill.unpowered_ms:
            return basis
        return energy_basis(basis, bill.measured_uwh, bill.idle_uwh + bill.busy_uwh) or None

    def usd_micros_between(self, start_ms: int, end_ms: int) -> int:
        """What the nodes cost from one instant to another."""
        return sum(
            node.usd_micros(end_ms) - node.usd_micros(start_ms)
            for node in self.nodes.values()
            if node.launched_ms < end_ms
        )

    @contextmanager
    def _recounting(self, nodes: Iterable[NodeAccount]) -> Iterator[None]:
        """Within, more becomes known of nodes, of which those that have ended were added up."""
        with ExitStack() as stack:
            for node in nodes:
                if node.node_id not in self._lost:
                    stack.enter_context(self._ended.recounting(node))
            yield

    def _unsettled(self) -> tuple[NodeAccount, ...]:
        return (*self.alive.values(), *self._lost.values())


def _ended_after(node: NodeAccount, ms: int) -> bool:
    return not node.alive and node.until_ms(ms) > ms
