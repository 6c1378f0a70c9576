"""The schema of job.yaml. Its meaning is in ``job_mapping``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from costopt.domain.job import WorkUnit
from costopt.domain.scaling import FAST_LINKS, SLOW_LINKS
from costopt.domain.storage import KEPT_CHECKPOINTS
from costopt.spec.array_section import ArraySection
from costopt.spec.fields import (
    Amount,
    Count,
    DurationS,
    FileModel,
    KeptS,
    Name,
    NotNegative,
    Positive,
    RegionName,
    Share,
    Text,
    Version,
)
from costopt.spec.gpu_text import GPUS, move_gpus
from costopt.spec.job_values import Command, Interval, Moment, Time, Variable
from costopt.spec.model_section import ModelSection
from costopt.spec.node_setup import Image, ImageLogin, Secrets
from costopt.spec.schedule import ScheduleSection
from costopt.spec.takes_section import WORK, TakesSection, parse_work
from costopt.spec.value_section import ValueSection


class WorkSection(FileModel):
    """How much is to be done."""

    amount: Amount = Field(description="how many units of work the job has")
    unit: Annotated[WorkUnit, Field(strict=False)] = Field(description="in what it is counted")


Work = Annotated[
    WorkSection,
    BeforeValidator(
        parse_work,
        json_schema_input_type=WorkSection | Annotated[str, Field(pattern=WORK.pattern)],
    ),
]
"""An amount with its unit, such as 10 epochs, stands for a section of it."""


GPU_FIELDS = {"gpu", "gpu_models", "gpus", "min_gpus", "max_gpus"}


class ResourcesSection(FileModel):
    """Which machines may run the job."""

    gpu: Annotated[Text, Field(pattern=f"^(?:{GPUS.pattern})$")] | None = Field(
        default=None,
        description="one GPU model, and how many GPUs in total: H100, H100:8 or 8xH100",
    )
    gpu_models: list[Text] = Field(
        default_factory=list, description="GPU models allowed, such as H100; default: all"
    )
    instance_types: list[Text] = Field(
        default_factory=list, description="instance types allowed; default: all"
    )
    gpus: Count | None = Field(
        default=None,
        description="GPUs asked of a shared cluster, between min_gpus, the default, and max_gpus",
    )
    min_nodes: Count = Field(default=1, description="the smallest gang")
    max_nodes: Count | None = Field(
        default=None,
        description="the largest gang; default: max_gpus, else min_gpus, else min_nodes",
    )
    min_gpus: Count | None = Field(default=None, description="the fewest GPUs of a gang in total")
    max_gpus: Count | None = Field(default=None, description="the most GPUs of a gang in total")
    min_gpu_memory_gib: Positive | None = Field(default=None, description="memory of one GPU, GiB")
    min_memory_gib: Positive | None = Field(default=None, description="main memory of a node, GiB")
    gpus_per_group: Count | None = Field(
        default=None,
        description="GPUs of a shard group (HSDP): gangs are multiples of it; default: the gang",
    )
    zone_traffic_gib: NotNegative | None = Field(
        default=None,
        description="GiB that a unit of work sends between zones; default: a gang is in one zone",
    )

    def on(self, gpus: str) -> ResourcesSection:
        """Return the section as if it said ``gpu: 8xH100`` and nothing else of models and
        numbers."""
        said = {name: getattr(self, name) for name in self.model_fields_set - GPU_FIELDS}
        return ResourcesSection.model_construct(**said, gpu=gpus)


Resources = Annotated[
    ResourcesSection, BeforeValidator(move_gpus, json_schema_input_type=ResourcesSection)
]


class PointSection(FileModel):
    """A measured speed: ``gpus`` in total, or ``nodes`` × ``gpus_per_node``."""

    gpu: Text = Field(description="the GPU model it was measured on")
    units_per_s: Positive = Field(description="units of work per second of the whole gang")
    gpus: Count | None = Field(default=None, description="GPUs in total; default: 1")
    nodes: Count | None = Field(default=None, description="nodes, with gpus_per_node, not gpus")
    gpus_per_node: Count | None = Field(default=None, description="GPUs of each node")

    @property
    def total_gpus(self) -> int:
        """Return the GPUs of the whole gang."""
        return self.gpus or (self.nodes or 1) * (self.gpus_per_node or 1)


class MfuSection(FileModel):
    """The model FLOPs utilization, as a number or with the GPU and scale it was measured at.

    On other GPU models it changes as recorded MLPerf times say, at other scales by
    ``scaling_efficiency`` per doubling.
    """

    value: Share = Field(description="share of the peak TFLOPS that a GPU reaches in training")
    gpu: Text | None = Field(
        default=None,
        description="the GPU model whose share it is; default: H100 where the job allows it, else "
        "the first of gpu_models",
    )
    gpus: Count | None = Field(
        default=None, description="GPUs of the gang that reached it; default: those of one node"
    )


def _plain_mfu(value: object) -> object:
    return value if isinstance(value, dict) else {"value": value}


class ThroughputSection(FileModel):
    """How fast the job runs: measured points, or FLOPs per unit and an MFU, or both."""

    points: list[PointSection] = Field(default_factory=list, description="measured speeds")
    flops_per_unit: Amount | None = Field(
        default=None, description="floating-point operations of one unit of work"
    )
    mfu: (
        Annotated[
            MfuSection, BeforeValidator(_plain_mfu, json_schema_input_type=MfuSection | Share)
        ]
        | None
    ) = Field(
        default=None,
        description="share of the peak TFLOPS that a GPU reaches (model FLOPs utilization): of one "
        "node, or at the scale that the section names",
    )
    scaling_efficiency: Share | None = Field(
        default=None,
        description="share of the ideal speed-up kept at each doubling of the GPUs beyond one "
        "node, the points, or the scale of the MFU; default: as recorded, "
        f"{FAST_LINKS.value:g} on NVLink, InfiniBand and EFA, {SLOW_LINKS.value:g} on PCIe and "
        "Ethernet",
    )


class EvaluationSection(FileModel):
    """Pauses of the training, in which the gang evaluates."""

    every: Positive = Field(description="after how many units of work")
    duration: DurationS = Field(description="how long the training pauses each time")


class PhaseSection(FileModel):
    """A stretch of the work with its own demand."""

    name: Name = Field(description="the phase's name")
    share: Share = Field(description="its share of the work; the shares of all phases sum to 1")
    min_nodes: Count | None = Field(default=None, description="default: that of resources")
    max_nodes: Count | None = Field(default=None, description="default: that of resources")
    may_pause: bool = Field(default=True, description="whether it may wait for capacity once begun")
    throughput: ThroughputSection | None = Field(
        default=None, description="the phase's own speed; default: that of the job"
    )
    evaluation: EvaluationSection | None = Field(
        default=None, description="pauses to evaluate; default: none"
    )


class CheckpointSection(FileModel):
    """Where and how the job saves."""

    uri: Text = Field(description="folder, file://, s3:// or gs://; relative to this file")
    size_gib: NotNegative = Field(default=0.0, description="size of one checkpoint, GiB")
    save: Time = Field(
        default=30.0,
        description="how long a save stops the training, or auto: each node saves its share, while "
        "training goes on; default: 30s, with gpus_per_group auto",
    )
    restore: Time = Field(
        default=60.0,
        description="how long a restore takes, or auto: each node reads its share; default: 1m, "
        "with gpus_per_group auto",
    )
    interval: Interval = Field(
        default=None, description="auto (chosen from the hazard and the save time) or a duration"
    )
    region: RegionName | None = Field(
        default=None,
        description="provider/region of the store, such as aws/us-east-1; default: unknown, so "
        "that no plan counts what it costs to reach it",
    )
    gbps: Positive | None = Field(
        default=None,
        description="gigabits per second that a node exchanges with the store, as a run measured "
        "it, where save or restore is auto; default: 100, or its network's if less",
    )
    keep: Count = Field(
        default=KEPT_CHECKPOINTS,
        description="how many of the newest are kept, as the trainer's `keep` says",
    )
    keep_every: Positive | None = Field(
        default=None,
        description="units of work: those at its multiples are kept, too, as the trainer's "
        "`every_steps` says; default: none",
    )
    across_zones: bool = Field(default=False, description="whether snapshots go to other zones")


def _place(value: object) -> object:
    return {"uri": value} if isinstance(value, str) else value


Checkpoint = Annotated[
    CheckpointSection, BeforeValidator(_place, json_schema_input_type=CheckpointSection | Text)
]
"""A place alone stands for a section of it."""


class BudgetSection(FileModel):
    """What the job may cost at the most."""

    usd: Amount | None = Field(default=None, description="dollars in total; default: no limit")
    kwh: Amount | None = Field(default=None, description="kWh in total; default: no limit")
    usd_per_month: Amount | None = Field(
        default=None, description="dollars in a calendar month (UTC); default: no limit"
    )
    usd_per_hour: Amount | None = Field(
        default=None, description="dollars per hour of all its nodes; default: no limit"
    )


class DataSection(FileModel):
    """Where the training data lie."""

    uri: Text = Field(description="where the data are")
    size_gib: NotNegative = Field(default=0.0, description="their size, GiB")
    region: RegionName | None = Field(
        default=None,
        description="provider/region, such as aws/us-east-1; default: unknown, so that no plan "
        "counts what it costs to reach them",
    )


class CacheSection(FileModel):
    """Data that every node has on its disk before its trainer starts, such as base weights."""

    uri: Text = Field(description="folder, file://, s3:// or gs://; relative to this file")
    to: Annotated[Text, Field(pattern=r"^/.*[^/]$|^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")] = Field(
        description="absolute path on the node, or a name in the folder of COSTOPT_CACHE_DIR"
    )
    size_gib: Positive = Field(description="their size, GiB")
    region: RegionName | None = Field(
        default=None,
        description="provider/region, such as aws/us-east-1; default: unknown, so that no plan "
        "counts the dollars of reaching them",
    )
    sha256: Annotated[Text, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        default=None, description="SHA-256 of their index costopt-data.json; default: not checked"
    )
    in_image: bool = Field(
        default=False, description="the nodes' image has them at `to`: they take no time"
    )
    gbps: Positive | None = Field(
        default=None,
        description="gigabits per second of a node, as a run measured it; default: assumed",
    )


NOT_OF_ARRAYS = (
    "work", "model", "takes", "throughput", "checkpoint", "phases", "elastic", "max_failures"
)  # fmt: skip
"""Fields that a job with an array does not have."""


class JobFile(FileModel):
    """A training job: what is to be done, until when, and on what."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["work", "throughput", "checkpoint"]},
                {"required": ["model", "checkpoint"]},
                {"required": ["takes", "checkpoint"]},
                {
                    "required": ["array", "run"],
                    "not": {"anyOf": [{"required": [name]} for name in NOT_OF_ARRAYS]},
                },
            ],
            "allOf": [{"anyOf": [{"required": ["deadline"]}, {"required": ["value"]}]}],
        }
    )

    kind: Literal["job"] = Field(default="job", description="what this file is")
    version: Version = Field(default=1, description="version of this format")
    name: Name = Field(description="the job's name")
    tenant: Name = Field(default="default", description="whose job it is")
    work: Work | None = Field(
        default=None,
        description="how much is to be done, such as 10 epochs; required without an array, a model "
        "or the time of the whole job",
    )
    takes: TakesSection | None = Field(
        default=None, description="how long a unit of work took, in place of throughput"
    )
    model: ModelSection | None = Field(
        default=None,
        description="a language model, which says what the file leaves open: work, FLOPs, memory, "
        "size of checkpoints",
    )
    array: ArraySection | None = Field(
        default=None,
        description="many independent tasks in place of work, throughput and checkpoint",
    )
    start: Moment | None = Field(default=None, description="earliest start; default: now")
    deadline: Moment | None = Field(
        default=None,
        description="a time with its zone, or a duration from the start; required without a value",
    )
    value: ValueSection | None = Field(
        default=None, description="what an hour until its end is worth; required without a deadline"
    )
    schedule: ScheduleSection | None = Field(
        default=None, description="when a daemon runs it again and again; default: once"
    )
    phases: list[PhaseSection] = Field(
        default_factory=list, description="in order; default: one phase with all the work"
    )
    resources: Resources = Field(
        default=ResourcesSection(), description="which machines may run it"
    )
    throughput: ThroughputSection | None = Field(
        default=None, description="how fast it runs; required without takes, an array or a model"
    )
    checkpoint: Checkpoint | None = Field(
        default=None, description="where and how it saves; required without an array"
    )
    budget: BudgetSection = Field(default=BudgetSection(), description="what it may cost")
    run: Command = Field(
        default_factory=list, description="the training command, as a list or one line"
    )
    env: dict[Text, Variable] = Field(default_factory=dict, description="environment variables")
    image: Image = None
    setup: list[Text] = Field(
        default_factory=list,
        description="shell commands, run once per node before the command; part of the startup",
    )
    secrets: Secrets = Field(
        default_factory=dict,
        description="environment variables whose values nodes read elsewhere, by name",
    )
    image_login: ImageLogin = None
    elastic: bool = Field(
        default=False, description="its trainers re-form their gang in process (virtual shards)"
    )
    workdir: Text = Field(default=".", description="where the command runs; relative to this file")
    data: DataSection | None = Field(default=None, description="where the training data lie")
    cache: list[CacheSection] = Field(
        default_factory=list,
        description="data that each node fetches before it trains, and keeps on its disk",
    )
    startup: DurationS = Field(
        default=120.0, description="from a node's launch until its trainer can restore"
    )
    max_failures: Count = Field(
        default=3, description="failures of the command at the same point that end the job"
    )
    keep_failed: KeptS = Field(
        default=0.0,
        description="for how long the node whose failure ended the job lives on, to "
        "look into it with costopt exec; it is paid for",
    )


class TrainingJobFile(JobFile):
    """A job file without an array."""

    work: Work = Field(description="how much is to be done, such as 10 epochs")
    throughput: ThroughputSection = Field(
        description="how fast it runs; or say takes: {per: epoch, time: 40m, on: 1xA100}; "
        "costopt calibrate measures it"
    )
    checkpoint: Checkpoint = Field(description="where and how it saves")


class ModelJobFile(JobFile):
    """A job file with a model."""

    model: ModelSection = Field(description="the language model")
    checkpoint: Checkpoint = Field(description="where and how it saves")


class TimedJobFile(JobFile):
    """A job file that says how long a unit of work took."""

    takes: TakesSection = Field(description="how long a unit of work took")
    checkpoint: Checkpoint = Field(description="where and how it saves")


class ArrayJobFile(JobFile):
    """A job file with an array."""

    array: ArraySection = Field(description="the tasks")
    run: Command = Field(description="the command of each task, as a list or one line")
