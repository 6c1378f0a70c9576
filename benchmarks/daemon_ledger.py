"""How fast a daemon's ledger of years returns the status of its jobs, and its size.

A made-up ledger of a million events, or of ``--size`` millions: jobs of a thousand events each, of
which every tenth still runs. Status and report are read as the commands read them.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from costopt.api.ledgers import LedgerReader
from costopt.controller.state_dir import LEDGER
from costopt.domain.events import (
    CheckpointCommitted,
    DecisionMade,
    Event,
    GangFormed,
    JobFinished,
    JobSubmitted,
    LaunchIntended,
    NodeEnded,
    NodeLaunched,
    ProgressReported,
    TrainingStarted,
)
from costopt.domain.fleet import EndCause
from costopt.engine.journal import Journal
from costopt.ledger.fold_cache import save_folds
from costopt.ledger.run_view import RunView
from costopt.ledger.sql_ledger import open_sqlite_ledger

T0 = datetime(2026, 3, 2, tzinfo=UTC)
MILLIONS = 1
CHECKSUM_LENGTH = len(',"crc32":"00000000"}')
JOB_EVENTS = 1000
HEAD, TAIL = 7, 2
POOL = "aws/us-east-1/us-east-1a/g4dn.xlarge/spot"
FIRST, FIRST_LIVE = "job-00000", "job-00001"
"""A job that is over, and one that runs: the others are like them."""
LIVE_EVERY = 10
SINCE_KEPT = 50
Figure = tuple[str, float, str]


def run(sizes: Sequence[str] | None) -> Iterator[Figure]:
    """(name, value, unit) of each measurement."""
    for millions in [int(size) for size in sizes or [str(MILLIONS)]]:
        with tempfile.TemporaryDirectory() as folder:
            yield from _figures(Path(folder), millions)


def _figures(state_dir: Path, millions: int) -> Iterator[Figure]:
    jobs = millions * 1_000_000 // JOB_EVENTS
    name, ledger_path = f"{millions} million events", state_dir / LEDGER
    _fill(ledger_path, jobs)
    yield f"{name}: size", ledger_path.stat().st_size / 1024**3, "GiB"
    yield f"{name}: status of all jobs, never looked at before", _s(_summaries, state_dir), "s"
    live = [_name(number) for number in range(1, jobs, LIVE_EVERY)]
    with open_sqlite_ledger(ledger_path) as ledger:
        yield f"{name}: take up {len(live)} live jobs", _s(Journal, ledger, live), "s"
        yield f"{name}: keep the folds of all", _s(save_folds, ledger), "s"
        yield f"{name}: take up the live jobs again", _s(Journal, ledger, live), "s"
        ledger.append(*(_progress(FIRST_LIVE, JOB_EVENTS + n) for n in range(SINCE_KEPT)))
        yield f"{name}: keep them again", _s(save_folds, ledger), "s"
    yield f"{name}: status of all jobs", _s(_summaries, state_dir), "s"
    yield f"{name}: status of a job", _s(_summary, state_dir, FIRST_LIVE), "s"
    yield f"{name}: report of a job", _s(_report, state_dir, FIRST), "s"


def _summaries(state_dir: Path) -> None:
    with LedgerReader(state_dir) as reader:
        reader.summaries()


def _summary(state_dir: Path, job: str) -> None:
    with LedgerReader(state_dir) as reader:
        reader.job(job).summary()


def _report(state_dir: Path, job: str) -> None:
    with LedgerReader(state_dir) as reader:
        run = reader.job(job)
        RunView.of((recorded.event for recorded in run.events()), run.now())


def _s(work: Callable[..., object], *given: object) -> float:
    began_s = time.perf_counter()
    work(*given)
    return time.perf_counter() - began_s


def _fill(path: Path, jobs: int) -> None:
    """Two jobs as the daemon writes them, the others copied from them within the database."""
    with open_sqlite_ledger(path) as ledger:
        ledger.append(*_job(FIRST, over=True))
        ledger.append(*_job(FIRST_LIVE, over=False))
    with closing(sqlite3.connect(path)) as connection:
        for number in range(2, jobs):
            model = FIRST_LIVE if number % LIVE_EVERY == 1 else FIRST
            name = _name(number)
            connection.execute(
                # Without the checksum at their end, which is of another number and name.
                "INSERT INTO events (job, kind, at, body) SELECT ?, kind, at,"
                " replace(substr(body, 1, length(body) - ?) || '}', ?, ?)"
                " FROM events WHERE job = ? ORDER BY seq LIMIT ?",
                (name, CHECKSUM_LENGTH, model, name, model, JOB_EVENTS),
            )
        connection.commit()


def _name(number: int) -> str:
    return f"job-{number:05d}"


def _job(name: str, *, over: bool) -> Iterator[Event]:
    node = f"i-{name}"
    yield JobSubmitted(
        at=T0, job=name, work_units=1e6, unit="steps", start_at=T0,
        deadline_at=T0 + timedelta(days=30), policy="cheapest", strategy="adaptive",
        tenant="default", baseline_pool=POOL, baseline_usd_micros=10**8, baseline_wh=1e5,
    )  # fmt: skip
    yield DecisionMade(
        at=T0, job=name, decision_id=f"{name}-d1", targets=((POOL, 1),), reason="cheapest in time"
    )
    yield LaunchIntended(
        at=T0, job=name, key=f"{name}-0001", pool=POOL, nodes=1, planned_micros_per_hour=200_000
    )
    yield NodeLaunched(
        at=T0, job=name, key=f"{name}-0001", node_id=node, pool=POOL, launched_at=T0,
        micros_per_hour=200_000, idle_w=50.0, busy_w=120.0, pue=1.2, gco2e_per_kwh=400.0,
        energy_basis="modelled",
    )  # fmt: skip
    yield GangFormed(at=T0, job=name, generation=1, node_ids=(node,), checkpoint_interval_s=900.0)
    yield TrainingStarted(at=_at(1), job=name, generation=1, units=0.0)
    ends = TAIL if over else 0
    for number in range(HEAD, JOB_EVENTS + 1 - ends):
        yield _saved(name, number) if number % 3 == 0 else _progress(name, number)
    if over:
        last = _progress(name, JOB_EVENTS)
        yield JobFinished(at=last.at, job=name, units=1e6)
        yield NodeEnded(
            at=last.at, job=name, node_id=node, pool=POOL, ended_at=last.at, cause=EndCause.RELEASED
        )


def _progress(name: str, number: int) -> ProgressReported:
    units = 900.0 * number
    return ProgressReported(at=_at(number), job=name, done_units=units, saved_units=units)


def _saved(name: str, number: int) -> CheckpointCommitted:
    return CheckpointCommitted(
        at=_at(number), job=name, units=900.0 * number, uri=f"s3://saves/{name}/{number}",
        size_bytes=4 << 30, save_s=20.0,
    )  # fmt: skip


def _at(number: int) -> datetime:
    return T0 + timedelta(minutes=5 * number)
