"""Which providers do not answer, told once for as long as it goes on."""

from __future__ import annotations

from datetime import datetime

from costopt.domain.errors import CostoptError
from costopt.domain.events import SignalStale
from costopt.engine.journal import Journal
from costopt.provider.base import Capability, Provider


class ProviderFailures:
    """Remembers, by provider, which of its calls failed the last time."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._failing: dict[str, set[str]] = {}
        self._complaints: dict[str, set[str]] = {}
        self._reasons: dict[str, str] = {}
        self._parts: dict[str, dict[str, str]] = {}

    @property
    def record(self) -> dict[str, str]:
        """By provider or part of one, why it does not answer now."""
        return {name: self._reasons[name] for name, calls in self._failing.items() if calls} | {
            source: why for why_of in self._parts.values() for source, why in why_of.items()
        }

    def ended(self, provider: Provider, call: str) -> None:
        """The call was answered."""
        self._failing.get(_label(provider), set()).discard(call)

    def is_failing(self, provider: Provider, call: str, error: CostoptError, now: datetime) -> None:
        """The call failed: an event for each job, unless another call of it fails already."""
        failing = self._failing.setdefault(_label(provider), set())
        if not failing:
            self._tell(_label(provider), error.message, now)
        failing.add(call)
        self._reasons[_label(provider)] = error.message

    def record_partial(self, provider: Provider, now: datetime) -> None:
        """Tell which parts of a provider that answers do not, each once."""
        told = self._complaints.setdefault(_label(provider), set())
        partial = Capability.PARTIAL_FAILURES in provider.capabilities()
        complaints = provider.errors_by_region() if partial else {}
        for source in sorted(complaints.keys() - told):
            self._tell(source, complaints[source], now)
        self._complaints[_label(provider)] = set(complaints)
        self._parts[_label(provider)] = dict(complaints)

    def _tell(self, source: str, message: str, now: datetime) -> None:
        told = (
            SignalStale(at=now, job=job, source=source, message=message)
            for job in self._journal.records
        )
        self._journal.write(*told)


def _label(provider: Provider) -> str:
    return "+".join(sorted(provider.names))
