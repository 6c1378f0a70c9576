"""Makes reports in a process of its own, so that no tick shares its interpreter with them."""

from __future__ import annotations

import multiprocessing
import os
from contextlib import suppress
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event

from costopt.controller.child import exit_with_parent
from costopt.daemon.report_folder import write_report
from costopt.domain.errors import CostoptError, StoreError
from costopt.ledger.stored import open_ledger

REPORTS = "reports"
NICENESS = 10
POLL_S = 0.1


class ReportProcess:
    """Of the ledger at ``place``, a file or a URL, into a folder of the state directory."""

    def __init__(self, place: Path | str, state_dir: Path, keep: int) -> None:
        """The newest ``keep`` stay."""
        self._place = place
        self._folder = state_dir / REPORTS
        self._keep = keep
        self._ended = Event()

    def make(self, now: datetime) -> None:
        """Write one, and wait for it. Raises StoreError where it could not be written."""
        context = multiprocessing.get_context("spawn")
        answers, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_make, args=(theirs, self._place, self._folder, now, self._keep), daemon=True
        )
        process.start()
        theirs.close()
        while process.is_alive() and not self._ended.is_set():
            process.join(POLL_S)
        if self._ended.is_set():
            process.kill()
        process.join()
        fault = _told(answers)
        if fault and not self._ended.is_set():
            raise StoreError(f"no report was made: {fault}")

    def end(self) -> None:
        """Give up what is being made: the daemon ends."""
        self._ended.set()


def _told(answers: Connection) -> str:
    """What went wrong, "" where nothing did."""
    with answers:
        try:
            return str(answers.recv())
        except EOFError:
            return "its process died"


def _make(answers: Connection, place: Path | str, folder: Path, now: datetime, keep: int) -> None:
    """In a process of its own, which ends with the daemon's."""
    exit_with_parent()
    os.nice(NICENESS)
    fault = ""
    try:
        with open_ledger(place, create=False) as ledger:
            write_report(ledger, folder, now, keep)
    except CostoptError as error:
        fault = error.message
    with suppress(BrokenPipeError):
        answers.send(fault)
