"""Figures that follow from a job file, and are shown with their source."""

from __future__ import annotations

from collections.abc import Iterator

from costopt.domain.cached_data import FETCH_GBPS, CachedData
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.job import Resources
from costopt.domain.model_card import USABLE_SHARE, DerivedFigure


def gang_figures(resources: Resources) -> tuple[DerivedFigure, ...]:
    """Return the fewest GPUs that hold the model, for each memory size that the job allows."""
    from costopt.catalog import load_catalog

    memory = resources.memory
    if memory is None:
        return ()
    sizes = {
        machine.gpu.memory_gib
        for machine in load_catalog().instance_types()
        if resources.name_reason(machine) is None
    }
    source = f"memory of the gang / ({100 * USABLE_SHARE:g} % of a GPU's less that of each GPU)"
    figures = []
    for size in sorted(sizes):
        fewest = memory.min_gpus(size)
        if fewest is not None:
            estimate = Estimate.exact(fewest, Basis.MODELLED, source)
            figures.append(DerivedFigure(f"gangs of {size:g} GiB", "GPUs or more", estimate))
    return tuple(figures)


def cache_figures(cache: tuple[CachedData, ...]) -> Iterator[DerivedFigure]:
    """How long a new node takes to fetch each, on a network that is fast enough."""
    for item in cache:
        speed = f"{FETCH_GBPS:.3g} Gbit/s, if its network allows it"
        said = f"{item.size_gib:g} GiB at {f'{item.gbps:g} Gbit/s' if item.gbps else speed}"
        source = "the image has it" if item.in_image else f"each new node fetches {said}"
        seconds = Estimate.exact(item.fetch_s(None), Basis.MODELLED, source)
        yield DerivedFigure(f"cache {item.to}", "s", seconds)
