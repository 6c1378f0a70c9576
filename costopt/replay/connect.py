"""Finds provider adapters through their entry points; none is imported by name."""

from __future__ import annotations

from importlib.metadata import entry_points

from costopt.domain.errors import CostoptError, MissingExtraError, ProviderError
from costopt.domain.ports import Clock, Provider, ProviderOptions, SimulatedProvider
from costopt.provider.fault_isolation import isolate

GROUP = "costopt.providers"


def connect(name: str, clock: Clock, options: ProviderOptions) -> Provider:
    """The adapter that is registered as ``name``, its defects kept to it.

    Raises MissingExtraError, and ProviderError where it refuses its options or fails.
    """
    return isolate(_connect(name, clock, options))


def connect_virtual(clock: Clock, options: ProviderOptions) -> SimulatedProvider:
    """The simulator with virtual nodes, which brings the training runtime it simulates.

    It is not isolated: in a replay, a defect of the simulator ends the replay.
    """
    provider = _connect("sim", clock, {**options, "mode": "virtual"})
    assert isinstance(provider, SimulatedProvider)
    return provider


def _connect(name: str, clock: Clock, options: ProviderOptions) -> Provider:
    found = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    if not found:
        known = ", ".join(sorted(entry.name for entry in entry_points(group=GROUP))) or "none"
        raise MissingExtraError(
            f"no provider adapter named {name!r} is installed (installed: {known})",
            hint=f"pip install 'costopt[{name}]'",
        )
    try:
        provider: Provider = found[0].load()(clock, options)
    except CostoptError:
        raise
    except Exception as error:
        raise ProviderError(
            f"provider adapter {name!r} cannot be connected: {type(error).__name__}: {error}",
            hint=f"this is a defect of {found[0].value}, or its installation is incomplete",
        ) from error
    return provider
