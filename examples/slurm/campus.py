"""One job over a preemptible Slurm partition and a cloud: campus.py JOB.yaml ACCOUNT.yaml STATE.

The account file names the Slurm cluster; the cloud is the embedded one, whose nodes are processes
of this machine. With a real cloud in the account file, `costopt run` does the same. Hours in which
nothing could run are skipped: the clock is ahead of the wall's by the hours in the file `skipped`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import costopt.controller.account_site as account_site
from costopt.catalog import load_catalog
from costopt.cli.run import run_live
from costopt.controller.controller import ControllerSettings
from costopt.controller.live_run import StopSignals, open_run
from costopt.controller.site import LiveSite, connect_provider
from costopt.domain.account import Account
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.engine.loop import WallClock
from costopt.spec import load_account, load_job, load_policy

CLOUD = Pool.parse("aws/us-east-1/us-east-1a/g4dn.xlarge/on_demand")
NODES, USD_PER_HOUR = 8, 0.526
SKIPPED = Path("skipped")


class SkippingClock(WallClock):
    """The wall's clock, and the hours that were skipped."""

    def now(self) -> datetime:
        """Return the present, aware UTC."""
        hours = 0.0
        with suppress(OSError, ValueError):
            hours = float(SKIPPED.read_text(encoding="utf-8"))
        return super().now() + timedelta(hours=hours)


class CampusSite:
    """The account's Slurm cluster, and beside it the embedded cloud."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def start_time(self) -> datetime:
        """Return the present."""
        return SkippingClock().now()

    def connect(self, folder: Path, *, fresh: bool = False) -> LiveSite:
        """Return the site. Raise as ``AccountSiteConfig.connect``."""
        vars(account_site)["WallClock"] = SkippingClock
        site = account_site.AccountSiteConfig(self._account).connect(folder, fresh=fresh)
        begins_at = site.clock.now() - timedelta(hours=1)
        ends_at = begins_at + timedelta(days=3)
        states = (MarketState(begins_at, NODES, USD_PER_HOUR),)
        pools = {CLOUD: PoolHistory(CLOUD, states, ends_at)}
        options = {
            "market": MarketHistory("cloud", pools, 60.0, "on demand at its list price"),
            "machines": load_catalog(),
            "mode": "process",
            "state_dir": folder,
            "store": Path(str(self._account.store)),
            "runtime": site.runtime,
        }
        cloud = connect_provider("sim", site.clock, options)
        return replace(site, providers=(*site.providers, cloud))


def main(job: str, account_file: str, state: str) -> None:
    """Run the job to its end."""
    account, policy = load_account(account_file), load_policy("policy.yaml")
    signals = StopSignals()
    read_job: Callable[[datetime], Job] = lambda now: load_job(job, now, account)  # noqa: E731
    settings = ControllerSettings(1.0, 1.0, account)
    with (
        signals.caught(),
        open_run(read_job, policy, CampusSite(account), Path(state), settings, signals) as live,
    ):
        run_live(live)


if __name__ == "__main__":
    main(*sys.argv[1:])
