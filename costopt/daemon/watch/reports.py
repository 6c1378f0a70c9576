"""Periodic reports on all jobs, made in a child process so that no tick shares its interpreter.

A report is a folder with the figures in JSON and the pages that ``costopt report`` makes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event
from typing import Any

from costopt.controller.child import exit_with_parent
from costopt.daemon.http.schemas import to_json
from costopt.domain.errors import CostoptError, StoreError, failure_message
from costopt.ledger.base import DurableLedger, open_ledger
from costopt.ledger.fold_cache import summaries
from costopt.render.html import write_page
from costopt.render.reports.run import run_page

REPORTS = "reports"
NICENESS = 10
POLL_S = 0.1


class ReportProcess:
    """Reports on the ledger at ``place``, a file or a URL, into a folder of the state directory."""

    def __init__(self, place: Path | str, state_dir: Path, keep: int) -> None:
        """Keep the newest ``keep`` reports."""
        self._place = place
        self._folder = state_dir / REPORTS
        self._keep = keep
        self._ended = Event()

    def make(self, now: datetime) -> None:
        """Write a report and wait for it. Raise StoreError if it could not be written."""
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
        fault = _received_error(answers)
        if fault and not self._ended.is_set():
            raise StoreError(f"no report was made: {fault}")

    def end(self) -> None:
        """Stop the report in progress, as the daemon is stopping."""
        self._ended.set()


def _received_error(answers: Connection) -> str:
    """Return what went wrong; "" if nothing did."""
    with answers:
        try:
            return str(answers.recv())
        except EOFError:
            return "its process died"


def _make(answers: Connection, place: Path | str, folder: Path, now: datetime, keep: int) -> None:
    """Make the report in a child process, which ends with the daemon's."""
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


FIGURES = "report.json"
SCHEMA = "costopt.daemon-report/1"
UNFINISHED_SUFFIX = ".begun"


def write_report(ledger: DurableLedger, folder: Path, now: datetime, keep: int) -> Path | None:
    """Return a new report in ``folder``, of which the newest ``keep`` stay; None if no job ever
    ran.

    It holds the figures of all jobs, and a page for each job with events since the report before.
    Raise LedgerError, StoreError if the disk refuses, and CostoptError at the end if a job's page
    could not be made.
    """
    failed = []
    last_seqs = ledger.last_seqs()
    if not last_seqs:
        return None
    before = list_reports(folder)
    reported_seq = _reported_seq(before[-1]) if before else 0
    try:
        made = _made(folder)
        figures = [to_json(each) for each in summaries(ledger, lambda _, at: max(at, now))]
        _write_figures(made, figures, max(last_seqs.values()), now)
        for job in (job for job, seq in last_seqs.items() if seq > reported_seq):
            events = [recorded.event for recorded in ledger.events(job)]
            at = max(now, *(event.at for event in events))
            try:
                write_page(made / f"{job}.html", run_page(events, now=at, title=job))
            except OSError:
                raise
            except Exception as error:  # noqa: BLE001 - one job's page must not cost the others'
                failed.append(f"{job}: {failure_message(error)}")
        whole = made.rename(folder / f"{now.astimezone(UTC):%Y-%m-%dT%H%M%SZ}")
        for old in list_reports(folder)[:-keep]:
            shutil.rmtree(old)
    except OSError as error:
        raise StoreError(
            f"the report in {folder} cannot be written: {(error.strerror or '').lower()}",
            hint="check that the folder is writable and has space",
            code="unwritable",
        ) from error
    if failed:
        raise CostoptError(f"{whole} lacks the pages of {'; '.join(failed)}")
    return whole


def list_reports(folder: Path) -> list[Path]:
    """Return the complete reports, the oldest first."""
    return sorted(path.parent for path in folder.glob(f"[0-9]*/{FIGURES}"))


def _made(folder: Path) -> Path:
    """Return an empty folder for an unfinished report; what an earlier attempt left is deleted."""
    made = folder / UNFINISHED_SUFFIX
    if made.exists():
        shutil.rmtree(made)
    made.mkdir(parents=True)
    return made


def _write_figures(folder: Path, jobs: list[Any], last_seq: int, now: datetime) -> None:
    made_at = now.astimezone(UTC).isoformat().replace("+00:00", "Z")
    figures = {"schema": SCHEMA, "made_at": made_at, "last_seq": last_seq, "jobs": jobs}
    text = json.dumps(figures, indent=1)
    (folder / FIGURES).write_text(text, encoding="utf-8")


def _reported_seq(report: Path) -> int:
    """Return the number of the last event in the report; 0 if that cannot be read."""
    try:
        return int(json.loads((report / FIGURES).read_text(encoding="utf-8"))["last_seq"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
