"""Where the daemon's jobs run: one cloud, or several, for all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from costopt.controller.node_logs import LogReader
from costopt.domain.job import Job
from costopt.domain.ports import CarbonRecord, Forecasts
from costopt.domain.runtime import Runtime
from costopt.market.hazard import LearnedHazard
from costopt.provider.base import Provider
from costopt.session.cloud import ScaledClockPort


@dataclass(frozen=True, slots=True)
class Site:
    """``fitted`` gives a job its place for checkpoints; raises SpecError.

    ``receive`` puts a job's files where its nodes fetch them, and may take long; it is called in
    any thread, again after a restart, and raises CostoptError. ``retry`` lets a job that failed
    fail as often again. ``simulated``: prices are known without asking anybody.
    """

    owner: str
    clock: ScaledClockPort
    providers: tuple[Provider, ...]
    runtime: Runtime
    hazards: LearnedHazard
    notice_s: float
    prepare_job: Callable[[Job], Job]
    upload_payload: Callable[[Job], None]
    retry: Callable[[Job], None]
    forecasts: Forecasts | None
    carbon: CarbonRecord | None
    logs: LogReader
    simulated: bool
