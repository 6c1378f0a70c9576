"""Many ranges of objects, read in few requests: neighbours together, several at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby

from costopt.domain.errors import StoreError
from costopt.domain.object_store import ObjectStore
from costopt.store.folder import FileStore

MAX_GAP_BYTES = 1 << 20
"""A gap this small costs less to read than another request does to send."""
MAX_REQUEST_BYTES = 16 << 20
"""One connection to S3 carries 5 Gbit/s: larger requests would leave the others idle.
https://docs.aws.amazon.com/AmazonS3/latest/userguide/optimizing-performance-guidelines.html"""
MAX_CONCURRENT_REQUESTS = 16

KeyRange = tuple[str, int, int]
"""A key, and the range from a start up to an end, in bytes."""


@dataclass(slots=True)
class RangeRequest:
    """One request: a range of an object that covers those of ``members``, by their numbers."""

    key: str
    start: int
    end: int
    members: list[int] = field(default_factory=list)


def coalesce(ranges: Sequence[KeyRange]) -> tuple[RangeRequest, ...]:
    """Return the requests that cover ``ranges``.

    Ranges of one object are read together where the gap between them is at most
    ``MAX_GAP_BYTES`` and the request at most ``MAX_REQUEST_BYTES``; one range that is longer is one
    request.
    """
    requests: list[RangeRequest] = []
    for number in sorted(range(len(ranges)), key=ranges.__getitem__):
        key, start, end = ranges[number]
        last = requests[-1] if requests else None
        if (
            last is None
            or last.key != key
            or start - last.end > MAX_GAP_BYTES
            or max(end, last.end) - last.start > MAX_REQUEST_BYTES
        ):
            last = RangeRequest(key, start, end)
            requests.append(last)
        last.end = max(last.end, end)
        last.members.append(number)
    return tuple(requests)


def read_ranges(store: ObjectStore, ranges: Sequence[KeyRange]) -> Iterator[memoryview]:
    """Yield the bytes of each range, in the order given.

    Raise StoreError if the store refuses, or an object is missing or too short.
    """
    requests = coalesce(ranges)
    with ThreadPoolExecutor(min(MAX_CONCURRENT_REQUESTS, max(1, len(requests)))) as pool:
        pieces: dict[int, tuple[RangeRequest, Future[memoryview]]] = {}
        for request in requests:
            future = pool.submit(_read, store, request)
            pieces.update((number, (request, future)) for number in request.members)
        try:
            for number, (_, start, end) in enumerate(ranges):
                request, future = pieces.pop(number)
                yield future.result()[start - request.start : end - request.start]
        finally:
            pool.shutdown(cancel_futures=True)


def fill_ranges(
    store: ObjectStore, ranges: Sequence[KeyRange], into: Sequence[Sequence[memoryview]]
) -> Iterator[None]:
    """Fill the memory for each range in the order given, and yield each time: its bytes are then
    still in the processor's cache. Files are read without a copy between.

    Raise as ``read_ranges`` does.
    """
    if not isinstance(store, FileStore):
        for data, parts in zip(read_ranges(store, ranges), into, strict=True):
            scatter(data, parts)
            yield
        return
    for key, group in groupby(zip(ranges, into, strict=True), key=lambda each: each[0][0]):
        try:
            yield from store.fill(key, ((start, parts) for (_, start, _), parts in group))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _missing_error(key) from error


def scatter(data: memoryview, into: Sequence[memoryview]) -> None:
    """Copy bytes to parts of memory, one after the other."""
    begin = 0
    for part in into:
        part[:] = data[begin : begin + len(part)]
        begin += len(part)


def _missing_error(key: str) -> StoreError:
    return StoreError(f"{key!r} is missing", hint="use another copy of it", code="missing")


def _read(store: ObjectStore, request: RangeRequest) -> memoryview:
    data = store.get_range(request.key, request.start, request.end)
    if data is None:
        raise _missing_error(request.key)
    return memoryview(data)
