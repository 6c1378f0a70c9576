"""What a store must do so that HEAD and claims of tasks have one writer, and the check of it.

Services that speak S3 or Google Cloud Storage may ignore conditions of writes, or answer reads from
before a write. On such a store two writers would both hold the same HEAD.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from costopt.domain.errors import StoreError
from costopt.domain.object_store import ObjectStore

FOLDER = "costopt-check"
UNSAFE = "unsafe_store"
"""The code of the error of a store that does not guarantee what is needed."""
HINT = (
    "use a store with conditional writes, such as Amazon S3, Google Cloud Storage or a folder; "
    "upgrade the service, or see that no proxy removes If-Match and If-None-Match"
)

_checked: set[str] = set()
"""The services that passed in this process."""


@dataclass(frozen=True, slots=True)
class BrokenGuarantee:
    """A property that a store lacks, by name, and what it did instead."""

    name: str
    observed: str

    def __str__(self) -> str:
        return f"{self.name}: {self.observed}"


def ensure_guarantees(store: ObjectStore) -> None:
    """Check the service of a store at its first use in this process; a folder is not checked.

    Raise StoreError: naming each property that it lacks, or because it does not answer.
    """
    service = service_of(store)
    if service is None or service in _checked:
        return
    broken = broken_guarantees(store)
    if broken:
        raise StoreError(
            f"{service} cannot hold HEAD or claims of tasks: {'; '.join(map(str, broken))}",
            hint=HINT,
            code=UNSAFE,
            subject=service,
        )
    _checked.add(service)


def service_of(store: ObjectStore) -> str | None:
    """Return the bucket and the endpoint that a store is in; None for a folder."""
    service: str | None = getattr(store, "service", None)
    return service


def broken_guarantees(store: ObjectStore) -> tuple[BrokenGuarantee, ...]:
    """Return the properties that a store lacks, in the order in which they were found.

    Writes a few small objects and deletes them. Raise StoreError if the store does not answer.
    """
    key = f"{FOLDER}/{uuid.uuid4().hex}"
    try:
        found = list(_broken(store, key))
    finally:
        with suppress(StoreError):
            store.delete(key)
    return tuple(found)


def _broken(store: ObjectStore, key: str) -> Iterator[BrokenGuarantee]:
    first, second, third = (f"{key} {word}".encode() for word in ("first", "second", "third"))
    if not store.put_if_absent(key, first):
        yield BrokenGuarantee("put if absent", "a key that is free was refused")
        store.put(key, first)
    if store.get(key) != first:
        yield BrokenGuarantee("read after write", "an object that was written was not read")
    if key not in store.keys(f"{FOLDER}/"):
        yield BrokenGuarantee("list after write", "an object that was written was not listed")
    if store.put_if_absent(key, second):
        yield BrokenGuarantee("put if absent", "an object that exists was replaced")
        store.put(key, first)
    tagged = store.get_tagged(key)
    if tagged is None:
        yield BrokenGuarantee("read after write", "an object that was written is missing")
        return
    if not store.replace(key, second, tagged.tag):
        yield BrokenGuarantee("replace by tag", "the object's own tag was refused")
        store.put(key, second)
    if store.get(key) != second:
        yield BrokenGuarantee("read after replace", "an older object was read")
    if store.replace(key, third, tagged.tag):
        yield BrokenGuarantee("replace by tag", "an outdated tag was accepted")
