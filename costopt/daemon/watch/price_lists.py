"""The daemon's refresh of public price lists, and their ages for its metrics.

The lists are for plans and the catalog of the daemon's user. The daemon itself decides by the
offers of the account alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from costopt.catalog.price_cache import SourceState, price_cache_path, read_price_cache
from costopt.domain.errors import PriceListError
from costopt.download import DownloadLimits
from costopt.prices import UpdateReport, UpdateSettings, update_prices

LIMITS = DownloadLimits(total_s=20.0)
"""A daemon that is stopped waits for the task."""


def _update() -> UpdateReport:
    return update_prices(UpdateSettings(limits=LIMITS))


class PriceListRefresher:
    """``refresh`` runs in any thread, but not twice at a time; ``say`` gets what failed."""

    def __init__(
        self, say: Callable[[str], None], update: Callable[[], UpdateReport] = _update
    ) -> None:
        self._say = say
        self._update = update
        self._observed_at: dict[str, datetime] | None = None
        self._said: dict[str, str] = {}

    def refresh(self) -> None:
        """Refresh the lists. Raise PriceListError if none could be, which counts as a failure."""
        report = self._update()
        for each in report.sources:
            if each.message and self._said.get(each.source.name) != each.message:
                self._say(f"price list {each.source.name}: {each.message}")
            self._said[each.source.name] = each.message
        self._observed_at = self.observed_at() | _dates(each.state for each in report.sources)
        if not report.succeeded:
            raise PriceListError("no public price list was refreshed", code="none_refreshed")

    def observed_at(self) -> dict[str, datetime]:
        """Return when the prices of each cached list were observed, by source."""
        if self._observed_at is None:
            try:
                cache = read_price_cache(price_cache_path(), chosen_only=True)
            except PriceListError:
                cache = None
            self._observed_at = _dates(cache.sources.values()) if cache else {}
        return self._observed_at


def _dates(states: Iterable[SourceState]) -> dict[str, datetime]:
    return {state.name: state.edition.observed_at for state in states if state.edition is not None}
