"""The embedded provider over a recorded market, with nodes that are processes of this machine."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from costopt.catalog import load_catalog
from costopt.controller.forecasts import (
    RecordedForecasts,
    catalog_hazard_priors,
    gang_hazard_per_hour,
    recorded_carbon,
)
from costopt.controller.node_logs import FolderLogs
from costopt.controller.runtime import MailboxRuntime
from costopt.controller.site import Site, connect_provider
from costopt.domain.errors import StoreError
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.ports import Clock, Forecasts, ObjectStore
from costopt.energy.carbon_history import CarbonHistory
from costopt.energy.carbon_record import RecordedCarbon
from costopt.engine.clock import ScaledClock
from costopt.market.hazard import LearnedHazard
from costopt.session.checkpoint_place import check_checkpoint_storage
from costopt.session.trainer import check_trainer
from costopt.store.folder import FileStore

CLOCK = "clock.json"
STORE = "store"


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """A Cloud that plays ``market`` from ``start_at``, ``speed`` times as fast as the wall.

    ``notice_s`` is market time. Prices are forecast from the record so far if ``price_forecasts``,
    intensities from the recorded ones in ``carbon`` if there are any.
    """

    market: MarketHistory
    start_at: datetime
    speed: float = 1.0
    notice_s: float = 120.0
    price_forecasts: bool = False
    carbon: CarbonHistory | None = None
    owner: str = "costopt"

    def start_time(self) -> datetime:
        """Where in the record the run begins."""
        return self.start_at

    def clock(self, folder: Path, *, anew: bool) -> ScaledClock:
        """Market time, which goes on while no controller runs."""
        if anew:
            reset_market_clock(folder / CLOCK)
        return load_market_clock(folder / CLOCK, self.start_at, self.speed)

    def prepare_job(self, job: Job) -> Job:
        """As it is: nodes are processes of this machine."""
        return job

    def check(self, job: Job) -> None:
        """Raises SpecError, MissingExtraError or StoreError where a node could not run the job."""
        check_trainer(job)
        check_checkpoint_storage(job)

    def store(self, folder: Path, job: Job) -> ObjectStore:  # noqa: ARG002 - one store per folder
        """A folder that all the processes see."""
        return FileStore(folder / STORE)

    def providers(
        self,
        clock: Clock,
        folder: Path,
        job: Job,  # noqa: ARG002 - agents learn of their job through the store
        runtime: MailboxRuntime,
    ) -> tuple[Provider, ...]:
        """The simulator in process mode; it finds the nodes of an earlier controller."""
        return (self.provider(clock, folder, runtime),)

    def provider(self, clock: Clock, folder: Path, runtime: MailboxRuntime) -> Provider:
        """The same without a job: one account may hold many."""
        options = {
            "market": self.market,
            "machines": load_catalog(),
            "mode": "process",
            "notice_s": self.notice_s,
            "state_dir": folder,
            "store": folder / STORE,
            "runtime": runtime,
        }
        return connect_provider("sim", clock, options)

    def forecasts(self) -> Forecasts:
        """From the record before now."""
        market = self.market if self.price_forecasts else None
        return RecordedForecasts(market, self.carbon_record())

    def carbon_record(self) -> RecordedCarbon | None:
        """The intensities that were given."""
        return recorded_carbon(self.carbon)


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


def load_market_clock(path: Path, start_at: datetime, speed: float) -> ScaledClock:
    """The clock that ``path`` remembers, or a new one that begins at ``start_at``.

    A clock that is remembered keeps its own start and speed. Raises StoreError.
    """
    try:
        known = json.loads(path.read_text())
        elapsed_s = max(0.0, time.time() - float(known["wall_s"]))
        return ScaledClock(
            datetime.fromisoformat(known["start_at"]), float(known["speed"]), elapsed_s
        )
    except FileNotFoundError:
        return _begin(path, start_at, speed)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path}: the run's clock cannot be read: {error}",
            hint="choose another --state-dir, or remove this one if nothing in it is needed",
        ) from error


def reset_market_clock(path: Path) -> None:
    """Let the clock begin anew: nothing has run by it. Raises StoreError."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot remove {path}: {error.strerror}",
            hint="choose a --state-dir that this user may write to",
        ) from error


def _begin(path: Path, start_at: datetime, speed: float) -> ScaledClock:
    known = {"start_at": start_at.isoformat(), "speed": speed, "wall_s": time.time()}
    fresh = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(known))
        os.replace(fresh, path)  # noqa: PTH105 - atomic, and the same on every Path version
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error.strerror}",
            hint="free space, or choose a --state-dir that this user may write to",
        ) from error
    return ScaledClock(start_at, speed)
