"""The files of a change before and after it: of a folder, or of a git revision.

What a change brings may come from a stranger. Links, and files that are reached through one, are
refused: a message about a file quotes from it, and is shown where the change is reviewed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from costopt.domain.errors import SpecError
from costopt.spec.yaml_document import MAX_BYTES

GIT_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class FileTree:
    """The regular files under ``root``. ``name`` is what the user called them."""

    name: str
    root: Path

    def find(self, patterns: Iterable[str]) -> frozenset[str]:
        """Return the files that match a pattern such as ``jobs/**/*.yaml``, relative to the root.

        Raise SpecError for a pattern that leaves the root.
        """
        found = (path for pattern in patterns for path in self._glob(pattern))
        return frozenset(path.relative_to(self.root).as_posix() for path in found)

    def path(self, name: str) -> Path | None:
        """Return the file of this relative name, None if the tree has no such regular file."""
        if not _is_relative(name):
            return None
        path = self.root / name
        return path if self._is_own(path) else None

    def content(self, name: str) -> bytes | None:
        """Return up to the size of the largest job file, None if the tree has no such file."""
        path = self.path(name)
        if path is None:
            return None
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)

    def _glob(self, pattern: str) -> Iterator[Path]:
        if not _is_relative(pattern):
            raise _bad_pattern(pattern)
        try:
            yield from filter(self._is_own, self.root.glob(pattern))
        except (ValueError, NotImplementedError):
            raise _bad_pattern(pattern) from None

    def _is_own(self, path: Path) -> bool:
        return path.is_file() and path.resolve() == self.root.resolve() / path.relative_to(
            self.root
        )


@contextmanager
def open_file_tree(place: str, patterns: Iterable[str]) -> Iterator[FileTree]:
    """Yield the tree of a folder, or of a git revision of the working folder's repository.

    Of a revision, only files that match one of the patterns are there. A folder of that name
    comes first. Raise SpecError if ``place`` is neither.
    """
    if Path(place).is_dir():
        yield FileTree(place, Path(place))
        return
    commit = _resolve_commit(place)
    with TemporaryDirectory(prefix="costopt-diff-") as folder:
        _extract(commit, Path(folder), tuple(patterns))
        yield FileTree(place, Path(folder))


def _is_relative(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _bad_pattern(pattern: str) -> SpecError:
    return SpecError(
        f"{pattern!r} does not name files of the tree",
        hint="use a relative pattern such as 'jobs/**/*.yaml'",
        code="bad_pattern",
        subject=pattern,
    )


def _resolve_commit(revision: str) -> str:
    try:
        return _git(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
        )
    except subprocess.CalledProcessError:
        raise SpecError(
            f"{revision!r} is neither a folder nor a git revision here",
            hint="check its spelling; a shallow clone lacks it: git fetch --depth=1 origin COMMIT",
            code="unknown_revision",
            subject=revision,
        ) from None


def _extract(commit: str, folder: Path, patterns: tuple[str, ...]) -> None:
    """Write the regular files that match. Links, submodules and files that are too large for a
    job file are left out."""
    for entry in filter(None, _git("ls-tree", "-r", "-z", "-l", commit).split("\0")):
        facts, _, name = entry.partition("\t")
        mode, _, blob, size = facts.split()
        if not mode.startswith("100") or int(size) > MAX_BYTES or not _matches(name, patterns):
            continue
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_git_bytes("cat-file", "blob", blob))


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a file matches, as ``Path.glob`` matches: ``**`` is any number of folders."""
    return any(_parts_match(PurePosixPath(name).parts, PurePosixPath(p).parts) for p in patterns)


def _parts_match(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_parts_match(parts[skip:], pattern[1:]) for skip in range(len(parts) + 1))
    return (
        bool(parts)
        and PurePosixPath(parts[0]).match(pattern[0])
        and _parts_match(parts[1:], pattern[1:])
    )


def _git(*arguments: str) -> str:
    return _git_bytes(*arguments).decode("utf-8", "surrogateescape").removesuffix("\n")


def _git_bytes(*arguments: str) -> bytes:
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and revisions come after --end-of-options
            ["git", *arguments],  # noqa: S607 - the user's own git
            capture_output=True,
            check=True,
            timeout=GIT_TIMEOUT_S,
        )
    except FileNotFoundError:
        raise SpecError(
            "git is not installed, and is needed to compare revisions",
            hint="install git, or name two folders",
            code="no_git",
        ) from None
    except subprocess.TimeoutExpired:
        raise SpecError(
            f"git did not answer within {GIT_TIMEOUT_S} s", code="git_timeout"
        ) from None
    return done.stdout
