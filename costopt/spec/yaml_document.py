"""A YAML file as plain values with their source locations, and the errors that refer to them.

Scalars follow the core schema of YAML 1.2, so that ``on`` is a word and 1:30 is not a number. Keys
may not repeat. Aliases are expanded, and the number of values, the depth and the size of the file
are limited, so that no file can exhaust memory or time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.composer import Composer

from costopt.domain.errors import SpecError

MAX_SHOWN = 20
VALUE_ERROR = "value_error"
"""The code of a well-formed value that contradicts another one or is not accepted."""


@dataclass(frozen=True, slots=True)
class SpecProblem:
    """One thing that is wrong. Lines and columns count from 1; 0 is the file as a whole.

    ``field`` is the path of the value, such as ``phases[1].share``, empty for the document.
    ``code`` names the kind of problem: pydantic's error type where pydantic found it.
    """

    path: str
    line: int
    column: int
    field: str
    message: str
    code: str = VALUE_ERROR

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        return ": ".join(part for part in (place, self.field, self.message) if part)


class SpecFileError(SpecError):
    """A file is wrong in one or more places; ``problems`` lists them in the file's order."""

    def __init__(self, problems: Sequence[SpecProblem], *, hint: str | None = None) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.line, p.column, p.field)))
        super().__init__(_listed(self.problems), hint=hint)


def _listed(problems: tuple[SpecProblem, ...]) -> str:
    if len(problems) == 1:
        return str(problems[0])
    lines = [f"{problems[0].path}: {len(problems)} problems"]
    lines += [f"  {problem}" for problem in problems[:MAX_SHOWN]]
    if len(problems) > MAX_SHOWN:
        lines.append(f"  and {len(problems) - MAX_SHOWN} more")
    return "\n".join(lines)


try:
    from yaml import CSafeLoader
except ImportError:
    # PyYAML was built without LibYAML.
    from yaml import SafeLoader as CSafeLoader  # type: ignore[assignment]


MAX_BYTES = 256 * 1024
MAX_VALUES = 20_000
MAX_DEPTH = 32

NO_TEXT = "holds a NUL or half of a character, which no file, variable or database can hold"

FieldPath = tuple[str | int, ...]

_UNSTORABLE = re.compile("[\\0\ud800-\udfff]")

_NULL, _BOOL = "tag:yaml.org,2002:null", "tag:yaml.org,2002:bool"
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_MAP, _SEQ = "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line and a column, from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a file and the place of each value and key."""

    path: str
    values: Mapping[str, Any]
    value_places: Mapping[FieldPath, SourceLocation]
    key_places: Mapping[FieldPath, SourceLocation]

    def problem(
        self, at: FieldPath, message: str, *, on_key: bool = False, code: str = VALUE_ERROR
    ) -> SpecProblem:
        """A problem of the value (or key) at ``at``, or of the nearest value around it."""
        places = self.key_places if on_key else self.value_places
        place = places.get(at) or self.value_places[self.known(at)]
        return SpecProblem(self.path, place.line, place.column, field_name(at), message, code)

    def known(self, at: FieldPath) -> FieldPath:
        """``at``, or the nearest value around it that the file holds."""
        while at and at not in self.value_places:
            at = at[:-1]
        return at


def field_name(at: FieldPath) -> str:
    """``('phases', 1, 'share')`` as ``phases[1].share``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in at)
    return "".join(parts).removeprefix(".")


def read_document(path: str) -> Document:
    """Read a YAML mapping. Raises SpecFileError for anything else."""
    return parse_document(read_text(path), path)


def parse_document(text: str, path: str) -> Document:
    """As ``read_document``, of a text that would lie at ``path``. Raises SpecFileError."""
    if len(text) > MAX_BYTES:
        raise _failure(
            path, "too_large", f"is larger than {MAX_BYTES // 1024} KiB, so it is not a spec file"
        )
    node = compose_document(path, text)
    if node is None:
        raise _failure(path, "empty", "the file is empty")
    if not isinstance(node, yaml.MappingNode):
        message = "expected a mapping of fields to values"
        raise _failure(path, "model_type", message, node.start_mark)
    reading = _Reading(path)
    values = reading.value_of(node, ())
    if reading.problems:
        raise SpecFileError(reading.problems)
    return Document(path, values, reading.value_places, reading.key_places)


def read_text(path: str) -> str:
    """Return a text file of at most ``MAX_BYTES``. Raises SpecFileError."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _failure(path, "unreadable", f"cannot be read: {reason.lower()}") from None
    if len(data) > MAX_BYTES:
        raise _failure(
            path, "too_large", f"is larger than {MAX_BYTES // 1024} KiB, so it is not a spec file"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _failure(path, "encoding", f"is not UTF-8 text (byte {error.start})") from None


def _open_at_once(path: str, flags: int) -> int:
    """Open without waiting for a pipe's writer: a pipe without a writer reads as empty."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


class _CoreLoader(yaml.SafeLoader):
    """Composes nodes with the scalar types of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own class attribute


for _tag, _pattern, _first in (
    (_NULL, r"(?:~|null|Null|NULL|)", ["~", "n", "N", ""]),
    (_BOOL, r"(?:true|True|TRUE|false|False|FALSE)", list("tTfF")),
    (_INT, r"[-+]?(?:0|[1-9][0-9]*)", list("-+0123456789")),
    (
        _FLOAT,
        r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
):
    _CoreLoader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), _first)


class _FastLoader(Composer, CSafeLoader):
    """The same eight times as fast. LibYAML's own composer would overflow the stack of C."""

    yaml_implicit_resolvers = _CoreLoader.yaml_implicit_resolvers

    def __init__(self, text: str) -> None:
        CSafeLoader.__init__(self, text)
        Composer.__init__(self)


def compose_document(path: str, text: str) -> yaml.Node | None:
    """Return the nodes of a text with their marks, None of an empty one. Raises SpecFileError."""
    try:
        with suppress(yaml.YAMLError, ValueError):
            return yaml.compose(text, Loader=_FastLoader)
        # The other one says better what is wrong.
        return yaml.compose(text, Loader=_CoreLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        raise _failure(path, "yaml_syntax", f"is not YAML: {said}", mark) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        message = f"is not YAML: the character {error.character!r} is not allowed"
        problem = SpecProblem(path, line, column, "", message, "yaml_syntax")
        raise SpecFileError([problem]) from None
    except RecursionError:
        raise _failure(path, "too_deep", f"is nested deeper than {MAX_DEPTH} levels") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise _failure(path, "yaml_syntax", f"is not YAML: {error}") from None


def _failure(path: str, code: str, message: str, mark: yaml.Mark | None = None) -> SpecFileError:
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    return SpecFileError([SpecProblem(path, line, column, "", message, code)])


@dataclass(slots=True)
class _Reading:
    """One pass over the nodes; collects problems instead of stopping at the first."""

    path: str
    value_places: dict[FieldPath, SourceLocation] = field(default_factory=dict)
    key_places: dict[FieldPath, SourceLocation] = field(default_factory=dict)
    problems: list[SpecProblem] = field(default_factory=list)

    def value_of(self, node: yaml.Node, at: FieldPath) -> Any:
        """The plain value of ``node``, which is at ``at``."""
        self.value_places[at] = _place(node)
        if len(self.value_places) > MAX_VALUES:
            message = f"holds more than {MAX_VALUES} values"
            raise _failure(self.path, "too_many_values", message, node.start_mark)
        if len(at) > MAX_DEPTH:
            message = f"is nested deeper than {MAX_DEPTH} levels"
            raise _failure(self.path, "too_deep", message, node.start_mark)
        if isinstance(node, yaml.MappingNode) and node.tag == _MAP:
            return self._mapping(node, at)
        if isinstance(node, yaml.SequenceNode) and node.tag == _SEQ:
            return [self.value_of(item, (*at, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, at)
        return self._refuse(node, at, "unknown_tag", f"the tag {node.tag} is not allowed")

    def _mapping(self, node: yaml.MappingNode, at: FieldPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or not key_node.value:
                self._refuse(key_node, at, "key_type", "a key must be a word")
                continue
            key = _joined(key_node.value)
            if not _is_text(key):
                self._refuse(key_node, at, "unstorable_text", f"the key {key[:40]!r} {NO_TEXT}")
                continue
            here = (*at, key)
            if key in values:
                first = self.key_places[here]
                message = f"appears twice; the first is on line {first.line}"
                self._refuse(key_node, here, "duplicate_key", message)
                continue
            self.key_places[here] = _place(key_node)
            values[key] = self.value_of(value_node, here)
        return values

    def _scalar(self, node: yaml.ScalarNode, at: FieldPath) -> Any:
        text = _joined(node.value)
        if not _is_text(text):
            message = f"the text {text[:40]!r} {NO_TEXT}"
            return self._refuse(node, at, "unstorable_text", message)
        try:
            match node.tag:
                case "tag:yaml.org,2002:null":
                    return None
                case "tag:yaml.org,2002:bool":
                    return {"true": True, "false": False}[text.lower()]
                case "tag:yaml.org,2002:int":
                    return int(text)
                case "tag:yaml.org,2002:float":
                    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
                case "tag:yaml.org,2002:str":
                    return text
        except (ValueError, KeyError):
            message = f"{text[:40]!r} is not a valid value of its type"
            return self._refuse(node, at, "invalid_scalar", message)
        return self._refuse(node, at, "unknown_tag", f"the tag {node.tag} is not allowed")

    def _refuse(self, node: yaml.Node, at: FieldPath, code: str, message: str) -> None:
        place = _place(node)
        self.problems.append(
            SpecProblem(self.path, place.line, place.column, field_name(at), message, code)
        )


def _joined(text: str) -> str:
    """The text, each character that JSON wrote as two escapes as one."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _is_text(text: str) -> bool:
    """Whether files, environments and databases can all hold it."""
    return _UNSTORABLE.search(text) is None


def _place(node: yaml.Node) -> SourceLocation:
    return SourceLocation(node.start_mark.line + 1, node.start_mark.column + 1)
