"""A site of the clouds that an account file names, in real time."""

from __future__ import annotations

from costopt.catalog import load_catalog
from costopt.controller.forecasts import catalog_hazard_priors, gang_hazard_per_hour
from costopt.controller.node_logs import StoreLogs
from costopt.controller.runtime import MailboxRuntime
from costopt.daemon.site import Site
from costopt.domain.errors import SpecError
from costopt.domain.job import Job
from costopt.domain.payload import Payload
from costopt.engine.clock import WallClock
from costopt.market.hazard import LearnedHazard
from costopt.session.account_cloud import AccountSite, connect_account
from costopt.session.payload import upload_payload
from costopt.store import open_store


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
