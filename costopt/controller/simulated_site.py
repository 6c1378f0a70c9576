"""The embedded provider over a recorded market, with nodes that are processes of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from costopt.catalog import load_catalog
from costopt.catalog.site_machines import account_catalog, account_clusters
from costopt.controller.checkpoint_places import check_checkpoint_store, check_stored_identity
from costopt.controller.forecasts import CatalogModels, carbon_record, gang_hazard_per_hour
from costopt.controller.market_clock import load_market_clock, reset_market_clock
from costopt.controller.node_logs import FolderLogs
from costopt.controller.preflight import check_checkpoint_storage, check_secrets, check_trainer
from costopt.controller.runtime import MailboxRuntime
from costopt.controller.site import LiveSite, connect_provider
from costopt.controller.state_dir import CLOCK, NODES, STORE
from costopt.domain.account import UNLIMITED, Account
from costopt.domain.cluster import with_clusters
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.notices import notice_period
from costopt.domain.ports import Clock, InstanceCatalog
from costopt.domain.secret import SecretSource
from costopt.energy.carbon import CarbonHistory
from costopt.energy.live import LiveCarbon
from costopt.provider.base import Provider
from costopt.store.folder import FileStore
from costopt.store.host_secrets import host_secrets_folder


@dataclass(frozen=True, slots=True)
class SimulatedSiteConfig:
    """``market`` is played from ``start_at``, ``speed`` times as fast as the wall.

    The nodes of clusters that the ``account`` owns are played beside it, without an adapter.
    ``notice_s`` is market time; None: what each pool's provider gives. Prices are forecast from
    the record so far if ``price_forecasts``, intensities from the recorded ones in ``carbon`` if
    there are any.
    """

    market: MarketHistory
    start_at: datetime
    speed: float = 1.0
    notice_s: float | None = None
    price_forecasts: bool = False
    carbon: CarbonHistory | LiveCarbon | None = None
    owner: str = "costopt"
    account: Account = UNLIMITED

    def start_time(self) -> datetime:
        """Where in the record the run begins."""
        return self.start_at

    def connect(self, folder: Path, *, fresh: bool = False) -> LiveSite:
        """One simulated account in ``folder``, with the nodes of earlier controllers.

        Its time goes on while no controller runs; ``fresh`` begins it again. Raises StoreError
        where the folder cannot be written.
        """
        if fresh:
            reset_market_clock(folder / CLOCK)
        clock = load_market_clock(folder / CLOCK, self.start_at, self.speed)
        carbon = carbon_record(self.carbon)
        models = CatalogModels(account_catalog(self.account), carbon, self.price_forecasts)
        market = with_clusters(self.market, account_clusters(self.account))
        hazards = models.hazards()
        runtime = MailboxRuntime(
            FileStore(folder / STORE),
            clock,
            speed=clock.speed,
            gang_hazard=lambda _, nodes: gang_hazard_per_hour(hazards, nodes),
            notice_s=notice_period(self.notice_s),
            machines=models.catalog,
            transfers=models.catalog.transfer,
            owner=self.account.owner,
        )
        provider = connect_simulator(
            market, clock, folder, runtime, self.notice_s, machines=models.catalog
        )
        return LiveSite(
            owner=self.owner,
            clock=clock,
            providers=(provider,),
            runtime=runtime,
            machines=models.catalog,
            powers=models.powers(),
            hazards=hazards,
            transfers=models.catalog.transfer,
            forecasts=models.forecasts(market),
            carbon=carbon,
            prepare_job=lambda job: job,
            check=self._check,
            check_secrets=check_host_secrets,
            upload_payload=runtime.publish_array,  # else nodes share this machine's files
            retry=runtime.forget_failures,
            logs=FolderLogs(folder / NODES, FileStore(folder / STORE)),
            market=market,
            live_carbon=self.carbon if isinstance(self.carbon, LiveCarbon) else None,
        )

    def _check(self, job: Job) -> None:
        """Raises SpecError, MissingExtraError or StoreError where this machine could not run it, or
        the checkpoint place is another job's."""
        check_trainer(job)
        check_host_secrets(job)
        check_checkpoint_storage(job)
        check_checkpoint_store(job)
        check_stored_identity(job, self.account.owner)


def connect_simulator(
    market: MarketHistory,
    clock: Clock,
    folder: Path,
    runtime: MailboxRuntime,
    notice_s: float | None = None,
    machines: InstanceCatalog | None = None,
) -> Provider:
    """The simulator in process mode; it finds the nodes that ``folder`` holds."""
    options = {
        "market": market,
        "machines": machines or load_catalog(),
        "mode": "process",
        "notice_s": notice_s,
        "state_dir": folder,
        "store": folder / STORE,
        "runtime": runtime,
        "secrets": host_secrets_folder(),
    }
    return connect_provider("sim", clock, options)


def check_host_secrets(job: Job) -> None:
    """Raise SpecError where simulated nodes could not read a secret of the job."""
    check_secrets(job, SecretSource.HOST, "simulated nodes")
