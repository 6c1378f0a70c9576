"""Running totals of a job's account: its nodes, transfers and work.

Sums of dollars, energy and carbon over nodes are whole numbers, so that they agree in any order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from costopt.domain import events as ev
from costopt.domain.array import TaskOutcome
from costopt.domain.events.node import has_estimated_end
from costopt.domain.fleet import EndCause
from costopt.domain.market import CapacityType
from costopt.domain.policy import CarbonSignal
from costopt.ledger.node_account import NodeAccount, energy_basis
from costopt.ledger.node_emissions import ElectricityBooks, Emission, carbon_basis
from costopt.ledger.node_meter import MS_PER_HOUR, to_milliseconds
from costopt.ledger.storage_costs import volume_usd_micros
from costopt.ledger.summary import ProgressCurve


@dataclass(slots=True)
class CostTotals:
    """Sums over nodes: micro-dollars, micro-watt-hours, emissions, milliseconds.

    ``measured_uwh`` of the energy was measured, the rest modelled. The energy of ``unpowered_ms``
    of the nodes' time is unknown and not in any of the sums, nor is the embodied carbon of
    ``unembodied_ms`` of it, nor what ``uncounted_ms`` of it used of commitments. ``usd_micros`` is
    without root volumes, ``volume_usd_micros`` without those of ``unpriced_volumes`` nodes.
    """

    usd_micros: int = 0
    spot_usd_micros: int = 0
    on_demand_usd_micros: int = 0
    list_usd_micros: int = 0
    committed_usd_micros: int = 0
    uncounted_ms: int = 0
    idle_uwh: int = 0
    busy_uwh: int = 0
    emitted: Emission = field(default_factory=Emission)
    node_ms: int = 0
    measured_uwh: int = 0
    unpowered_ms: int = 0
    embodied_ugco2e: int = 0
    unembodied_ms: int = 0
    volume_usd_micros: int = 0
    unpriced_volumes: int = 0

    @property
    def idle_wh(self) -> float | None:
        """Return watt-hours drawn while not training, None where any node's are unknown."""
        return None if self.unpowered_ms else self.idle_uwh / 1e6

    @property
    def busy_wh(self) -> float | None:
        """Return watt-hours drawn while training, None where any node's are unknown."""
        return None if self.unpowered_ms else self.busy_uwh / 1e6

    @property
    def wh(self) -> float | None:
        """Return all watt-hours, None where any node's are unknown."""
        return None if self.unpowered_ms else (self.idle_uwh + self.busy_uwh) / 1e6

    @property
    def gco2e(self) -> float | None:
        """Return grams emitted, None where any energy or the intensity of any is unknown."""
        unknown = self.unpowered_ms or self.emitted.unknown_uwh
        return None if unknown else self.emitted.ugco2e / 1e6

    @property
    def market_based_gco2e(self) -> float | None:
        """Return grams by electricity contracts, None where any energy is unknown or under none."""
        unknown = self.unpowered_ms or self.emitted.uncontracted_uwh
        return None if unknown else self.emitted.market_ugco2e / 1e6

    @property
    def embodied_gco2e(self) -> float | None:
        """Return grams from making the machines, None where those of any node are unknown."""
        return None if self.unembodied_ms else self.embodied_ugco2e / 1e6

    def copy(self) -> CostTotals:
        """Return a copy that changes independently."""
        return CostTotals(
            self.usd_micros,
            self.spot_usd_micros,
            self.on_demand_usd_micros,
            self.list_usd_micros,
            self.committed_usd_micros,
            self.uncounted_ms,
            self.idle_uwh,
            self.busy_uwh,
            self.emitted,
            self.node_ms,
            self.measured_uwh,
            self.unpowered_ms,
            self.embodied_ugco2e,
            self.unembodied_ms,
            self.volume_usd_micros,
            self.unpriced_volumes,
        )

    def add(self, node: NodeAccount, now_ms: int) -> None:
        """Charge a node until its end, or until now while it lives."""
        self._count(node, node.until_ms(now_ms), 1)

    @contextmanager
    def recounting(self, node: NodeAccount) -> Iterator[None]:
        """Let facts about a node that has ended and was added before change inside the context."""
        end_ms = node.until_ms(node.launched_ms)
        self._count(node, end_ms, -1)
        try:
            yield
        finally:
            self._count(node, end_ms, 1)

    def _count(self, node: NodeAccount, until_ms: int, times: int) -> None:
        usd_micros = times * node.usd_micros(until_ms)
        idle_uwh, busy_uwh = node.uwh(until_ms)
        self.usd_micros += usd_micros
        if node.capacity_type is CapacityType.SPOT:
            self.spot_usd_micros += usd_micros
        elif node.capacity_type is CapacityType.ON_DEMAND:
            self.on_demand_usd_micros += usd_micros
        self.list_usd_micros += times * node.list_usd_micros(until_ms)
        committed = node.committed_usd_micros(until_ms)
        if committed is None:
            self.uncounted_ms += times * (until_ms - node.launched_ms)
        else:
            self.committed_usd_micros += times * committed
        self.idle_uwh += times * idle_uwh
        self.busy_uwh += times * busy_uwh
        self.emitted = self.emitted.plus(node.emitted(until_ms), times)
        self.node_ms += times * (until_ms - node.launched_ms)
        self.measured_uwh += times * node.measured_uwh(until_ms)
        self.unpowered_ms += times * node.unpowered_ms(until_ms)
        self.volume_usd_micros += times * volume_usd_micros(node, until_ms)
        self.unpriced_volumes += times * (node.launched.volume_micros_per_hour is None)
        embodied = node.embodied_ugco2e(until_ms)
        if embodied is None:
            self.unembodied_ms += times * (until_ms - node.launched_ms)
        else:
            self.embodied_ugco2e += times * embodied


class FleetAccount:
    """The accounts of a job's nodes by id. An estimated end, as that of a lost node, may be
    corrected or withdrawn; ``interruptions`` are the nodes that their provider interrupted."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeAccount] = {}
        self.alive: dict[str, NodeAccount] = {}
        self.interruptions = 0
        self._lost: dict[str, NodeAccount] = {}
        self._ended = CostTotals()
        self._prices: dict[str, list[ev.PriceChanged]] = {}
        self.electricity = ElectricityBooks()

    def launch(self, event: ev.NodeLaunched) -> bool:
        """Add a launched node; return False where it was known already."""
        if event.node_id in self.nodes:
            return False
        node = NodeAccount(event, self.electricity)
        for change in self._prices.get(event.pool, ()):
            at_ms = to_milliseconds(change.at)
            if at_ms > node.launched_ms:
                node.change_price(at_ms, change)
        self.nodes[event.node_id] = self.alive[event.node_id] = node
        return True

    def change_price(self, event: ev.PriceChanged) -> None:
        """Set the price of the pool's nodes from now on, also of those reported later."""
        at_ms = to_milliseconds(event.at)
        self._prices.setdefault(event.pool, []).append(event)
        for node in self._unsettled():
            if node.launched.pool == event.pool:
                node.change_price(at_ms, event)

    def record_intensity(self, event: ev.CarbonIntensityRecorded) -> None:
        """Count that hour's energy of the region's nodes with this signal at this intensity."""
        hour_ms = to_milliseconds(event.hour_at) // MS_PER_HOUR * MS_PER_HOUR
        grid = event.region, event.carbon_signal
        known = self.electricity.intensities(*grid)
        nodes = [
            node
            for node in self.nodes.values()
            if node.launched_ms < hour_ms + MS_PER_HOUR
            and (node.region, node.carbon_signal) == grid
        ]
        with self._recounting(node for node in nodes if _ended_after(node, hour_ms)):
            known.by_hour[hour_ms // MS_PER_HOUR] = event.gco2e_per_kwh
            for node in nodes:
                node.emission.reopen(hour_ms)

    def record_contracts(self, event: ev.ElectricityContractsRecorded) -> None:
        """Count market-based emissions of all nodes by these contracts."""
        with self._recounting(node for node in self.nodes.values() if not node.alive):
            self.electricity.record_contracts(event)
            for node in self.nodes.values():
                node.emission.reopen(node.launched_ms)

    def intensity(
        self, region: str, carbon_signal: CarbonSignal, hour_at: datetime
    ) -> float | None:
        """Return gCO2e/kWh recorded for the hour from ``hour_at`` on, None where none is."""
        hour = to_milliseconds(hour_at) // MS_PER_HOUR
        return self.electricity.intensities(region, carbon_signal).by_hour.get(hour)

    def hours(self, from_ms: int, now_ms: int) -> dict[tuple[str, CarbonSignal], set[int]]:
        """Return, by "provider/region" and signal, the numbers of the hours after ``from_ms`` in
        which nodes ran."""
        found: dict[tuple[str, CarbonSignal], set[int]] = {}
        for node in self.nodes.values():
            begin_ms, end_ms = max(node.launched_ms, from_ms), node.until_ms(now_ms)
            if end_ms > begin_ms:
                hours = range(begin_ms // MS_PER_HOUR, (end_ms - 1) // MS_PER_HOUR + 1)
                found.setdefault((node.region, node.carbon_signal), set()).update(hours)
        return found

    def start_training(self, node_ids: Iterable[str], at_ms: int) -> None:
        """Record that these nodes train from then on; those that have ended since, until then."""
        nodes = [self.nodes[node_id] for node_id in node_ids if node_id in self.nodes]
        going_on = [n for n in nodes if n.alive or n.node_id in self._lost]
        ended = [n for n in nodes if _ended_after(n, at_ms) and n.node_id not in self._lost]
        with self._recounting(ended):
            for node in (*going_on, *ended):
                node.start_training(at_ms)

    def measure(self, event: ev.NodeMeasured) -> None:
        """Record measured energy of a living node."""
        node = self.alive.get(event.node_id)
        if node is not None:
            node.measure(event)

    def record_end(self, event: ev.NodeEnded) -> None:
        """Record that a node has ended, or the end of a lost one."""
        node = self.alive.pop(event.node_id, None) or self._lost.pop(event.node_id, None)
        if node is None:
            return
        before, node.ended = node.ended, event
        if has_estimated_end(event):
            self._lost[event.node_id] = node
        else:
            self._ended.add(node, to_milliseconds(event.ended_at))
        if before is not None:
            self.interruptions -= before.cause is EndCause.INTERRUPTED
        self.interruptions += event.cause is EndCause.INTERRUPTED

    def reinstate(self, event: ev.NodeReturned) -> None:
        """Record that a lost node had not ended."""
        node = self._lost.pop(event.node_id, None)
        if node is not None:
            node.ended = None
            self.alive[event.node_id] = node

    def settle(self, event: ev.NodeBilled) -> None:
        """Replace the cost of a node that has ended with the provider's charge."""
        node = self.nodes.get(event.node_id)
        if event.node_id in self._lost:
            self._lost[event.node_id].settle(event)
        elif node is not None and node.ended is not None:
            with self._ended.recounting(node):
                node.settle(event)

    def unsettled(self, node_ids: Iterable[str]) -> list[NodeAccount]:
        """Return those of the nodes that live, or are lost and may not have ended."""
        found = (self.alive.get(node_id) or self._lost.get(node_id) for node_id in node_ids)
        return [node for node in found if node is not None]

    def bill(self, now_ms: int) -> CostTotals:
        """Return the totals of all nodes; living and lost ones are summed again at each call."""
        bill = self._ended.copy()
        for node in self._unsettled():
            bill.add(node, now_ms)
        return bill

    @property
    def carbon_signals(self) -> frozenset[CarbonSignal | None]:
        """Return the signals by which the nodes' emissions count, None where none was named."""
        return frozenset(node.launched.carbon_signal for node in self.nodes.values())

    def carbon_basis(self, bill: CostTotals) -> str | None:
        """Return the basis of the emissions of ``bill``; None where no energy was drawn, or any is
        unknown."""
        if bill.unpowered_ms:
            return None
        uwh = bill.idle_uwh + bill.busy_uwh
        return carbon_basis(self.carbon_signals, bill.emitted.hourly_uwh, uwh)

    def energy_basis(self, bill: CostTotals) -> str | None:
        """Return the basis of the energy of ``bill``; None before the first node."""
        bases = {node.launched.energy_basis for node in self.nodes.values()}
        basis = " and ".join(sorted(bases))
        if bill.unpowered_ms:
            return basis
        return energy_basis(basis, bill.measured_uwh, bill.idle_uwh + bill.busy_uwh) or None

    def usd_micros_between(self, start_ms: int, end_ms: int) -> int:
        """Return what the nodes and their volumes cost from one instant to another."""
        return sum(
            node.usd_micros(end_ms)
            + volume_usd_micros(node, end_ms)
            - node.usd_micros(start_ms)
            - volume_usd_micros(node, start_ms)
            for node in self.nodes.values()
            if node.launched_ms < end_ms
        )

    @contextmanager
    def _recounting(self, nodes: Iterable[NodeAccount]) -> Iterator[None]:
        """Let facts about nodes change inside the context; those that ended are in the sums."""
        with ExitStack() as stack:
            for node in nodes:
                if node.node_id not in self._lost:
                    stack.enter_context(self._ended.recounting(node))
            yield

    def _unsettled(self) -> tuple[NodeAccount, ...]:
        return (*self.alive.values(), *self._lost.values())


def _ended_after(node: NodeAccount, ms: int) -> bool:
    return not node.alive and node.until_ms(ms) > ms


class TransferAccount:
    """Micro-dollars of every transfer; unknown prices are counted as unknown."""

    def __init__(self) -> None:
        self.usd_micros = 0
        self._unknown = False
        self._moves: list[tuple[int, int]] = []

    def move(self, event: ev.DataMoved) -> None:
        """Charge a transfer at once, when it begins."""
        if event.usd_micros is None:
            self._unknown = True
            return
        self.usd_micros += event.usd_micros
        self._moves.append((to_milliseconds(event.at), event.usd_micros))
        self._moves.sort()

    @property
    def known_usd_micros(self) -> int | None:
        """Return the sum of all transfers, None where the price of one is unknown."""
        return None if self._unknown else self.usd_micros

    @property
    def moves(self) -> tuple[tuple[int, int], ...]:
        """Return (milliseconds since the epoch, micro-dollars) of each, ascending."""
        return tuple(self._moves)

    def usd_micros_until(self, ms: int) -> int:
        """Return the sum of the transfers that began before ``ms``."""
        return sum(micros for _, micros in self._moves[: bisect_left(self._moves, (ms, 0))])


RATIO_ROUNDING = 1e-9


class WorkAccount:
    """Units of work by the newest event; lost units only accumulate."""

    def __init__(self) -> None:
        self.done_units = 0.0
        self.saved_units = 0.0
        self.lost_units = 0.0
        self.units_per_s: float | None = None
        self.checkpoints = 0
        self.curve = ProgressCurve()
        self.tasks: dict[int, ev.TaskEnded] = {}
        self._rated_to_units = 0.0
        self._measured_units = 0.0
        self._declared_units = 0.0

    @property
    def speed_ratio(self) -> float | None:
        """Return the measured speed over the declared one: the mean over all work for which one was
        measured, including work that was done twice; None where none was."""
        if self._declared_units <= 0:
            return None
        ratio = self._measured_units / self._declared_units
        return 1.0 if abs(ratio - 1.0) < RATIO_ROUNDING else ratio

    def record_done(self, at: datetime, done_units: float) -> None:
        """Record that the gang starts or stops at ``done_units``; less is a step down at ``at``."""
        if done_units < self.done_units:
            self.record_point(at)
        self.done_units = done_units
        self._rated_to_units = min(self._rated_to_units, done_units)
        self.record_point(at)

    def report(self, event: ev.ProgressReported) -> None:
        """Replace the known progress with what the nodes report."""
        done_units = event.done_units - self._rated_to_units
        self._rated_to_units = event.done_units
        if event.speed_ratio and done_units > 0:  # a ratio of 0 measured nothing
            self._measured_units += done_units
            self._declared_units += done_units / event.speed_ratio
        self.done_units, self.saved_units = event.done_units, event.saved_units
        self.units_per_s = event.units_per_s
        self.record_point(event.at)

    def commit(self, event: ev.CheckpointCommitted) -> None:
        """Record a checkpoint, which never reduces the work done."""
        self.checkpoints += 1
        self.saved_units = max(self.saved_units, event.units)
        self.done_units = max(self.done_units, event.units)
        self.record_point(event.at)

    def end_task(self, event: ev.TaskEnded) -> None:
        """Record how a task ended; in a new run one that failed may end again."""
        self.tasks[event.task] = event

    def tasks_with(self, outcome: TaskOutcome) -> int:
        """Return how many tasks ended so."""
        return sum(task.outcome is outcome for task in self.tasks.values())

    def lose(self, event: ev.WorkLost) -> None:
        """Reduce the work done, at most to what is saved."""
        self.lost_units += event.units
        self.record_done(event.at, max(self.saved_units, self.done_units - event.units))

    def finish(self, at: datetime, units: float) -> None:
        """Record that all work is done and saved."""
        self.done_units = self.saved_units = units
        self.record_point(at)

    def record_point(self, at: datetime) -> None:
        """Add the present figures to the curve."""
        self.curve.add(at, self.done_units, self.saved_units)
