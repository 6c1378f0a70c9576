"""Options of providers whose machines stand in a cluster of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from costopt.provider.options import OptionModel, Text, matches

ClusterName = Annotated[
    str, matches(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", "lowercase letters, digits, dots, dashes")
]
CloudRegion = Annotated[
    str, matches(r"[a-z]+/[a-z0-9-]+", "PROVIDER/REGION, such as aws/us-east-1")
]


class NodeShape(OptionModel):
    """A machine of the cluster, which the catalogue does not hold."""

    gpu: Text = Field(description="a GPU model, as costopt catalog lists them")
    gpus: int = Field(ge=1, le=64, description="GPUs of a node")
    vcpus: int = Field(ge=1, le=4096, description="logical CPUs of a node")
    memory_gib: float = Field(gt=0, le=65_536, strict=False, description="memory of a node in GiB")
    network_gbps: float | None = Field(default=None, gt=0, strict=False, description="its network")


class SiteOptions(OptionModel):
    """What machines the cluster has; ``costopt.catalog.site_machines`` reads the same keys."""

    cluster: ClusterName = Field(description="the cluster's name: the region of its pools")
    cloud: CloudRegion | None = Field(
        default=None,
        description="the cloud region whose machines, prices and grid these are: aws/us-east-1",
    )
    node_types: Mapping[Text, NodeShape] = Field(
        default_factory=dict, description="a mapping of the cluster's own node types to their shape"
    )
