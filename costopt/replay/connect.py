"""Finds provider adapters through their entry points; none is imported by name."""

from __future__ import annotations

from importlib.metadata import entry_points

from costopt.domain.errors import MissingExtraError
from costopt.domain.ports import Clock, Provider, ProviderOptions, SimulatedProvider

GROUP = "costopt.providers"


def connect(name: str, clock: Clock, options: ProviderOptions) -> Provider:
    """The adapter that is registered as ``name``. Raises MissingExtraError."""
    found = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    if not found:
        known = ", ".join(sorted(entry.name for entry in entry_points(group=GROUP))) or "none"
        raise MissingExtraError(
            f"no provider adapter named {name!r} is installed (installed: {known})",
            hint=f"pip install 'costopt[{name}]'",
        )
    provider: Provider = found[0].load()(clock, options)
    return provider


def connect_virtual(clock: Clock, options: ProviderOptions) -> SimulatedProvider:
    """The simulator with virtual nodes, which brings the training runtime it simulates."""
    provider = connect("sim", clock, {**options, "mode": "virtual"})
    assert isinstance(provider, SimulatedProvider)
    return provider
