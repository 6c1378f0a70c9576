"""What the engine needs of the world. Each docstring is the contract that adapters are held to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from costopt.domain.estimate import Estimate, Series
from costopt.domain.events import Event
from costopt.domain.market import InstanceType, Offer, Pool
from costopt.domain.policy import CarbonSignal
from costopt.domain.power import NodePower
from costopt.domain.view import Desired, View

AnyEvent = TypeVar("AnyEvent", bound=Event)


class Clock(Protocol):
    """Time as the engine lives it: the wall, a faster wall, or a replay."""

    def now(self) -> datetime:
        """The present, aware UTC."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for ``seconds`` of this clock's time."""
        ...


class Strategy(Protocol):
    """The algorithm that a policy selects. It may keep estimates between calls, nothing else.

    A strategy whose class has an attribute ``joint`` that is true decides all jobs of a policy in
    one call; any other is made once for each job. With ``spreads_zones`` it can keep a policy's
    ``max_zone_share``.
    """

    def decide(self, view: View) -> Desired:
        """One decision for every job of the view; must not do I/O."""
        ...


class HazardModel(Protocol):
    """Interruptions per node-hour and availability, learned from what is seen."""

    def observe(
        self, offers: Sequence[Offer], now: datetime, running: Collection[Pool] = ()
    ) -> None:
        """Take note of which pools have capacity; ``running`` are those where our nodes live.

        A pool whose last free node is ours has capacity, though its offer has none left.
        """
        ...

    def record_interruption(self, pool: Pool, at: datetime) -> None:
        """Take note of an interruption of one of our nodes."""
        ...

    def hazard_per_hour(self, pool: Pool) -> Estimate | None:
        """The present estimate, or None where nothing is known."""
        ...

    def availability(self, pool: Pool) -> Estimate | None:
        """The share of time in which the pool has capacity, or None where nothing is known."""
        ...


class PowerModel(Protocol):
    """Power of a node of a pool."""

    def node_power(
        self, pool: Pool, carbon_signal: CarbonSignal = CarbonSignal.AVERAGE
    ) -> NodePower | None:
        """With the annual mean of this signal; None where any figure of the power is unknown."""
        ...


class Forecasts(Protocol):
    """What prices and carbon intensities are expected to be, from what was known by ``now``."""

    def prices(
        self, pools: Collection[Pool], now: datetime, until: datetime
    ) -> Mapping[Pool, Series]:
        """Dollars per node-hour; a pool without a series is expected to keep its price."""
        ...

    def carbon(
        self,
        regions: Collection[str],
        now: datetime,
        until: datetime,
        carbon_signal: CarbonSignal,
    ) -> Mapping[str, Series]:
        """gCO2e/kWh by "provider/region"; without a series the annual mean is expected."""
        ...


class CarbonRecord(Protocol):
    """Recorded carbon intensities, hour by hour."""

    def intensity(
        self, region: str, hour_at: datetime, carbon_signal: CarbonSignal
    ) -> Estimate | None:
        """gCO2e/kWh of "provider/region" in the hour that begins at ``hour_at``.

        None where the hour, the region or the signal was not recorded.
        """
        ...


class InstanceCatalog(Protocol):
    """The catalogue, as the engine reads it."""

    def instance_type(self, pool: Pool) -> InstanceType | None:
        """The instance type of a pool, or None where the catalogue does not hold it."""
        ...


class Signal(Protocol):
    """A quantity over time: constant, recorded, forecast or live, such as carbon intensity."""

    def at(self, when: datetime) -> Estimate | None:
        """The value at ``when``, or None where it is unknown."""
        ...


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event with its place in the ledger."""

    seq: int
    event: Event


class Ledger(Protocol):
    """Append-only events. What is appended is durable when ``append`` returns."""

    def append(self, *events: Event) -> None:
        """All of them or none. Raises LedgerError."""
        ...

    def events(self, job: str | None = None, after: int = 0) -> Iterator[RecordedEvent]:
        """Events in order, of one job or of all, with seq > ``after``."""
        ...


class EventIndex(Ledger, Protocol):
    """A ledger that finds events of one kind without decoding the others."""

    def newest(self, kind: type[AnyEvent], job: str) -> Iterator[tuple[int, AnyEvent]]:
        """The job's events of a kind with their seq, newest first. Raises LedgerError."""
        ...

    def last_of_each(self, kind: type[AnyEvent]) -> Iterator[tuple[int, AnyEvent]]:
        """The newest event of a kind of each job with its seq, newest first. Raises LedgerError."""
        ...


@dataclass(frozen=True, slots=True)
class VersionedObject:
    """An object's bytes, and the tag of exactly these bytes for ``ObjectStore.replace``.

    The tag is opaque, and good for this store only.
    """

    data: bytes
    tag: str


class ObjectStore(Protocol):
    """Named bytes: a folder, S3 or GCS. Raises StoreError.

    A put is atomic: a reader sees the old bytes, the new ones or none, never a part. A key that is
    written with ``replace`` is never written with ``put`` or ``put_file`` as well.
    """

    def put(self, key: str, data: bytes) -> None:
        """Write or replace, durably."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write unless the key exists; False where it does."""
        ...

    def get(self, key: str, most_bytes: int | None = None) -> bytes | None:
        """The bytes, or None where the key is missing.

        What others may have written is read with ``most_bytes``: StoreError where it is larger,
        without reading on.
        """
        ...

    def get_tagged(self, key: str) -> VersionedObject | None:
        """The bytes with their tag, or None where the key is missing."""
        ...

    def replace(self, key: str, data: bytes, tag: str | None) -> bool:
        """Write if the key still holds what ``tag`` was given for; None: if it is missing.

        False where it does not, and nothing is written then: of many writers with one tag exactly
        one gets True.
        """
        ...

    def put_file(self, key: str, path: Path) -> None:
        """Write or replace with the bytes of a file, which need not fit into memory."""
        ...

    def get_file(self, key: str, path: Path) -> bool:
        """Write the bytes to ``path``, whole or not at all; False where the key is missing."""
        ...

    def keys(self, prefix: str, after: str = "", most: int | None = None) -> Sequence[str]:
        """Keys that begin with ``prefix`` and come after ``after``, sorted; the first ``most``."""
        ...

    def delete(self, key: str) -> None:
        """Remove; a missing key is no error."""
        ...
