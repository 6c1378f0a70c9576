"""The options of ``connect``, validated: the cluster, its node types, partitions and access."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from costopt.domain.cluster import SLICE
from costopt.domain.fleet import MAX_WAIT
from costopt.domain.market import CapacityType, Pool
from costopt.provider.options import Listed, OptionModel, Seconds, Text, matches
from costopt.provider.site import NodeShape, SiteOptions

SlurmName = Annotated[str, matches(r"[A-Za-z0-9_.@+-]{1,64}", "a name as Slurm shows it")]
RestAddress = Annotated[
    str,
    matches(
        r"unix:/[^\s?#]+|https?://[A-Za-z0-9_.-]+(:\d+)?",
        "unix:/PATH, http://HOST:PORT or https://HOST",
    ),
]
Gres = Annotated[
    str, matches(r"[a-z]+(:[A-Za-z0-9_.-]+)?:\d+", "KIND:COUNT or KIND:MODEL:COUNT: gpu:h100:8")
]
LoginHost = Annotated[
    str, matches(r"([A-Za-z0-9_.-]+@)?[A-Za-z0-9][A-Za-z0-9_.-]*", "HOST or USER@HOST")
]
SharedFolder = Annotated[str, matches(r"/[^\0\n'\"]*", "an absolute path without quotes")]
Usd = Annotated[float, Field(ge=0, le=1e6, strict=False)]
MAX_SHELL = 4096


class SlurmNodeType(NodeShape):
    """A kind of node, which the catalogue gains, and what it is asked for by."""

    gres: Gres | None = Field(
        default=None, description="all its GPUs as sinfo shows them; default: gpu:GPUS of any model"
    )
    constraint: Text | None = Field(
        default=None, description="a feature that only these nodes have, passed on to sbatch"
    )

    @property
    def requested_gres(self) -> str:
        """Return what sbatch is asked for on each node."""
        return self.gres or f"gpu:{self.gpus}"

    def gres_of(self, gpus: int) -> str:
        """Return what sbatch is asked for a slice of so many GPUs."""
        return f"{self.requested_gres.rpartition(':')[0]}:{gpus}"


class SlurmPartition(OptionModel):
    """What the account may use of a partition, at which price. Names are passed on to sbatch."""

    node_types: Listed[Text] = Field(default=(), description="of node_types; default: all")
    usd_per_gpu_hour: Usd | None = Field(
        default=None, description="the site's rate for a GPU; 0 where it charges nothing"
    )
    usd_per_node_hour: Usd | None = Field(
        default=None, description="the site's rate for a whole node, in place of that for a GPU"
    )
    preemptible: bool | None = Field(
        default=None,
        description="whether other jobs may take its nodes; default: as its PreemptMode says. "
        "Say it where QOS decides on preemption",
    )
    firm: bool = Field(
        default=False, description="idle nodes are had at once and stay: deadlines may rest on them"
    )
    grace_s: float | None = Field(
        default=None,
        ge=0,
        le=86_400,
        strict=False,
        description="seconds from a preemption to the end; default: the partition's GraceTime",
    )
    wait_s: float | None = Field(
        default=None,
        ge=0,
        le=30 * 86_400,
        strict=False,
        description="for how long a launch may wait in the queue; 0: only idle nodes are used; "
        f"default: 0 where it is preemptible or firm, else {MAX_WAIT.total_seconds():.0f}",
    )
    account: SlurmName | None = Field(default=None, description="the account that is charged")
    qos: SlurmName | None = Field(default=None, description="the quality of service")
    constraint: Text | None = Field(default=None, description="features that nodes must have")
    reservation: SlurmName | None = Field(default=None, description="a reservation to run in")

    def capacity_type(self, preempted: bool) -> CapacityType:
        """Return the terms of its nodes."""
        if preempted:
            return CapacityType.SPOT
        return CapacityType.ON_DEMAND if self.firm else CapacityType.FLEX_START

    def max_wait_s(self, terms: CapacityType) -> float:
        """Return for how long a launch may wait."""
        if self.wait_s is not None:
            return self.wait_s
        return MAX_WAIT.total_seconds() if terms is CapacityType.FLEX_START else 0.0

    def usd_per_hour(self, gpus: int) -> float | None:
        """Return the price of a node with so many GPUs; None where the account names none."""
        if self.usd_per_node_hour is not None:
            return self.usd_per_node_hour
        return None if self.usd_per_gpu_hour is None else self.usd_per_gpu_hour * gpus


class SlurmOptions(SiteOptions):
    """Every option: ``machines`` and ``payloads`` come from costopt, the rest from the file."""

    node_types: Annotated[Mapping[Text, SlurmNodeType], Field(min_length=1)] = Field(
        description="a mapping of node types to their shape"
    )
    partitions: Annotated[Mapping[SlurmName, SlurmPartition], Field(min_length=1)] = Field(
        description="a mapping of the partitions in use to their terms"
    )
    owned_partition: SlurmName | None = Field(
        default=None,
        description="the partition whose nodes (nodes:) the policy priced shares out among all "
        "jobs; usd_per_gpu_hour is the rate there",
    )
    folder: SharedFolder = Field(
        description="a folder that the login node and all nodes share: scripts' records and output"
    )
    python: Text = Field(
        default="python3",
        description="the Python on nodes that has costopt and PyTorch, such as "
        "/home/me/venv/bin/python",
    )
    setup: str = Field(
        default="",
        max_length=MAX_SHELL,
        description="lines of bash before the nodes' agents start, such as . /etc/profile and "
        "module load cuda",
    )
    max_run_h: float | None = Field(
        default=None,
        gt=0,
        le=24 * 365,
        strict=False,
        description="the time limit of launches in hours; default: the partition's MaxTime, else "
        "its DefaultTime",
    )
    host: LoginHost | None = Field(
        default=None, description="the login node, reached by ssh; default: this machine is one"
    )
    rest: RestAddress | None = Field(
        default=None,
        description="a slurmrestd that is asked in place of Slurm's commands: unix:/PATH or "
        "http://HOST:PORT",
    )
    rest_user: SlurmName = Field(
        default_factory=getpass.getuser,
        description="whose jobs those of rest: are; default: who runs costopt",
    )
    token_file: SharedFolder | None = Field(
        default=None,
        description="a file with the user's token for rest:, as `scontrol token` prints it; "
        "default: SLURM_JWT",
    )
    slurm_conf: SharedFolder | None = Field(
        default_factory=lambda: os.environ.get("SLURM_CONF") or None,
        description="the cluster's slurm.conf where it is not in its usual place; default: "
        "SLURM_CONF",
    )
    bin: SharedFolder | None = Field(
        default=None, description="the folder of Slurm's commands, where the PATH lacks it"
    )
    timeout_s: Seconds = Field(
        default=20.0, strict=False, description="seconds after which a command is given up"
    )

    @field_validator("partitions")
    @classmethod
    def _known_types(
        cls, partitions: Mapping[str, SlurmPartition], info: ValidationInfo
    ) -> Mapping[str, SlurmPartition]:
        """Refuse node types that are not described."""
        known = info.data.get("node_types") or {}
        for name, partition in partitions.items():
            for each in partition.node_types:
                if known and each not in known:
                    raise PydanticCustomError(
                        "option",
                        "partition {name} names {type}, which is none of the node_types",
                        {"name": name, "type": repr(each)},
                    )
        return partitions

    @model_validator(mode="after")
    def _owned_partition_has_nodes(self) -> Self:
        owned = self.owned_partition
        if (owned is None) != (not self.nodes) or (owned and owned not in self.partitions):
            raise PydanticCustomError(
                "option", "owned_partition: one of partitions:, and nodes: go together"
            )
        return self

    def is_owned(self, pool: Pool) -> bool:
        """Return whether a pool is a node of the owned partition, or a slice of one."""
        return pool.capacity_type is CapacityType.RESERVED and self.owned_partition is not None

    def partition_of(self, pool: Pool) -> str:
        """Return the partition of a pool: its zone, but for owned nodes."""
        return self.owned_partition or "" if self.is_owned(pool) else pool.zone

    def type_and_gpus(self, pool: Pool) -> tuple[str, int]:
        """Return the node type of a pool, and how many GPUs of such a node it has."""
        name, _, part = pool.instance_type.partition(SLICE)
        return name, int(part) if part else self.node_types[name].gpus

    def node_types_of(self, partition: str) -> Mapping[str, SlurmNodeType]:
        """Return the node types that may be launched in a partition."""
        named = self.partitions[partition].node_types or tuple(self.node_types)
        return {name: self.node_types[name] for name in named}
