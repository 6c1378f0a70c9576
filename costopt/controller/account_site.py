"""The clouds that an account file names, in real time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from costopt.catalog.site_machines import account_catalog
from costopt.controller.checkpoint_places import check_checkpoint_store, check_stored_identity
from costopt.controller.forecasts import CatalogModels, carbon_record, gang_hazard_per_hour
from costopt.controller.node_logs import StoreLogs
from costopt.controller.payload import upload_payload
from costopt.controller.preflight import check_secrets
from costopt.controller.runtime import MailboxRuntime
from costopt.controller.site import LiveSite, connect_provider
from costopt.domain.account import Account
from costopt.domain.errors import SpecError
from costopt.domain.job import Job
from costopt.domain.ports import Clock
from costopt.domain.runtime import Payload
from costopt.domain.secret import SecretSource
from costopt.domain.transfers import with_root_volumes
from costopt.energy.carbon import CarbonHistory
from costopt.energy.live import LiveCarbon
from costopt.engine.loop import WallClock
from costopt.provider.base import Provider, notice_by_provider
from costopt.store import open_store
from costopt.store.address import join_uri

CHECKPOINTS = "checkpoints"
CHECKS = "checks"


def connect_account(
    account: Account,
    names: tuple[str, ...],
    clock: Clock,
    payloads: Mapping[str, Payload] | None = None,
) -> tuple[Provider, ...]:
    """Return these providers of the account, all of them if none is named.

    With ``payloads``, by job, they can start nodes for these jobs; without, only list offers.
    Raise SpecError if the account has none of that name, BadRequestError for wrong options.
    """
    unknown = [name for name in names if name not in account.providers]
    if unknown or not account.providers:
        known = ", ".join(account.providers) or "none"
        what = f"provider {unknown[0]!r}" if unknown else "any provider"
        raise SpecError(
            f"the account file does not name {what} (it names: {known})",
            hint="add it under providers: with its options, such as aws: {regions: [us-east-1]}",
        )
    common: dict[str, object] = {"machines": account_catalog(account)}
    if payloads:
        common["payloads"] = payloads
    return tuple(
        connect_provider(name, clock, common | dict(account.providers[name]))
        for name in names or tuple(account.providers)
    )


class PayloadsByJob(dict[str, Payload]):
    """What was uploaded, by job, shared with adapters that look into it at each launch."""

    def __bool__(self) -> bool:
        """Jobs may come, even where there is none yet."""
        return True


@dataclass(frozen=True, slots=True)
class AccountSiteConfig:
    """The account's providers ``names``, all of them where that is empty, in real time."""

    account: Account
    names: tuple[str, ...] = ()
    carbon: CarbonHistory | LiveCarbon | None = None

    def start_time(self) -> datetime:
        """Now."""
        return WallClock().now()

    def connect(self, folder: Path, *, fresh: bool = False) -> LiveSite:  # noqa: ARG002
        """All jobs on the providers, each with its own files in the account's store.

        What exists is known by its owner tag: it needs no folder. Raises SpecError where the
        account names no store or no such provider, StoreError, ProviderError and
        MissingExtraError.
        """
        uri, clock, payloads = self._store_uri(), WallClock(), PayloadsByJob()
        models = CatalogModels(account_catalog(self.account), carbon_record(self.carbon))
        store, hazards = open_store(uri), models.hazards()
        providers = connect_account(self.account, self.names, clock, payloads)
        runtime = MailboxRuntime(
            store,
            clock,
            gang_hazard=lambda _, nodes: gang_hazard_per_hour(hazards, nodes),
            notice_s=partial(notice_by_provider, providers),
            machines=models.catalog,
            transfers=models.catalog.transfer,
            owner=self.account.owner,
        )

        def upload(job: Job) -> None:
            runtime.publish_array(job)
            payloads[job.name] = upload_payload(job, open_store(uri), uri)

        return LiveSite(
            owner=self.account.owner,
            clock=clock,
            providers=providers,
            runtime=runtime,
            machines=models.catalog,
            powers=models.powers(),
            hazards=hazards,
            transfers=with_root_volumes(models.catalog.transfer, self.account.providers),
            forecasts=models.forecasts(None),
            carbon=models.carbon,
            prepare_job=self._prepare_job,
            check=self._check,
            check_secrets=self._check_secrets,
            upload_payload=upload,
            retry=runtime.forget_failures,
            logs=StoreLogs(store),
            market=None,
            live_carbon=self.carbon if isinstance(self.carbon, LiveCarbon) else None,
        )

    def _prepare_job(self, job: Job) -> Job:
        """Checkpoints that were to lie in a folder of this machine go to the account's store."""
        if urlsplit(job.checkpoint.uri).scheme not in ("", "file"):
            return job
        uri = join_uri(self._store_uri(), f"{CHECKPOINTS}/{job.name}")
        return replace(job, checkpoint=replace(job.checkpoint, uri=uri))

    def _check(self, job: Job) -> None:
        """Raises SpecError where nodes could not read a secret, or the checkpoint place is another
        job's, StoreError where the store cannot be written to, or cannot hold HEAD."""
        self._check_secrets(job)
        check_stored_identity(job, self.account.owner)
        check_checkpoint_store(job)
        open_store(self._store_uri()).put(f"{CHECKS}/{job.name}", b"")

    def _check_secrets(self, job: Job) -> None:
        """Nodes read the secrets of their own cloud."""
        sources = {source.value: source for source in SecretSource}
        for name in self.names or tuple(self.account.providers):
            check_secrets(job, sources.get(name), f"nodes of {name}")

    def _store_uri(self) -> str:
        if self.account.store is None:
            raise SpecError(
                "the account file names no store: nodes and controller could not talk",
                hint="add store: with a URI that both can reach, such as s3://bucket/costopt",
                code="no_store",
            )
        return self.account.store
