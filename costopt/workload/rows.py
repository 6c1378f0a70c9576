"""Rows of a record, read cell by cell: what makes no sense is named by row and column."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from costopt.workload.workload import RecordedJob

MAX_GPUS = 1_000_000
MAX_DURATION_S = 100 * 365.25 * 86_400


class RowError(ValueError):
    """A row that cannot be used: its column, and what is wrong with it."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"column {column}: {reason}")
        self.column = column
        self.reason = reason


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Rows left out for one reason: how many, and the line of the first."""

    column: str
    reason: str
    rows: int
    first_line: int

    def __str__(self) -> str:
        rows = "1 row" if self.rows == 1 else f"{self.rows:,} rows"
        return f"{rows} left out, column {self.column}: {self.reason} (line {self.first_line})"


@dataclass(frozen=True, slots=True)
class Record:
    """A row as text by column, and where the record's relative times begin, if that was said."""

    cells: Mapping[str, str]
    start_at: datetime | None = None

    def text(self, column: str) -> str:
        """Return the cell. Raise RowError if it is empty."""
        value = self.optional(column)
        if value is None:
            raise RowError(column, "is empty")
        return value

    def optional(self, column: str) -> str | None:
        """Return the cell, None where it is empty or the record has no such column."""
        value = self.cells.get(column, "").strip()
        return None if value.lower() in ("", "nan", "none", "null", "unknown") else value

    def number(self, column: str) -> float:
        """Return a finite number. Raise RowError for anything else."""
        try:
            value = float(self.text(column))
        except ValueError:
            raise RowError(column, "is not a number") from None
        if not math.isfinite(value):
            raise RowError(column, "is not a number")
        return value

    def duration_s(self, column: str) -> float:
        """Return seconds above 0. Raise RowError for anything else."""
        value = self.number(column)
        if value < 0:
            raise RowError(column, "is negative")
        if value == 0:
            raise RowError(column, "is 0: the job did not run")
        if value > MAX_DURATION_S:
            raise RowError(column, "is longer than a century")
        return value

    def gpus(self, column: str) -> int:
        """Return a whole number of GPUs above 0. Raise RowError for anything else."""
        value = self.number(column)
        if value == 0:
            raise RowError(column, "is 0: the job used no GPU")
        if value != int(value) or not 0 < value <= MAX_GPUS:
            raise RowError(column, "is not a number of GPUs")
        return int(value)

    def optional_gpus(self, column: str) -> int | None:
        """Return a whole number of GPUs, None where there is none."""
        return None if self.optional(column) is None else self.gpus(column)

    def instant(self, column: str) -> datetime:
        """Return a time in ISO 8601; one without a zone is as recorded, and read as UTC."""
        try:
            value = datetime.fromisoformat(self.text(column))
            return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        except (ValueError, OverflowError) as error:
            if isinstance(error, RowError):
                raise
            raise RowError(column, "is not a time") from None

    def after_start(self, column: str) -> datetime:
        """Return the instant of seconds since the record's start, which must be known."""
        assert self.start_at is not None
        try:
            return self.start_at + timedelta(seconds=self.number(column))
        except OverflowError:
            raise RowError(column, "is too far from the start") from None

    def between_s(self, start_column: str, end_column: str) -> float:
        """Return the seconds between two times. Raise RowError unless the first is earlier."""
        seconds = (self.instant(end_column) - self.instant(start_column)).total_seconds()
        if seconds < 0:
            raise RowError(end_column, f"is before {start_column}")
        if seconds == 0:
            raise RowError(end_column, f"equals {start_column}: the job did not run")
        return seconds


def read_rows(
    rows: Iterable[tuple[int, Record]], to_job: Callable[[Record], RecordedJob]
) -> tuple[list[RecordedJob], tuple[LeftOut, ...]]:
    """Return the jobs of rows with their lines, and what was left out, the most frequent first."""
    jobs: list[RecordedJob] = []
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], int] = {}
    seen: set[str] = set()
    for line, row in rows:
        try:
            job = to_job(row)
            if job.job_id in seen:
                raise RowError("job_id", "is that of an earlier row")
        except RowError as error:
            key = (error.column, error.reason)
            counts[key] += 1
            first.setdefault(key, line)
            continue
        seen.add(job.job_id)
        jobs.append(job)
    return jobs, tuple(
        LeftOut(column, reason, rows, first[column, reason])
        for (column, reason), rows in counts.most_common()
    )
