"""Finds provider adapters through their entry points; none is imported by name."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import EntryPoint, entry_points

from costopt.domain.errors import CostoptError, ProviderError
from costopt.domain.ports import Clock
from costopt.domain.quota import Quota
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
