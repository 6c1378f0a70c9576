"""The schema of cluster.yaml, and its conversion to the domain's Cluster."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import Field

from costopt.domain.cluster import Cluster
from costopt.spec.fields import Count, FileModel, Name, Positive, Text, Version, parse_section
from costopt.spec.yaml_document import Document, SpecFileError, read_document

MAX_NODE_GPUS = 1024
MAX_NODES = 100_000
NodeGpus = Annotated[int, Field(ge=1, le=MAX_NODE_GPUS)]
Rate = Annotated[float, Field(ge=0, le=1e6)]


class NodeGroupSection(FileModel):
    """Nodes that are alike."""

    count: Count = Field(description="how many of them")
    gpus: NodeGpus = Field(description="GPUs of each")


class PartitionSection(FileModel):
    """What a tenant would have for itself."""

    name: Text = Field(description="the tenant of the workload's jobs")
    gpus: Count = Field(description="GPUs of its own partition")


class ClusterFile(FileModel):
    """A cluster of owned or reserved nodes."""

    kind: Literal["cluster"] = Field(default="cluster", description="what this file is")
    version: Version = Field(default=1, description="version of this format")
    name: Name = Field(description="the cluster's name")
    nodes: list[NodeGroupSection] = Field(min_length=1, description="its nodes, in groups")
    usd_per_gpu_hour: Rate = Field(
        default=0.0, description="the site's rate for a GPU that is held; 0 where it asks none"
    )
    busy_w_per_gpu: Positive | None = Field(
        default=None, description="at the meter, with its share of the node; default: unknown"
    )
    idle_w_per_gpu: Positive | None = Field(default=None, description="as busy_w_per_gpu")
    tenants: list[PartitionSection] = Field(
        default_factory=list,
        description="what each would have for itself; default: twice its mean demand",
    )


def load_cluster(path: str | os.PathLike[str]) -> Cluster:
    """Return the cluster of a YAML file. Raise SpecFileError with every problem and its place."""
    document = read_document(os.fspath(path))
    return _cluster_of(parse_section(ClusterFile, document), document)


def _cluster_of(file: ClusterFile, document: Document) -> Cluster:
    if sum(group.count for group in file.nodes) > MAX_NODES:
        message = f"are more than {MAX_NODES:,}"
        raise SpecFileError([document.problem(("nodes",), message, code="too_many")])
    names = [tenant.name for tenant in file.tenants]
    twice = [index for index, name in enumerate(names) if name in names[:index]]
    if twice:
        field = ("tenants", twice[0], "name")
        message = f"{names[twice[0]]!r} is named twice"
        raise SpecFileError([document.problem(field, message, code="twice")])
    return Cluster(
        name=file.name,
        node_gpus=tuple(group.gpus for group in file.nodes for _ in range(group.count)),
        usd_per_gpu_hour=file.usd_per_gpu_hour,
        busy_w_per_gpu=file.busy_w_per_gpu,
        idle_w_per_gpu=file.idle_w_per_gpu,
        partition_gpus={tenant.name: tenant.gpus for tenant in file.tenants},
    )
