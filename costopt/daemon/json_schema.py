"""JSON Schemas of what ``json_form`` writes and ``json_body`` reads, from the types themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from costopt.daemon.json_form import KIND, json_fields
from costopt.domain.events import EVENT_TYPES, Event
from costopt.domain.market import Pool

Schema = dict[str, Any]

TEXT_PATTERN = r"^[^\u0000]*$"
_PLAIN: Mapping[type, Schema] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    str: {"type": "string"},
    datetime: {"type": "string", "format": "date-time"},
    Pool: {"type": "string"},
}


@dataclass(frozen=True, slots=True)
class IntegerRange:
    """What a whole number may be, both ends included."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class StringPattern:
    """What a text may be: at most ``most`` characters, and as ``pattern`` says.

    ``about`` names the form for people.
    """

    most: int
    pattern: str = TEXT_PATTERN
    about: str = "text without a null character"


class SchemaBuilder:
    """The schemas of the types that were asked for, by the name that ``$ref`` uses."""

    def __init__(self) -> None:
        self.named: dict[str, Schema] = {}

    def of(self, hint: Any) -> Schema:
        """The schema of an answer's type."""
        return self._of(hint, answer=True)

    def body(self, hint: Any) -> Schema:
        """The schema of a request's type: nothing besides its fields, those with defaults may be
        left out."""
        return self._of(hint, answer=False)

    def _of(self, hint: Any, *, answer: bool) -> Schema:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin is Annotated:
            return self._of(arguments[0], answer=answer) | _limits(arguments[1])
        if origin in (Union, UnionType):
            return self._union(arguments, answer)
        if origin is tuple:
            return {"type": "array", "items": self._items(arguments, answer)}
        if origin in (dict, Mapping):
            return {"type": "object", "additionalProperties": self._of(arguments[1], answer=answer)}
        if origin is frozenset:
            return {"type": "array", "items": self._of(arguments[0], answer=answer)}
        return self._plain(hint, answer)

    def _plain(self, hint: Any, answer: bool) -> Schema:
        if hint is float:
            return {"type": ["number", "null"]} if answer else {"type": "number"}
        if hint in _PLAIN:
            return dict(_PLAIN[hint])
        if hint is Event:
            return {"oneOf": [self._object(each, answer) for each in EVENT_TYPES]}
        if isinstance(hint, type) and issubclass(hint, Enum):
            return {"type": "string", "enum": [each.value for each in hint]}
        if is_dataclass(hint):
            assert isinstance(hint, type)
            return self._object(hint, answer)
        raise TypeError(f"no schema for {hint}")

    def _union(self, arguments: tuple[Any, ...], answer: bool) -> Schema:
        (inner,) = (each for each in arguments if each is not NoneType)
        schema = self._of(inner, answer=answer)
        if "$ref" in schema or "oneOf" in schema:
            return {"anyOf": [schema, {"type": "null"}]}
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
        known = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return schema | {"type": [*dict.fromkeys([*known, "null"])]}

    def _items(self, arguments: tuple[Any, ...], answer: bool) -> Schema:
        kinds = [each for each in arguments if each is not Ellipsis]
        schemas = [self._of(each, answer=answer) for each in kinds]
        return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}

    def _object(self, of: type, answer: bool) -> Schema:
        name = of.__name__
        if name not in self.named:
            self.named[name] = {}
            self.named[name] = self._members(of, answer)
        return {"$ref": f"#/components/schemas/{name}"}

    def _members(self, of: type, answer: bool) -> Schema:
        hints = get_type_hints(of, include_extras=True)
        for name in json_fields(of):
            if name not in hints:
                getter = getattr(of, name).fget
                hints[name] = get_type_hints(getter, include_extras=True)["return"]
        names = json_fields(of) if answer else tuple(field.name for field in fields(of))
        properties = {name: self._of(hints[name], answer=answer) for name in names}
        if issubclass(of, Event):
            properties[KIND] = {"const": of.kind}
        needed = list(properties) if answer else [f.name for f in fields(of) if _must(f)]
        schema: Schema = {
            "type": "object",
            "description": " ".join((of.__doc__ or "").split()),
            "properties": properties,
            "additionalProperties": False,
        }
        return schema | ({"required": needed} if needed else {})


def _must(field: Any) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _limits(said: IntegerRange | StringPattern) -> Schema:
    match said:
        case IntegerRange(least, most):
            return {"minimum": least, "maximum": most}
        case StringPattern(most, pattern):
            return {"maxLength": most, "pattern": pattern}
