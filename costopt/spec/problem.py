"""What is wrong with a file, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costopt.domain.errors import SpecError

MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. Lines and columns count from 1; 0 is the file as a whole.

    ``field`` is the path of the value, such as ``phases[1].share``, empty for the document.
    """

    path: str
    line: int
    column: int
    field: str
    message: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        return ": ".join(part for part in (place, self.field, self.message) if part)


class SpecFileError(SpecError):
    """A file is wrong in one or more places; ``problems`` lists them in the file's order."""

    def __init__(self, problems: Sequence[Problem], *, hint: str | None = None) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.line, p.column, p.field)))
        super().__init__(_listed(self.problems), hint=hint)


def _listed(problems: tuple[Problem, ...]) -> str:
    if len(problems) == 1:
        return str(problems[0])
    lines = [f"{problems[0].path}: {len(problems)} problems"]
    lines += [f"  {problem}" for problem in problems[:MOST_SHOWN]]
    if len(problems) > MOST_SHOWN:
        lines.append(f"  and {len(problems) - MOST_SHOWN} more")
    return "\n".join(lines)
