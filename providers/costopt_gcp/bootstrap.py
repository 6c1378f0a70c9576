"""How nodes come up: image, account, network and start script, from options and the payload."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

from costopt.domain.errors import BadRequestError
from costopt.domain.fleet import LaunchRequest
from costopt.domain.payload import Payload
from costopt.domain.ports import ProviderOptions
from costopt_gcp.clients import Clients
from costopt_gcp.images import DEEP_LEARNING, Images
from costopt_gcp.node_setup import NodeSetup
from costopt_gcp.startup import startup_script

NODE_KEYS = frozenset(
    {
        "disk_type",
        "external_ip",
        "image",
        "job_service_accounts",
        "network",
        "payloads",
        "root_gib",
        "service_account",
        "subnetworks",
    }
)
DEFAULT_NETWORK = "global/networks/default"
ROOT_GIB = 200
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """``image``: the path of an image or of a family. ``payloads``: by job.

    ``service_account``: the nodes' identity, by its e-mail address; without one they cannot reach
    the store. ``job_service_accounts``: by job, another for its nodes. ``subnetworks``: by region,
    for networks that are not in auto mode.
    """

    image: str = DEEP_LEARNING
    service_account: str | None = None
    job_service_accounts: Mapping[str, str] = field(default_factory=dict)
    network: str = DEFAULT_NETWORK
    subnetworks: Mapping[str, str] = field(default_factory=dict)
    external_ip: bool = True
    root_gib: int = ROOT_GIB
    disk_type: str = "pd-balanced"
    payloads: Mapping[str, Payload] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: ProviderOptions) -> NodeOptions:
        """Raises BadRequestError that names the option."""
        root_gib = options.get("root_gib", ROOT_GIB)
        if not isinstance(root_gib, int) or not 10 <= root_gib <= 65_536:
            raise BadRequestError(
                f"costopt_gcp: option root_gib must be from 10 to 65536, not {root_gib!r}",
                hint="it is the size of a node's boot disk in GiB",
            )
        return cls(
            image=str(options.get("image", DEEP_LEARNING)),
            service_account=_email("service_account", options.get("service_account")),
            job_service_accounts=_emails(_mapping(options, "job_service_accounts")),
            network=str(options.get("network", DEFAULT_NETWORK)),
            subnetworks=cast("Mapping[str, str]", _mapping(options, "subnetworks")),
            external_ip=bool(options.get("external_ip", True)),
            root_gib=root_gib,
            disk_type=str(options.get("disk_type", "pd-balanced")),
            payloads=cast("Mapping[str, Payload]", _mapping(options, "payloads")),
        )

    @property
    def accounts(self) -> tuple[str, ...]:
        """Every service account that nodes may have, sorted."""
        own = () if self.service_account is None else (self.service_account,)
        return tuple(sorted({*own, *self.job_service_accounts.values()}))


class GcpBootstrap:
    """The Bootstrap of nodes that fetch their job from its store."""

    def __init__(self, clients: Clients, options: NodeOptions, notice_s: int) -> None:
        self._options = options
        self._images = Images(clients, options.image)
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


def _emails(by_job: Mapping[str, object]) -> Mapping[str, str]:
    emails = {job: _email(f"job_service_accounts of {job}", it) for job, it in by_job.items()}
    return {job: email for job, email in emails.items() if email is not None}


def _email(option: str, value: object) -> str | None:
    if value is None or (isinstance(value, str) and _EMAIL.fullmatch(value)):
        return value
    raise BadRequestError(
        f"costopt_gcp: option {option} must be an e-mail address, not {value!r}",
        hint="`gcloud iam service-accounts list` shows those there are",
    )


def _mapping(options: ProviderOptions, name: str) -> Mapping[str, object]:
    value = options.get(name) or {}
    if not isinstance(value, Mapping):
        raise BadRequestError(
            f"costopt_gcp: option {name} must be a mapping, not {value!r}",
            hint="subnetworks are by region, job_service_accounts and payloads by job",
        )
    return value
