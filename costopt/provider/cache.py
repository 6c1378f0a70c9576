"""Cached answers of a cloud, and the same request to many of its regions at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock
from typing import Generic, TypeVar

from costopt.domain.errors import ProviderError

K = TypeVar("K")
V = TypeVar("V")

INITIAL_BACKOFF_S = 30.0
MAX_BACKOFF_S = 900.0


@dataclass(slots=True)
class _Entry(Generic[V]):
    """What is known for one key, and since when it cannot be asked."""

    lock: Lock = field(default_factory=Lock)
    value: V | None = None
    asked_at: datetime | None = None
    error: ProviderError | None = None
    failures: int = 0
    quiet_until: datetime | None = None


class TtlCache(Generic[K, V]):
    """Answers by key, asked again once they are ``ttl_s`` old. Safe to share between threads.

    After a failure the question rests for 30 s, twice as long after each further one, at most
    15 min; meanwhile the old answer is given while it is younger than ``usable_s``, else the
    error. An answer carries its own time of observation: an old one is not passed off as new.
    """

    def __init__(self, ttl_s: float, usable_s: float | None = None) -> None:
        self._ttl = timedelta(seconds=ttl_s)
        self._usable = timedelta(seconds=ttl_s if usable_s is None else usable_s)
        self._entries: dict[K, _Entry[V]] = {}
        self._lock = Lock()

    def get(self, key: K, now: datetime, ask: Callable[[], V]) -> V:
        """The answer for ``key``, from ``ask`` where it is due. Raises what ``ask`` raised."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
        with entry.lock:
            if entry.asked_at is not None and now - entry.asked_at < self._ttl:
                assert entry.value is not None
                return entry.value
            if entry.quiet_until is None or now >= entry.quiet_until:
                self._ask(entry, now, ask)
            return self._store(entry, now)

    def is_fresh(self, key: K, now: datetime) -> bool:
        """Whether ``get`` would answer without asking."""
        entry = self._entries.get(key)
        return entry is not None and entry.asked_at is not None and now - entry.asked_at < self._ttl

    def _ask(self, entry: _Entry[V], now: datetime, ask: Callable[[], V]) -> None:
        try:
            entry.value = ask()
        except ProviderError as error:
            pause_s = min(INITIAL_BACKOFF_S * 2**entry.failures, MAX_BACKOFF_S)
            entry.error, entry.quiet_until = error, now + timedelta(seconds=pause_s)
            entry.failures += 1
        else:
            entry.asked_at, entry.error, entry.quiet_until, entry.failures = now, None, None, 0

    def _store(self, entry: _Entry[V], now: datetime) -> V:
        if entry.asked_at is not None and now - entry.asked_at < max(self._ttl, self._usable):
            assert entry.value is not None
            return entry.value
        assert entry.error is not None
        raise entry.error


MAX_CONCURRENCY = 8
"""Calls in flight: clouds count them by account, so few are enough."""


def fan_out(keys: Iterable[K], ask: Callable[[K], V]) -> dict[K, V | ProviderError]:
    """The answer for each key, in the order of ``keys``; one that fails stops no other."""
    asked = tuple(dict.fromkeys(keys))
    if len(asked) <= 1:
        return {key: _ask_one(ask, key) for key in asked}
    with ThreadPoolExecutor(min(MAX_CONCURRENCY, len(asked)), thread_name_prefix="cloud") as pool:
        return dict(zip(asked, pool.map(lambda key: _ask_one(ask, key), asked), strict=True))


def fan_out_or_raise(keys: Iterable[K], ask: Callable[[K], V]) -> dict[K, V | ProviderError]:
    """As ``fan_out``. Raises the first ProviderError where no key has an answer."""
    results = fan_out(keys, ask)
    raise_if_none(*split_answers(results))
    return results


def split_answers(
    results: Mapping[K, V | ProviderError],
) -> tuple[dict[K, V], dict[K, ProviderError]]:
    """The answers, and what went wrong with the others, by key."""
    errors = {key: each for key, each in results.items() if isinstance(each, ProviderError)}
    known = {key: each for key, each in results.items() if not isinstance(each, ProviderError)}
    return known, errors


def raise_if_none(known: Mapping[K, V], errors: Mapping[K, ProviderError]) -> None:
    """Raise the first error where there is no answer."""
    if errors and not known:
        raise next(iter(errors.values()))


def _ask_one(ask: Callable[[K], V], key: K) -> V | ProviderError:
    try:
        return ask(key)
    except ProviderError as error:
        return error
