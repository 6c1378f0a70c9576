"""What is wrong with a file, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
