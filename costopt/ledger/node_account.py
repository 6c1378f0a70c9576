"""The account of one node: its cost and energy from launch to end, and its own measurements."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from costopt.domain import events as ev
from costopt.domain.errors import LedgerError
from costopt.domain.events.node import has_estimated_end
from costopt.domain.fleet import EndCause
from costopt.domain.market import CapacityType, Pool
from costopt.domain.policy import CarbonSignal
from costopt.domain.power import communication_factor
from costopt.domain.transfers import region_key
from costopt.ledger.node_emissions import ElectricityBooks, Emission, EmissionMeter, carbon_basis
from costopt.ledger.node_meter import (
    MS_PER_HOUR,
    BusyMeter,
    CostMeter,
    EnergyMeter,
    PowerMeter,
    from_milliseconds,
    to_milliseconds,
)


@dataclass(frozen=True, slots=True)
class NodeInterval:
    """A row of the timeline: one node from launch to end, or to now while ``ended_at`` is None.

    ``usd_micros`` is what it added to the account's bill, ``committed_usd_micros`` what it used of
    a commitment besides, None where unknown. ``busy`` are the stretches in which it trained. Energy
    is at the data centre's meter, split into what the node drew while it trained and while it did
    not; None where it is unknown.
    ``market_based_gco2e`` is by the account's electricity contracts, None where none covers it all.
    ``embodied_gco2e``, the share of the machine's making, is not in ``gco2e``. ``end_is_estimate``:
    the provider has not reported when it ended, so that its cost may be corrected.
    """

    node_id: str
    key: str
    pool: Pool
    launched_at: datetime
    ended_at: datetime | None
    cause: EndCause | None
    usd_micros: int
    list_usd_micros: int
    committed_usd_micros: int | None
    idle_wh: float | None
    busy_wh: float | None
    gco2e: float | None
    market_based_gco2e: float | None
    embodied_gco2e: float | None
    energy_basis: str
    carbon_basis: str | None
    noticed_at: datetime | None
    busy: tuple[tuple[datetime, datetime], ...]
    end_is_estimate: bool = False

    @property
    def outcome(self) -> str:
        """Return why it ended, and whether the time of that is an estimate; "running" before."""
        if self.cause is None:
            return "running"
        return f"{self.cause.value}, end estimated" if self.end_is_estimate else self.cause.value

    @property
    def wh(self) -> float | None:
        """Return watt-hours, idle and busy; None where unknown."""
        if self.idle_wh is None or self.busy_wh is None:
            return None
        return self.idle_wh + self.busy_wh


class NodeAccount:
    """Meters of one node. ``noticed_at``, ``interrupts_at``, ``draining`` and ``terminating`` are
    None until the ledger says so; the latter two hold the reason. It draws ``limited_w`` times
    ``communication_factor`` watts while it trains."""

    __slots__ = (
        "busy",
        "committed",
        "communication_factor",
        "cost",
        "draining",
        "emission",
        "ended",
        "interrupts_at",
        "launched",
        "launched_ms",
        "limited_w",
        "listed",
        "measured",
        "min_billed_ms",
        "noticed_at",
        "pool",
        "power",
        "region",
        "terminating",
    )

    def __init__(self, launched: ev.NodeLaunched, electricity: ElectricityBooks) -> None:
        """Raises LedgerError."""
        self.launched = launched
        self.pool = _pool(launched)
        self.region = region_key(self.pool)
        self.launched_ms = to_milliseconds(launched.launched_at)
        self.cost = CostMeter(self.launched_ms, launched.micros_per_hour)
        listed, committed = launched.list_micros_per_hour, launched.committed_micros_per_hour
        self.listed = None if listed is None else CostMeter(self.launched_ms, listed)
        self.committed = (
            None if launched.commitment is None else CostMeter(self.launched_ms, committed or 0)
        )
        self.min_billed_ms = 0
        self.busy = BusyMeter()
        self.measured = EnergyMeter()
        self.limited_w, self.communication_factor = launched.busy_w, 1.0
        self.power = (
            None if launched.busy_w is None else PowerMeter(self.launched_ms, launched.busy_w)
        )
        hourly = electricity.intensities(self.region, self.carbon_signal)
        self.emission = EmissionMeter(self.launched_ms, launched.gco2e_per_kwh, hourly)
        self.ended: ev.NodeEnded | None = None
        self.noticed_at: datetime | None = None
        self.interrupts_at: datetime | None = None
        self.draining: str | None = None
        self.terminating: str | None = None

    @property
    def node_id(self) -> str:
        """Return the provider's id of the node."""
        return self.launched.node_id

    @property
    def carbon_signal(self) -> CarbonSignal:
        """Return the signal that its emissions count by; ledgers that name none count averages."""
        return self.launched.carbon_signal or CarbonSignal.AVERAGE

    @property
    def alive(self) -> bool:
        """Return whether the ledger holds no end of the node."""
        return self.ended is None

    @property
    def capacity_type(self) -> CapacityType:
        """Return the terms on which the node is rented."""
        return self.pool.capacity_type

    def note(self, event: ev.InterruptionNoticed) -> None:
        """Record that the provider announced the interruption of the node."""
        self.noticed_at, self.interrupts_at = self.noticed_at or event.at, event.interrupts_at

    def withdraw_notice(self, _: ev.NoticeWithdrawn) -> None:
        """Record that the notice was withdrawn."""
        self.noticed_at = self.interrupts_at = None

    def drain(self, event: ev.DrainIntended) -> None:
        """Record that the node was asked to checkpoint."""
        self.draining = event.reason

    def terminate(self, event: ev.TerminateIntended) -> None:
        """Record that the node is to be terminated."""
        self.terminating = event.reason

    def start_training(self, at_ms: int) -> None:
        """Record that it trains from then on, or from its launch where that is later."""
        at_ms = max(at_ms, self.launched_ms)
        self.busy.start(at_ms)
        self.emission.reopen(at_ms)

    def stop_training(self, at_ms: int) -> None:
        """Record that it trains until then."""
        self.busy.stop(at_ms)
        self.emission.reopen(at_ms)

    def limit_power(self, event: ev.PowerLimitReported) -> None:
        """Set what it draws while it trains to the event's figure."""
        if event.busy_w is not None:
            self.limited_w = event.busy_w
            self._change_power(to_milliseconds(event.at))

    def join_gang(self, at_ms: int, scaling_efficiency: float | None) -> None:
        """Record the strong-scaling efficiency, 0–1, of the gang that it trains in from then on."""
        factor = communication_factor(self.launched.communication_share, scaling_efficiency)
        if factor != self.communication_factor:
            self.communication_factor = factor
            self._change_power(max(at_ms, self.launched_ms))

    def _change_power(self, at_ms: int) -> None:
        if self.power is not None and self.limited_w is not None:
            self.power.change(at_ms, self.limited_w * self.communication_factor)
            self.emission.reopen(at_ms)

    def measure(self, event: ev.NodeMeasured) -> None:
        """Record measured energy."""
        if event.wh is not None:
            from_ms = max(to_milliseconds(event.from_at), self.launched_ms)
            self.measured.set(from_ms, to_milliseconds(event.until_at), round(event.wh * 1e6))
            self.emission.reopen(from_ms)

    def settle(self, billed: ev.NodeBilled) -> None:
        """Replace the computed cost with the provider's charge. The node has ended."""
        first, *later = billed.prices
        self.cost = CostMeter(self.launched_ms, first[1])
        for at, micros_per_hour in later:
            self.cost.change(to_milliseconds(at), micros_per_hour)
        self.listed = None
        if billed.list_prices:
            (_, listed), *rest = billed.list_prices
            self.listed = CostMeter(self.launched_ms, listed)
            for at, micros_per_hour in rest:
                self.listed.change(to_milliseconds(at), micros_per_hour)
        self.min_billed_ms = round(billed.min_billed_s * 1000)

    def change_price(self, at_ms: int, event: ev.PriceChanged) -> None:
        """Set what it costs from ``at_ms`` on."""
        listed = event.list_micros_per_hour
        if self.listed is None and listed is not None:
            self.listed = CostMeter(self.launched_ms, self.launched.micros_per_hour)
        self.cost.change(at_ms, event.micros_per_hour)
        if self.listed is not None:
            self.listed.change(at_ms, event.micros_per_hour if listed is None else listed)
        if self.committed is not None:
            self.committed.change(at_ms, event.committed_micros_per_hour or 0)

    def until_ms(self, now_ms: int) -> int:
        """Return the node's end, or now while it lives; never before its launch."""
        end = now_ms if self.ended is None else to_milliseconds(self.ended.ended_at)
        return max(end, self.launched_ms)

    def usd_micros(self, now_ms: int) -> int:
        """Return the cost until its end or now, the sooner; a minimum charge is due at the end."""
        until_ms = self.until_ms(now_ms)
        surcharge = self._surcharge_micros(until_ms) if now_ms >= until_ms else 0
        return surcharge + self.cost.micros_until(self._charged_until_ms(now_ms))

    def list_usd_micros(self, now_ms: int) -> int:
        """Return the cost at the provider's public prices, where these are known to differ."""
        if self.listed is None:
            return self.usd_micros(now_ms)
        return self.listed.micros_until(self._charged_until_ms(now_ms))

    def committed_usd_micros(self, now_ms: int) -> int | None:
        """Return what it used of a commitment, which is paid for in any case; None if unknown."""
        if self.committed is None:
            return 0
        if self.launched.committed_micros_per_hour is None:
            return None
        return self.committed.micros_until(self._charged_until_ms(now_ms))

    def _charged_until_ms(self, now_ms: int) -> int:
        return min(self.until_ms(now_ms), max(now_ms, self.launched_ms))

    def _surcharge_micros(self, until_ms: int) -> int:
        missing_ms = max(0, self.min_billed_ms - (until_ms - self.launched_ms))
        return self.cost.micros_per_hour * missing_ms // MS_PER_HOUR

    def unpowered_ms(self, now_ms: int) -> int:
        """Return the milliseconds until its end or now whose energy is unknown: all or none."""
        if self.launched.pue is not None:
            return 0
        return max(0, min(self.until_ms(now_ms), now_ms) - self.launched_ms)

    def uwh(self, now_ms: int) -> tuple[int, int]:
        """Return micro-watt-hours drawn idle and busy, at the data center's meter, each rounded
        once.

        W × ms / 3,600,000 × PUE as modelled; a stretch that was measured counts as it was measured,
        shared between idle and busy, and over time, as the model would. The energy of
        ``unpowered_ms`` is not included.
        """
        until = min(self.until_ms(now_ms), max(now_ms, self.launched_ms))
        idle, busy = self._modelled_uwh(until)
        for start, end, uwh in self.measured.stretches():
            part_idle, part_busy, measured = self._measured_part(start, end, uwh, until)
            modelled = part_idle + part_busy
            idle += measured * (part_idle / modelled if modelled else 1.0) - part_idle
            busy += measured * (part_busy / modelled if modelled else 0.0) - part_busy
        return round(idle), round(busy)

    def measured_uwh(self, now_ms: int) -> int:
        """Return how much of ``uwh`` was measured."""
        until = min(self.until_ms(now_ms), max(now_ms, self.launched_ms))
        stretches = self.measured.stretches()
        return round(sum(self._measured_part(*stretch, until)[2] for stretch in stretches))

    def _modelled_uwh(self, until: int) -> tuple[float, float]:
        idle_w, pue = self.launched.idle_w, self.launched.pue
        if self.power is None or idle_w is None or pue is None:
            return 0.0, 0.0
        idle_ms = until - self.launched_ms - self.busy.ms_until(until)
        per_ms = pue * 1e6 / MS_PER_HOUR
        busy = self.power.busy_w_ms(self.busy, until) * per_ms
        return idle_w * idle_ms * per_ms, busy

    def _measured_part(
        self, start: int, end: int, uwh: int, until: int
    ) -> tuple[float, float, float]:
        """Return, of a measured stretch before ``until``: modelled idle, modelled busy, measured.

        All are 0 without a PUE, as measurements are at the plug.
        """
        start, end = max(start, self.launched_ms), max(end, self.launched_ms)
        cut = min(end, until)
        if cut <= start or self.launched.pue is None:
            return 0.0, 0.0, 0.0
        before, at_cut, whole = (self._modelled_uwh(ms) for ms in (start, cut, end))
        idle, busy = at_cut[0] - before[0], at_cut[1] - before[1]
        modelled = sum(whole) - sum(before)
        share = (idle + busy) / modelled if modelled > 0 else (cut - start) / (end - start)
        return idle, busy, uwh * self.launched.pue * share

    def emitted(self, now_ms: int) -> Emission:
        """Return the emissions of the energy until its end or ``now_ms``, whichever is sooner."""
        until = min(self.until_ms(now_ms), max(now_ms, self.launched_ms))
        return self.emission.until(until, lambda ms: sum(self.uwh(ms)))

    def contract_names(self, from_ms: int, until_ms: int) -> frozenset[str]:
        """Return the contracts that state its electricity between two instants."""
        last = max(until_ms - 1, from_ms)
        return self.emission.intensities.contract_names(from_ms // MS_PER_HOUR, last // MS_PER_HOUR)

    def embodied_ugco2e(self, now_ms: int) -> int | None:
        """Return the micrograms of the machine's making until its end or now; None if unknown."""
        per_hour = self.launched.embodied_gco2e_per_hour
        if per_hour is None:
            return None
        ran_ms = max(0, min(self.until_ms(now_ms), now_ms) - self.launched_ms)
        return round(per_hour * 1e6 * ran_ms / MS_PER_HOUR)

    def interval(self, now_ms: int) -> NodeInterval:
        """Return the node's row in the timeline."""
        until = self.until_ms(now_ms)
        idle_uwh, busy_uwh = self.uwh(until)
        emitted = self.emitted(until)
        unpowered = self.unpowered_ms(until) > 0
        embodied = self.embodied_ugco2e(until)
        return NodeInterval(
            node_id=self.node_id,
            key=self.launched.key,
            pool=self.pool,
            launched_at=self.launched.launched_at,
            ended_at=None if self.ended is None else self.ended.ended_at,
            cause=None if self.ended is None else self.ended.cause,
            usd_micros=self.usd_micros(until),
            list_usd_micros=self.list_usd_micros(until),
            committed_usd_micros=self.committed_usd_micros(until),
            idle_wh=None if unpowered else idle_uwh / 1e6,
            busy_wh=None if unpowered else busy_uwh / 1e6,
            gco2e=None if unpowered or emitted.unknown_uwh else emitted.ugco2e / 1e6,
            market_based_gco2e=None
            if unpowered or emitted.uncontracted_uwh
            else emitted.market_ugco2e / 1e6,
            embodied_gco2e=None if embodied is None else embodied / 1e6,
            energy_basis=energy_basis(
                self.launched.energy_basis, self.measured_uwh(until), idle_uwh + busy_uwh
            ),
            carbon_basis=carbon_basis(
                frozenset({self.launched.carbon_signal}), emitted.hourly_uwh, idle_uwh + busy_uwh
            ),
            noticed_at=self.noticed_at,
            busy=tuple(
                (from_milliseconds(start), from_milliseconds(end))
                for start, end in self.busy.spans_until(until)
            ),
            end_is_estimate=self.ended is not None and has_estimated_end(self.ended),
        )


def energy_basis(basis: str, measured_uwh: int, uwh: int) -> str:
    """Return ``basis`` where nothing was measured, else how much of it was."""
    if measured_uwh <= 0 or uwh <= 0:
        return basis
    share = measured_uwh / uwh
    return "measured" if share > 0.995 else f"{share:.0%} measured, the rest {basis}"


def _pool(launched: ev.NodeLaunched) -> Pool:
    try:
        return Pool.parse(launched.pool)
    except ValueError as error:
        raise LedgerError(
            f"node {launched.node_id} of job {launched.job!r}: {error}",
            hint="the ledger is damaged; restore it from a backup",
        ) from error


class MeasurementAccount:
    """The newest measurements and warnings by node, the save interval, and how exact the result is
    ("" before a trainer reported it). ``probes`` are those of power limits, by GPU model. What is
    wrong with nodes is by id, "" for the whole gang."""

    def __init__(self) -> None:
        self.unhealthy: dict[str, str] = {}
        self.replaced_nodes = 0
        self.nodes: dict[str, ev.NodeMeasured] = {}
        self.expected: dict[str, str] = {}
        self.probes: dict[str, list[ev.PowerLimitProbed]] = {}
        self.interval: ev.CheckpointIntervalChanged | None = None
        self.guarantee = ""

    def measure(self, event: ev.NodeMeasured) -> None:
        """Record a node's totals."""
        self.nodes[event.node_id] = event

    def probe(self, event: ev.PowerLimitProbed) -> None:
        """Record what was measured under a power limit."""
        self.probes.setdefault(event.gpu_model, []).append(event)

    def change_interval(self, event: ev.CheckpointIntervalChanged) -> None:
        """Set the interval at which the trainers save from now on."""
        self.interval = event

    def change_guarantee(self, event: ev.GuaranteeChanged) -> None:
        """Set how exact the result is from now on."""
        self.guarantee = event.guarantee

    def record_interruption_warning(self, event: ev.InterruptionExpected) -> None:
        """Record the provider's warning about a node, short of a notice; "" withdraws it."""
        self.expected[event.node_id] = event.message

    def change_health(self, event: ev.HealthChanged) -> None:
        """Record what is wrong with a node, or that nothing is."""
        self.unhealthy.pop(event.node_id, None)
        if event.issue is not None:
            self.unhealthy[event.node_id] = event.message

    def count_replaced(self, _: ev.NodeReplaced) -> None:
        """Count one more node that is replaced because it is unhealthy."""
        self.replaced_nodes += 1

    @property
    def health(self) -> str:
        """Return what is wrong with which nodes, "" where nothing is known to be."""
        found = sorted(self.unhealthy.items())
        return "; ".join(f"{node_id or 'the gang'}: {what}" for node_id, what in found)
