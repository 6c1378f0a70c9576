"""The account's live carbon intensities: opened with their cache, and refreshed during a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Thread

from costopt.catalog import load_catalog
from costopt.catalog.price_cache import price_cache_path
from costopt.controller.site import LiveSite
from costopt.domain.account import Account
from costopt.domain.errors import PriceListError, SignalError, SpecError
from costopt.energy.live import LiveCarbon

LIVE = Path("live")
"""What stands for the live intensities where a file of recorded ones may be named."""
REFRESH_S = 10.0
"""How often a run looks whether a zone is due; each is asked for once an hour."""
MAX_AWAY = timedelta(hours=1)


def connect_live_carbon(account: Account) -> LiveCarbon:
    """Return the account's service of intensities; no request is sent yet.

    Raise SpecError if the account names none, SignalError if its key cannot be read.
    """
    from costopt.energy.live.services import open_live_carbon

    if account.carbon is None:
        raise SpecError(
            "the account file names no source of live carbon intensities",
            hint="add carbon: {source: gb-carbon-intensity}, or another source with its key_file",
            code="no_carbon",
        )
    try:
        folder = price_cache_path().parent / "carbon"
    except PriceListError:
        folder = None
    return open_live_carbon(account.carbon, load_catalog().region, folder)


def check_present(at: datetime) -> None:
    """Raise SignalError if ``at`` is not about the present, of which live intensities are."""
    if abs(at - datetime.now(UTC)) > MAX_AWAY:
        raise SignalError(
            f"live carbon intensities are of the present, not of {at:%Y-%m-%d %H:%MZ}",
            hint="name a file of recorded intensities with --carbon FILE",
            code="not_present",
        )


@contextmanager
def refreshing(site: LiveSite) -> Iterator[None]:
    """Refresh the site's live intensities in a thread while the context lasts."""
    live, stop = site.live_carbon, Event()
    if live is None:
        yield
        return

    def refresh() -> None:
        while not stop.wait(REFRESH_S / site.clock.speed):
            live.refresh(site.clock.now())

    thread = Thread(target=refresh, daemon=True, name="carbon")
    thread.start()
    try:
        yield
    finally:
        stop.set()
