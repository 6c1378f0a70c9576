"""Failures of single jobs and of providers, each reported once for as long as it lasts.

A failure of one job's own store, runtime or strategy affects no other job. A provider that does not
answer is reported to each job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from costopt.domain.errors import CostoptError, LedgerError, failure_message
from costopt.domain.events import SignalStale
from costopt.domain.text import untrusted_text
from costopt.engine.journal import Journal
from costopt.ledger.codec import UNRECORDABLE
from costopt.provider.base import Capability, Provider

RUNTIME = "the job's runtime"
STRATEGY = "the job's strategy"

log = logging.getLogger("costopt.engine.failures")


class JobFailures:
    """Remembers which jobs failed at this tick and at the one before."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._before: dict[str, str] = {}
        self.reported: dict[str, str] = {}

    def turn(self) -> None:
        """Begin a tick, at which everything is tried again."""
        self._before, self.reported = self.reported, {}

    @contextmanager
    def isolate(self, job: str, now: datetime) -> Iterator[None]:
        """Record any error raised inside in the job's ledger, once for as long as it recurs, and
        suppress it. Raises LedgerError if the ledger fails."""
        try:
            yield
        except Exception as error:  # an error that one job causes must not end the others' tick
            if isinstance(error, LedgerError) and error.code != UNRECORDABLE:
                raise
            if not isinstance(error, CostoptError):
                log.exception("job %s: its runtime failed", job)
            self.report(job, RUNTIME, failure_message(error), now)

    def report(self, job: str, source: str, message: str, now: datetime) -> None:
        """Record that the job is failing, unless it did so at this tick or the one before. Raises
        LedgerError."""
        message = untrusted_text(message)
        if job not in self._before and job not in self.reported:
            self._journal.write(SignalStale(at=now, job=job, source=source, message=message))
        self.reported[job] = message


class ProviderFailures:
    """Remembers, by provider, which of its calls failed last time."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._failing: dict[str, set[str]] = {}
        self._complaints: dict[str, set[str]] = {}
        self._reasons: dict[str, str] = {}
        self._parts: dict[str, dict[str, str]] = {}

    @property
    def record(self) -> dict[str, str]:
        """Return, by provider or part of one, the error for which it is unreachable."""
        return {name: self._reasons[name] for name, calls in self._failing.items() if calls} | {
            source: why for why_of in self._parts.values() for source, why in why_of.items()
        }

    def ended(self, provider: Provider, call: str) -> None:
        """Note that the call was answered."""
        self._failing.get(_label(provider), set()).discard(call)

    def is_failing(self, provider: Provider, call: str, error: CostoptError, now: datetime) -> None:
        """Note that the call failed: an event for each job, unless another of its calls fails."""
        failing = self._failing.setdefault(_label(provider), set())
        if not failing:
            self._report(_label(provider), error.message, now)
        failing.add(call)
        self._reasons[_label(provider)] = error.message

    def record_partial(self, provider: Provider, now: datetime) -> None:
        """Record which parts of a reachable provider do not answer, each once."""
        known = self._complaints.setdefault(_label(provider), set())
        partial = Capability.PARTIAL_FAILURES in provider.capabilities()
        complaints = provider.errors_by_region() if partial else {}
        for source in sorted(complaints.keys() - known):
            self._report(source, complaints[source], now)
        self._complaints[_label(provider)] = set(complaints)
        self._parts[_label(provider)] = dict(complaints)

    def _report(self, source: str, message: str, now: datetime) -> None:
        events = (
            SignalStale(at=now, job=job, source=source, message=message)
            for job in self._journal.records
        )
        self._journal.write(*events)


def _label(provider: Provider) -> str:
    return "+".join(sorted(provider.names))
