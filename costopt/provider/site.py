"""Options of providers whose machines stand in a cluster of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from costopt.provider.options import LaunchOptions, OptionModel, Text, matches

MAX_NODES = 100_000

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


NodeCount = Annotated[int, Field(ge=1, le=MAX_NODES)]


class SiteOptions(LaunchOptions):
    """What machines the cluster has; ``costopt.catalog.site_machines`` reads the same keys."""

    cluster: ClusterName = Field(description="the cluster's name: the region of its pools")
    cloud: CloudRegion | None = Field(
        default=None,
        description="the cloud region whose machines, prices and grid these are: aws/us-east-1",
    )
    node_types: Mapping[Text, NodeShape] = Field(
        default_factory=dict, description="a mapping of the cluster's own node types to their shape"
    )
    nodes: Mapping[Text, NodeCount] = Field(
        default_factory=dict,
        description="owned nodes: how many the cluster has of each node type; jobs may run on "
        "slices of them",
    )
    usd_per_gpu_hour: float = Field(
        default=0.0,
        ge=0,
        le=1e6,
        strict=False,
        description="the site's rate for a GPU of an owned node that is held",
    )
    pue: float | None = Field(
        default=None,
        ge=1,
        le=5,
        strict=False,
        description="the site's power usage effectiveness; default: that of the cloud region, else "
        "unknown, and energy with it",
    )

    @field_validator("nodes")
    @classmethod
    def _known_node_types(cls, nodes: Mapping[str, int], info: ValidationInfo) -> Mapping[str, int]:
        """Refuse types that the cluster lacks; those of a cloud are the catalogue's to check."""
        known = info.data.get("node_types")
        if known is not None and info.data.get("cloud") is None:
            for name in nodes.keys() - known.keys():
                raise PydanticCustomError(
                    "option",
                    "{name} is none of the node_types{known}",
                    {"name": repr(name), "known": f": {', '.join(known)}" if known else ""},
                )
        return nodes
