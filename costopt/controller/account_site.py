"""The clouds that an account file names, in real time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from costopt.catalog import load_catalog
from costopt.controller.forecasts import (
    RecordedForecasts,
    catalog_hazard_priors,
    gang_hazard_per_hour,
    recorded_carbon,
)
from costopt.controller.node_logs import StoreLogs
from costopt.controller.runtime import MailboxRuntime
from costopt.controller.site import Site, connect_provider
from costopt.domain.account import Account
from costopt.domain.errors import SpecError
from costopt.domain.history import MarketHistory
from costopt.domain.job import Job
from costopt.domain.payload import Payload
from costopt.domain.ports import Clock, Forecasts, ObjectStore
from costopt.energy.carbon_history import CarbonHistory
from costopt.energy.carbon_record import RecordedCarbon
from costopt.engine.clock import WallClock
from costopt.market.hazard import LearnedHazard
from costopt.session.payload import upload_payload
from costopt.store import open_store
from costopt.store.address import join_uri

MIN_NOTICE_S = 30.0
"""Google Cloud tells of a preemption 30 s before it (cloud.google.com/compute/docs/instances/
preemptible), EC2 two minutes: what can be saved in the shorter can be saved in both."""


CHECKPOINTS = "checkpoints"
CHECKS = "checks"


def connect_account(
    account: Account,
    names: tuple[str, ...],
    clock: Clock,
    payloads: Mapping[str, Payload] | None = None,
) -> tuple[Provider, ...]:
    """The adapters of these providers of the account, of all where none is named.

    With ``payloads``, by job, they can start nodes for these jobs; without, only tell of offers.
    Raises SpecError where the account has none of that name, BadRequestError for wrong options.
    """
    unknown = [name for name in names if name not in account.providers]
    if unknown or not account.providers:
        known = ", ".join(account.providers) or "none"
        what = f"provider {unknown[0]!r}" if unknown else "any provider"
        raise SpecError(
            f"the account file does not name {what} (it names: {known})",
            hint="add it under providers: with its options, such as aws: {regions: [us-east-1]}",
        )
    common: dict[str, object] = {"machines": load_catalog()}
    if payloads:
        common["payloads"] = payloads
    return tuple(
        connect_provider(name, clock, common | dict(account.providers[name]))
        for name in names or tuple(account.providers)
    )


@dataclass(frozen=True, slots=True)
class AccountSite:
    """A Cloud of the account's providers ``names``, all of them where that is empty."""

    account: Account
    names: tuple[str, ...] = ()
    carbon: CarbonHistory | None = None
    notice_s: float = MIN_NOTICE_S

    @property
    def owner(self) -> str:
        """As the account says."""
        return self.account.owner

    @property
    def market(self) -> MarketHistory | None:
        """None: it is real."""
        return None

    def start_time(self) -> datetime:
        """Now."""
        return WallClock().now()

    def clock(self, folder: Path, *, anew: bool) -> WallClock:  # noqa: ARG002 - it needs no file
        """Real time."""
        return WallClock()

    def prepare_job(self, job: Job) -> Job:
        """Checkpoints that were to lie in a folder of this machine go to the account's store."""
        if urlsplit(job.checkpoint.uri).scheme not in ("", "file"):
            return job
        uri = join_uri(self._store_uri(), f"{CHECKPOINTS}/{job.name}")
        return replace(job, checkpoint=replace(job.checkpoint, uri=uri))

    def check(self, job: Job) -> None:
        """Raises StoreError where the store cannot be written to."""
        open_store(self._store_uri()).put(f"{CHECKS}/{job.name}", b"")

    def store(self, folder: Path, job: Job) -> ObjectStore:  # noqa: ARG002 - one for all jobs
        """The account's store. Raises SpecError where it names none."""
        return open_store(self._store_uri())

    def providers(
        self,
        clock: Clock,
        folder: Path,  # noqa: ARG002 - what exists is known by its owner tag
        job: Job,
        runtime: MailboxRuntime,  # noqa: ARG002 - nodes are reached through the store
    ) -> tuple[Provider, ...]:
        """The adapters, able to start nodes for the job, whose folder is uploaded for them."""
        uri = self._store_uri()
        payload = upload_payload(job, open_store(uri), uri)
        return connect_account(self.account, self.names, clock, {job.name: payload})

    def forecasts(self) -> Forecasts:
        """Of recorded intensities where there are any."""
        return RecordedForecasts(None, self.carbon_record())

    def carbon_record(self) -> RecordedCarbon | None:
        """The intensities that were given."""
        return recorded_carbon(self.carbon)

    def _store_uri(self) -> str:
        if self.account.store is None:
            raise SpecError(
                "the account file names no store: nodes and controller could not talk",
                hint="add store: with a URI that both can reach, such as s3://bucket/costopt",
            )
        return self.account.store


class PayloadsByJob(dict[str, Payload]):
    """What was uploaded, by job, shared with adapters that look into it at each launch."""

    def __bool__(self) -> bool:
        """Jobs may come, even where there is none yet."""
        return True


def account_site(cloud: AccountSite) -> Site:
    """All jobs on the providers of one account, each with its own files in the account's store.

    Raises SpecError where the account names no store or no such provider, StoreError, ProviderError
    and MissingExtraError.
    """
    uri = cloud.account.store
    if uri is None:
        raise SpecError(
            "the account file names no store: nodes and daemon could not talk",
            hint="add store: with a URI that both can reach, such as s3://bucket/costopt",
        )
    clock, store, payloads = WallClock(), open_store(uri), PayloadsByJob()
    hazards = LearnedHazard(catalog_hazard_priors(load_catalog()))
    runtime = MailboxRuntime(
        store,
        clock,
        gang_hazard=lambda _, nodes: gang_hazard_per_hour(hazards, nodes),
        notice_s=cloud.notice_s,
    )

    def receive(job: Job) -> None:
        payloads[job.name] = upload_payload(job, open_store(uri), uri)

    return Site(
        owner=cloud.owner,
        clock=clock,
        providers=connect_account(cloud.account, cloud.names, clock, payloads),
        runtime=runtime,
        hazards=hazards,
        notice_s=cloud.notice_s,
        prepare_job=cloud.prepare_job,
        upload_payload=receive,
        retry=runtime.forget_failures,
        forecasts=cloud.forecasts(),
        carbon=cloud.carbon_record(),
        logs=StoreLogs(store),
        simulated=False,
    )
