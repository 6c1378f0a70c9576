"""What goes wrong with one job's own store or runtime, kept to that job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from costopt.domain.errors import CostoptError, LedgerError
from costopt.domain.events import SignalStale
from costopt.engine.journal import Journal

SOURCE = "the job's runtime"


class Troubles:
    """Remembers which jobs had trouble at this tick and at the one before."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._before: dict[str, str] = {}
        self.told: dict[str, str] = {}

    def turn(self) -> None:
        """A tick begins: everything is tried again."""
        self._before, self.told = self.told, {}

    @contextmanager
    def kept_to(self, job: str, now: datetime) -> Iterator[None]:
        """What fails inside is told in the job's ledger, once for as long as it goes on, and ends
        nothing but this; also where nodes told figures with which nothing can be reckoned. Raises
        LedgerError."""
        try:
            yield
        except LedgerError:
            raise
        except CostoptError as error:
            self._tell(job, error.message, now)
        except (ArithmeticError, ValueError) as error:
            self._tell(job, f"{type(error).__name__}: {error}", now)

    def _tell(self, job: str, message: str, now: datetime) -> None:
        if job not in self._before and job not in self.told:
            self._journal.write(SignalStale(at=now, job=job, source=SOURCE, message=message))
        self.told[job] = message
