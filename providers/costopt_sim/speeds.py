"""How fast a gang works through the phases of its job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costopt.domain.errors import BadRequestError
from costopt.domain.job import Job, Phase
from costopt.domain.market import InstanceType


@dataclass(frozen=True, slots=True)
class PhaseSpeeds:
    """Units/s of the last phase, and (units, share of it) up to which the earlier ones run."""

    units_per_s: float
    paces: tuple[tuple[float, float], ...]


def speeds_of(job: Job, machines: Sequence[InstanceType], done_units: float) -> PhaseSpeeds:
    """The mean speed of these machines together in each phase, with its evaluation pauses.

    A phase of which nothing is known on them is done at the speed of the present one. Raises
    BadRequestError where the GPUs differ or the present phase has no known speed on them.
    """
    gpu = machines[0].gpu
    if any(machine.gpu.model != gpu.model for machine in machines):
        models = ", ".join(sorted({machine.gpu.model for machine in machines}))
        raise BadRequestError(f"job {job.name!r}: a gang of different GPU models: {models}")
    present = _units_per_s(job, machines, job.phase_at(done_units))
    if present is None:
        raise BadRequestError(
            f"job {job.name!r}: no throughput is known for {gpu.model}",
            hint="give the job a measured point for it, or FLOPs per unit and an MFU",
        )
    each = [_units_per_s(job, machines, phase) or present for phase in job.phases]
    paces: list[tuple[float, float]] = []
    until_units = 0.0
    for phase, speed in zip(job.phases[:-1], each, strict=False):
        until_units += phase.share * job.work.amount
        paces.append((until_units, speed / each[-1]))
    same = all(share == 1.0 for _, share in paces)
    return PhaseSpeeds(each[-1], () if same else tuple(paces))


def _units_per_s(job: Job, machines: Sequence[InstanceType], phase: Phase) -> float | None:
    gpus = sum(machine.gpu_count for machine in machines)
    speed = job.gpus_units_per_s(machines[0].gpu, gpus, phase)
    return None if speed is None or speed.value <= 0 else speed.value
