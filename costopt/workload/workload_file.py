"""A workload as a file: parquet, or CSV for people and other programs. Both have a row per job.

Columns: ``job_id``, ``tenant``, ``submit_at`` (UTC), ``duration_s``, ``gpus``, and ``name``,
``state``, ``smallest_gpus``, ``largest_gpus``, ``work_declared``, ``usd_per_hour_waited`` and
``speeds``, which may be empty.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from costopt.domain.errors import WorkloadError
from costopt.store.atomic_file import write_atomic, write_error_hint
from costopt.workload.formats import FORMATS, import_workload
from costopt.workload.rows import Record, RowError, read_rows
from costopt.workload.workload import RecordedJob, Workload

COLUMNS = tuple(field.name for field in fields(RecordedJob))
CSV_SUFFIXES = (".csv", ".csv.gz")


def write_workload(workload: Workload, path: Path) -> None:
    """Write a parquet file, or CSV where the name ends so. Raise WorkloadError."""
    is_csv = path.name.endswith(".csv")
    try:
        write_atomic(path, _csv_bytes(workload) if is_csv else _parquet_bytes(workload))
    except OSError as error:
        raise WorkloadError(
            f"workload file {path} cannot be written: {error.strerror}",
            hint=write_error_hint(error),
            code="unwritable",
        ) from error


def read_workload(path: Path) -> Workload:
    """Read what ``write_workload`` or a person wrote.

    Raise WorkloadError that names the file, and the line or row and the column of the first job
    that makes no sense: unlike an import, a file is used whole or not at all.
    """
    if path.name.endswith(CSV_SUFFIXES):
        workload, left = import_workload(path, "csv")
        place = "line"
    else:
        workload, left, place = *_read_parquet(path), "row"
    if left:
        first = min(left, key=lambda each: each.first_line)
        raise WorkloadError(
            f"{path}, {place} {first.first_line}, column {first.column}: {first.reason}",
            hint="correct the row, or leave it out: costopt fleet workloads import --format csv",
            code="invalid_row",
            subject=str(path),
        )
    return workload


def _cells(job: RecordedJob) -> dict[str, str]:
    values: Mapping[str, object] = {name: getattr(job, name) for name in COLUMNS}
    text = {name: "" if value is None else str(value) for name, value in values.items()}
    return {
        **text,
        "submit_at": job.submit_at.astimezone(UTC).isoformat(),
        "work_declared": "yes" if job.work_declared else "no",
        "speeds": " ".join(f"{gpus}:{speed:g}" for gpus, speed in job.speeds),
    }


def _csv_bytes(workload: Workload) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(_cells, workload.jobs))
    return text.getvalue().encode()


def _parquet_bytes(workload: Workload) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [_cells(job) for job in workload.jobs]
    columns: dict[str, list[Any]] = {name: [cells[name] for cells in texts] for name in COLUMNS}
    for name in ("duration_s", "gpus", "smallest_gpus", "largest_gpus", "usd_per_hour_waited"):
        columns[name] = [getattr(job, name) for job in workload.jobs]
    columns["submit_at"] = [job.submit_at for job in workload.jobs]
    types = {
        "duration_s": pa.float64(), "gpus": pa.int64(), "smallest_gpus": pa.int64(),
        "largest_gpus": pa.int64(), "usd_per_hour_waited": pa.float64(),
        "submit_at": pa.timestamp("us", "UTC"),
    }  # fmt: skip
    metadata = {
        "title": workload.title,
        "source": workload.source,
        "starts_at": workload.starts_at.isoformat(),
    }
    schema = pa.schema([(n, types.get(n, pa.string())) for n in COLUMNS], metadata=metadata)
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns, schema=schema), buffer, write_page_checksum=True)
    return buffer.getvalue()


def _read_parquet(path: Path) -> tuple[Workload, tuple[Any, ...]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path, page_checksum_verification=True)
        columns = {name: table.column(name).to_pylist() for name in table.column_names}
    except (OSError, pa.ArrowException) as error:
        raise WorkloadError(
            f"workload file {path} cannot be read: {error}",
            hint="write it with costopt fleet workloads import",
            code="unreadable",
        ) from error
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise WorkloadError(
            f"workload file {path} has no column {missing[0]}",
            hint="write it with costopt fleet workloads import",
            code="missing_column",
        )
    rows = (
        (number, Record({name: _text(value) for name, value in zip(COLUMNS, values, strict=True)}))
        for number, values in enumerate(zip(*(columns[n] for n in COLUMNS), strict=True), start=1)
    )
    jobs, left = read_rows(rows, FORMATS["csv"].to_job)
    said = _metadata(table.schema.metadata or {})
    if not jobs and left:
        raise WorkloadError(f"{path}: no row can be used: {left[0]}", code="no_rows")
    workload = Workload.of(
        jobs,
        title=said.get("title") or path.stem,
        source=said.get("source") or f"file {path.name}",
        starts_at=_starts_at(path, said.get("starts_at")),
    )
    return workload, left


def _metadata(known: Mapping[bytes, bytes]) -> dict[str, str]:
    return {
        key.decode(errors="replace"): value.decode(errors="replace") for key, value in known.items()
    }


def _starts_at(path: Path, text: str | None) -> datetime | None:
    if text is None:
        return None
    cells = Record({"starts_at": text})
    try:
        return cells.instant("starts_at")
    except RowError as error:
        raise WorkloadError(
            f"workload file {path}: starts_at {error.reason}",
            hint="write it with costopt fleet workloads import",
            code="unreadable",
        ) from error


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    return "" if value is None else str(value)
