"""Records the carbon intensity of every hour in which nodes draw power, by their job's policy."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from costopt.domain.events import CarbonIntensityRecorded, NodeLaunched
from costopt.domain.market import Pool
from costopt.domain.policy import CarbonSignal
from costopt.domain.transfers import region_key
from costopt.engine.cohort import JobTerms
from costopt.engine.journal import Journal
from costopt.engine.settings import World

HOUR = timedelta(hours=1)


class Emissions:
    """Writes hourly carbon intensities. ``terms`` are by job, and may change between ticks."""

    def __init__(self, world: World, journal: Journal, terms: Mapping[str, JobTerms]) -> None:
        self._world = world
        self._journal = journal
        self._terms = terms
        self._next_hour: dict[str, datetime] = {}

    def signal(self, job: str) -> CarbonSignal:
        """Return the carbon signal that the job's policy counts."""
        return self._terms[job].policy.objective.carbon_signal

    def observe(self, now: datetime) -> None:
        """Record the hours of all living nodes up to now.

        Call it before ends of nodes are recorded, so that each node's last hour is known.
        """
        if self._world.carbon is None:
            return
        living: set[str] = set()
        for record in self._journal.records.values():
            for node in record.live.values():
                self.cover(node, now)
                living.add(node.node_id)
        for ended in self._next_hour.keys() - living:
            del self._next_hour[ended]

    def cover(self, node: NodeLaunched, now: datetime) -> None:
        """Record the hours of one node from its launch until now that were not recorded before.

        An hour without a recorded carbon intensity is left out: the annual mean counts for it.
        """
        carbon = self._world.carbon
        if carbon is None or node.waiting:
            return
        hour_at = self._next_hour.get(node.node_id) or _hour_of(node.launched_at)
        if hour_at > now:
            return
        region, signal = region_key(Pool.parse(node.pool)), self.signal(node.job)
        fleet = self._journal.accounts[node.job].fleet
        while hour_at <= now:
            known = fleet.has_intensity(region, hour_at)
            intensity = None if known else carbon.intensity(region, hour_at, signal)
            if intensity is not None:
                self._journal.write(
                    CarbonIntensityRecorded(
                        at=now,
                        job=node.job,
                        region=region,
                        hour_at=hour_at,
                        gco2e_per_kwh=intensity.value,
                        carbon_signal=signal,
                        source=intensity.source,
                    )
                )
            hour_at += HOUR
        self._next_hour[node.node_id] = hour_at


def _hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)
