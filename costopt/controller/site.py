"""Where jobs run: the site of a run, a daemon or a backtest, and the adapters of its providers.

Adapters are found through their entry points; none is imported by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol

from costopt.controller.node_logs import LogReader
from costopt.controller.runtime import MailboxRuntime
from costopt.domain.errors import CostoptError, ProviderError
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.ports import CarbonRecord, Clock, Forecasts, ObjectStore
from costopt.domain.quota import Quota
from costopt.domain.runtime import Runtime
from costopt.market.hazard import LearnedHazard
from costopt.provider.base import Provider, ProviderOptions, QuotaSource, SimulatedProvider
from costopt.provider.fault_isolation import isolate
from costopt.spec.provider_options import GROUP


def connect_provider(name: str, clock: Clock, options: ProviderOptions) -> Provider:
    """The adapter that is registered as ``name``, its defects kept to it.

    Raises ProviderError where there is none, or it refuses its options or fails.
    """
    return isolate(_connect(name, clock, options))


def find_adapter(name: str) -> EntryPoint:
    """Where the adapter is. Raises ProviderError where none is registered as ``name``.

    costopt's own are registered whether their extra is installed or not.
    """
    adapters = entry_points(group=GROUP)
    for adapter in adapters:
        if adapter.name == name:
            return adapter
    known = ", ".join(sorted(adapter.name for adapter in adapters)) or "none"
    raise ProviderError(
        f"no provider adapter named {name!r} is installed (installed: {known})",
        hint="check the name, or install the package that brings the adapter",
    )


def connect_virtual_provider(clock: Clock, options: ProviderOptions) -> SimulatedProvider:
    """The simulator with virtual nodes, which brings the training runtime it simulates.

    It is not isolated: in a replay, a defect of the simulator ends the replay.
    """
    provider = _connect("sim", clock, {**options, "mode": "virtual"})
    assert isinstance(provider, SimulatedProvider)
    return provider


def _connect(name: str, clock: Clock, options: ProviderOptions) -> Provider:
    adapter = find_adapter(name)
    try:
        provider: Provider = adapter.load()(clock, options)
    except CostoptError:
        raise
    except Exception as error:
        raise ProviderError(
            f"provider adapter {name!r} cannot be connected: {type(error).__name__}: {error}",
            hint=f"this is a defect of {adapter.value}, or its installation is incomplete",
        ) from error
    return provider


def provider_quotas(
    providers: Iterable[Provider], now: datetime
) -> tuple[tuple[Quota, ...], tuple[ProviderError, ...]]:
    """The quotas of all providers that tell theirs, and why others that could do not.

    A quota that cannot be read limits nothing here: the provider refuses what goes beyond it.
    """
    quotas: list[Quota] = []
    failures: list[ProviderError] = []
    for provider in providers:
        if isinstance(provider, QuotaSource):
            try:
                quotas += provider.quotas(now)
            except ProviderError as error:
                failures.append(error)
    return tuple(quotas), tuple(failures)


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


@dataclass(frozen=True, slots=True)
class Site:
    """``fitted`` gives a job its place for checkpoints; raises SpecError.

    ``receive`` puts a job's files where its nodes fetch them, and may take long; it is called in
    any thread, again after a restart, and raises CostoptError. ``retry`` lets a job that failed
    fail as often again. ``simulated``: prices are known without asking anybody.
    """

    owner: str
    clock: ScaledClockPort
    providers: tuple[Provider, ...]
    runtime: Runtime
    hazards: LearnedHazard
    notice_s: float
    prepare_job: Callable[[Job], Job]
    upload_payload: Callable[[Job], None]
    retry: Callable[[Job], None]
    forecasts: Forecasts | None
    carbon: CarbonRecord | None
    logs: LogReader
    simulated: bool
