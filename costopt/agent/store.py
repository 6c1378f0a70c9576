"""A folder as an object store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from costopt.agent import durable
from costopt.domain.errors import StoreError

SAFE_PART = re.compile(r"[A-Za-z0-9_@+=,%-][A-Za-z0-9._@+=,:%-]*")


class FileStore:
    """The ObjectStore port over a local or shared folder.

    A key is a relative path of parts that begin with a letter, digit or one of ``_@+=,%-``, so
    that no key can leave the folder or collide with a write under way. Every put is atomic and
    durable. Raises StoreError naming the path and what to do.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, key: str, data: bytes) -> None:
        """Write or replace, durably."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            durable.write_durably(path, data)
        except OSError as error:
            raise _refused("write", path, error) from error

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write unless the key exists; False where it does. One winner among many writers."""
        path = self._path(key)
        try:
            if path.exists():
                return False
            path.parent.mkdir(parents=True, exist_ok=True)
            return durable.write_durably_if_absent(path, data)
        except OSError as error:
            raise _refused("write", path, error) from error

    def get(self, key: str) -> bytes | None:
        """The bytes, or None where the key is missing."""
        path = self._path(key)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _refused("read", path, error) from error

    def keys(self, prefix: str) -> Sequence[str]:
        """Keys that begin with ``prefix``, sorted."""
        folder = prefix.rpartition("/")[0]
        start = self._path(folder) if folder else self.root
        try:
            found = [
                path.relative_to(self.root).as_posix()
                for path in start.rglob("*")
                if not durable.is_temporary(path.name) and path.is_file()
            ]
        except OSError as error:
            raise _refused("list", start, error) from error
        return sorted(key for key in found if key.startswith(prefix))

    def delete(self, key: str) -> None:
        """Remove; a missing key is no error."""
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as error:
            raise _refused("delete", path, error) from error

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if not all(SAFE_PART.fullmatch(part) for part in parts):
            raise StoreError(
                f"{key!r} is no key: it must be a relative path without '..' or hidden parts",
                hint="name jobs and nodes with letters, digits, '-', '_' and '.'",
            )
        return self.root.joinpath(*parts)


def _refused(verb: str, path: Path, error: OSError) -> StoreError:
    return StoreError(f"cannot {verb} {path}: {error.strerror}", hint=durable.remedy(error))
