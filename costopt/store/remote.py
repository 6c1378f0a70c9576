"""A bucket as an object store, through obstore."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore

from costopt.domain.errors import StoreError
from costopt.domain.ports import VersionedObject
from costopt.store import durable
from costopt.store.key import validate_key
from costopt.store.refusal import file_size_bytes, object_too_large_error, store_error

if TYPE_CHECKING:
    from obstore import GetResult, PutMode
    from obstore.store import ObjectStore as Bucket

PART_BYTES = 8 << 20
MAX_PARTS = 10_000
"""S3's limit: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html"""
WRITE_ID_KEY = "costopt-write"
MAX_ATTEMPTS = 5

ReadTag = Callable[[Mapping[str, Any]], str]
Condition = Callable[[str], "PutMode"]


class RemoteStore:
    """The ObjectStore port over a bucket. Raises StoreError naming the bucket and the remedy.

    A conditional write carries a mark of its own: where the reply to it was lost, the mark tells
    our object from another writer's.
    """

    def __init__(self, bucket: Bucket, where: str, tag: ReadTag, condition: Condition) -> None:
        self._bucket = bucket
        self._where = where
        self._tag = tag
        self._condition = condition

    def put(self, key: str, data: bytes) -> None:
        """Write or replace, durably."""
        try:
            obstore.put(self._bucket, _checked(key), data, chunk_size=PART_BYTES)
        except (OSError, obstore.exceptions.BaseError) as error:
            raise store_error("write", key, self._where, error) from error

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write unless the key exists; False where it does. One winner among many writers."""
        return self._put_on(key, data, "create")

    def get(self, key: str, most_bytes: int | None = None) -> bytes | None:
        """The bytes, or None where the key is missing."""
        found = self._found(key)
        if found is None:
            return None
        try:
            if most_bytes is None:
                return found.bytes().to_bytes()
            return self._bounded(key, found, most_bytes)
        except (OSError, obstore.exceptions.BaseError) as error:
            raise store_error("read", key, self._where, error) from error

    def get_tagged(self, key: str) -> VersionedObject | None:
        """The bytes with their tag, or None where the key is missing."""
        found = self._found(key)
        if found is None:
            return None
        try:
            return VersionedObject(found.bytes().to_bytes(), self._tag(found.meta))
        except (OSError, obstore.exceptions.BaseError) as error:
            raise store_error("read", key, self._where, error) from error

    def replace(self, key: str, data: bytes, tag: str | None) -> bool:
        """Write if the key still holds what ``tag`` was given for; None: if it is missing."""
        return self._put_on(key, data, "create" if tag is None else self._condition(tag))

    def put_file(self, key: str, path: Path) -> None:
        """Write or replace with the bytes of a file, in parts."""
        part_bytes = max(PART_BYTES, -(-file_size_bytes(path) // MAX_PARTS))
        try:
            obstore.put(self._bucket, _checked(key), path, chunk_size=part_bytes)
        except (OSError, obstore.exceptions.BaseError) as error:
            raise store_error("write", key, self._where, error) from error

    def get_file(self, key: str, path: Path) -> bool:
        """Write the bytes to ``path``, whole or not at all; False where the key is missing."""
        found = self._found(key)
        if found is None:
            return False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            pieces = (memoryview(piece) for piece in found.stream(min_chunk_size=PART_BYTES))
            durable.write_chunks_atomic(path, pieces)
        except obstore.exceptions.BaseError as error:
            raise store_error("read", key, self._where, error) from error
        except OSError as error:
            raise StoreError(
                f"cannot write {path}: {error.strerror}",
                hint=durable.write_error_hint(error),
                code="unwritable",
            ) from error
        return True

    def keys(self, prefix: str, after: str = "", most: int | None = None) -> Sequence[str]:
        """Keys that begin with ``prefix`` and come after ``after``, sorted; the first ``most``.

        Buckets list their keys in order: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html
        """
        folder = prefix.rpartition("/")[0]
        listed = obstore.list(self._bucket, folder or None, offset=after or None)
        found = (meta["path"] for chunk in listed for meta in chunk)
        # Some services that speak S3 begin at the front whatever they are told.
        wanted = (key for key in found if key.startswith(prefix) and key > after)
        try:
            return sorted(islice(wanted, most))
        except (OSError, obstore.exceptions.BaseError) as error:
            raise store_error("list", prefix, self._where, error) from error

    def delete(self, key: str) -> None:
        """Remove; a missing key is no error."""
        try:
            obstore.delete(self._bucket, _checked(key))
        except (OSError, obstore.exceptions.BaseError) as error:
            if not _is_missing(error):
                raise store_error("delete", key, self._where, error) from error

    def _put_on(self, key: str, data: bytes, mode: PutMode) -> bool:
        path, mark = _checked(key), uuid.uuid4().hex
        for attempt in range(MAX_ATTEMPTS):
            try:
                obstore.put(self._bucket, path, data, mode=mode, attributes={WRITE_ID_KEY: mark})
            except (
                obstore.exceptions.AlreadyExistsError,
                obstore.exceptions.PreconditionError,
            ) as error:
                holder = self._holder(key)
                if holder == mark:
                    return True
                # S3 answers 409 to one of two writers at once, though the key may still be free.
                contended = "ConditionalRequestConflict" in str(error)
                if not contended or (mode == "create" and holder is not None):
                    return False
                if attempt == MAX_ATTEMPTS - 1:
                    raise store_error("write", key, self._where, error) from error
            except (OSError, obstore.exceptions.BaseError) as error:
                if self._holder(key) == mark:
                    return True
                raise store_error("write", key, self._where, error) from error
            else:
                return True
        return False

    def _holder(self, key: str) -> str | None:
        """The mark of the write that the key holds; empty where it has none, None if missing."""
        found = self._found(key)
        return None if found is None else str(found.attributes.get(WRITE_ID_KEY, ""))

    def _bounded(self, key: str, found: GetResult, most_bytes: int) -> bytes:
        """Counted as it comes: what a service tells as the size may be that of packed bytes."""
        data, told_bytes = bytearray(), found.meta["size"]
        if told_bytes <= most_bytes:
            for piece in found.stream():
                data += memoryview(piece)
                if len(data) > most_bytes:
                    break
        size_bytes = max(told_bytes, len(data))
        if size_bytes > most_bytes:
            raise object_too_large_error(key, self._where, size_bytes, most_bytes)
        return bytes(data)

    def _found(self, key: str) -> GetResult | None:
        try:
            return obstore.get(self._bucket, _checked(key))
        except (OSError, obstore.exceptions.BaseError) as error:
            if _is_missing(error):
                return None
            raise store_error("read", key, self._where, error) from error


def _checked(key: str) -> str:
    validate_key(key)
    return key


def _is_missing(error: BaseException) -> bool:
    return isinstance(error, FileNotFoundError) and "NoSuchBucket" not in str(error)
