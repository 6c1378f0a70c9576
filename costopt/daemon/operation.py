"""One thing that can be asked or told over HTTP: route, rights, document and code in one place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Protocol

from costopt.daemon.auth import Principal
from costopt.daemon.json_body import read_value
from costopt.daemon.json_schema import StringPattern
from costopt.domain.token import Scope

MAX_SAFE_INTEGER = 2**53 - 1
"""The largest whole number that every JSON reader knows exactly."""
JOB_NAME = StringPattern(63, r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", "a job's name")
ID = StringPattern(160, r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,159}$", "letters, digits and . _ : -")


class ParameterLocation(StrEnum):
    """Where a parameter stands."""

    PATH = "path"
    QUERY = "query"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A named value of a request. ``hint`` is an annotated int or str, or an enum."""

    name: str
    place: ParameterLocation
    hint: Any
    about: str
    default: Any = None

    def read(self, text: str) -> Any:
        """The value. Raises ValueError."""
        return read_value(self.hint, _whole(text) if self._is_int else text)

    @property
    def _is_int(self) -> bool:
        return getattr(self.hint, "__origin__", self.hint) is int


@dataclass(frozen=True, slots=True)
class ApiCall:
    """A request that may be answered: who asks, and the values of parameters and body."""

    caller: Principal
    values: Mapping[str, Any]
    body: Any = None


class OperationHandler(Protocol):
    """What carries an operation out; runs in a thread of its own."""

    def __call__(self, call: ApiCall, /) -> object:
        """A frozen dataclass. Raises CostoptError."""
        ...


@dataclass(frozen=True, slots=True)
class Operation:
    """``scope`` is None where anybody may ask. ``body`` and ``answer`` are frozen dataclasses.

    ``exists`` looks whether the path names something: its SpecError is a 404. ``check`` looks
    whether the body makes sense: its SpecError is a 422. ``refusal`` is the HTTP status of a
    SpecError of ``act``; ``failing`` that of an answer whose only member is false. ``by_tenants``:
    the caller may be bound to a tenant, and the operation keeps to what that may see.
    """

    id: str
    method: str
    path: str
    scope: Scope | None
    summary: str
    answer: type
    act: OperationHandler
    parameters: tuple[Parameter, ...] = ()
    body: type | None = None
    status: int = 200
    refusal: int | None = None
    exists: Callable[[ApiCall], object] | None = None
    check: Callable[[ApiCall], object] | None = None
    failing: int | None = None
    by_tenants: bool = False


def in_path(name: str, shape: StringPattern, about: str) -> Parameter:
    """A part of the path, such as a job's name."""
    return Parameter(name, ParameterLocation.PATH, Annotated[str, shape], about)


def in_query(name: str, hint: Any, about: str, default: Any = None) -> Parameter:
    """A value after the question mark."""
    return Parameter(name, ParameterLocation.QUERY, hint, about, default)


def _whole(text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise ValueError("expected a whole number")
    return int(text)
