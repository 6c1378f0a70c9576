"""Where jobs run: the site of a run, a daemon or a backtest, and the adapters of its providers.

Adapters are found through their entry points; none is imported by name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol

from costopt.controller.node_logs import LogReader
from costopt.domain.account import Quota
from costopt.domain.errors import CostoptError, ProviderError
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.ports import (
    CarbonRecord,
    Clock,
    Forecasts,
    HazardModel,
    InstanceCatalog,
    PowerModel,
)
from costopt.domain.runtime import Runtime
from costopt.domain.transfers import TransferPrices
from costopt.energy.live import LiveCarbon
from costopt.market.hazard import LearnedHazard
from costopt.provider.base import Capability, Provider, ProviderOptions
from costopt.provider.fault_isolation import IsolatedProvider
from costopt.spec.account_file import GROUP


def connect_provider(name: str, clock: Clock, options: ProviderOptions) -> Provider:
    """Return the provider that is registered as ``name``, with its defects isolated.

    Raise ProviderError if there is none, or if it refuses its options or fails.
    """
    return _connect(name, clock, options, IsolatedProvider)


def find_adapter(name: str) -> EntryPoint:
    """Where the adapter is. Raises ProviderError where none is registered as ``name``.

    costopt's own are registered whether their extra is installed or not.
    """
    adapters = _adapters(tuple(sys.path))
    if name in adapters:
        return adapters[name]
    known = ", ".join(sorted(adapters)) or "none"
    raise ProviderError(
        f"no provider adapter named {name!r} is installed (installed: {known})",
        hint="check the name, or install the package that brings the adapter",
    )


@cache
def _adapters(_path: tuple[str, ...]) -> Mapping[str, EntryPoint]:
    """By name, of every package on this search path; to read them all takes 10 ms."""
    return {adapter.name: adapter for adapter in reversed(list(entry_points(group=GROUP)))}


def connect_virtual_provider(clock: Clock, options: ProviderOptions) -> Provider:
    """The simulator with virtual nodes, which brings the training runtime it simulates.

    It is not isolated: in a replay, a defect of the simulator ends the replay.
    """
    return _connect("sim", clock, {**options, "mode": "virtual"}, lambda provider: provider)


def _connect(
    name: str, clock: Clock, options: ProviderOptions, wrap: Callable[[Provider], Provider]
) -> Provider:
    adapter = find_adapter(name)
    try:
        provider = adapter.load()(clock, options)
        if not isinstance(provider, Provider):
            raise TypeError(f"expected a Provider, got {type(provider).__name__}")
        return wrap(provider)
    except CostoptError:
        raise
    except Exception as error:
        raise ProviderError(
            f"provider adapter {name!r} cannot be connected: {type(error).__name__}: {error}",
            hint=f"this is a defect of {adapter.value}, or its installation is incomplete",
        ) from error


def provider_quotas(
    providers: Iterable[Provider], now: datetime
) -> tuple[tuple[Quota, ...], tuple[ProviderError, ...]]:
    """The quotas of all providers that tell theirs, and why others that could do not.

    A quota that cannot be read limits nothing here: the provider refuses what goes beyond it.
    """
    quotas: list[Quota] = []
    failures: list[ProviderError] = []
    for provider in providers:
        if Capability.QUOTAS in provider.capabilities():
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


@dataclass(frozen=True, slots=True)
class Site:
    """Where jobs run: all that a controller works with beside the ledger and the jobs.

    ``transfers`` None: no price of a transfer is known. ``forecasts`` None: what is, is expected to
    stay. ``carbon`` None: no hour's carbon intensity is recorded, annual means count.
    """

    owner: str
    clock: ScaledClockPort
    providers: tuple[Provider, ...]
    runtime: Runtime
    machines: InstanceCatalog
    powers: PowerModel
    hazards: HazardModel
    transfers: TransferPrices | None
    forecasts: Forecasts | None
    carbon: CarbonRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSite(Site):
    """A site whose nodes run a job's command.

    ``prepare_job`` gives a job a place for checkpoints that its nodes can reach; raises SpecError.
    ``check`` raises a CostoptError where the job could not train or save: for use before its first
    launch; ``check_secrets`` does the part of it that needs no request, for use at a submission.
    ``upload_payload`` puts a job's files where its nodes fetch them, and may take long; it
    may be called in any thread, and again after a restart; raises CostoptError. ``retry`` lets a
    job that failed fail as often again. ``market`` is the record that is played, None where prices
    are those of a cloud and have to be asked for. ``live_carbon`` has to be refreshed, None where
    intensities are recorded or unknown.
    """

    hazards: LearnedHazard
    prepare_job: Callable[[Job], Job]
    check: Callable[[Job], None]
    check_secrets: Callable[[Job], None]
    upload_payload: Callable[[Job], None]
    retry: Callable[[Job], None]
    logs: LogReader
    market: MarketHistory | None
    live_carbon: LiveCarbon | None = None

    @property
    def is_simulated(self) -> bool:
        """Whether it plays a record."""
        return self.market is not None


class SiteConfig(Protocol):
    """What a run or a daemon is to be connected to; nothing is connected yet."""

    def start_time(self) -> datetime:
        """When a job that is submitted now begins."""
        ...

    def connect(self, folder: Path, *, fresh: bool = False) -> LiveSite:
        """The site, which may keep files of its own in ``folder``; ``fresh`` if nothing ran there.

        Raises SpecError, StoreError, ProviderError and MissingExtraError.
        """
        ...
