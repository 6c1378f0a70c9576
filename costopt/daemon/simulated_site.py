"""A site that plays a recorded market, with nodes that are processes of this machine."""

from __future__ import annotations

from pathlib import Path

from costopt.catalog import load_catalog
from costopt.controller.forecasts import catalog_hazard_priors, gang_hazard_per_hour
from costopt.controller.node_logs import FolderLogs
from costopt.controller.runtime import MailboxRuntime
from costopt.daemon.site import Site
from costopt.market.hazard import LearnedHazard
from costopt.session.market_clock import load_market_clock
from costopt.session.simulated_cloud import CLOCK, STORE, SimulatedSite
from costopt.store.folder import FileStore

FOLDER = "cloud"


def process_site(cloud: SimulatedSite, state_dir: Path) -> Site:
    """All jobs on one simulated account, whose time goes on while no daemon runs.

    Raises StoreError where ``state_dir`` cannot be written.
    """
    folder = state_dir / FOLDER
    clock = load_market_clock(folder / CLOCK, cloud.start_at, cloud.speed)
    hazards = LearnedHazard(catalog_hazard_priors(load_catalog()))
    runtime = MailboxRuntime(
        FileStore(folder / STORE),
        clock,
        speed=clock.speed,
        gang_hazard=lambda _, nodes: gang_hazard_per_hour(hazards, nodes),
        notice_s=cloud.notice_s,
    )
    return Site(
        owner=cloud.owner,
        clock=clock,
        providers=(cloud.provider(clock, folder, runtime),),
        runtime=runtime,
        hazards=hazards,
        notice_s=cloud.notice_s,
        prepare_job=cloud.prepare_job,
        upload_payload=cloud.check,
        retry=runtime.forget_failures,
        forecasts=cloud.forecasts(),
        carbon=cloud.carbon_record(),
        logs=FolderLogs(folder / "nodes"),
        simulated=True,
    )
