"""The image that nodes boot: a Deep Learning AMI, by the parameter in which AWS publishes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from costopt.domain.errors import BadRequestError
from costopt.provider.cache import TtlCache
from costopt_aws.clients import Clients
from costopt_aws.errors import code_of, map_errors

DEEP_LEARNING = (
    "/aws/service/deeplearning/ami/x86_64/oss-nvidia-driver-gpu-pytorch-2.7-ubuntu-22.04/"
    "latest/ami-id"
)
"""https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html: PyTorch, CUDA, EFA."""
DAY_S = 86400.0
IMAGE_ID = re.compile(r"ami-[0-9a-f]{8,17}")


@dataclass(frozen=True, slots=True)
class MachineImage:
    """``root_gib`` is the minimum size of its root volume, None if EC2 does not report it."""

    image_id: str
    root_device: str
    root_gib: int | None


class ImageResolver:
    """Images by region, fetched once a day."""

    def __init__(self, clients: Clients, named: str | Mapping[str, str] = DEEP_LEARNING) -> None:
        """``named``: an image id or the name of an SSM parameter, one for all regions or by region.

        An image id belongs to one region, so it can only be given by region.
        """
        self._clients = clients
        self._named = named
        self._kept: TtlCache[str, MachineImage] = TtlCache(DAY_S, DAY_S)

    def image(self, region: str, now: datetime) -> MachineImage:
        """Return the image of a region.

        Raise BadRequestError if there is no image of that name, ForbiddenError,
        ProviderUnavailableError.
        """
        return self._kept.get(region, now, lambda: self._ask(region))

    def _ask(self, region: str) -> MachineImage:
        named = self._name(region)
        image_id = named if IMAGE_ID.fullmatch(named) else self._published(named, region)
        with map_errors("ec2:DescribeImages", f"{region}: image {image_id}"):
            response = self._clients.reading("ec2", region).describe_images(ImageIds=[image_id])
            images = response["Images"]
        if not images:
            raise BadRequestError(
                f"{region}: there is no image {image_id}",
                hint="images belong to a region: name one per region, or an SSM parameter",
            )
        found = images[0]
        device = found.get("RootDeviceName") or "/dev/sda1"
        mappings = found.get("BlockDeviceMappings", [])
        sizes = [m["Ebs"].get("VolumeSize") for m in mappings if m.get("DeviceName") == device]
        return MachineImage(image_id, device, sizes[0] if sizes else None)

    def _name(self, region: str) -> str:
        if isinstance(self._named, str):
            if IMAGE_ID.fullmatch(self._named):
                raise BadRequestError(
                    f"image {self._named} is of one region, and no region is given with it",
                    hint=f"write image: {{{region}: {self._named}}}",
                )
            return self._named
        named = self._named.get(region)
        if named is None:
            raise BadRequestError(
                f"{region}: no image is named for this region",
                hint="add it to image:, or leave image: out for the Deep Learning AMI",
            )
        return named

    def _published(self, parameter: str, region: str) -> str:
        try:
            with map_errors("ssm:GetParameter", f"{region}: image parameter {parameter}"):
                response = self._clients.reading("ssm", region).get_parameter(Name=parameter)
                return str(response["Parameter"]["Value"])
        except BadRequestError as error:
            if code_of(error) != "ParameterNotFound":
                raise
            raise BadRequestError(
                f"{region}: there is no image parameter {parameter}",
                hint="`aws ssm get-parameters-by-path --path /aws/service/deeplearning/ami "
                "--recursive` lists those there are",
            ) from error
