"""Refreshes the user's price cache: fetch, parse, check, choose, and replace the file at once."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from costopt.catalog.catalog import Catalog, load_catalog
from costopt.catalog.price_cache import (
    Edition,
    PriceCache,
    PriceQuote,
    SourceState,
    encode_price_cache,
    price_cache_path,
    read_price_cache,
)
from costopt.domain.errors import DownloadError, PriceListError
from costopt.download import Downloader, DownloadLimits
from costopt.prices.checks import HeldPrice, NewList, PriceChecks, check_file, choose_quotes
from costopt.prices.dstack import version_day
from costopt.prices.price_list import ParsedPrices
from costopt.prices.skypilot import DEFAULT_VERSION
from costopt.prices.sources import Fetched, PriceSource, list_sources
from costopt.store.atomic_file import write_atomic, write_error_hint

LOCK = "prices.lock"


@dataclass(frozen=True, slots=True)
class UpdateSettings:
    """``sources`` are names, () for all. With ``mirrors`` only these are asked."""

    sources: tuple[str, ...] = ()
    mirrors: tuple[str, ...] = ()
    skypilot_version: str = DEFAULT_VERSION
    limits: DownloadLimits = field(default_factory=DownloadLimits)


class UpdateResult(StrEnum):
    """How the refresh of a source ended."""

    REFRESHED = "refreshed"
    UNCHANGED = "unchanged"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SourceReport:
    """``state`` is that of the cache afterwards; ``message`` says why the refresh failed.

    ``prices`` counts the figures of the source that the cache holds, ``held`` those held back now.
    """

    source: PriceSource
    result: UpdateResult
    state: SourceState
    prices: int
    held: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class UpdateReport:
    """What an update did; ``notes`` are sentences on the file itself."""

    path: Path
    sources: tuple[SourceReport, ...]
    held: tuple[HeldPrice, ...]
    notes: tuple[str, ...] = ()

    @property
    def succeeded(self) -> bool:
        """Whether at least one source was refreshed, or confirmed what is here."""
        return any(each.result is not UpdateResult.FAILED for each in self.sources)


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A source's new list; None in ``file`` where the source confirmed the known one."""

    source: PriceSource
    fetched: Fetched | None
    file: ParsedPrices | None


def update_prices(settings: UpdateSettings = UpdateSettings()) -> UpdateReport:
    """Refresh the cache from every source that answers; the others' figures stay as they are.

    Sources are fetched at the same time. If none answers the file is left alone. Raise
    PriceListError if the cache cannot be written.
    """
    known = load_catalog()
    path = price_cache_path()
    every = list_sources(settings.skypilot_version)
    sources = [each for each in every if not settings.sources or each.name in settings.sources]
    downloader = Downloader(settings.limits, settings.mirrors)
    before, _ = _read(path)
    asked = _fetch(sources, downloader, before, known)
    with _locked(path):
        # Another update may have stored its lists while this one was downloading.
        before, notes = _read(path)
        return _store(path, every, asked, before, known, notes)


def _fetch(
    sources: Sequence[PriceSource], downloader: Downloader, before: PriceCache, known: Catalog
) -> dict[PriceSource, Future[_Arrival]]:
    with ThreadPoolExecutor(max_workers=max(1, len(sources))) as pool:
        return {
            source: pool.submit(_fetch_one, source, downloader, before, known) for source in sources
        }


def _fetch_one(
    source: PriceSource, downloader: Downloader, before: PriceCache, known: Catalog
) -> _Arrival:
    state = before.sources.get(source.name, SourceState(source.name))
    try:
        fetched = source.fetch(downloader, state)
    except DownloadError as error:
        raise PriceListError(error.message) from error
    if fetched is None:
        return _Arrival(source, None, None)
    # Some servers know no ETag, and send the same file again.
    if state.edition is not None and state.edition.sha256 == fetched.download.sha256:
        return _Arrival(source, fetched, None)
    try:
        return _Arrival(source, fetched, source.parse(fetched.download.body, known))
    except PriceListError as error:
        raise PriceListError(f"{fetched.download.url}: {error.message}") from None


def _store(
    path: Path,
    every: Sequence[PriceSource],
    asked: dict[PriceSource, Future[_Arrival]],
    before: PriceCache,
    known: Catalog,
    notes: tuple[str, ...],
) -> UpdateReport:
    """Merge what arrived into ``before`` and write the file, unless nothing arrived."""
    now = datetime.now(UTC)
    merged = _Merge(before, known, now)
    failures = {source.name: merged.take(future) for source, future in asked.items()}
    prices = merged.finish([each.name for each in every])
    failures |= merged.refused
    report = UpdateReport(
        path,
        tuple(_source_report(each, failures[each.name], merged, prices) for each in asked),
        tuple(merged.held),
        notes,
    )
    if report.succeeded:
        _write(path, prices)
    return report


class _Merge:
    """The cache as it becomes: states and figures by source."""

    def __init__(self, before: PriceCache, known: Catalog, now: datetime) -> None:
        self._before = before
        self._known = known
        self._now = now
        self._lists: list[NewList] = []
        self._quotes: dict[str, list[PriceQuote]] = {}
        for quote in (*before.chosen, *before.others):
            self._quotes.setdefault(quote.edition.source, []).append(quote)
        self._states = dict(before.sources)
        self._buckets = (before.buckets, before.buckets_edition)
        self.results: dict[str, UpdateResult] = {}
        self.refused: dict[str, str] = {}
        self.held: list[HeldPrice] = []

    def take(self, future: Future[_Arrival]) -> str:
        """Note what arrived; return why that failed, else ""."""
        error = future.exception()
        if error is not None:
            return error.message if isinstance(error, PriceListError) else _unexpected(error)
        try:
            self._take(future.result())
        except PriceListError as refusal:
            return refusal.message
        return ""

    def _take(self, arrival: _Arrival) -> None:
        name = arrival.source.name
        state = self._states.get(name, SourceState(name))
        if arrival.file is None or arrival.fetched is None:
            self._states[name] = replace(state, checked_at=self._now)
            self.results[name] = UpdateResult.UNCHANGED
            return
        edition = _edition(name, arrival.fetched, arrival.file, self._now)
        last = state.edition
        # A mirror may lag behind what was read from its source.
        if last and last.dated and edition.dated and edition.observed_at < last.observed_at:
            raise PriceListError(
                f"{edition.url} is of {edition.observed_at:%Y-%m-%d %H:%M}Z, older than what is "
                f"known, of {last.observed_at:%Y-%m-%d %H:%M}Z"
            )
        quotes = self._quotes.get(name, [])
        check_file(arrival.file, state, quotes)
        if arrival.file.buckets:
            self._buckets = (arrival.file.buckets, edition)
        else:
            before = {quote.pool: quote for quote in quotes}
            self._lists.append(NewList(arrival.source, arrival.file, edition, before))
        etag = arrival.fetched.download.etag
        self._states[name] = SourceState(name, edition, etag, arrival.file.rows, self._now)
        self.results[name] = UpdateResult.REFRESHED

    def finish(self, order: Sequence[str]) -> PriceCache:
        """Check the new lists together and return the cache that results.

        A list of which no figure is accepted is ``refused`` and leaves its source as it was.
        """
        new = {each.source.name for each in self._lists}
        cached = [q for name, quotes in self._quotes.items() if name not in new for q in quotes]
        checks = PriceChecks(self._known, self._lists, cached)
        checks.run()
        self.held = checks.held
        fresh = {quote.edition for quote in checks.quotes}
        for each in self._lists:
            name = each.source.name
            if each.edition in fresh:
                self._quotes[name] = [q for q in checks.quotes if q.edition.source == name]
            else:
                self._refuse(each)
        quotes = [quote for found in self._quotes.values() for quote in found]
        chosen, others = choose_quotes(quotes, order)
        buckets, edition = self._buckets
        return PriceCache(self._states, chosen, others, buckets, edition)

    def _refuse(self, new: NewList) -> None:
        name = new.source.name
        self.refused[name] = f"none of its {len(new.file.prices):,} prices passes the checks"
        self.results.pop(name)
        self._states.pop(name)
        if name in self._before.sources:
            self._states[name] = self._before.sources[name]


def _edition(name: str, fetched: Fetched, file: ParsedPrices, now: datetime) -> Edition:
    """Return the edition, observed when its list says, else its server, else now at the latest."""
    download = fetched.download
    observed_at = (
        file.observed_at
        or version_day(fetched.version, download.last_modified)
        or download.last_modified
    )
    return Edition(
        source=name,
        url=download.url,
        version=fetched.version,
        # A server's clock may be ahead of this machine's.
        observed_at=now if observed_at is None else min(observed_at, now),
        dated=observed_at is not None,
        fetched_at=now,
        size_bytes=len(download.body),
        sha256=download.sha256,
    )


def _source_report(
    source: PriceSource, failure: str, merged: _Merge, prices: PriceCache
) -> SourceReport:
    name = source.name
    quotes = sum(q.edition.source == name for q in (*prices.chosen, *prices.others))
    bucketed = prices.buckets_edition is not None and prices.buckets_edition.source == name
    return SourceReport(
        source=source,
        result=merged.results.get(name, UpdateResult.FAILED),
        state=prices.sources.get(name, SourceState(name)),
        prices=len(prices.buckets) if bucketed else quotes,
        held=sum(each.source == name for each in merged.held),
        message=failure,
    )


def _unexpected(error: BaseException) -> str:
    return f"unexpected {type(error).__name__}: {error}"


def _read(path: Path) -> tuple[PriceCache, tuple[str, ...]]:
    """Return the cache, an empty one with a note where it cannot be read."""
    try:
        return read_price_cache(path) or PriceCache(), ()
    except PriceListError as error:
        return PriceCache(), (f"{error.message}; it is written again",)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the cache's lock, and remove what a killed update left. Raise PriceListError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.with_name(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        for left in path.parent.glob(f".{path.name}.*.tmp"):
            with suppress(OSError):
                left.unlink()
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, prices: PriceCache) -> None:
    try:
        write_atomic(path, encode_price_cache(prices))
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> PriceListError:
    return PriceListError(
        f"the price lists cannot be stored in {path.parent}: {error.strerror or error}",
        hint=f"{write_error_hint(error)}; XDG_CACHE_HOME names another place",
        code="cannot_write",
    )
