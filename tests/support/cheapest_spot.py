"""A strategy as a user writes it, in a module from which other processes can import it."""

from __future__ import annotations

import costopt as co


class CheapestSpot:
    """Keep what runs; otherwise the cheapest spot pool with a free node, and wait without one."""

    def decide(self, view: co.View) -> co.Desired:
        """Return one decision per job."""
        return co.Desired(tuple(self._decide(view, each.job.name) for each in view.jobs))

    def _decide(self, view: co.View, job: str) -> co.Decision:
        free = [
            (offer.price_usd_per_hour.value, str(offer.pool), offer.pool)
            for offer in view.offers
            if offer.pool.capacity_type.is_interruptible and offer.nodes_available
            if offer.price_usd_per_hour is not None
        ]
        if not free:
            return co.Decision(job, (), "no spot pool has capacity")
        _, _, pool = min(free)
        return co.Decision(job, (co.Target(pool, 1),), f"{pool} is the cheapest")
