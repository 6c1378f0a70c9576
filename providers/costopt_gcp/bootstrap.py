"""How nodes start: image, service account, network and startup script, from options and payload.

The image is a Deep Learning VM image, by its family. The startup script is what a node runs when it
boots: one small script that holds no secrets.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Protocol
from urllib.parse import parse_qsl, urlsplit

from pydantic import Field

from costopt.domain.errors import BadRequestError
from costopt.domain.fleet import LaunchRequest
from costopt.domain.runtime import Payload
from costopt.provider.boot import MAX_UNREACHABLE_S
from costopt.provider.boot_script import render_boot_script
from costopt.provider.cache import TtlCache
from costopt.provider.launch import payload_of
from costopt.provider.options import Listed, MachineOptions, Text, matches
from costopt_gcp.boot import GcePlatform
from costopt_gcp.clients import Clients
from costopt_gcp.errors import MISSING, asking, code_of


@dataclass(frozen=True, slots=True)
class NodeSetup:
    """``startup_script`` is plain text and holds no secrets; ``image`` a resource's path.

    ``service_account`` is the nodes' identity, None for no identity. ``root_gib`` is the size
    of the boot disk, which is deleted with its node. ``external_ip``: whether nodes reach the
    internet by an address of their own; without one they need Cloud NAT or Private Google Access.
    """

    image: str
    startup_script: str
    service_account: str | None
    network: str = "global/networks/default"
    subnetwork: str | None = None
    external_ip: bool = True
    root_gib: int = 200
    disk_type: str = "pd-balanced"


class Bootstrap(Protocol):
    """Supplies the setup that nodes start with."""

    def setup(self, request: LaunchRequest) -> NodeSetup:
        """Return the setup of the request's nodes; the same for all launches of a job in a region.

        Raise ProviderError if the image or the job's bundle is missing.
        """
        ...


ROOT = "/opt/costopt"
STORAGE = "https://storage.googleapis.com"
PYTHONS = (
    "/opt/conda/bin/python3",
    "/opt/python/bin/python3",
    "/usr/bin/python3.13",
    "/usr/bin/python3.12",
    "/usr/bin/python3.11",
    "/usr/bin/python3",
)
"""Where Deep Learning VM images keep the Python that has PyTorch, then a plain image's."""


def startup_script(
    payload: Payload, *, notice_s: int, max_unreachable_s: float = MAX_UNREACHABLE_S
) -> str:
    """Return the script for the nodes of the payload's job: the same text for the same payload.

    Raise BadRequestError if a node's account cannot open the store.
    """
    return render_boot_script(
        payload,
        GcePlatform,
        _store(payload.store),
        root=ROOT,
        pythons=PYTHONS,
        more={"notice_s": notice_s, "max_unreachable_s": max_unreachable_s},
    )


def bucket_of(uri: str) -> str:
    """Return the bucket of a store. Raise BadRequestError if the URI is not of Cloud Storage."""
    parts = urlsplit(uri)
    if parts.scheme != "gs" or not parts.netloc:
        raise BadRequestError(
            f"Compute Engine nodes cannot be reached through the store {uri!r}",
            hint="give the account file a store: of the kind gs://bucket/prefix",
        )
    return parts.netloc


def _store(uri: str) -> dict[str, str]:
    parts = urlsplit(uri)
    given = dict(parse_qsl(parts.query)).get("endpoint")
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    if emulator and "://" not in emulator:
        emulator = f"http://{emulator}"
    return {
        "uri": uri,
        "bucket": bucket_of(uri),
        "prefix": parts.path.strip("/"),
        "endpoint": (given or emulator or STORAGE).rstrip("/"),
    }


DEEP_LEARNING = (
    "projects/deeplearning-platform-release/global/images/family/"
    "pytorch-2-9-cu129-ubuntu-2404-nvidia-580"
)
"""PyTorch 2.9, CUDA, the driver, and Ubuntu 24.04 for its Python 3.12; Ubuntu 22.04 has 3.10.

https://cloud.google.com/deep-learning-vm/docs/images lists the families. They come and go with the
versions in their names: pytorch-latest-gpu is gone.
"""
DAY_S = 86400.0
_IMAGE = re.compile(
    r"projects/(?P<project>[^/]+)/global/images/(?P<family>family/)?(?P<name>[^/]+)"
)


@dataclass(frozen=True, slots=True)
class MachineImage:
    """``path`` names one image and not a family; ``root_gib`` is the minimum size of its disk."""

    path: str
    root_gib: int


class ImageResolver:
    """The image of all regions, fetched once a day: images of Google Cloud are global."""

    def __init__(self, clients: Clients, named: str = DEEP_LEARNING) -> None:
        """``named``: projects/PROJECT/global/images/NAME, or …/images/family/NAME."""
        self._clients = clients
        self._named = named
        self._kept: TtlCache[None, MachineImage] = TtlCache(DAY_S, DAY_S)

    def image(self, now: datetime) -> MachineImage:
        """Return the image. Raise BadRequestError if there is none of that name, ProviderError."""
        return self._kept.get(None, now, self._ask)

    def _ask(self) -> MachineImage:
        parts = _IMAGE.fullmatch(self._named)
        if parts is None:
            raise BadRequestError(
                f"{self._named!r} is not an image",
                hint="write projects/PROJECT/global/images/family/NAME",
            )
        client, project = self._clients.of("images"), parts["project"]
        reading = self._clients.reading()
        try:
            with asking("compute.images.get", self._named):
                if parts["family"]:
                    found = client.get_from_family(project=project, family=parts["name"], **reading)
                else:
                    found = client.get(project=project, image=parts["name"], **reading)
        except BadRequestError as error:
            if code_of(error) not in MISSING:
                raise
            raise BadRequestError(
                f"there is no image {self._named}",
                hint="`gcloud compute images list --project deeplearning-platform-release` lists "
                "the Deep Learning VM images",
            ) from error
        return MachineImage(f"projects/{project}/global/images/{found.name}", found.disk_size_gb)


DEFAULT_NETWORK = "global/networks/default"
ROOT_GIB = 200
Email = Annotated[str, matches(r"[^@\s]+@[^@\s]+", "an e-mail address")]


class NodeOptions(MachineOptions):
    """How nodes start."""

    image: Text = Field(default=DEEP_LEARNING, description="the path of an image or of a family")
    service_account: Email | None = Field(
        default=None,
        description="the nodes' identity; without one they cannot reach the store. "
        "`gcloud iam service-accounts list` shows those there are",
    )
    job_service_accounts: Mapping[Text, Email] = Field(
        default_factory=dict, description="a mapping of job to an identity for its nodes alone"
    )
    secrets: Listed[Text] = Field(
        default=(), description="secrets that nodes are to read, for the roles that doctor prints"
    )
    repositories: Listed[Text] = Field(
        default=(),
        description="repositories of Artifact Registry that nodes pull images from, for the roles",
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
        """Return every service account that nodes may have, sorted."""
        own = () if self.service_account is None else (self.service_account,)
        return tuple(sorted({*own, *self.job_service_accounts.values()}))


class GcpBootstrap:
    """The Bootstrap for nodes that fetch their job from the job's store."""

    def __init__(self, clients: Clients, options: NodeOptions, notice_s: int) -> None:
        self._options = options
        self._images = ImageResolver(clients, options.image)
        self._notice_s = notice_s

    def setup(self, request: LaunchRequest) -> NodeSetup:
        """Return the setup of the request's nodes; the same for all launches of a job in a region.

        Raise BadRequestError if the job has no payload or there is no image, ProviderError.
        """
        options = self._options
        payload = payload_of(options.payloads, request)
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
            startup_script=startup_script(
                payload,
                notice_s=self._notice_s,
                max_unreachable_s=options.max_unreachable_s,
            ),
            service_account=account,
            network=options.network,
            subnetwork=options.subnetworks.get(request.pool.region),
            external_ip=options.external_ip,
            root_gib=max(options.root_gib, image.root_gib),
            disk_type=options.disk_type,
        )
