"""Importers of public records of jobs, each in the form that its publisher documents.

A row that makes no sense is left out, counted and named by column and line; nothing is guessed. In
each of them the work of a job is what it ran for on the GPUs that it asked for: no record says how
long a cancelled job would have run, or how fast a job is on other numbers of GPUs. Clocks without a
zone are read as UTC, since only differences count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from costopt.catalog.csv_table import read_user_csv, read_user_text
from costopt.domain.errors import WorkloadError
from costopt.workload.rows import LeftOut, Record, RowError, read_rows
from costopt.workload.workload import RecordedJob, Workload

ToJob = Callable[[Record], RecordedJob]


@dataclass(frozen=True, slots=True)
class WorkloadFormat:
    """A form of record. ``columns`` are required; ``from_start`` ones count seconds from a start.

    ``tenant_column`` is where the tenant is, None where the publisher records none.
    """

    to_job: ToJob
    columns: tuple[str, ...]
    tenant_column: str | None
    from_start: bool = False
    delimiter: str = ","
    free_column: str | None = None


def _acme(row: Record) -> RecordedJob:
    """Acme (github.com/InternLM/AcmeTrace): trace_seren.csv and trace_kalos.csv. The tenant is the
    user. The column ``duration`` is not used: in Kalos it counts from submission."""
    return RecordedJob(
        job_id=row.text("job_id"),
        tenant=row.text("user"),
        name=row.optional("type") or "",
        state=row.optional("state") or "",
        submit_at=row.instant("submit_time"),
        duration_s=row.between_s("start_time", "end_time"),
        gpus=row.gpus("gpu_num"),
    )


def _helios(row: Record) -> RecordedJob:
    """Helios (github.com/S-Lab-System-Group/HeliosData): cluster_log.csv of each cluster."""
    return RecordedJob(
        job_id=row.text("job_id"),
        tenant=row.text("vc"),
        name=row.optional("user") or "",
        state=row.optional("state") or "",
        submit_at=row.instant("submit_time"),
        duration_s=row.between_s("start_time", "end_time"),
        gpus=row.gpus("gpu_num"),
    )


def _alibaba_gpu(row: Record) -> RecordedJob:
    """Alibaba 2023 (github.com/alibaba/clusterdata, cluster-trace-gpu-v2023): openb_pod_list_*.csv.

    The tenant is the class of service. A pod with a part of a GPU counts as one GPU. What still ran
    at the end of the record has its end there as deletion_time.
    """
    duration_s = row.number("deletion_time") - row.number("scheduled_time")
    if duration_s <= 0:
        raise RowError("deletion_time", "is not after scheduled_time")
    return RecordedJob(
        job_id=row.text("name"),
        tenant=row.text("qos"),
        state=row.optional("pod_phase") or "",
        submit_at=row.after_start("creation_time"),
        duration_s=duration_s,
        gpus=row.gpus("num_gpu"),
    )


def _alibaba_spot(row: Record) -> RecordedJob:
    """Alibaba 2026 (cluster-trace-v2026-spot-gpu): job_info_df.csv; the name is HP or Spot."""
    return RecordedJob(
        job_id=row.text("job_name"),
        tenant=row.text("organization"),
        name=row.optional("job_type") or "",
        submit_at=row.after_start("submit_time"),
        duration_s=row.duration_s("duration"),
        gpus=row.gpus("gpu_request") * row.gpus("worker_num"),
    )


_TRES_GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)(?:,|$)")
_TYPED_GPUS = re.compile(r"(?:^|,)gres/gpu:[^=,]+=(\d+)")


def _sacct(row: Record) -> RecordedJob:
    """Slurm (slurm.schedmd.com/sacct.html): ``sacct --parsable2 --allocations`` with these columns.

    The GPUs are those of AllocTRES. The tenant is the account.
    """
    tres = row.text("AllocTRES")
    all_gpus = _TRES_GPUS.search(tres)
    gpus = int(all_gpus[1]) if all_gpus else sum(map(int, _TYPED_GPUS.findall(tres)))
    if gpus == 0:
        raise RowError("AllocTRES", "names no GPU")
    return RecordedJob(
        job_id=row.text("JobID"),
        tenant=row.text("Account"),
        name=row.optional("JobName") or "",
        state=row.text("State").partition(" ")[0],
        submit_at=row.instant("Submit"),
        duration_s=row.between_s("Start", "End"),
        gpus=gpus,
    )


def _csv(row: Record) -> RecordedJob:
    """The form that costopt writes, and the easiest to write; only differences of times count."""
    timed = row.start_at is None or row.optional("submit_at") is not None
    gpus = row.gpus("gpus")
    smallest, largest = row.optional_gpus("smallest_gpus"), row.optional_gpus("largest_gpus")
    if smallest is not None and smallest > gpus:
        raise RowError("smallest_gpus", "is more than gpus")
    if largest is not None and largest < gpus:
        raise RowError("largest_gpus", "is less than gpus")
    return RecordedJob(
        job_id=row.text("job_id"),
        tenant=row.text("tenant"),
        name=row.optional("name") or "",
        state=row.optional("state") or "",
        submit_at=row.instant("submit_at") if timed else row.after_start("submit_s"),
        duration_s=row.duration_s("duration_s"),
        gpus=gpus,
        smallest_gpus=smallest,
        largest_gpus=largest,
        work_declared=_yes(row, "work_declared"),
        usd_per_hour_waited=_value(row, "usd_per_hour_waited"),
        speeds=_speeds(row, "speeds", gpus),
    )


def _yes(row: Record, column: str) -> bool:
    text = (row.optional(column) or "no").lower()
    if text not in ("yes", "no", "true", "false"):
        raise RowError(column, "is neither yes nor no")
    return text in ("yes", "true")


def _value(row: Record, column: str) -> float | None:
    if row.optional(column) is None:
        return None
    value = row.number(column)
    if value <= 0:
        raise RowError(column, "is not above 0")
    return value


def _speeds(row: Record, column: str, gpus: int) -> tuple[tuple[int, float], ...]:
    """Pairs such as 1:10 2:18 4:31: GPUs and work per second, in any unit."""
    pairs = []
    for part in (row.optional(column) or "").split():
        size, _, speed = part.partition(":")
        try:
            pairs.append((int(size), float(speed)))
        except ValueError:
            raise RowError(column, "is not a list of GPUs:speed") from None
    sizes = [size for size, _ in pairs]
    if sizes != sorted(set(sizes)) or any(n < 1 or not 0 < v < 1e12 for n, v in pairs):
        raise RowError(column, "does not rise in GPUs, or holds a figure that is not above 0")
    if pairs and gpus not in sizes:
        raise RowError(column, "lacks the speed on the GPUs that the job asked for")
    return tuple(pairs)


FORMATS: Mapping[str, WorkloadFormat] = {
    "acme": WorkloadFormat(
        _acme, ("job_id", "user", "gpu_num", "submit_time", "start_time", "end_time"), "user"
    ),
    "helios": WorkloadFormat(
        _helios, ("job_id", "vc", "gpu_num", "submit_time", "start_time", "end_time"), "vc"
    ),
    "alibaba-gpu": WorkloadFormat(
        _alibaba_gpu,
        ("name", "num_gpu", "qos", "creation_time", "deletion_time", "scheduled_time"),
        "qos",
        from_start=True,
    ),
    "alibaba-spot": WorkloadFormat(
        _alibaba_spot,
        ("job_name", "organization", "gpu_request", "worker_num", "submit_time", "duration"),
        "organization",
        from_start=True,
    ),
    "sacct": WorkloadFormat(
        _sacct,
        ("JobID", "Account", "State", "Submit", "Start", "End", "AllocTRES"),
        "Account",
        delimiter="|",
        free_column="JobName",
    ),
    "csv": WorkloadFormat(_csv, ("job_id", "duration_s", "gpus"), "tenant"),
}
PHILLY = "philly"
FORMAT_NAMES = (PHILLY, *FORMATS)


def import_workload(
    path: Path, form: str, *, start_at: datetime | None = None, tenant: str | None = None
) -> tuple[Workload, tuple[LeftOut, ...]]:
    """Return the jobs of a record in one of FORMAT_NAMES, and the rows that were left out.

    ``start_at`` is where times that count from a start begin; ``tenant`` is that of all jobs, in
    place of the record's. Raise WorkloadError for a file that is not in the form, for a record
    without tenants or without a start where it needs one, and if no row can be used.
    """
    if form == PHILLY:
        jobs, left = read_rows(_philly_rows(path), _philly)
    else:
        kind = FORMATS[form]
        header, rows = read_user_csv(path, WorkloadError, kind.delimiter, kind.free_column)
        missing = _missing_column(kind, header, tenant)
        if missing is not None:
            raise WorkloadError(
                f"{path} has no column {missing}, which the format {form} needs",
                hint="name the tenant of all its jobs with --tenant"
                if missing == kind.tenant_column
                else f"its first line names the columns; {form} has {', '.join(kind.columns)}",
                code="no_tenant" if missing == kind.tenant_column else "missing_column",
                subject=str(path),
            )
        if start_at is None and (kind.from_start or "submit_s" in header):
            raise WorkloadError(
                f"{path}: its times count from a start that the record does not say",
                hint="say it with --start TIME; only differences count, so any will do",
                code="no_start",
            )
        added = {} if tenant is None or kind.tenant_column is None else {kind.tenant_column: tenant}
        jobs, left = read_rows(
            (
                (line, Record({**dict(zip(header, row, strict=True)), **added}, start_at))
                for line, row in enumerate(rows, start=2)
            ),
            kind.to_job,
        )
    if tenant is not None:
        jobs = [replace(job, tenant=tenant) for job in jobs]
    if not jobs and left:
        raise WorkloadError(
            f"{path}: no row can be used: {left[0]}",
            hint=f"see whether the format is {form}",
            code="no_rows",
        )
    title = path.name.partition(".")[0]
    source = f"{form} record {path.name}"
    return Workload.of(jobs, title=title, source=source, starts_at=start_at), left


def _missing_column(kind: WorkloadFormat, header: list[str], tenant: str | None) -> str | None:
    needed = [*kind.columns]
    if kind.to_job is _csv and "submit_at" not in header:
        needed.append("submit_s")
    missing = [name for name in needed if name not in header and name != kind.tenant_column]
    if not missing and tenant is None and kind.tenant_column not in header:
        return kind.tenant_column
    return missing[0] if missing else None


def _philly_rows(path: Path) -> Iterator[tuple[int, Record]]:
    """The jobs of a list of objects, numbered from 1; attempts become two cells."""
    try:
        document = json.loads(read_user_text(path, WorkloadError))
    except (ValueError, RecursionError) as error:
        raise WorkloadError(
            f"{path} cannot be read as JSON: {error}",
            hint=f"see whether the format is {PHILLY}",
            code="unreadable",
        ) from error
    if not isinstance(document, list):
        raise WorkloadError(f"{path}: not a list of jobs, as cluster_job_log is", code="invalid")
    for number, entry in enumerate(document, start=1):
        yield number, Record(_philly_cells(entry))


def _philly_cells(entry: object) -> dict[str, str]:
    if not isinstance(entry, dict):
        return {}
    named = ("jobid", "vc", "user", "status", "submitted_time")
    cells = {key: str(value) for key in named if (value := entry.get(key)) is not None}
    attempts = entry.get("attempts")
    return {**cells, "attempts": json.dumps(attempts) if attempts else ""}


def _philly(row: Record) -> RecordedJob:
    """Philly (github.com/msr-fiddle/philly-traces): cluster_job_log.

    A job ran for the sum of its attempts, on the most GPUs of any; one with an attempt whose start
    or end was not recorded is left out.
    """
    attempts = json.loads(row.text("attempts"))
    gpus, seconds = 0, 0.0
    for attempt in attempts if isinstance(attempts, list) else [attempts]:
        try:
            gpus = max(gpus, sum(len(node["gpus"]) for node in attempt["detail"]))
        except (TypeError, KeyError):
            raise RowError("attempts", "do not name their GPUs") from None
        times = {key: str(attempt.get(key)) for key in ("start_time", "end_time")}
        try:
            seconds += Record(times).between_s("start_time", "end_time")
        except RowError as error:
            if "equals" not in error.reason:
                raise RowError("attempts", f"{error.column} {error.reason}") from None
    if gpus == 0 or seconds == 0:
        raise RowError("attempts", "hold no time on a GPU")
    return RecordedJob(
        job_id=row.text("jobid"),
        tenant=row.text("vc"),
        name=row.optional("user") or "",
        state=row.optional("status") or "",
        submit_at=row.instant("submitted_time"),
        duration_s=seconds,
        gpus=gpus,
    )
