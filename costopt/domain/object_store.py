"""The port of object stores, apart from the engine's: a checkpoint's writer imports little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True)
class VersionedObject:
    """An object's bytes, and the tag of exactly these bytes for ``ObjectStore.replace``.

    The tag is opaque, and valid for this store only.
    """

    data: bytes
    tag: str


class ObjectStore(Protocol):
    """Named bytes: a folder, S3 or GCS. Raises StoreError.

    A put is atomic: a reader sees the old bytes, the new ones or none, never a part. A key that is
    written with ``replace`` is never written with ``put`` or ``put_file`` as well.
    """

    def put(self, key: str, data: bytes) -> None:
        """Write or replace, durably."""
        ...

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write unless the key exists, and return whether it was written."""
        ...

    def get(self, key: str, max_bytes: int | None = None) -> bytes | None:
        """Return the bytes, or None where the key is missing.

        Pass ``max_bytes`` for objects that others may have written: raises StoreError for a larger
        one, without reading further.
        """
        ...

    def get_range(self, key: str, start: int, end: int) -> bytes | None:
        """Return the bytes from ``start`` up to ``end``, or None where the key is missing.

        Raises StoreError for an object that ends before ``end``; an empty range is empty bytes.
        """
        ...

    def get_tagged(self, key: str) -> VersionedObject | None:
        """Return the bytes with their tag, or None where the key is missing."""
        ...

    def replace(self, key: str, data: bytes, tag: str | None) -> bool:
        """Write if the key still holds the object that ``tag`` is of; None: if it is missing.

        Return False, with nothing written, otherwise: of many writers with one tag exactly one gets
        True.
        """
        ...

    def put_file(self, key: str, path: Path) -> None:
        """Write or replace with the bytes of a file, which need not fit into memory."""
        ...

    def get_file(self, key: str, path: Path) -> bool:
        """Write the bytes to ``path``, whole or not at all; return False if the key is missing."""
        ...

    def keys(self, prefix: str, after: str = "", most: int | None = None) -> Sequence[str]:
        """Return keys with ``prefix`` that sort after ``after``, sorted; the first ``most``."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object; a missing key is not an error."""
        ...
