"""The bounds of a job that says how fast it ran, and not on which machines it may run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.job import Resources
from costopt.domain.model_card import DerivedFigure
from costopt.spec.gpu_text import split_gpus
from costopt.spec.job_file import JobFile, PointSection, ResourcesSection

NODE_GPUS = 8
"""Of a gang whose nodes are not stated: those of most machines that train in several nodes."""
SIZES = (
    "gpus", "min_nodes", "max_nodes", "min_gpus", "max_gpus", "gpus_per_group", "instance_types"
)  # fmt: skip
MACHINES = ("gpu", "gpu_models", "instance_types", "min_gpu_memory_gib")


@dataclass(frozen=True, slots=True)
class MeasuredGang:
    """GPUs of one model that did some of the work together."""

    gpu_model: str
    gpus: int
    nodes: int


def measured_gangs(file: JobFile) -> tuple[MeasuredGang, ...]:
    """Return the gangs whose speed the file states, of the job and of its phases."""
    sections = (file.throughput, *(phase.throughput for phase in file.phases))
    gangs = [_gang(point) for section in sections if section for point in section.points]
    if file.takes is not None:
        model, gpus = split_gpus(file.takes.on)
        gangs.append(_gang(PointSection(gpu=model, gpus=gpus, units_per_s=1.0)))
    return tuple(gangs)


def _gang(point: PointSection) -> MeasuredGang:
    gpus = point.total_gpus
    return MeasuredGang(point.gpu, gpus, point.nodes or math.ceil(gpus / NODE_GPUS))


def bound_by_measured(
    resources: Resources, said: ResourcesSection, gangs: Sequence[MeasuredGang]
) -> tuple[Resources, tuple[DerivedFigure, ...]]:
    """Return the resources with what the file leaves open as it was measured, and these figures.

    No gang is larger than the largest measured one, as how the job scales is unknown; no GPU has
    less memory than the smallest that it ran on, as what it needs is unknown.
    """
    if not gangs:
        return resources, ()
    stated, figures = said.model_fields_set, []
    counts_gpus = said.gpu is not None and split_gpus(said.gpu)[1] is not None
    if not counts_gpus and stated.isdisjoint(SIZES):
        largest = max(gang.gpus for gang in gangs)
        nodes = max(gang.nodes for gang in gangs)
        resources = replace(resources, max_gpus=largest, max_nodes=nodes)
        unit = "GPU" if largest == 1 else "GPUs"
        figures.append(
            _figure("max_gpus", largest, unit, "the largest measured gang; state it for more")
        )
    gib = [each for gang in gangs for each in _memories_gib(gang.gpu_model)]
    if gib and resources.memory is None and stated.isdisjoint(MACHINES):
        resources = replace(resources, min_gpu_memory_gib=min(gib))
        source = "the smallest GPU that it was measured on; state it for less"
        figures.append(_figure("min_gpu_memory_gib", min(gib), "GiB", source))
    return resources, tuple(figures)


def _figure(field: str, value: float, unit: str, source: str) -> DerivedFigure:
    return DerivedFigure(f"resources.{field}", unit, Estimate.exact(value, Basis.LISTED, source))


def _memories_gib(model: str) -> Iterator[float]:
    """The memory of each GPU of the catalogue that has this name."""
    from costopt.catalog import load_catalog

    for machine in load_catalog().instance_types():
        if machine.gpu.matches_name(model):
            yield machine.gpu.memory_gib
