"""Which files of a job's folder stay behind."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from costopt.domain.errors import SpecError

IGNORE_FILE = ".costoptignore"
ALWAYS_IGNORED = (
    ".git",
    ".hg",
    ".svn",
    ".venv*",
    "venv",
    "node_modules",
    "__pycache__",
    "*.pyc",
    ".*_cache",
    ".ipynb_checkpoints",
    ".costopt",
    ".DS_Store",
    ".env",
    ".aws",
    ".ssh",
)
"""What is made anew, or must not leave this machine."""


class IgnoreList:
    """Patterns of names or of paths, as in a .gitignore file without exceptions ("!").

    A pattern without a slash in it matches any file or folder of that name; with one, a path from
    the job's folder. A folder that is ignored is ignored with all that is in it.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._patterns = tuple(pattern.rstrip("/") for pattern in (*ALWAYS_IGNORED, *patterns))

    @classmethod
    def of(cls, folder: Path) -> IgnoreList:
        """As the folder's ``.costoptignore`` says. Raises SpecError where it cannot be read."""
        path = folder / IGNORE_FILE
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return cls()
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(
                f"{path} cannot be read: {error}", hint="write it in UTF-8", code="unreadable"
            ) from error
        patterns = [line.strip() for line in lines]
        patterns = [pattern for pattern in patterns if pattern and not pattern.startswith("#")]
        for pattern in patterns:
            if pattern.startswith("!"):
                raise SpecError(
                    f"{path}: {pattern!r}: exceptions are not known",
                    hint="name what is to stay behind, nothing else",
                    code="exceptions",
                )
        return cls(patterns)

    def ignores(self, relative: str) -> bool:
        """Whether the file or folder at this path, with ``/``, stays behind."""
        name = relative.rpartition("/")[2]
        return any(
            fnmatchcase(relative, pattern.lstrip("/"))
            if "/" in pattern
            else fnmatchcase(name, pattern)
            for pattern in self._patterns
        )
