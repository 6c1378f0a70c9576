"""Nodes that fail on their own or report no longer: replaced with a growing delay, and reported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from statistics import median

from costopt.domain.events import JobFailed, NodeGivenUp, NodeLaunched, SignalStale
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.engine.failures import JobFailures
from costopt.engine.journal import Journal
from costopt.engine.settings import EngineSettings, World
from costopt.ledger.job_record import JobRecord

START_MULTIPLE = 4.0
"""Times the maximum start-up time of the pool's nodes, or the one that the job declares."""
UNREACHABLE_MULTIPLE = 3.0
"""Times the timeout of a node that never reported: one that trained may train on without a network,
and report again."""
MAX_DEATHS = 5
"""Consecutive launches whose nodes fail on their own, with nothing saved in between, before the job
has failed: as for a failing command, except that a machine may be at fault, too."""
SUSPECT_AFTER = 2
MAX_OTHERS_MULTIPLE = 4.0
MAX_DOUBLINGS = 6
INITIAL_DELAY_S = 60.0
MAX_DELAY_S = 3600.0
NODES = "the job's nodes"


class NodeFailures:
    """Counts, from the ledger, each job's failed nodes since it last saved work."""

    def __init__(
        self,
        world: World,
        journal: Journal,
        settings: EngineSettings,
        jobs: Mapping[str, Job],
        troubles: JobFailures,
    ) -> None:
        self._world = world
        self._journal = journal
        self._settings = settings
        self._jobs = jobs
        self._troubles = troubles
        self.reported: dict[str, str] = {}
        """By job, what has failed with its nodes, "" where nothing has."""

    def observe(self, now: datetime) -> None:
        """Give up nodes that do not report, end jobs whose nodes keep failing, and report both."""
        for name, job in self._jobs.items():
            record = self._journal.records[name]
            if record.over:
                continue
            with self._troubles.isolate(name, now):
                self._give_up_unreported(job, record, now)
                self._give_up_unreachable(job, record, now)
            if len(record.deaths) >= MAX_DEATHS:
                self._journal.write(JobFailed(at=now, job=name, message=_why(record)))
            else:
                self._report(record, now)

    def forget(self, job: str) -> None:
        """Drop the state of a job that is no longer controlled."""
        self.reported.pop(job, None)

    def _report(self, record: JobRecord, now: datetime) -> None:
        """Record an event for each job with more failures than at this engine's last tick."""
        why = _why(record) if record.deaths or record.given_up else ""
        if why and why != self.reported.get(record.name):
            self._journal.write(SignalStale(at=now, job=record.name, source=NODES, message=why))
        self.reported[record.name] = why

    def _give_up_unreachable(self, job: Job, record: JobRecord, now: datetime) -> None:
        """Give up members of the gang whose agents have sent no heartbeat for long."""
        stay = [m for m in record.members if m in record.live and m not in record.leaving]
        for node_id, silent_s in self._world.runtime.unreachable_s(job, stay).items():
            if silent_s < UNREACHABLE_MULTIPLE * self._settings.report_timeout_s:
                continue
            message = f"it has sent no heartbeat for {silent_s / 60:.0f} min"
            self._journal.write(_given_up(job, record, node_id, message, now))

    def _give_up_unreported(self, job: Job, record: JobRecord, now: datetime) -> None:
        overdue = {
            node_id: node
            for node_id, node in record.live.items()
            if self._is_overdue(job, record, node, now)
        }
        if not overdue:
            return
        for node_id in sorted(self._world.runtime.unreported(job, overdue)):
            node = overdue[node_id]
            waited_min = (now - node.launched_at).total_seconds() / 60
            message = f"it has run for {waited_min:.0f} min and has never reported"
            self._journal.write(_given_up(job, record, node_id, message, now))

    def _is_overdue(self, job: Job, record: JobRecord, node: NodeLaunched, now: datetime) -> bool:
        leaving = record.draining.keys() | record.given_up.keys()
        if node.waiting or node.node_id in leaving or node.node_id in record.have_trained:
            return False
        return (now - node.launched_at).total_seconds() > self._timeout_s(job, record, node)

    def _timeout_s(self, job: Job, record: JobRecord, node: NodeLaunched) -> float:
        """Double the timeout with each node given up, so that a slow start succeeds eventually."""
        start_s = self._start_s(job, record, Pool.parse(node.pool))
        doublings = min(len(record.given_up), MAX_DOUBLINGS)
        return max(self._settings.report_timeout_s, START_MULTIPLE * start_s) * 2.0**doublings

    def _start_s(self, job: Job, record: JobRecord, pool: Pool) -> float:
        """Return the maximum start-up time of the pool's nodes for this job, else for other jobs.
        Other jobs' code reports when it begins, so that is bounded by what this job declares."""
        if (own := record.longest_start_s.get(pool)) is not None:
            return own
        records, declared_s = self._journal.records.values(), job.startup_s + job.cache_s()
        others = [s for r in records if (s := r.longest_start_s.get(pool)) is not None]
        if not others:
            return declared_s
        return min(max(median(others), declared_s), MAX_OTHERS_MULTIPLE * declared_s)


def launches_from(record: JobRecord) -> datetime | None:
    """Return when the job may launch again after its last failed nodes; None if none has failed.

    At once after the first, then after a delay that doubles with each.
    """
    failed_at = [*record.deaths.values(), *record.given_up.values()]
    if not failed_at:
        return None
    doublings = min(len(failed_at) - 2, 16)
    delay_s = min(MAX_DELAY_S, INITIAL_DELAY_S * 2**doublings) if doublings >= 0 else 0.0
    return max(failed_at) + timedelta(seconds=delay_s)


def waiting_jobs(records: Iterable[JobRecord], now: datetime) -> frozenset[str]:
    """Return the jobs that may not launch yet because their nodes have failed."""
    return frozenset(r.name for r in records if (at := launches_from(r)) is not None and at > now)


def _given_up(
    job: Job, record: JobRecord, node_id: str, message: str, now: datetime
) -> NodeGivenUp:
    pool = record.live[node_id].pool
    return NodeGivenUp(at=now, job=job.name, node_id=node_id, pool=pool, message=message)


def _why(record: JobRecord) -> str:
    count = len(record.deaths) + len(record.given_up)
    what = "launch has failed" if count == 1 else "launches in a row have failed"
    kinds = [f"{len(record.deaths)} whose node failed on its own"] if record.deaths else []
    kinds += [f"{len(record.given_up)} that sent no heartbeat"] if record.given_up else []
    words = f"; the last: {record.last_words}" if record.last_words else ""
    suspect = ""
    if len(record.given_up) >= SUSPECT_AFTER:
        suspect = "; suspect the machine image or what it runs at boot: see the node's console log"
    return f"{count} {what} with nothing saved since ({', '.join(kinds)}){words}{suspect}"
