"""Folds that go on from where the last ones were kept, so that old events need not be read again.

Kept are a job's account and record and, while it has no nodes and awaits none, its summary. What
another version of the code has kept is folded anew.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from costopt.domain.errors import LedgerError
from costopt.domain.ports import Ledger
from costopt.ledger.account import JobAccount
from costopt.ledger.frozen import deserialize_fold, fold_code_digest, serialize_fold
from costopt.ledger.kept_folds import CachedFold, FoldCache
from costopt.ledger.record import JobRecord
from costopt.ledger.stored import DurableLedger
from costopt.ledger.summary import JobState, JobSummary

ACCOUNT = "account"
SUMMARY = "summary"
MIN_EVENTS = 200
"""An account is kept again once it has grown by so many events."""
_NAMES = tuple(field.name for field in fields(JobSummary))
_TIMES = ("now", "start_at", "deadline_at", "finished_at")
ClockOf = Callable[[str, datetime], datetime]


@dataclass(frozen=True, slots=True)
class FoldState:
    """A job's account and record after event ``seq``; ``last_at`` is the latest time of any of its
    events. ``fresh`` events were read, the others had been folded before.
    """

    account: JobAccount
    record: JobRecord
    seq: int
    last_at: datetime
    fresh: int


def load_fold(ledger: Ledger, job: str, known: FoldState | None = None) -> FoldState | None:
    """What the events of a job come to, None where the ledger holds none. Raises LedgerError.

    Goes on from ``known``, else from what was kept, where the ledger keeps folds.
    """
    if known is None and isinstance(ledger, FoldCache):
        kept = _kept(ledger, ACCOUNT, job).get(job)
        known = None if kept is None else _thawed(kept)
    account = JobAccount(job) if known is None else known.account
    record = JobRecord(job) if known is None else known.record
    seq = 0 if known is None else known.seq
    last_at = None if known is None else known.last_at
    fresh = 0
    for recorded in ledger.events(job, seq):
        event = recorded.event
        account.apply(event)
        record.apply(event)
        seq, fresh = recorded.seq, fresh + 1
        last_at = event.at if last_at is None else max(last_at, event.at)
    return None if last_at is None else FoldState(account, record, seq, last_at, fresh)


def require_fold(ledger: DurableLedger, job: str, known: FoldState | None = None) -> FoldState:
    """The same. Raises LedgerError also where the ledger holds nothing of the job."""
    found = load_fold(ledger, job, known)
    if found is None:
        raise LedgerError(
            f"the ledger holds nothing of job {job!r}",
            hint="check the job's name",
            code="unknown_job",
        )
    return found


def summaries(ledger: DurableLedger, now_of: ClockOf) -> Iterator[JobSummary]:
    """Every job's figures, in the order of their first event.

    ``now_of(job, last_at)`` is the present of a job's clock, not before ``last_at``. Raises
    LedgerError.
    """
    kept = _kept(ledger, SUMMARY)
    for job, seq in ledger.last_seqs().items():
        fold = kept.get(job)
        if fold is not None and fold.seq == seq:
            figures = _figures(fold)
            yield _later(figures, now_of(job, figures["now"]))
        else:
            known = require_fold(ledger, job)
            yield known.account.summary(now_of(job, known.last_at))


def current_summaries(ledger: DurableLedger) -> dict[str, JobSummary]:
    """The kept summaries that are up to date, each at its job's last event.

    Raises LedgerError.
    """
    kept, last = _kept(ledger, SUMMARY), ledger.last_seqs()
    at_rest = (job for job, fold in kept.items() if last.get(job) == fold.seq)
    return {job: JobSummary(**_figures(kept[job])) for job in at_rest}


def save_folds(ledger: DurableLedger) -> int:
    """Keep the folds of all jobs that have grown; returns of how many. Raises LedgerError."""
    at_rest, count = _kept(ledger, SUMMARY), 0
    for job, seq in ledger.last_seqs().items():
        known = at_rest.get(job)
        if known is None or known.seq != seq:
            count += _keep(ledger, require_fold(ledger, job))
    return count


def _keep(ledger: DurableLedger, known: FoldState) -> bool:
    rests = not (known.record.live or known.record.intents)
    if not rests and known.fresh < MIN_EVENTS:
        return False
    job, code = known.account.job, fold_code_digest()
    if known.fresh:
        frozen = serialize_fold(known.account, known.record)
        text = f"{known.last_at.astimezone(UTC).isoformat()}\n{frozen}"
        body = zlib.compress(text.encode("ascii"), 1)
        ledger.save_folds(ACCOUNT, {job: CachedFold(known.seq, code, body)})
    if rests:
        summary = known.account.summary(known.last_at)
        ledger.save_folds(SUMMARY, {job: CachedFold(known.seq, code, _summary_body(summary))})
    return True


def _kept(ledger: FoldCache, part: str, job: str | None = None) -> dict[str, CachedFold]:
    code = fold_code_digest()
    return {job: fold for job, fold in ledger.folds(part, job).items() if fold.code == code}


def _thawed(fold: CachedFold) -> FoldState | None:
    try:
        last_at, _, frozen = zlib.decompress(fold.body).decode("ascii").partition("\n")
        account, record = deserialize_fold(frozen)
        return FoldState(account, record, fold.seq, datetime.fromisoformat(last_at), 0)
    except (zlib.error, ValueError, LedgerError):
        return None


def _summary_body(summary: JobSummary) -> bytes:
    values = [getattr(summary, name) for name in _NAMES]
    return json.dumps(values, default=datetime.isoformat, separators=(",", ":")).encode("ascii")


def _figures(fold: CachedFold) -> dict[str, Any]:
    """A kept summary's, by name."""
    figures = dict(zip(_NAMES, json.loads(fold.body), strict=True))
    for name in _TIMES:
        figures[name] = None if figures[name] is None else datetime.fromisoformat(figures[name])
    figures["state"] = JobState(figures["state"])
    return figures


def _later(figures: dict[str, Any], now: datetime) -> JobSummary:
    """Of a job without nodes at a later time: only its deadline may have passed."""
    deadline_at = figures["deadline_at"]
    if figures["on_time"] is None and deadline_at is not None and now > deadline_at:
        figures["on_time"] = False
    figures["now"] = now
    return JobSummary(**figures)
