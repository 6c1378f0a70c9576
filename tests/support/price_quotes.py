"""A user's price cache of a few figures, for tests of what reads it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costopt.catalog.price_cache import (
    Edition,
    PriceCache,
    PriceQuote,
    SourceState,
    encode_price_cache,
    price_cache_path,
)
from costopt.domain.market import Pool


def edition(source: str = "dstack-aws", age: timedelta = timedelta(hours=2)) -> Edition:
    """An edition that was observed so long ago."""
    at = datetime.now(UTC) - age
    return Edition(
        source=source,
        url=f"https://example.com/{source}",
        version="20261122-7",
        observed_at=at,
        dated=True,
        fetched_at=at,
        size_bytes=100,
        sha256="0" * 64,
    )


def quote(
    pool: str, usd: float, source: str = "dstack-aws", age: timedelta = timedelta(hours=2)
) -> PriceQuote:
    """A figure of that age."""
    return PriceQuote(Pool.parse(pool), usd, edition(source, age))


def write_cache(folder: Path, monkeypatch: pytest.MonkeyPatch, *quotes: PriceQuote) -> Path:
    """Make these figures the cache of the user, in ``folder``."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    path = price_cache_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    sources = {q.edition.source: SourceState(q.edition.source, q.edition) for q in quotes}
    path.write_bytes(encode_price_cache(PriceCache(sources, quotes)))
    return path
