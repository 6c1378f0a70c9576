"""What the ledgers of a test's folder last held, for the report of its failure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from costopt.domain.errors import CostoptError
from costopt.ledger.sql_ledger import open_sqlite_ledger

MOST = 60
"""Events of a job."""


def report_events(item: pytest.Item, report: pytest.TestReport) -> None:
    """Add each job's last events to the report of a test that failed."""
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and isinstance(folder, Path):
        for path in sorted(folder.rglob("ledger.sqlite")):
            with suppress(CostoptError):
                report.sections.append((str(path), "\n".join(_last_events(path))))


def _last_events(path: Path) -> Iterator[str]:
    with open_sqlite_ledger(path, create=False, read_only=True) as ledger:
        for job in ledger.jobs():
            for recorded in list(ledger.events(job))[-MOST:]:
                yield str(recorded.event)[:300]
