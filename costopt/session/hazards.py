"""What is believed of a pool's hazard before it has been watched."""

from __future__ import annotations

from collections.abc import Callable

from costopt.catalog import Catalog
from costopt.domain.estimate import Basis, Estimate
from costopt.domain.fleet import Node
from costopt.domain.market import CapacityType, Pool
from costopt.domain.ports import HazardModel

# Between the calmest and the roughest of the twelve zones of the public 2022–2023 V100 and K80
# availability records (skypilot-org/spot-traces): 0.02 to 1 interruptions per hour of capacity.
DEFAULT_HAZARD = Estimate(0.2, 0.02, 1.0, Basis.PRIOR, "range of public spot availability records")


def gang_hazard_per_hour(hazards: HazardModel, nodes: tuple[Node, ...]) -> float | None:
    """Interruptions per hour of the gang; None where nothing is known of a member's pool."""
    total = 0.0
    for node in nodes:
        known = hazards.hazard_per_hour(node.pool)
        if known is None:
            return None
        total += known.value
    return total


def catalog_hazard_priors(catalog: Catalog) -> Callable[[Pool], Estimate | None]:
    """The catalogue's prior of a spot pool's region and type, a wide one where it has none."""
    known = {
        (o.pool.provider, o.pool.region, o.pool.instance_type): o.hazard_per_hour
        for o in catalog.offers()
        if o.pool.capacity_type is CapacityType.SPOT and o.hazard_per_hour is not None
    }

    def prior(pool: Pool) -> Estimate | None:
        return known.get((pool.provider, pool.region, pool.instance_type), DEFAULT_HAZARD)

    return prior
