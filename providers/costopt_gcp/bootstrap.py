"""How nodes come up: image, account, network and start script, from options and the payload."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, ClassVar

from pydantic import Field, InstanceOf

from costopt.domain.errors import BadRequestError
from costopt.domain.fleet import LaunchRequest
from costopt.domain.payload import Payload
from costopt.provider.options import OptionModel, Text, matches
from costopt_gcp.clients import Clients
from costopt_gcp.images import DEEP_LEARNING, ImageResolver
from costopt_gcp.node_setup import NodeSetup
from costopt_gcp.startup import startup_script

DEFAULT_NETWORK = "global/networks/default"
ROOT_GIB = 200
Email = Annotated[str, matches(r"[^@\s]+@[^@\s]+", "an e-mail address")]


class NodeOptions(OptionModel):
    """``payloads``: what nodes fetch, by job; the mapping may grow after it was given."""

    injected: ClassVar[frozenset[str]] = frozenset({"payloads"})

    payloads: InstanceOf[Mapping[str, Payload]] = Field(
        default_factory=dict, description="a mapping of what nodes fetch, by job"
    )
    image: Text = Field(default=DEEP_LEARNING, description="the path of an image or of a family")
    service_account: Email | None = Field(
        default=None,
        description="the nodes' identity; without one they cannot reach the store. "
        "`gcloud iam service-accounts list` shows those there are",
    )
    job_service_accounts: Mapping[Text, Email] = Field(
        default_factory=dict, description="a mapping of job to an identity for its nodes alone"
    )
    network: Text = Field(default=DEFAULT_NETWORK, description="the path of the nodes' network")
    subnetworks: Mapping[Text, Text] = Field(
        default_factory=dict,
        description="a mapping of region to subnetwork, for networks that are not in auto mode",
    )
    external_ip: bool = Field(
        default=True, description="without, nodes need Cloud NAT or Private Google Access"
    )
    root_gib: int = Field(
        default=ROOT_GIB, ge=10, le=65_536, description="size of a node's boot disk in GiB"
    )
    disk_type: Text = Field(default="pd-balanced", description="the boot disk's type")

    @property
    def accounts(self) -> tuple[str, ...]:
        """Every service account that nodes may have, sorted."""
        own = () if self.service_account is None else (self.service_account,)
        return tuple(sorted({*own, *self.job_service_accounts.values()}))


class GcpBootstrap:
    """The Bootstrap of nodes that fetch their job from its store."""

    def __init__(self, clients: Clients, options: NodeOptions, notice_s: int) -> None:
        self._options = options
        self._images = ImageResolver(clients, options.image)
        self._notice_s = notice_s

    def setup(self, request: LaunchRequest) -> NodeSetup:
        """For the nodes of ``request``; the same for all launches of a job in a region.

        Raises BadRequestError where the job has no payload or there is no image, ProviderError.
        """
        options = self._options
        payload = options.payloads.get(request.job)
        if payload is None:
            raise BadRequestError(
                f"{request.pool}: nothing was uploaded for nodes of job {request.job!r}",
                hint="start the job with `costopt run`, which uploads its folder",
            )
        account = options.job_service_accounts.get(request.job, options.service_account)
        if account is None:
            raise BadRequestError(
                f"{request.pool}: no service account is named for nodes, so they could not reach "
                "their store",
                hint="write service_account: NAME@PROJECT.iam.gserviceaccount.com under gcp:",
            )
        image = self._images.image(datetime.now(UTC))
        return NodeSetup(
            image=image.path,
            startup_script=startup_script(payload, notice_s=self._notice_s),
            service_account=account,
            network=options.network,
            subnetwork=options.subnetworks.get(request.pool.region),
            external_ip=options.external_ip,
            root_gib=max(options.root_gib, image.root_gib),
            disk_type=options.disk_type,
        )
