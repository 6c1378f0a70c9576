"""What the checkpoint section of a job file means, with the times that follow from the gang."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from costopt.domain.estimate import Basis, Estimate
from costopt.domain.job import CheckpointSpec, Resources
from costopt.domain.model_card import DerivedFigure, ModelCard
from costopt.domain.storage import COPY_GBPS, STORE_GBPS
from costopt.spec.job_file import CheckpointSection
from costopt.spec.yaml_document import FieldPath

Refuse = Callable[[FieldPath, str], None]
SOURCE = (
    f"each node its share of the state, at its network or {STORE_GBPS:g} Gbit/s; a GPU copies at "
    f"{COPY_GBPS:g} Gbit/s (assumed)"
)


@dataclass(frozen=True, slots=True)
class CheckpointMapping:
    """The section on its way into the domain; ``derived`` collects what the file leaves open."""

    said: CheckpointSection
    card: ModelCard | None
    resources: Resources
    derived: list[DerivedFigure]
    refuse: Refuse

    def spec(self, uri: str) -> CheckpointSpec:
        """Return where and how the job saves."""
        said = self.said
        if said.interval == 0:
            self.refuse(("checkpoint", "interval"), "expected auto or a duration above 0")
        spec = CheckpointSpec(
            uri=uri,
            size_gib=self._size_gib(),
            interval_s=said.interval,
            region=said.region,
            auto_save=self._is_auto("save", said.save),
            auto_restore=self._is_auto("restore", said.restore),
            gbps=said.gbps,
            keep=said.keep,
            keep_every=said.keep_every,
            across_zones=said.across_zones,
        )
        if said.save is not None:
            spec = replace(spec, save_s=said.save)
        if said.restore is not None:
            spec = replace(spec, restore_s=said.restore)
        if not (spec.auto_save or spec.auto_restore):
            return spec
        if not spec.size_gib:
            self.refuse(("checkpoint", "size_gib"), "is missing: times by the gang depend on it")
            return spec
        return self._slowest(spec)

    def _is_auto(self, name: str, said: float | None) -> bool:
        """Whether the time follows from the gang: as said, or since its groups save their shards
        and the file says nothing."""
        grouped = self.resources.gpus_per_group is not None
        return said is None or (grouped and name not in self.said.model_fields_set)

    def _slowest(self, spec: CheckpointSpec) -> CheckpointSpec:
        """Return the spec with the times of the slowest gang that the job allows."""
        from costopt.catalog import load_catalog

        gangs = [
            (machine, self.resources.node_counts(machine)[0])
            for machine in load_catalog().instance_types()
            if self.resources.rejection_reason(machine) is None
        ]
        slowest = max(
            (spec.on(*gang) for gang in gangs), key=lambda each: each.durable_s, default=spec
        )
        for name, seconds, is_auto in (
            ("stop for a save", slowest.save_s, spec.auto_save),
            ("save", slowest.durable_s, spec.auto_save),
            ("restore", slowest.restore_s, spec.auto_restore),
        ):
            if is_auto and gangs:
                figure = Estimate.exact(seconds, Basis.MODELLED, SOURCE)
                self.derived.append(DerivedFigure(f"{name} of the slowest gang", "s", figure))
        return slowest

    def _size_gib(self) -> float:
        if self.card is None or "size_gib" in self.said.model_fields_set:
            return self.said.size_gib
        size = self.card.checkpoint_gib()
        self.derived.append(DerivedFigure("checkpoint.size_gib", "GiB", size))
        return size.value
