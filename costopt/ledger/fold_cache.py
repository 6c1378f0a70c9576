"""The cache of folds: accounts, records and summaries, so that old events need not be read again.

A job's account and record are cached and, while it has no nodes and awaits none, its summary. What
another version of the code has cached is folded from scratch; a digest of the code detects that.

An account and a record are serialized as JSON. Only the classes named here are read back, so that a
damaged or forged text creates no other object. An object that they refer to twice is one object
again.
"""

from __future__ import annotations

import json
import zlib
from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from costopt.domain.errors import LedgerError
from costopt.domain.events import Event
from costopt.domain.market import Pool
from costopt.domain.ports import EventStream
from costopt.ledger.account_parts import CostTotals, FleetAccount, TransferAccount, WorkAccount
from costopt.ledger.base import CachedFold, DurableLedger, FoldCache
from costopt.ledger.codec import decode, encode
from costopt.ledger.job_account import JobAccount
from costopt.ledger.job_record import JobRecord
from costopt.ledger.node_account import MeasurementAccount, NodeAccount
from costopt.ledger.node_emissions import (
    ElectricityBooks,
    Emission,
    EmissionMeter,
    HourlyIntensities,
)
from costopt.ledger.node_meter import BusyMeter, CostMeter, EnergyMeter, PowerMeter
from costopt.ledger.storage_costs import CheckpointStorage
from costopt.ledger.summary import JobSummary, ProgressCurve, parse_figures

ACCOUNT = "account"
SUMMARY = "summary"
MIN_EVENTS = 200
"""An account is cached again once it has grown by so many events."""
_NAMES = tuple(field.name for field in fields(JobSummary))
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


def load_fold(ledger: EventStream, job: str, known: FoldState | None = None) -> FoldState | None:
    """Return the fold of a job's events, None where the ledger holds none. Raises LedgerError.

    Resumes from ``known``, else from the cached fold, where the ledger caches folds.
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


def require_fold(ledger: EventStream, job: str, known: FoldState | None = None) -> FoldState:
    """Return the fold as ``load_fold``. Raises LedgerError also for a job without events."""
    found = load_fold(ledger, job, known)
    if found is None:
        raise LedgerError(
            f"the ledger holds nothing of job {job!r}",
            hint="check the job's name",
            code="unknown_job",
        )
    return found


def summaries(ledger: DurableLedger, now_of: ClockOf) -> Iterator[JobSummary]:
    """Yield every job's figures, in the order of their first event.

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
    """Return the cached summaries that are up to date, each at its job's last event.

    Raises LedgerError.
    """
    kept, last = _kept(ledger, SUMMARY), ledger.last_seqs()
    at_rest = (job for job, fold in kept.items() if last.get(job) == fold.seq)
    return {job: JobSummary(**_figures(kept[job])) for job in at_rest}


def save_folds(ledger: DurableLedger) -> int:
    """Cache the folds of all jobs that have grown; return of how many. Raises LedgerError."""
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
    """Return the figures of a cached summary, by name."""
    return parse_figures(dict(zip(_NAMES, json.loads(fold.body), strict=True)))


def _later(figures: dict[str, Any], now: datetime) -> JobSummary:
    """Return the summary of a job without nodes at a later time: only its deadline may pass."""
    deadline_at = figures["deadline_at"]
    if figures["on_time"] is None and deadline_at is not None and now > deadline_at:
        figures["on_time"] = False
    figures["now"] = now
    return JobSummary(**figures)


_CLASSES: tuple[type[Any], ...] = (
    JobAccount,
    WorkAccount,
    ProgressCurve,
    FleetAccount,
    TransferAccount,
    MeasurementAccount,
    CostTotals,
    NodeAccount,
    CostMeter,
    BusyMeter,
    EnergyMeter,
    PowerMeter,
    ElectricityBooks,
    HourlyIntensities,
    EmissionMeter,
    Emission,
    JobRecord,
    CheckpointStorage,
)
_NUMBERS = {kind: number for number, kind in enumerate(_CLASSES)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
FOLD_PACKAGES = ("costopt.ledger", "costopt.domain")


def serialize_fold(account: JobAccount, record: JobRecord) -> str:
    """Return both as JSON. Raises LedgerError for what cannot be cached."""
    try:
        packed = _Writer().pack((account, record))
        return json.dumps(packed, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise LedgerError(
            f"the account of {account.job!r} cannot be cached: {error}", code="too_large"
        ) from error


def deserialize_fold(text: str) -> tuple[JobAccount, JobRecord]:
    """Parse what ``serialize_fold`` of the same code wrote. Raises LedgerError otherwise."""
    try:
        account, record = _Reader().unpack(json.loads(text))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise LedgerError(
            "a cached account cannot be read", hint="it is folded from scratch", code="unreadable"
        ) from error
    if not (isinstance(account, JobAccount) and isinstance(record, JobRecord)):
        raise LedgerError(
            "a cached value is not an account", hint="it is folded from scratch", code="unreadable"
        )
    return account, record


@cache
def fold_code_digest() -> str:
    """Return the digest of the code that folds and serializes: other code's cache is not used."""
    digest = sha256()
    for package in FOLD_PACKAGES:
        for module in _modules(files(package)):
            digest.update(module.name.encode() + module.read_bytes())
    return digest.hexdigest()


def _modules(folder: Traversable) -> Iterator[Traversable]:
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        # What the interpreter caches beside the code may be readable by another user only.
        if each.is_dir() and each.name != "__pycache__":
            yield from _modules(each)
        elif each.name.endswith(".py"):
            yield each


class _Writer:
    """Serializes values as JSON: scalars as they are, all else as [letter, …]."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._by_type: dict[type[Any], Callable[[Any], list[Any]]] = {
            array: lambda column: ["a", column.typecode, b64encode(column.tobytes()).decode()],
            datetime: lambda at: ["t", _micros(at)],
            Pool: lambda pool: ["p", str(pool)],
            dict: lambda items: ["d", [[self.pack(k), self.pack(v)] for k, v in items.items()]],
            list: lambda items: ["l", [self.pack(item) for item in items]],
            tuple: lambda items: ["u", [self.pack(item) for item in items]],
            set: lambda items: ["m", sorted(self.pack(item) for item in items)],
            frozenset: lambda items: ["s", sorted(self.pack(item) for item in items)],
            **dict.fromkeys(_CLASSES, self._object),
        }

    def pack(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, Event):
            return self._once(value) or ["e", encode(value)]
        if type(value) not in self._by_type:
            raise TypeError(f"no JSON for {type(value).__name__}")
        return self._by_type[type(value)](value)

    def _once(self, value: Any) -> list[Any] | None:
        """Return a reference to a value written before; None where it is the first time."""
        if id(value) in self._seen:
            return ["r", self._seen[id(value)]]
        self._seen[id(value)] = len(self._seen)
        return None

    def _object(self, value: Any) -> list[Any]:
        if (standing := self._once(value)) is not None:
            return standing
        kind = type(value)
        values = [self.pack(getattr(value, name)) for name in _names()[kind]]
        return ["o", _NUMBERS[kind], values]


class _Reader:
    """Reads what ``_Writer`` wrote."""

    def __init__(self) -> None:
        self._made: list[Any] = []
        self._by_letter: dict[str, Callable[..., Any]] = {
            "a": lambda typecode, text: array(typecode, b64decode(text)),
            "t": _time,
            "e": self._event,
            "p": Pool.parse,
            "d": lambda items: {self.unpack(key): self.unpack(item) for key, item in items},
            "l": lambda items: [self.unpack(item) for item in items],
            "u": lambda items: tuple(self.unpack(item) for item in items),
            "m": lambda items: {self.unpack(item) for item in items},
            "s": lambda items: frozenset(self.unpack(item) for item in items),
            "r": lambda number: self._made[number],
            "o": self._object,
        }

    def unpack(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return self._by_letter[value[0]](*value[1:])

    def _event(self, text: str) -> Event:
        event = decode(text)
        self._made.append(event)
        return event

    def _object(self, number: int, values: list[Any]) -> Any:
        kind = _CLASSES[number]
        made: Any = object.__new__(kind)
        self._made.append(made)
        for name, value in zip(_names()[kind], values, strict=True):
            setattr(made, name, self.unpack(value))
        return made


@cache
def _names() -> dict[type[Any], tuple[str, ...]]:
    """Return the attributes of each class's objects, in a fixed order."""
    return {kind: _names_of(kind) for kind in _CLASSES}


def _names_of(kind: type[Any]) -> tuple[str, ...]:
    slots = getattr(kind, "__slots__", None)
    if slots is not None:
        return tuple(sorted(slots))
    return tuple(sorted(vars(JobAccount("") if kind is JobAccount else kind())))


def _micros(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


def _time(micros: int) -> datetime:
    return _EPOCH + micros * _MICROSECOND
