"""The options of a provider's ``connect`` as a strict pydantic model that refuses unknown keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    SkipValidation,
    ValidationError,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from costopt.domain.errors import BadRequestError
from costopt.domain.ports import InstanceCatalog
from costopt.domain.runtime import Payload
from costopt.provider.base import ProviderOptions
from costopt.provider.boot import MAX_UNREACHABLE_S

Item = TypeVar("Item")
OptionPath = tuple[str | int, ...]

Text = Annotated[str, Field(min_length=1, max_length=1024)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
NodeCount = Annotated[int, Field(ge=1, le=10_000)]
WebAddress = Annotated[str, Field(pattern=r"^https?://[^/\s]+", max_length=2048)]
MAX_SHOWN = 60
WORDS = {"Input should be": "expected", "a valid ": "a ", "tuple": "list", "dictionary": "mapping"}
"""What pydantic says, in the words of a YAML file."""


def _distinct(values: tuple[Item, ...]) -> tuple[Item, ...]:
    return tuple(dict.fromkeys(values))


Listed = Annotated[tuple[Item, ...], Field(strict=False), AfterValidator(_distinct)]
"""A list without repetitions; a bare string is not a list."""


@dataclass(frozen=True, slots=True)
class OptionProblem:
    """What is wrong with the option at ``at``; its first part is the option's name."""

    at: OptionPath
    message: str
    is_unknown: bool = False


class OptionModel(BaseModel):
    """Options by name, each described.

    The model that the module of an adapter's entry point names ``OPTIONS`` is what account files
    are checked with.
    """

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
        validate_default=True,
    )
    injected: ClassVar[frozenset[str]] = frozenset()
    """Options that only a program gives, such as the catalogue: no file may name them."""

    @classmethod
    def parse(cls, options: ProviderOptions) -> Self:
        """Raise BadRequestError that names every wrong option."""
        try:
            return cls.model_validate(dict(options))
        except ValidationError as error:
            problems = _problems(error, options)
        names = cls.model_fields
        wrong = next((names[str(p.at[0])] for p in problems if p.at[0] in names), None)
        raise BadRequestError(
            f"{cls.__module__.partition('.')[0]}: "
            + "; ".join(f"option {_path(p.at)}: {p.message}" for p in problems),
            hint=(wrong and wrong.description) or f"the options are {', '.join(sorted(names))}",
        )

    @classmethod
    def usual_region(cls, options: Mapping[str, object]) -> str | None:  # noqa: ARG003
        """Return the region in the configuration of the provider's own tools, None without one.

        Raise ProviderError.
        """
        return None

    @classmethod
    def problems(cls, options: Mapping[str, object]) -> list[OptionProblem]:
        """What is wrong with the options of a file."""
        found = [
            OptionProblem((name,), "unknown key", is_unknown=True)
            for name in options
            if name in cls.injected
        ]
        try:
            cls.model_validate({k: v for k, v in options.items() if k not in cls.injected})
        except ValidationError as error:
            found += _problems(error, options)
        return found

    @classmethod
    def of_files(cls) -> list[str]:
        """The options that a file may name."""
        return sorted(cls.model_fields.keys() - cls.injected)


class LaunchOptions(OptionModel):
    """What costopt itself gives a provider; jobs may be added to ``payloads`` later."""

    injected: ClassVar[frozenset[str]] = frozenset({"machines", "payloads"})

    machines: SkipValidation[InstanceCatalog | None] = Field(
        default=None, description="the catalogue"
    )
    payloads: InstanceOf[Mapping[str, Payload]] = Field(
        default_factory=dict, description="a mapping of what nodes fetch, by job"
    )


class MachineOptions(LaunchOptions):
    """Of machines that end themselves once nothing can reach them."""

    max_unreachable_s: float = Field(
        default=MAX_UNREACHABLE_S,
        ge=600,
        le=86_400,
        strict=False,
        description="seconds without a sign of controller and store after which a node saves and "
        "switches itself off",
    )


def matches(pattern: str, expected: str) -> AfterValidator:
    """Refuses a text that the pattern does not match in full; ``expected`` says what it must be."""
    known = re.compile(pattern)

    def check(value: str) -> str:
        if not known.fullmatch(value):
            raise PydanticCustomError("option", "expected {what}", {"what": expected})
        return value

    return AfterValidator(check)


def with_method(name: str, expected: str) -> AfterValidator:
    """Refuses an object without a method of that name; None passes."""

    def check(value: Any) -> Any:
        if value is not None and not callable(getattr(value, name, None)):
            raise PydanticCustomError("option", "expected {what}", {"what": expected})
        return value

    return AfterValidator(check)


def _problems(error: ValidationError, options: Mapping[str, object]) -> list[OptionProblem]:
    """One for each place, as a union is refused once for each of its members."""
    messages: dict[OptionPath, list[str]] = {}
    unknown: set[OptionPath] = set()
    for detail in error.errors(include_url=False):
        at = _known(options, detail["loc"])
        if detail["type"] == "extra_forbidden":
            unknown.add(at)
        messages.setdefault(at, []).append(_message(detail))
    return [
        OptionProblem(at, " or ".join(dict.fromkeys(said)), at in unknown)
        for at, said in messages.items()
    ]


def _known(options: object, loc: OptionPath) -> OptionPath:
    """The part of ``loc`` that names places of ``options``, the option itself at least."""
    found: list[str | int] = []
    for part in loc:
        try:
            options = options[part]  # type: ignore[index]
        except (LookupError, TypeError):
            if found:
                break
        found.append(part)
    return tuple(found)


def _message(detail: ErrorDetails) -> str:
    match detail["type"]:
        case "extra_forbidden":
            return "unknown key"
        case "missing":
            return "is missing"
        case "too_short":
            return "expected at least one entry"
        case "model_type":
            return f"expected a mapping, got {_shown(detail['input'])}"
    said = detail["msg"]
    for word, ours in WORDS.items():
        said = said.replace(word, ours)
    return f"{said[:1].lower()}{said[1:]}, got {_shown(detail['input'])}"


def _shown(value: object) -> str:
    if value is None or isinstance(value, (str, int, float)):
        text = "nothing" if value is None else repr(value)
        return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}…"
    return type(value).__name__


def _path(at: Iterable[str | int]) -> str:
    return ".".join(str(part) for part in at)
