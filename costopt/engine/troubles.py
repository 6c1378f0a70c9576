"""What goes wrong with one job's own store, runtime or strategy, kept to that job."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from costopt.domain.errors import CostoptError, LedgerError
from costopt.domain.events import SignalStale
from costopt.domain.text import untrusted_text
from costopt.engine.journal import Journal

RUNTIME = "the job's runtime"
STRATEGY = "the job's strategy"

log = logging.getLogger("costopt.engine.troubles")


class JobFailures:
    """Remembers which jobs had trouble at this tick and at the one before."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._before: dict[str, str] = {}
        self.told: dict[str, str] = {}

    def turn(self) -> None:
        """A tick begins: everything is tried again."""
        self._before, self.told = self.told, {}

    @contextmanager
    def isolate(self, job: str, now: datetime) -> Iterator[None]:
        """What fails inside is told in the job's ledger, once for as long as it goes on, and ends
        nothing but this, whatever it is. Raises LedgerError."""
        try:
            yield
        except LedgerError:
            raise
        except CostoptError as error:
            self.report(job, RUNTIME, error.message, now)
        except Exception as error:  # what a job's own nodes brought about ends no other's tick
            log.exception("job %s: its runtime failed", job)
            self.report(job, RUNTIME, f"{type(error).__name__}: {error}", now)

    def report(self, job: str, source: str, message: str, now: datetime) -> None:
        """The job is in trouble: news, unless it was so at this tick or the one before. Raises
        LedgerError."""
        message = untrusted_text(message)
        if job not in self._before and job not in self.told:
            self._journal.write(SignalStale(at=now, job=job, source=source, message=message))
        self.told[job] = message
