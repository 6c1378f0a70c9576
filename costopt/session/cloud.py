"""What a live run is connected to: a simulated cloud, or the account of a real one."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Protocol

from costopt.controller.runtime import MailboxRuntime
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.ports import CarbonRecord, Clock, Forecasts, ObjectStore
from costopt.provider.base import Provider


class ScaledClockPort(Clock, Protocol):
    """A clock that runs ``speed`` times as fast as the wall."""

    @property
    def speed(self) -> float:
        """1.0 for real time."""
        ...


class Cloud(Protocol):
    """``folder`` is always the job's own folder in the state directory."""

    @property
    def owner(self) -> str:
        """The tag of the nodes that are ours."""
        ...

    @property
    def notice_s(self) -> float:
        """From an interruption's notice to its strike."""
        ...

    @property
    def market(self) -> MarketHistory | None:
        """The record that it plays, None where it is real."""
        ...

    def start_time(self) -> datetime:
        """When a job that is submitted now begins."""
        ...

    def clock(self, folder: Path, *, anew: bool) -> ScaledClockPort:
        """The run's clock; ``anew`` unless the job was submitted before. Raises StoreError."""
        ...

    def prepare_job(self, job: Job) -> Job:
        """The job with its checkpoints where its nodes can reach them. Raises SpecError."""
        ...

    def check(self, job: Job) -> None:
        """Before the first launch: raise a CostoptError where the job could not train or save."""
        ...

    def store(self, folder: Path, job: Job) -> ObjectStore:
        """Where the job's nodes and the controller leave messages. Raises StoreError."""
        ...

    def providers(
        self, clock: Clock, folder: Path, job: Job, runtime: MailboxRuntime
    ) -> tuple[Provider, ...]:
        """The adapters that give the job nodes. Raises ProviderError, MissingExtraError."""
        ...

    def forecasts(self) -> Forecasts | None:
        """What is expected of prices and intensities, None where what is is expected to stay."""
        ...

    def carbon_record(self) -> CarbonRecord | None:
        """The recorded carbon intensities by the hour, None where there are none."""
        ...
