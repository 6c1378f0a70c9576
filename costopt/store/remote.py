"""A bucket as an object store, through obstore: timeouts and retries, and what its errors mean."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore

from costopt.domain.errors import StoreError
from costopt.domain.object_store import VersionedObject
from costopt.domain.text import excerpt
from costopt.store import atomic_file
from costopt.store.address import validate_key
from costopt.store.folder import file_size_bytes, object_too_large_error, object_too_short_error

if TYPE_CHECKING:
    from obstore import GetResult, PutMode
    from obstore.store import ObjectStore as Bucket


PART_BYTES = 8 << 20
MAX_PARTS = 10_000
"""S3's limit: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html"""
WRITE_ID_KEY = "costopt-write"
MAX_ATTEMPTS = 5

RANGE_BEYOND_END = re.compile(r"InvalidRange|status code: 416|Requested range|Invalid range")

ReadTag = Callable[[Mapping[str, Any]], str]
Conditions = Callable[[str], "tuple[PutMode, ...]"]
"""The ways to ask for the object of a tag: services differ in whether they quote it."""


class RemoteStore:
    """The ObjectStore port over a bucket. Raises StoreError naming the bucket and the remedy.

    A conditional write carries a mark of its own: if the reply to it was lost, the mark
    distinguishes our object from another writer's. ``service`` is the bucket with its endpoint.
    """

    def __init__(self, bucket: Bucket, where: str, tag: ReadTag, conditions: Conditions) -> None:
        self._bucket = bucket
        self._where = self.service = where
        self._tag = tag
        self._conditions = conditions

    def put(self, key: str, data: bytes) -> None:
        """Write or replace, durably."""
        try:
            obstore.put(self._bucket, _checked(key), data, chunk_size=PART_BYTES)
        except (OSError, obstore.exceptions.BaseError) as error:
            raise store_error("write", key, self._where, error) from error

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """Write unless the key exists; return whether it was written. One of many writers wins."""
        return self._put_on(key, data, "create")

    def get(self, key: str, max_bytes: int | None = None) -> bytes | None:
        """Return the bytes, or None where the key is missing."""
        found = self._found(key)
        if found is None:
            return None
        try:
            if max_bytes is None:
                return found.bytes().to_bytes()
            return self._bounded(key, found, max_bytes)
        except (OSError, obstore.exceptions.BaseError) as error:
            raise store_error("read", key, self._where, error) from error

    def get_range(self, key: str, start: int, end: int) -> bytes | None:
        """Return the bytes from ``start`` up to ``end``, or None where the key is missing."""
        if start == end:  # no request for a range can be empty
            return None if self._found(key) is None else b""
        try:
            found = obstore.get_range(self._bucket, _checked(key), start=start, end=end)
        except (OSError, obstore.exceptions.BaseError) as error:
            if _is_missing(error):
                return None
            if RANGE_BEYOND_END.search(str(error)):
                raise object_too_short_error(key, self._where, start, end) from error
            raise store_error("read", key, self._where, error) from error
        data = found.to_bytes()
        if len(data) != end - start:
            raise object_too_short_error(key, self._where, start + len(data), end)
        return data

    def get_tagged(self, key: str) -> VersionedObject | None:
        """Return the bytes with their tag, or None where the key is missing."""
        found = self._found(key)
        if found is None:
            return None
        try:
            return VersionedObject(found.bytes().to_bytes(), self._tag(found.meta))
        except (OSError, obstore.exceptions.BaseError) as error:
            raise store_error("read", key, self._where, error) from error

    def replace(self, key: str, data: bytes, tag: str | None) -> bool:
        """Write if the key still holds the object that ``tag`` is of; None: if it is missing.

        A tag that was refused and still is the object's is sent in the next way.
        """
        if tag is None:
            return self._put_on(key, data, "create")
        first, *others = self._conditions(tag)
        if self._put_on(key, data, first):
            return True
        for other in others:
            found = self._found(key)
            if found is None or self._tag(found.meta) != tag:
                return False
            if self._put_on(key, data, other):
                return True
        return False

    def put_file(self, key: str, path: Path) -> None:
        """Write or replace with the bytes of a file, in parts."""
        part_bytes = max(PART_BYTES, -(-file_size_bytes(path) // MAX_PARTS))
        try:
            obstore.put(self._bucket, _checked(key), path, chunk_size=part_bytes)
        except (OSError, obstore.exceptions.BaseError) as error:
            raise store_error("write", key, self._where, error) from error

    def get_file(self, key: str, path: Path) -> bool:
        """Write the bytes to ``path``, whole or not at all; return False if the key is missing."""
        found = self._found(key)
        if found is None:
            return False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            pieces = (memoryview(piece) for piece in found.stream(min_chunk_size=PART_BYTES))
            atomic_file.write_chunks_atomic(path, pieces)
        except obstore.exceptions.BaseError as error:
            raise store_error("read", key, self._where, error) from error
        except OSError as error:
            raise StoreError(
                f"cannot write {path}: {error.strerror}",
                hint=atomic_file.write_error_hint(error),
                code="unwritable",
            ) from error
        return True

    def keys(self, prefix: str, after: str = "", most: int | None = None) -> Sequence[str]:
        """Return keys with ``prefix`` that sort after ``after``, sorted; the first ``most``.

        Buckets list their keys in order: https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html
        """
        folder = prefix.rpartition("/")[0]
        listed = obstore.list(self._bucket, folder or None, offset=after or None)
        found = (meta["path"] for chunk in listed for meta in chunk)
        # Some services that speak S3 begin at the first key regardless of the offset.
        wanted = (key for key in found if key.startswith(prefix) and key > after)
        try:
            return sorted(islice(wanted, most))
        except (OSError, obstore.exceptions.BaseError) as error:
            raise store_error("list", prefix, self._where, error) from error

    def delete(self, key: str) -> None:
        """Remove the object; a missing key is not an error."""
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
        """Return the mark of the write that the key holds; "" without one, None if missing."""
        found = self._found(key)
        return None if found is None else str(found.attributes.get(WRITE_ID_KEY, ""))

    def _bounded(self, key: str, found: GetResult, max_bytes: int) -> bytes:
        """Return the bytes, counted as they arrive: a reported size may be of compressed bytes."""
        data, listed_bytes = bytearray(), found.meta["size"]
        if listed_bytes <= max_bytes:
            for piece in found.stream():
                data += memoryview(piece)
                if len(data) > max_bytes:
                    break
        size_bytes = max(listed_bytes, len(data))
        if size_bytes > max_bytes:
            raise object_too_large_error(key, self._where, size_bytes, max_bytes)
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


ERROR_CODE = re.compile(r"<Code>(\w+)</Code>")
ERROR_MESSAGE = re.compile(r"<Message>([^<]+)</Message>")
STATUS = re.compile(r"status code: (\d{3})")
ABOUT_CREDENTIALS = re.compile(
    r"Token|AccessKey|Signature|Credential|AuthFailure|UnrecognizedClient"
)
"""Error codes of S3, of STS behind a role, and of other services that speak S3."""
EXPECTED_REGION = re.compile(r"expecting '([a-z0-9-]+)'")

CREDENTIALS_HINT = (
    "renew the credentials: see `aws sts get-caller-identity` or `gcloud auth list`; on a machine, "
    "give it a role"
)
PERMISSION_HINT = (
    "allow reading, writing, deleting and listing under this prefix; "
    "`costopt doctor aws --iam-policy`, or gcp, prints what is needed"
)
REGION_HINT = "set AWS_REGION, or add ?region=… to the address, to the region of the bucket"
REMEDIES = {
    "NoSuchBucket": "create the bucket, or correct the address",
    "AccessDenied": PERMISSION_HINT,
    "AllAccessDisabled": PERMISSION_HINT,
    "ExpiredToken": CREDENTIALS_HINT,
    "InvalidToken": CREDENTIALS_HINT,
    "InvalidAccessKeyId": CREDENTIALS_HINT,
    "SignatureDoesNotMatch": CREDENTIALS_HINT,
    "RequestTimeTooSkewed": "set the clock of this machine",
    "SlowDown": "the store is overloaded: the request is retried automatically",
    "ServiceUnavailable": "the store is overloaded: the request is retried automatically",
    "PermanentRedirect": REGION_HINT,
    "AuthorizationHeaderMalformed": REGION_HINT,
    "IllegalLocationConstraintException": REGION_HINT,
}
ERROR_SIGNATURES = (
    ("incorrectly configured region", "the bucket is in another region", REGION_HINT),
    ("PermissionDenied", "no permission", PERMISSION_HINT),
    ("Unauthenticated", "no valid credentials", CREDENTIALS_HINT),
    *(
        (sign, "no credentials were found", CREDENTIALS_HINT)
        for sign in ("credential", "/latest/api/token", "/latest/meta-data", "computeMetadata")
    ),
)
REASONS = {"401": "no valid credentials", "403": "no permission"}
"""Meanings of responses without a code, by HTTP status."""
ANSWERED_HINT = "check the address, and any proxy on the way: the endpoint answers, and refuses"
FAILED_HINT = "try again later: the store, or a proxy on the way, has failed"
UNREACHABLE_HINT = "see that the endpoint can be reached from this machine"


def store_error(verb: str, key: str, where: str, error: BaseException) -> StoreError:
    """Return obstore's ``error`` about ``key`` of the bucket ``where``, with what to do.

    obstore gives no status or code, only a text that contains the server's response.
    """
    reason, hint = _meaning(str(error))
    return StoreError(f"cannot {verb} {key!r} in {where}: {reason}", hint=hint)


def _meaning(text: str) -> tuple[str, str]:
    code = ERROR_CODE.search(text)
    if code is not None:
        message = ERROR_MESSAGE.search(text)
        said = f"{code[1]}: {message[1].rstrip('.')}" if message else code[1]
        region = EXPECTED_REGION.search(text)
        if region is not None:
            return said, f"the bucket is in {region[1]}: {REGION_HINT}"
        return said, REMEDIES.get(code[1]) or _hint_of_code(code[1], text)
    for sign, reason, hint in ERROR_SIGNATURES:
        if sign in text:
            return reason, hint
    status = STATUS.search(text)
    summary = excerpt(text.partition("\n\nDebug source")[0])
    return REASONS.get(status[1], summary) if status else summary, _hint_of_status(text)


def _hint_of_code(code: str, text: str) -> str:
    """Return what to do about a code that has no entry of its own."""
    return CREDENTIALS_HINT if ABOUT_CREDENTIALS.search(code) else _hint_of_status(text)


def _hint_of_status(text: str) -> str:
    """Return what to do by the HTTP status of the response, if there was one."""
    status = STATUS.search(text)
    if status is None:
        return UNREACHABLE_HINT
    by_status = {"401": CREDENTIALS_HINT, "403": PERMISSION_HINT}
    return by_status.get(status[1], FAILED_HINT if status[1] >= "500" else ANSWERED_HINT)
