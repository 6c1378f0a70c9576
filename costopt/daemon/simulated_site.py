"""A site that plays a recorded market: nodes are processes of this machine, or mere records."""

from __future__ import annotations

from pathlib import Path

from costopt.agent.runtime import MailboxRuntime
from costopt.catalog import load_catalog
from costopt.daemon.logs import FolderLogs, NoLogs
from costopt.daemon.site import Site
from costopt.domain.job import Job
from costopt.market.hazard import LearnedHazard
from costopt.replay.connect import connect, connect_virtual
from costopt.session.hazards import catalog_priors, gang_hazard_per_hour
from costopt.session.market_clock import market_clock
from costopt.session.simulated_cloud import CLOCK, STORE, SimulatedCloud
from costopt.store.folder import FileStore

FOLDER = "cloud"


def process_site(cloud: SimulatedCloud, state_dir: Path) -> Site:
    """All jobs on one simulated account, whose time goes on while no daemon runs.

    Raises StoreError where ``state_dir`` cannot be written.
    """
    folder = state_dir / FOLDER
    clock = market_clock(folder / CLOCK, cloud.start_at, cloud.speed)
    hazards = LearnedHazard(catalog_priors(load_catalog()))
    store = FileStore(folder / STORE)
    runtime = MailboxRuntime(
        store,
        clock,
        speed=clock.speed,
        gang_hazard=lambda _, nodes: gang_hazard_per_hour(hazards, nodes),
        notice_s=cloud.notice_s,
    )
    options = {
        "market": cloud.market,
        "machines": load_catalog(),
        "mode": "process",
        "notice_s": cloud.notice_s,
        "state_dir": folder,
        "store": folder / STORE,
        "runtime": runtime,
    }
    return Site(
        owner=cloud.owner,
        clock=clock,
        providers=(connect("sim", clock, options),),
        runtime=runtime,
        hazards=hazards,
        notice_s=cloud.notice_s,
        fitted=cloud.fitted,
        receive=cloud.check,
        retry=runtime.forget_failures,
        forecasts=cloud.forecasts,
        logs=FolderLogs(folder / "nodes"),
        simulated=True,
    )


def virtual_site(cloud: SimulatedCloud, state_dir: Path) -> Site:
    """The same with nodes that are records and training that is arithmetic: gone with the process.

    For trying a daemon under load. Raises StoreError where ``state_dir`` cannot be written.
    """
    clock = market_clock(state_dir / FOLDER / CLOCK, cloud.start_at, cloud.speed)
    options = {"market": cloud.market, "machines": load_catalog(), "notice_s": cloud.notice_s}
    provider = connect_virtual(clock, options)
    return Site(
        owner=cloud.owner,
        clock=clock,
        providers=(provider,),
        runtime=provider.runtime,
        hazards=LearnedHazard(catalog_priors(load_catalog())),
        notice_s=cloud.notice_s,
        fitted=cloud.fitted,
        receive=_nothing,
        retry=_nothing,
        forecasts=cloud.forecasts,
        logs=NoLogs(),
        simulated=True,
    )


def _nothing(_: Job) -> None:
    """A record needs no files, and its command cannot fail."""
