"""The engine's ports. Each docstring is the contract that adapters must satisfy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from costopt.domain.estimate import Estimate, Series
from costopt.domain.events import Event
from costopt.domain.market import InstanceType, Offer, Pool
from costopt.domain.policy import CarbonSignal
from costopt.domain.power import NodePower
from costopt.domain.view import Desired, View

AnyEvent = TypeVar("AnyEvent", bound=Event)


class Clock(Protocol):
    """The engine's time: real time, faster time, or a replay's."""

    def now(self) -> datetime:
        """Return the present, aware UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds`` of this clock's time."""
        ...


class Strategy(Protocol):
    """The algorithm that a policy selects. It may store estimates between calls, nothing else.

    A strategy whose class has an attribute ``joint`` that is true decides all jobs of a policy in
    one call; of any other, one instance is made for each job. One with ``spreads_zones`` can
    satisfy a policy's ``max_zone_share``; one that ``starts_between_ticks`` is asked when a job
    begins, and not only at the next tick.
    """

    def decide(self, view: View) -> Desired:
        """Return one decision for every job of the view. Must not do I/O."""
        ...


class HazardModel(Protocol):
    """Interruptions per node-hour and availability, learned from observations."""

    def observe(
        self, offers: Sequence[Offer], now: datetime, running: Collection[Pool] = ()
    ) -> None:
        """Record which pools have capacity; ``running`` are those where our nodes live.

        A pool whose last free node is ours has capacity, though its offer has none left.
        """
        ...

    def record_interruption(self, pool: Pool, at: datetime) -> None:
        """Record an interruption of one of our nodes."""
        ...

    def hazard_per_hour(self, pool: Pool) -> Estimate | None:
        """Return the present estimate, or None where nothing is known."""
        ...

    def availability(self, pool: Pool) -> Estimate | None:
        """Return the share of time in which the pool has capacity, or None where unknown."""
        ...


class PowerModel(Protocol):
    """Power of a node of a pool."""

    def node_power(
        self, pool: Pool, carbon_signal: CarbonSignal = CarbonSignal.AVERAGE
    ) -> NodePower | None:
        """Return the power, with this signal's annual mean; None where any watts are unknown."""
        ...


class Forecasts(Protocol):
    """Expected prices and carbon intensities, by what was known at ``now``."""

    def prices(
        self, pools: Collection[Pool], now: datetime, until: datetime
    ) -> Mapping[Pool, Series]:
        """Return dollars per node-hour; a pool without a series is expected to keep its price."""
        ...

    def carbon(
        self, regions: Collection[str], now: datetime, until: datetime, carbon_signal: CarbonSignal
    ) -> Mapping[str, Series]:
        """Return gCO2e/kWh by "provider/region"; without a series the annual mean is expected."""
        ...


@dataclass(frozen=True, slots=True)
class SignalProblem:
    """Why a source of signals has nothing usable for something, named in the message.

    ``code`` names the kind of problem among those of the source, such as stale or refused.
    """

    source: str
    code: str
    message: str


class CarbonRecord(Protocol):
    """Carbon intensities, hour by hour, recorded in a file or by a service."""

    def intensity(
        self, region: str, hour_at: datetime, carbon_signal: CarbonSignal
    ) -> Estimate | None:
        """Return gCO2e/kWh of "provider/region" in the hour that begins at ``hour_at``.

        None where the hour, the region or the signal was not recorded. The answer may change for
        an hour in progress, and become known later for an hour that is over.
        """
        ...

    @property
    def revision(self) -> int:
        """Return a number that grows whenever any intensity has become known or has changed."""
        ...

    def problems(self, now: datetime) -> Sequence[SignalProblem]:
        """Return what is wrong with the source at present, as far as it is in use."""
        ...


class InstanceCatalog(Protocol):
    """The part of the catalog that the engine reads."""

    def instance_type(self, pool: Pool) -> InstanceType | None:
        """Return the instance type of a pool, or None where it is not in the catalog."""
        ...


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event with its sequence number in the ledger."""

    seq: int
    event: Event


class EventStream(Protocol):
    """Events in order."""

    def events(self, job: str | None = None, after: int = 0) -> Iterator[RecordedEvent]:
        """Yield events in order, of one job or of all, with seq > ``after``."""
        ...


class Ledger(EventStream, Protocol):
    """Append-only events. Appended events are durable when ``append`` returns."""

    def append(self, *events: Event) -> None:
        """Append all of them or none. Raises LedgerError."""
        ...


class EventReader(EventStream, Protocol):
    """Events, also those of one kind alone."""

    def newest(self, kind: type[AnyEvent], job: str) -> Iterator[tuple[int, AnyEvent]]:
        """Yield the job's events of a kind with their seq, newest first. Raises LedgerError."""
        ...


class EventIndex(Ledger, EventReader, Protocol):
    """A ledger that finds events of one kind without decoding the others."""

    def last_of_each(self, kind: type[AnyEvent]) -> Iterator[tuple[int, AnyEvent]]:
        """Yield each job's newest event of a kind with its seq, newest first.

        Raises LedgerError.
        """
        ...
