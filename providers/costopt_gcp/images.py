"""Which image nodes boot: a Deep Learning VM image, by its family."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.errors import BadRequestError
from costopt.provider.cache import TtlCache
from costopt_gcp.clients import Clients
from costopt_gcp.errors import MISSING, asking, code_of

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
    """``path`` names one image and not a family; ``root_gib`` is the least size of its disk."""

    path: str
    root_gib: int


class ImageResolver:
    """The image of all regions, asked for once a day: images of Google Cloud are global."""

    def __init__(self, clients: Clients, named: str = DEEP_LEARNING) -> None:
        """``named``: projects/PROJECT/global/images/NAME, or …/images/family/NAME."""
        self._clients = clients
        self._named = named
        self._kept: TtlCache[None, MachineImage] = TtlCache(DAY_S, DAY_S)

    def image(self, now: datetime) -> MachineImage:
        """Raises BadRequestError where there is none of that name, ProviderError."""
        return self._kept.get(None, now, self._ask)

    def _ask(self) -> MachineImage:
        parts = _IMAGE.fullmatch(self._named)
        if parts is None:
            raise BadRequestError(
                f"{self._named!r} is no image",
                hint="write projects/PROJECT/global/images/family/NAME",
            )
        client, project = self._clients.of("images"), parts["project"]
        reading = self._clients.reading()
        try:
            with asking("compute.images.get", self._named):
                if parts["family"]:
                    told = client.get_from_family(project=project, family=parts["name"], **reading)
                else:
                    told = client.get(project=project, image=parts["name"], **reading)
        except BadRequestError as error:
            if code_of(error) not in MISSING:
                raise
            raise BadRequestError(
                f"there is no image {self._named}",
                hint="`gcloud compute images list --project deeplearning-platform-release` lists "
                "the Deep Learning VM images",
            ) from error
        return MachineImage(f"projects/{project}/global/images/{told.name}", told.disk_size_gb)
