"""Records the carbon intensity of every hour in which nodes draw power, by their job's policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from costopt.domain.estimate import Estimate
from costopt.domain.events import CarbonIntensityRecorded, NodeLaunched, SignalStale
from costopt.domain.market import Pool
from costopt.domain.policy import CarbonSignal
from costopt.domain.ports import CarbonRecord, SignalProblem
from costopt.domain.text import untrusted_text
from costopt.domain.transfers import region_key
from costopt.engine.cohort import JobTerms
from costopt.engine.journal import Journal
from costopt.engine.settings import World

HOUR = timedelta(hours=1)
REVISED_FOR = timedelta(hours=26)
"""Services revise an hour within the day after it, and fill in what an outage left out."""
REVISED_EVERY = timedelta(minutes=10)


class Emissions:
    """Writes hourly carbon intensities. ``terms`` are by job, and may change between ticks."""

    def __init__(self, world: World, journal: Journal, terms: Mapping[str, JobTerms]) -> None:
        self._world = world
        self._journal = journal
        self._terms = terms
        self._next_hour: dict[str, datetime] = {}
        self._open: dict[tuple[str, str, datetime], float | None] = {}
        self._revise_at: datetime | None = None
        self._problems: set[tuple[str, str]] = set()

    def signal(self, job: str) -> CarbonSignal:
        """Return the carbon signal that the job's policy counts."""
        return self._terms[job].policy.objective.carbon_signal

    def observe(self, now: datetime) -> None:
        """Record the hours of all living nodes up to now.

        Call it before ends of nodes are recorded, so that each node's last hour is known.
        """
        carbon = self._world.carbon
        if carbon is None:
            return
        self._report(carbon.problems(now), now)
        self._revise(carbon, now)
        living: set[str] = set()
        for record in self._journal.records.values():
            for node in record.live.values():
                self.cover(node, now)
                living.add(node.node_id)
        for ended in self._next_hour.keys() - living:
            del self._next_hour[ended]

    def cover(self, node: NodeLaunched, now: datetime) -> None:
        """Record the hours of one node from its launch until now that were not recorded before.

        An hour without a recorded carbon intensity is left out: the annual mean counts for it, or
        what is known of it within a day.
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
            if not fleet.has_intensity(region, hour_at):
                key = (node.job, region, hour_at)
                intensity = carbon.intensity(region, hour_at, signal)
                self._open[key] = None
                if intensity is not None:
                    self._write(key, intensity, signal, now)
            hour_at += HOUR
        self._next_hour[node.node_id] = hour_at

    def _revise(self, carbon: CarbonRecord, now: datetime) -> None:
        """Record hours of the last day that have become known, or another, since."""
        if self._revise_at is not None and now < self._revise_at:
            return
        self._revise_at = now + REVISED_EVERY
        for key, value in list(self._open.items()):
            job, region, hour_at = key
            record = self._journal.records.get(job)
            if record is None or record.over or now - hour_at > REVISED_FOR:
                del self._open[key]
                continue
            signal = self.signal(job)
            intensity = carbon.intensity(region, hour_at, signal)
            if intensity is not None and intensity.value != value:
                self._write(key, intensity, signal, now)

    def _write(
        self,
        key: tuple[str, str, datetime],
        intensity: Estimate,
        signal: CarbonSignal,
        now: datetime,
    ) -> None:
        job, region, hour_at = key
        self._open[key] = intensity.value
        self._journal.write(
            CarbonIntensityRecorded(
                at=now,
                job=job,
                region=region,
                hour_at=hour_at,
                gco2e_per_kwh=intensity.value,
                carbon_signal=signal,
                source=intensity.source,
            )
        )

    def _report(self, problems: Sequence[SignalProblem], now: datetime) -> None:
        """Record each kind of problem for every job, once for as long as it lasts."""
        present = {(problem.source, problem.code) for problem in problems}
        for problem in problems:
            if (problem.source, problem.code) not in self._problems:
                message = untrusted_text(f"{problem.message}; annual means count meanwhile")
                self._journal.write(
                    *(
                        SignalStale(at=now, job=name, source=problem.source, message=message)
                        for name, record in self._journal.records.items()
                        if not record.over
                    )
                )
        self._problems = present


def _hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)
