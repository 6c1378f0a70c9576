"""Live sites whose nodes are records: their jobs need no files and no place to save in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from costopt.catalog import load_catalog
from costopt.controller.forecasts import CatalogModels
from costopt.controller.node_logs import FolderLogs
from costopt.controller.site import LiveSite, ScaledClockPort, connect_virtual_provider
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.energy import NodePowerModel
from costopt.engine.loop import VirtualClock
from costopt.market.hazard import LearnedHazard
from costopt.provider.base import Provider
from costopt.provider.fault_isolation import IsolatedProvider
from costopt.store.folder import FileStore

OWNER = "costopt"


def _nothing(_: Job) -> None:
    """A record needs no files."""


def simulated_site(
    clock: ScaledClockPort,
    provider: Provider,
    runtime: Any,
    market: MarketHistory,
    receive: Callable[[Job], None] = _nothing,
    retry: Callable[[Job], None] = _nothing,
) -> LiveSite:
    """All jobs on ``provider``, which plays ``market``."""
    catalog = load_catalog()
    return LiveSite(
        owner=OWNER,
        clock=clock,
        providers=(provider,),
        runtime=runtime,
        machines=catalog,
        powers=NodePowerModel(catalog),
        hazards=LearnedHazard({}),
        transfers=catalog.transfer,
        forecasts=None,
        carbon=None,
        prepare_job=lambda job: job,
        check_secrets=lambda _: None,
        check=_nothing,
        upload_payload=receive,
        retry=retry,
        logs=FolderLogs(Path("nodes"), FileStore(Path())),
        market=market,
    )


@dataclass(frozen=True)
class VirtualSiteConfig:
    """As ``SimulatedSiteConfig``, with virtual nodes and a clock that stands until it sleeps."""

    market: MarketHistory
    start_at: datetime
    notice_s: float = 120.0
    models: CatalogModels = field(default_factory=lambda: CatalogModels(load_catalog()))

    def start_time(self) -> datetime:
        return self.start_at

    def connect(self, folder: Path, *, fresh: bool = False) -> LiveSite:
        models, clock = self.models, VirtualClock(self.start_at)
        provider = connect_virtual_provider(
            clock,
            {
                "market": self.market,
                "machines": models.catalog,
                "notice_s": self.notice_s,
                "transfers": models.catalog.transfer,
            },
        )
        site = simulated_site(clock, IsolatedProvider(provider), provider.runtime, self.market)
        return replace(
            site,
            powers=models.powers(),
            hazards=models.hazards(),
            forecasts=models.forecasts(self.market),
            carbon=models.carbon,
        )
