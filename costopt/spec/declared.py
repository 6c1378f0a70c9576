"""Sections of files, made from the domain's declarations, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, Field, asdict, fields
from enum import Enum
from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import pydantic
from pydantic import create_model

from costopt.domain.declared import DESCRIPTION, Duration, Length, ValueKind
from costopt.spec import fields as file_fields
from costopt.spec.fields import FileModel

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Declared = TypeVar("Declared", bound="DataclassInstance")

FILE_TYPES: dict[ValueKind, Any] = {
    ValueKind.POSITIVE: file_fields.Positive,
    ValueKind.DOLLARS: file_fields.Amount,
    ValueKind.NOT_NEGATIVE: file_fields.NotNegative,
    ValueKind.SHARE: file_fields.Share,
    ValueKind.COUNT: file_fields.Count,
    ValueKind.LARGE_COUNT: Annotated[int, pydantic.Field(ge=1, le=10_000_000)],
    ValueKind.NAME: file_fields.Name,
    ValueKind.TEXT: file_fields.Text,
    ValueKind.DURATION: file_fields.DurationS,
}


def section_model(
    name: str, kind: type[Declared], doc: str | None = None, **types: Any
) -> type[FileModel]:
    """Return the model of a section of a file that has the described fields of a domain class.

    ``doc`` describes it, by default as the class is described. ``types`` are those of fields, by
    their name in the file, whose values the file writes differently or restricts further.
    """
    hints = _hints(kind)
    columns: dict[str, Any] = {}
    for each in described_fields(kind):
        key = _key(each.name, hints[each.name])
        columns[key] = types.get(key) or _file_type(hints[each.name]), _field(each)
    model: type[FileModel] = create_model(
        name,
        __base__=FileModel,
        __module__=__name__,
        __doc__=doc or (kind.__doc__ or "").partition("\n\n")[0],
        **columns,
    )
    return model


def to_domain(kind: type[Declared], section: FileModel, **more: Any) -> Declared:
    """Return the domain's value of a section; ``more`` are fields that are not as in the file."""
    hints = _hints(kind)
    values: dict[str, Any] = dict(more)
    for each in described_fields(kind):
        hint = hints[each.name]
        if each.name in more:
            continue
        value = getattr(section, _key(each.name, hint))
        if isinstance(value, list):
            value = tuple(value)
        elif isinstance(hint, type) and issubclass(hint, Enum):
            value = hint(value)  # the section may restrict an enumeration, as texts
        values[each.name] = value
    return kind(**values)


@cache
def _hints(kind: type[DataclassInstance]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def described_fields(kind: type[DataclassInstance]) -> Iterator[Field[Any]]:
    """Yield the fields of a domain class that users may write."""
    return (each for each in fields(kind) if DESCRIPTION in each.metadata)


def _key(name: str, hint: Any) -> str:
    is_duration = Duration in (hint, *get_args(hint))
    return name.removesuffix("_s") if is_duration else name


def _field(field: Field[Any]) -> Any:
    text = field.metadata[DESCRIPTION]
    if field.default_factory is not MISSING:
        return pydantic.Field(default_factory=field.default_factory, description=text)
    if field.default is MISSING:
        return pydantic.Field(description=text)
    default = field.default
    if isinstance(default, tuple):
        return pydantic.Field(default_factory=lambda: list(default), description=text)
    return pydantic.Field(default=default, description=text)


def _file_type(hint: Any) -> Any:
    if get_origin(hint) in (Union, UnionType):  # of what is annotated, typing.Union
        return reduce(or_, map(_file_type, get_args(hint)))
    if get_origin(hint) is Annotated:
        base, mark = get_args(hint)
        if isinstance(mark, ValueKind):
            return FILE_TYPES[mark]
        if isinstance(mark, Length):
            items = pydantic.Field(min_length=mark.min or None, max_length=mark.max)
            return Annotated[_file_type(base), items]
        bounds = {name: value for name, value in asdict(mark).items() if value is not None}
        return Annotated[base, pydantic.Field(**bounds)]
    if get_origin(hint) is tuple:
        return list[_file_type(get_args(hint)[0])]  # type: ignore[misc]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return Annotated[hint, pydantic.Field(strict=False)]
    return hint
