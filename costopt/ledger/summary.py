"""A job's figures at an instant, and its spend and progress over time."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from costopt.ledger.node_account import NodeAccount
from costopt.ledger.node_meter import from_milliseconds
from costopt.ledger.storage_costs import volume_usd_micros


class JobState(StrEnum):
    """What a job is doing, by its events."""

    WAITING = "waiting"
    STARTING = "starting"
    TRAINING = "training"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSummary:
    """What a job has cost, consumed and done. Unknown figures are None.

    Dollars are micro-dollars of what the provider confirmed as running, and of moving data between
    regions at list prices; reserved capacity is in ``usd_micros`` only. ``usd_micros`` is what the
    job added to the account's bill: ``list_usd_micros`` is the same at the provider's public prices
    where the account's terms changed them, and ``committed_usd_micros`` what it used of commitments
    besides, which are paid for in any case; None where unknown. ``transfer_usd_micros`` is
    None where the price of a move is unknown; ``usd_micros`` holds the others then. So does
    ``storage_usd_micros``: root volumes and checkpoints in object stores, at list prices. Energy is
    watt-hours at the data centre's meter: ``busy_wh`` while the gang trained, ``idle_wh`` else;
    None where the power of any node is unknown. ``measured_wh`` of it was measured on the nodes.
    ``carbon_basis`` says which carbon signal ``gco2e`` counts by, and whether by the hour or by
    annual means; None where no energy was drawn, or any is unknown. ``hourly_carbon_wh`` of the
    energy counts by the intensity of its hour. ``carbon_signal`` is "average" where ``gco2e`` is
    location-based, "marginal", or both. ``market_based_gco2e`` is by the electricity contracts in
    the ledger; None where none covers all the energy. ``embodied_gco2e``, the share of the
    machines' making, is not in ``gco2e``; None where that of any node is unknown.
    ``sci_gco2e_per_unit`` is the software carbon intensity: both, per unit of work done.
    ``guarantee`` is how exact the result is, as the trainers reported it, "" where they did not;
    ``failure`` why the job failed, "" otherwise.
    ``health`` is what is wrong with the job's nodes, "" where nothing is known to be, and
    ``replaced_nodes`` how many were replaced because of that.
    ``launches`` and ``failed_launches`` count launch requests, ``interruptions`` interrupted nodes,
    ``pool_switches`` gangs in other pools than the gang before.
    ``baseline_*`` is the whole job on the cheapest allowed on-demand pool, at the measured speed
    once there is one, and savings compare what was spent with the baseline for the work done so
    far. ``speed_ratio`` is the measured over the declared speed, None before any was measured.
    ``tasks_done`` and ``tasks_failed`` count an array's tasks that ended for good, ``task_starts``
    how often these were started in all. Nodes fetched ``cache_gib`` of the job's cache in
    ``cache_node_s`` seconds in all.
    ``is_simulated``: the nodes are the simulator's, and the dollars were not paid.
    ``on_time`` is None while the deadline lies ahead of an unfinished job.
    """

    job: str
    now: datetime
    state: JobState
    strategy: str | None
    policy: str | None
    unit: str | None
    work_units: float | None
    start_at: datetime | None
    deadline_at: datetime | None
    finished_at: datetime | None
    on_time: bool | None
    done_units: float
    saved_units: float
    lost_units: float
    units_per_s: float | None
    usd_micros: int
    spot_usd_micros: int
    on_demand_usd_micros: int
    transfer_usd_micros: int | None
    wh: float | None
    idle_wh: float | None
    busy_wh: float | None
    gco2e: float | None
    energy_basis: str | None
    carbon_basis: str | None
    node_seconds: float
    nodes_alive: int
    nodes_launched: int
    launches: int
    failed_launches: int
    interruptions: int
    checkpoints: int
    checkpoints_refused: int
    pool_switches: int
    generation: int
    baseline_pool: str | None
    baseline_usd_micros: int | None
    baseline_wh: float | None
    baseline_gco2e: float | None
    measured_wh: float = 0.0
    speed_ratio: float | None = None
    hourly_carbon_wh: float = 0.0
    carbon_signal: str | None = None
    market_based_gco2e: float | None = None
    embodied_gco2e: float | None = None
    sci_gco2e_per_unit: float | None = None
    guarantee: str = ""
    failure: str = ""
    tasks_done: int = 0
    tasks_failed: int = 0
    task_starts: int = 0
    storage_usd_micros: int | None = None
    cache_gib: float = 0.0
    cache_node_s: float = 0.0
    health: str = ""
    replaced_nodes: int = 0
    budget_usd_micros: int | None = None
    usd_micros_per_hour: int = 0
    list_usd_micros: int = 0
    committed_usd_micros: int | None = 0
    is_simulated: bool = False

    @property
    def spent_basis(self) -> str:
        """Return whether the dollars were "measured", or "simulated" on a market of the past."""
        return "simulated" if self.is_simulated else "measured"

    @property
    def forecast_usd_micros(self) -> int | None:
        """Return what the job costs in the end if it goes on as at present, at the present prices;
        None where its pace is unknown."""
        if self.finished_at is not None:
            return self.usd_micros
        if not self.units_per_s or not self.work_units or not self.nodes_alive:
            return None
        left_h = max(0.0, self.work_units - self.done_units) / self.units_per_s / 3600
        return self.usd_micros + round(left_h * self.usd_micros_per_hour)

    @property
    def baseline_basis(self) -> str:
        """Return the speed that the baseline, and so the savings, assume, in words."""
        speed = "declared" if self.speed_ratio is None else "measured"
        return f"at the {speed} speed"

    @property
    def usd(self) -> float:
        """Return the dollars spent."""
        return self.usd_micros / 1e6

    @property
    def kwh(self) -> float | None:
        """Return the kilowatt-hours consumed; None where unknown."""
        return None if self.wh is None else self.wh / 1000

    @property
    def hourly_carbon_share(self) -> float | None:
        """Return the share of the energy whose CO2e counts by the hour. None where none was drawn,
        or any is unknown."""
        return self.hourly_carbon_wh / self.wh if self.wh else None

    @property
    def done_share(self) -> float | None:
        """Return the work done as a share of all work, at most 1."""
        if not self.work_units:
            return None
        return min(1.0, self.done_units / self.work_units)

    @property
    def margin_s(self) -> float | None:
        """Return the seconds from finish to deadline, negative if late, None if unfinished."""
        if self.finished_at is None or self.deadline_at is None:
            return None
        return (self.deadline_at - self.finished_at).total_seconds()

    @property
    def due_usd_micros(self) -> int | None:
        """Return what the baseline would have cost in micro-dollars for the work done so far."""
        due = self._due(self.baseline_usd_micros)
        return None if due is None else round(due)

    @property
    def due_wh(self) -> float | None:
        """Return the baseline's watt-hours for the work done so far."""
        return self._due(self.baseline_wh)

    @property
    def saved_usd_micros(self) -> int | None:
        """Return micro-dollars below the baseline for the work done so far; negative is above."""
        due = self.due_usd_micros
        return None if due is None else due - self.usd_micros

    @property
    def saved_usd_share(self) -> float | None:
        """Return the same as a share of the baseline for the work done so far."""
        due = self.due_usd_micros
        return 1 - self.usd_micros / due if due else None

    @property
    def saved_wh(self) -> float | None:
        """Return watt-hours below the baseline for the work done so far."""
        due = self.due_wh
        return None if due is None or self.wh is None else due - self.wh

    @property
    def saved_wh_share(self) -> float | None:
        """Return the same as a share of the baseline for the work done so far."""
        due = self.due_wh
        return 1 - self.wh / due if due and self.wh is not None else None

    def _due(self, baseline: float | None) -> float | None:
        share = self.done_share
        return None if baseline is None or share is None else baseline * share


_NAMES = tuple(field.name for field in fields(JobSummary))


def parse_figures(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a summary by name, from what JSON holds of them and more."""
    figures = {name: written[name] for name in _NAMES if name in written}
    for name in ("now", "start_at", "deadline_at", "finished_at"):
        at = figures[name]
        figures[name] = None if at is None else datetime.fromisoformat(at)
    figures["state"] = JobState(figures["state"])
    return figures


def sci_gco2e_per_unit(
    gco2e: float | None, embodied_gco2e: float | None, done_units: float
) -> float | None:
    """Return the software carbon intensity (SCI 1.1): (E × I + M) / R, in grams per unit of work.

    None where any part is unknown or no work is done. Contracts must not lower it.
    """
    if gco2e is None or embodied_gco2e is None or done_units <= 0:
        return None
    return (gco2e + embodied_gco2e) / done_units


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class SpendPoint:
    """Micro-dollars and watt-hours until ``at``; None from where a node's energy is unknown."""

    at: datetime
    usd_micros: int
    wh: float | None


@dataclass(frozen=True, slots=True)
class ProgressPoint:
    """Work done and saved at ``at``; lost work is two points at one instant."""

    at: datetime
    done_units: float
    saved_units: float


class ProgressCurve:
    """Progress points in the order they were added, in columns: a job of months has many."""

    def __init__(self) -> None:
        self.at_us = array("q")
        self.done_units = array("d")
        self.saved_units = array("d")

    def add(self, at: datetime, done_units: float, saved_units: float) -> None:
        """Add a point; one like the last is left out."""
        point = (at - _EPOCH) // _MICROSECOND, done_units, saved_units
        if self.at_us and point == (self.at_us[-1], self.done_units[-1], self.saved_units[-1]):
            return
        self.at_us.append(point[0])
        self.done_units.append(done_units)
        self.saved_units.append(saved_units)

    def __iter__(self) -> Iterator[ProgressPoint]:
        columns = zip(self.at_us, self.done_units, self.saved_units, strict=True)
        return (
            ProgressPoint(_EPOCH + us * _MICROSECOND, done, saved) for us, done, saved in columns
        )


@dataclass(frozen=True, slots=True)
class RunCurves:
    """Both curves, ascending in time; between two points they are straight."""

    spend: tuple[SpendPoint, ...]
    progress: tuple[ProgressPoint, ...]


def spend_at(points: Sequence[SpendPoint], times: Sequence[datetime], at: datetime) -> SpendPoint:
    """Return the point of the curve at an instant; the curve is straight between its points."""
    after = bisect_right(times, at)
    if after == 0:
        return SpendPoint(at, 0, 0.0)
    left = points[after - 1]
    if after == len(points):
        return SpendPoint(at, left.usd_micros, left.wh)
    right = points[after]
    share = (at - left.at) / (right.at - left.at)
    usd_micros = left.usd_micros + round(share * (right.usd_micros - left.usd_micros))
    wh = None
    if left.wh is not None and right.wh is not None:
        wh = left.wh + share * (right.wh - left.wh)
    return SpendPoint(at, usd_micros, wh)


def spend_points(
    nodes: Iterable[NodeAccount],
    moves: Iterable[tuple[int, int]],
    now_ms: int,
    stored: Callable[[int], int] = lambda _: 0,
) -> tuple[SpendPoint, ...]:
    """The exact spend wherever its slope changes: at a launch, an end, a price, a start or stop.

    ``moves`` are (milliseconds, micro-dollars) of what is paid at once: two points at one instant.
    ``stored`` are the micro-dollars of checkpoints until an instant.
    """
    ordered = sorted(nodes, key=lambda node: node.launched_ms)
    paid: dict[int, int] = {}
    for ms, micros in moves:
        paid[ms] = paid.get(ms, 0) + micros
    instants = sorted({ms for node in ordered for ms in _knots(node, now_ms)} | paid.keys())
    points: list[SpendPoint] = []
    alive: list[NodeAccount] = []
    closed_micros = closed_uwh = begun = 0
    unknown = False
    for ms in instants:
        while begun < len(ordered) and ordered[begun].launched_ms <= ms:
            alive.append(ordered[begun])
            begun += 1
        micros = sum(map(partial(_node_micros, ms), alive)) + stored(ms)
        uwh = sum(sum(node.uwh(ms)) for node in alive)
        unknown = unknown or any(node.unpowered_ms(ms) for node in alive)
        wh = None if unknown else (closed_uwh + uwh) / 1e6
        points.append(SpendPoint(from_milliseconds(ms), closed_micros + micros, wh))
        if ms in paid:
            closed_micros += paid[ms]
            points.append(replace(points[-1], usd_micros=closed_micros + micros))
        for node in [node for node in alive if node.until_ms(now_ms) <= ms]:
            closed_micros += _node_micros(ms, node)
            closed_uwh += sum(node.uwh(ms))
            alive.remove(node)
    return tuple(points)


def _node_micros(ms: int, node: NodeAccount) -> int:
    return node.usd_micros(ms) + volume_usd_micros(node, ms)


def _knots(node: NodeAccount, now_ms: int) -> Iterable[int]:
    until = node.until_ms(now_ms)
    yield node.launched_ms
    yield until
    yield from (ms for ms in node.cost.starts_ms if ms < until)
    for start, end in node.busy.spans_until(until):
        yield start
        yield end
