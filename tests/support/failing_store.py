"""A folder that fails requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from costopt.domain.errors import StoreError
from costopt.store.folder import FileStore

T = TypeVar("T")


class Failing(FileStore):
    """A folder that fails requests as ``fails`` says: before they are done, or after.

    To replace is one request, as to a remote store.
    """

    def __init__(self, root: Path, fails: Callable[[str, str], str | None]) -> None:
        super().__init__(root)
        self.fails = fails
        self._replaces = False

    def _ask(self, request: str, key: str, do: Callable[[], T]) -> T:
        failure = self.fails(request, key)
        if failure == "before":
            raise StoreError(f"cannot {request} {key}: Input/output error")
        answer = do()
        if failure == "after":
            raise StoreError(f"cannot {request} {key}: the reply was lost")
        return answer

    def put(self, key: str, data: bytes) -> None:
        inner = super().put
        self._ask("put", key, lambda: inner(key, data))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        inner = super().put_if_absent
        return self._ask("put_if_absent", key, lambda: inner(key, data))

    def get(self, key: str, max_bytes: int | None = None) -> bytes | None:
        inner = super().get
        if self._replaces:
            return inner(key, max_bytes)
        return self._ask("get", key, lambda: inner(key, max_bytes))

    def get_range(self, key: str, start: int, end: int) -> bytes | None:
        inner = super().get_range
        return self._ask("get_range", key, lambda: inner(key, start, end))

    def replace(self, key: str, data: bytes, tag: str | None) -> bool:
        inner = super().replace

        def do() -> bool:
            self._replaces = True
            try:
                return inner(key, data, tag)
            finally:
                self._replaces = False

        return self._ask("replace", key, do)

    def keys(self, prefix: str, after: str = "", most: int | None = None) -> Sequence[str]:
        inner = super().keys
        return self._ask("list", prefix, lambda: inner(prefix, after, most))

    def delete(self, key: str) -> None:
        inner = super().delete
        self._ask("delete", key, lambda: inner(key))
