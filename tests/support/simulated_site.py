"""A daemon's site whose nodes are records: their jobs need no files and no place to save in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from costopt.controller.node_logs import FolderLogs
from costopt.controller.site import ScaledClockPort, Site
from costopt.domain.job import Job
from costopt.engine.clock import VirtualClock
from costopt.market.hazard import LearnedHazard

OWNER = "costopt"


class PacedVirtualClock(VirtualClock):
    """Time that stands still until somebody sleeps."""

    speed = 1.0


def _nothing(_: Job) -> None:
    """A record needs no files."""


def simulated_site(
    clock: ScaledClockPort,
    provider: Provider,
    runtime: Any,
    receive: Callable[[Job], None] = _nothing,
    retry: Callable[[Job], None] = _nothing,
) -> Site:
    """All jobs on ``provider``."""
    return Site(
        owner=OWNER,
        clock=clock,
        providers=(provider,),
        runtime=runtime,
        hazards=LearnedHazard({}),
        notice_s=120.0,
        prepare_job=lambda job: job,
        upload_payload=receive,
        retry=retry,
        forecasts=None,
        carbon=None,
        logs=FolderLogs(Path("nodes")),
        simulated=True,
    )
