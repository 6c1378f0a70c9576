"""The site that `costopt run` uses, simulated or the account's clouds, with its offers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from costopt.cli.options import is_live
from costopt.domain.account import Account
from costopt.domain.history import MarketHistory
from costopt.formatting import minute_text
from costopt.planning.quotes import QuoteSet, account_quotes, recorded_quotes

if TYPE_CHECKING:
    from costopt.controller.site import SiteConfig
    from costopt.energy.carbon import CarbonHistory
    from costopt.energy.live import LiveCarbon


@dataclass(frozen=True, slots=True)
class RunTarget:
    """A site, and its offers at an instant; the account's clouds know only the present."""

    site: SiteConfig
    quotes: Callable[[datetime], QuoteSet]
    history: MarketHistory | None = None


@dataclass(frozen=True, slots=True)
class Simulation:
    """The options for replaying a market history."""

    at: datetime | None
    speed: float
    notice_s: float | None
    price_forecasts: bool


def resolve_run_target(
    market: Path | None,
    account: Account,
    providers: tuple[str, ...],
    simulation: Simulation,
    carbon: Path | None,
) -> RunTarget:
    """Return the target: the market's simulation, else these providers of the account.

    Raise UsageError if there is neither, MarketError for an unreadable history.
    """
    if market is not None and not is_live(market):
        return _simulated(market, account, simulation, carbon)
    if not account.providers:
        raise click.UsageError(
            "nowhere to run: --market sample would do, which simulates a cloud; or give --account "
            "FILE with the providers to rent from"
        )
    if simulation.at is not None or simulation.speed != 1.0:
        raise click.UsageError("--at and --speed play a record: give --market FILE as well")
    return _rented(account, providers, carbon)


def _simulated(
    market: Path, account: Account, simulation: Simulation, carbon: Path | None
) -> RunTarget:
    from costopt.catalog.site_machines import account_clusters
    from costopt.controller.live_carbon import LIVE, check_present
    from costopt.controller.simulated_site import SimulatedSiteConfig
    from costopt.domain.cluster import with_clusters
    from costopt.market.history_file import read_history

    history = read_history(market)
    start_at = simulation.at or history.first_priced_at
    _check_start(history, start_at)
    intensities = _intensities(carbon, account)
    if carbon == LIVE:
        check_present(start_at)
        if simulation.speed != 1.0:
            raise click.UsageError("--carbon live is of the present: leave --speed at 1")
    site = SimulatedSiteConfig(
        history,
        start_at,
        simulation.speed,
        simulation.notice_s,
        simulation.price_forecasts,
        intensities,
        account=account,
    )
    shown = with_clusters(history, account_clusters(account))
    notice_s = simulation.notice_s
    notices_s = {} if notice_s is None else {pool.provider: notice_s for pool in shown.pools}

    def quotes(now: datetime) -> QuoteSet:
        return replace(recorded_quotes(shown, now, intensities), notices_s=notices_s)

    return RunTarget(site, quotes, shown)


def _rented(account: Account, providers: tuple[str, ...], carbon: Path | None) -> RunTarget:
    from costopt.controller.account_site import AccountSiteConfig
    from costopt.controller.live_carbon import LIVE

    default = None if account.carbon is None else LIVE
    intensities = _intensities(carbon or default, account)
    site = AccountSiteConfig(account, providers, intensities)
    return RunTarget(
        site, lambda _: replace(account_quotes(account, providers), carbon=intensities)
    )


def _intensities(carbon: Path | None, account: Account) -> CarbonHistory | LiveCarbon | None:
    from costopt.controller.live_carbon import LIVE, connect_live_carbon
    from costopt.energy.carbon_files import read_carbon

    if carbon is None:
        return None
    return connect_live_carbon(account) if carbon == LIVE else read_carbon(carbon)


def _check_start(history: MarketHistory, start_at: datetime) -> None:
    begins_at, ends_at = history.starts_at, history.ends_at
    if not begins_at <= start_at < ends_at:
        raise click.BadParameter(
            f"market {history.name!r} is recorded from {minute_text(begins_at)} "
            f"to {minute_text(ends_at)}, "
            f"not at {minute_text(start_at)}",
            param_hint="'--at'",
        )
