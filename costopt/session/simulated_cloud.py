"""The embedded provider over a recorded market, with nodes that are processes of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from costopt.catalog import load_catalog
from costopt.controller.forecasts import RecordedForecasts, recorded_carbon
from costopt.controller.runtime import MailboxRuntime
from costopt.controller.site import connect_provider
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.ports import Clock, Forecasts, ObjectStore
from costopt.energy.carbon_history import CarbonHistory
from costopt.energy.carbon_record import RecordedCarbon
from costopt.engine.clock import ScaledClock
from costopt.provider.base import Provider
from costopt.session.checkpoint_place import check_checkpoint_storage
from costopt.session.market_clock import load_market_clock, reset_market_clock
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
