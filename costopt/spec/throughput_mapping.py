"""The conversion of a throughput section to the domain, with what follows from the job's model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.job import WorkUnit
from costopt.domain.market import Gpu
from costopt.domain.model_card import DerivedFigure, ModelCard, typical_mfu
from costopt.domain.throughput import MFU_SPREAD, Mfu, Throughput, ThroughputSample
from costopt.spec.catalog_names import DUPLICATE, UNKNOWN_NAME, gpu_model_error
from costopt.spec.job_file import MfuSection, PointSection, ThroughputSection
from costopt.spec.yaml_document import VALUE_ERROR, FieldPath

DEFAULT_MFU_GPU = "H100"
SPEED_MISSING = (
    "expected points, or flops_per_unit with mfu; or beside it takes: {per: epoch, time: 40m, on: "
    "1xA100}"
)
TOGETHER = "flops_per_unit and mfu are given together or not at all"

Refuse = Callable[[FieldPath, str, str], None]


@dataclass(frozen=True, slots=True)
class ThroughputMapping:
    """What throughput sections of one file mean.

    ``gpu_models`` are those that the job allows, ``unit`` is that of its work. Each section that
    leaves FLOPs or the MFU to the ``card`` adds them to ``derived``.
    """

    gpu_models: tuple[str, ...]
    unit: WorkUnit
    card: ModelCard | None
    derived: list[DerivedFigure]
    refuse: Refuse

    def throughput(
        self, said: ThroughputSection, at: FieldPath, taken: ThroughputSample | None = None
    ) -> Throughput:
        """Return the throughput of a section at ``at``, with the speed that ``taken`` adds.

        A point of the same gang goes before it, as ``costopt calibrate`` writes one.
        """
        points = tuple(
            self._point((*at, "points", index), point) for index, point in enumerate(said.points)
        )
        if taken is not None and not any(_is_same_gang(each, taken) for each in points):
            points = (*points, taken)
        seen = set[tuple[str, int]]()
        for index, point in enumerate(points):
            key = (point.gpu_model.upper(), point.gpus)
            if key in seen:
                message = f"a second speed for {point.gpus} × {point.gpu_model}"
                self.refuse((*at, "points", index), message, DUPLICATE)
            seen.add(key)
        flops = said.flops_per_unit or self._flops_per_unit(at, has_points=bool(points))
        mfu = None if said.mfu is None else self._mfu(said.mfu, (*at, "mfu"))
        measured = None
        if points and mfu is None:
            measured = self._measured_gpu(points, flops, at)
        elif flops is not None and mfu is None:
            mfu = self._typical_mfu(at)
        if mfu is not None and flops is None and self.card is None:
            self.refuse(at, TOGETHER, "incomplete_pair")
        elif not points and flops is None and self.card is None:
            self.refuse(at, SPEED_MISSING, "missing")
        return Throughput(points, flops, mfu, said.scaling_efficiency, None, measured)

    def _flops_per_unit(self, at: FieldPath, *, has_points: bool) -> float | None:
        if self.card is None:
            return None
        if self.unit not in (WorkUnit.TOKENS, WorkUnit.SAMPLES):
            if not has_points:
                message = (
                    f"the model does not say what {self.unit.value} take: count work in tokens or "
                    "samples, or give takes or flops_per_unit"
                )
                self.refuse(at, message, "missing")
            return None
        tokens = self.card.sequence if self.unit is WorkUnit.SAMPLES else 1
        token = self.card.flops_per_token()
        value, low, high = (tokens * each for each in (token.value, token.low, token.high))
        flops = Estimate(value, low, high, token.basis, token.source)
        field = ".".join((*map(str, at), "flops_per_unit"))
        self.derived.append(DerivedFigure(field, f"FLOPs per {self.unit.value[:-1]}", flops))
        return value

    def _typical_mfu(self, at: FieldPath) -> Mfu | None:
        if self.card is None:
            self.refuse(at, TOGETHER, "incomplete_pair")
            return None
        value, source = typical_mfu(self.card.precision)
        low, high = value * (1 - MFU_SPREAD), value * (1 + MFU_SPREAD)
        estimate = Estimate(value, low, high, Basis.PRIOR, source)
        self.derived.append(DerivedFigure(".".join((*map(str, at), "mfu")), "", estimate))
        return Mfu(value, DEFAULT_MFU_GPU, None, _relative_mfu(DEFAULT_MFU_GPU))

    def _mfu(self, said: MfuSection, at: FieldPath) -> Mfu:
        if said.gpu is not None:
            self._check_gpu((*at, "gpu"), said.gpu)
        model = said.gpu or self._default_mfu_gpu()
        return Mfu(said.value, model, said.gpus, _relative_mfu(model))

    def _default_mfu_gpu(self) -> str:
        """The GPU model whose MFU a bare number is: the default where the job allows it."""
        allowed = self.gpu_models
        if not allowed or any(each.upper().startswith(DEFAULT_MFU_GPU) for each in allowed):
            return DEFAULT_MFU_GPU
        return allowed[0]

    def _measured_gpu(
        self, points: tuple[ThroughputSample, ...], flops_per_unit: float | None, at: FieldPath
    ) -> Gpu | None:
        """The GPU of the largest measured gang, from which the speed on other models follows."""
        point = max(points, key=lambda each: each.gpus)
        gpu = _find_gpu(point.gpu_model)
        if gpu is None or flops_per_unit is None:
            return gpu
        mfu = point.units_per_s * flops_per_unit / (point.gpus * gpu.peak_tflops * 1e12)
        if mfu > 1:
            message = (
                f"{point.units_per_s:g} units/s on {point.gpus} × {point.gpu_model} are "
                f"{mfu:.2g} times their peak: correct the speed, the FLOPs or the model"
            )
            self.refuse((*at, "points", points.index(point)), message, VALUE_ERROR)
        return gpu

    def _point(self, at: FieldPath, point: PointSection) -> ThroughputSample:
        self._check_gpu((*at, "gpu"), point.gpu)
        per_node = point.nodes is not None or point.gpus_per_node is not None
        if per_node and point.gpus is not None:
            message = "expected gpus, or nodes with gpus_per_node, not both"
            self.refuse((*at, "gpus"), message, VALUE_ERROR)
        if per_node and point.gpus_per_node is None:
            self.refuse((*at, "nodes"), "gpus_per_node is missing beside it", VALUE_ERROR)
        return ThroughputSample(point.gpu, point.total_gpus, point.units_per_s)

    def _check_gpu(self, at: FieldPath, model: str) -> None:
        reason = gpu_model_error(model)
        if reason is not None:
            self.refuse(at, reason, UNKNOWN_NAME)


def _is_same_gang(one: ThroughputSample, other: ThroughputSample) -> bool:
    """Whether both say how fast one gang is, as after a calibration: one name may be shorter."""
    gpu = _find_gpu(one.gpu_model)
    return one.gpus == other.gpus and gpu is not None and gpu.matches_name(other.gpu_model)


def _find_gpu(model: str) -> Gpu | None:
    """The first GPU of the catalogue that the name means."""
    from costopt.catalog import load_catalog

    machines = load_catalog().instance_types()
    return next((m.gpu for m in machines if m.gpu.matches_name(model)), None)


def _relative_mfu(model: str) -> Estimate | None:
    gpu = _find_gpu(model)
    return None if gpu is None else gpu.relative_mfu
