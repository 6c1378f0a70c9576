"""A job's account and record as JSON, and back: what its folds have come to, to go on from.

Only the classes named here are read back, so that a damaged or forged text makes no other object.
What they hold in two places is one object again.
"""

from __future__ import annotations

import json
from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from costopt.domain.errors import LedgerError
from costopt.domain.events import Event
from costopt.domain.market import Pool
from costopt.ledger.account import JobAccount
from costopt.ledger.bill import CostTotals
from costopt.ledger.carbon import Emission, EmissionMeter, HourlyIntensities
from costopt.ledger.codec import decode, encode
from costopt.ledger.curve import ProgressCurve
from costopt.ledger.fleet import FleetAccount
from costopt.ledger.measured import EnergyMeter, MeasurementAccount
from costopt.ledger.meter import BusyMeter, CostMeter, PowerMeter
from costopt.ledger.node import NodeAccount
from costopt.ledger.record import JobRecord
from costopt.ledger.transfers import TransferAccount
from costopt.ledger.work import WorkAccount

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
    HourlyIntensities,
    EmissionMeter,
    Emission,
    JobRecord,
)
_NUMBERS = {kind: number for number, kind in enumerate(_CLASSES)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
FOLD_PACKAGES = ("costopt.ledger", "costopt.domain")


def serialize_fold(account: JobAccount, record: JobRecord) -> str:
    """Both as JSON. Raises LedgerError for what cannot be kept."""
    try:
        packed = _Writer().pack((account, record))
        return json.dumps(packed, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise LedgerError(
            f"the account of {account.job!r} cannot be kept: {error}", code="too_large"
        ) from error


def deserialize_fold(text: str) -> tuple[JobAccount, JobRecord]:
    """What ``serialize_fold`` wrote, by the same code. Raises LedgerError for another text."""
    try:
        account, record = _Reader().unpack(json.loads(text))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise LedgerError(
            "a kept account cannot be read", hint="it is folded anew", code="unreadable"
        ) from error
    if not (isinstance(account, JobAccount) and isinstance(record, JobRecord)):
        raise LedgerError("a kept account is none", hint="it is folded anew", code="unreadable")
    return account, record


@cache
def fold_code_digest() -> str:
    """Of the code that folds and keeps accounts: what another code has kept is not used."""
    digest = sha256()
    for package in FOLD_PACKAGES:
        for module in _modules(files(package)):
            digest.update(module.name.encode() + module.read_bytes())
    return digest.hexdigest()


def _modules(folder: Traversable) -> Iterator[Traversable]:
    for each in sorted(folder.iterdir(), key=lambda each: each.name):
        # What the interpreter keeps beside the code may be another user's alone.
        if each.is_dir() and each.name != "__pycache__":
            yield from _modules(each)
        elif each.name.endswith(".py"):
            yield each


class _Writer:
    """Values as JSON: scalars as they are, all else as [letter, …]."""

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
        """Where the value stands already; None where it is the first time."""
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
    """The inverse."""

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
    """The attributes of each class's objects, in a fixed order."""
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
