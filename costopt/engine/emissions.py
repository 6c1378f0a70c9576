"""Records the carbon intensity of every hour in which nodes draw power, by their job's policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from costopt.domain import events as ev
from costopt.domain.contracts import ElectricityContract, contract_terms
from costopt.domain.estimate import Estimate
from costopt.domain.market import Pool
from costopt.domain.policy import CarbonSignal
from costopt.domain.ports import CarbonRecord, SignalProblem
from costopt.domain.text import untrusted_text
from costopt.domain.transfers import region_key
from costopt.engine.cohort import JobTerms
from costopt.engine.journal import Journal
from costopt.engine.settings import World
from costopt.ledger.job_account import JobAccount
from costopt.ledger.node_meter import MS_PER_HOUR, from_milliseconds, to_milliseconds

HOUR = timedelta(hours=1)
LATE_FOR = timedelta(days=14)
"""How long the intensity of an hour may still become known, or change: services have the hours of
two weeks, and revise them within a day."""


class Emissions:
    """Writes hourly carbon intensities, and ``contracts`` for electricity, of all jobs.

    ``terms`` are by job, and may change between ticks.
    """

    def __init__(
        self,
        world: World,
        journal: Journal,
        terms: Mapping[str, JobTerms],
        contracts: Sequence[ElectricityContract],
    ) -> None:
        self._world = world
        self._journal = journal
        self._terms = terms
        self._contracts = tuple(map(contract_terms, contracts))
        self._next_hour: dict[str, datetime] = {}
        self._filled: dict[str, int] = {}
        self._problems: set[tuple[str, str]] = set()

    def signal(self, job: str) -> CarbonSignal:
        """Return the carbon signal that the job's policy counts."""
        return self._terms[job].policy.objective.carbon_signal

    def observe(self, now: datetime) -> None:
        """Record the hours of all living nodes up to now, and earlier ones that became known.

        Call it before ends of nodes are recorded, so that each node's last hour is known.
        """
        self._record_contracts(now)
        carbon = self._world.carbon
        if carbon is None:
            return
        self._report(carbon.problems(now), now)
        self._fill(carbon, now)
        living: set[str] = set()
        for record in self._journal.records.values():
            for node in record.live.values():
                self.cover(node, now)
                living.add(node.node_id)
        for ended in self._next_hour.keys() - living:
            del self._next_hour[ended]

    def cover(self, node: ev.NodeLaunched, now: datetime) -> None:
        """Record the hours of one node from its launch until now that were not recorded before.

        An hour without a recorded carbon intensity is left out: the annual mean counts for it until
        its intensity is known.
        """
        carbon = self._world.carbon
        if carbon is None or node.waiting:
            return
        hour_at = self._next_hour.get(node.node_id) or _hour_of(node.launched_at)
        if hour_at > now:
            return
        region = region_key(Pool.parse(node.pool))
        signal = node.carbon_signal or CarbonSignal.AVERAGE
        account = self._journal.accounts[node.job]
        while hour_at <= now:
            if account.fleet.intensity(region, signal, hour_at) is None:
                known = carbon.intensity(region, hour_at, signal)
                if known is not None:
                    self._journal.write(_recorded(node.job, region, hour_at, signal, known, now))
            hour_at += HOUR
        self._next_hour[node.node_id] = hour_at

    def _fill(self, carbon: CarbonRecord, now: datetime) -> None:
        """Record what became known since the last call, of every job once after a start."""
        revision, accounts = carbon.revision, self._journal.accounts
        for name in [name for name in accounts if self._filled.get(name) != revision]:
            self._journal.write(*late_intensities(accounts[name], carbon, now))
        self._filled = dict.fromkeys(accounts, revision)

    def _record_contracts(self, now: datetime) -> None:
        for name, record in self._journal.records.items():
            known = self._journal.accounts[name].fleet.electricity.contracts
            is_new = self._contracts != (() if known is None else known.contracts)
            if is_new and record.submitted and not record.over:
                self._journal.write(
                    ev.ElectricityContractsRecorded(at=now, job=name, contracts=self._contracts)
                )

    def _report(self, problems: Sequence[SignalProblem], now: datetime) -> None:
        """Record each kind of problem for every job, once for as long as it lasts."""
        present: dict[tuple[str, str], list[str]] = {}
        for problem in problems:
            present.setdefault((problem.source, problem.code), []).append(problem.message)
        for (source, code), messages in present.items():
            if (source, code) not in self._problems:
                text = untrusted_text(f"{'; '.join(messages)}; annual means count meanwhile")
                self._journal.write(
                    *(
                        ev.SignalStale(at=now, job=name, source=source, message=text)
                        for name, record in self._journal.records.items()
                        if not record.over
                    )
                )
        self._problems = set(present)


def _hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def late_intensities(
    account: JobAccount, carbon: CarbonRecord, now: datetime
) -> Iterator[ev.CarbonIntensityRecorded]:
    """Yield the hours of the last two weeks in which nodes of the job ran and whose intensity is
    known, where the ledger has none or another."""
    fleet = account.fleet
    hours = fleet.hours(to_milliseconds(_hour_of(now - LATE_FOR)), to_milliseconds(now))
    for (region, signal), numbers in hours.items():
        for number in sorted(numbers):
            hour_at = from_milliseconds(number * MS_PER_HOUR)
            known = carbon.intensity(region, hour_at, signal)
            if known is not None and known.value != fleet.intensity(region, signal, hour_at):
                yield _recorded(account.job, region, hour_at, signal, known, now)


def _recorded(
    job: str, region: str, hour_at: datetime, signal: CarbonSignal, known: Estimate, now: datetime
) -> ev.CarbonIntensityRecorded:
    return ev.CarbonIntensityRecorded(
        at=now,
        job=job,
        region=region,
        hour_at=hour_at,
        gco2e_per_kwh=known.value,
        carbon_signal=signal,
        source=known.source,
    )
