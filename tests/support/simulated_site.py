"""Live sites whose nodes are records: their jobs need no files and no place to save in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from costopt.catalog import load_catalog
from costopt.controller.node_logs import FolderLogs
from costopt.controller.site import LiveSite, ScaledClockPort
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.energy import NodePowerModel
from costopt.market.hazard import LearnedHazard
from costopt.provider.base import Provider

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
        notice_s=120.0,
        transfers=catalog.transfer,
        forecasts=None,
        carbon=None,
        prepare_job=lambda job: job,
        check=_nothing,
        upload_payload=receive,
        retry=retry,
        logs=FolderLogs(Path("nodes")),
        market=market,
    )
