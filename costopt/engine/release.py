"""Gives nodes back to their providers."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from costopt.domain.errors import ProviderError
from costopt.domain.events import TerminateIntended
from costopt.domain.market import Pool
from costopt.engine.journal import Journal
from costopt.engine.world import World


class Releases:
    """Intent first, then the call; the provider's listing confirms it later."""

    def __init__(self, world: World, journal: Journal) -> None:
        self._world = world
        self._journal = journal

    def release(self, job: str, reasons: Mapping[str, str], now: datetime) -> None:
        """Give back nodes of the job, for these reasons by node; asked again, the call is repeated.

        What a provider does not take is left for the next time.
        """
        record = self._journal.records[job]
        self._journal.write(
            *(
                TerminateIntended(at=now, job=job, node_id=node_id, reason=reason)
                for node_id, reason in reasons.items()
                if node_id not in record.releasing
            )
        )
        for node_id in reasons:
            self._terminate(node_id, Pool.parse(record.live[node_id].pool))

    def _terminate(self, node_id: str, pool: Pool) -> None:
        try:
            self._world.provider_of(pool).terminate(node_id)
        except ProviderError:
            return
