"""Idle, slow and faulty nodes: recorded, and released or replaced as their job's policy says.

A node is replaced once a checkpoint was saved after the finding, one at a time, at most so many a
day, and only where the deadline stays safe without it. A gang that does not start, or makes no
progress, is replaced as a whole. The job's own command can write the reports
of its nodes: the pool of a replaced node rests for this job alone, and uninterruptible pools never
rest, as the deadline depends on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from costopt.domain.events import HealthChanged, NodeReplaced
from costopt.domain.gpu_health import HealthAction, HealthIssue, HealthRules
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.progress import GangState
from costopt.domain.view import Decision
from costopt.engine.cohort import JobTerms
from costopt.engine.failures import JobFailures
from costopt.engine.gang_watch import GANG, GangWatch
from costopt.engine.gate import Gate
from costopt.engine.guards import Guards
from costopt.engine.journal import Journal
from costopt.engine.phase_limits import pause_limit_s, start_limit_s
from costopt.engine.quotas import GuardViolation
from costopt.engine.settings import EngineSettings
from costopt.engine.training import TrainingObserver
from costopt.ledger.job_record import JobRecord

DAY = timedelta(days=1)
ORDER = (HealthIssue.FAULT, HealthIssue.IDLE, HealthIssue.SLOW)
"""Which node is replaced first."""


class HealthManager:
    """Watches the gangs of all jobs. ``decisions`` are those of the last tick, by job."""

    def __init__(
        self,
        journal: Journal,
        settings: EngineSettings,
        jobs: Mapping[str, Job],
        terms: Mapping[str, JobTerms],
        training: TrainingObserver,
        guards: Guards,
        gate: Gate,
        troubles: JobFailures,
    ) -> None:
        self._journal = journal
        self._settings = settings
        self._jobs = jobs
        self._terms = terms
        self._training = training
        self._guards = guards
        self._gate = gate
        self._troubles = troubles
        self._watches: dict[str, GangWatch] = {}
        self.decisions: Mapping[str, Decision] = {}

    def observe(self, now: datetime) -> Mapping[str, str]:
        """Record what changed, and which node is to be replaced. Return the jobs to stop, with the
        reason. Nothing new is known of a job whose runtime did not answer."""
        stops: dict[str, str] = {}
        for name, job in self._jobs.items():
            record = self._journal.records[name]
            if record.over or not record.members or name in self._troubles.reported:
                continue
            with self._troubles.isolate(name, now):
                self._note(job, record, now)
                reason = self._release_reason(job, record)
                if reason is not None:
                    stops[name] = reason
                elif self._gate.is_acting and not record.replaced:
                    self._replace_one(job, record, now)
        return stops

    def forget(self, job: str) -> None:
        """Drop the state of a job that is no longer controlled."""
        self._watches.pop(job, None)

    @property
    def reported(self) -> dict[str, str]:
        """Return, by job, what is wrong with its nodes."""
        accounts, records = self._journal.accounts, self._journal.records
        return {
            name: account.measured.health
            for name, account in accounts.items()
            if account.measured.health and not records[name].over
        }

    def _note(self, job: Job, record: JobRecord, now: datetime) -> None:
        rules, progress = self._rules(job), self._training.progress[job.name]
        heard = {report.node_id: report for report in self._training.reports(job.name)}
        kinds = {
            node_id: Pool.parse(record.live[node_id].pool).instance_type
            for node_id in heard.keys() & record.live.keys() - record.leaving
        }
        reports = [report for node_id, report in heard.items() if node_id in kinds]
        watch = self._watches.get(job.name)
        if watch is None or (watch.generation, watch.state) != (
            progress.generation,
            progress.state,
        ):
            watch = self._watches[job.name] = GangWatch(progress.generation, progress.state)
        planned = self._training.planned_units_per_s(job, record, progress)
        if progress.state is GangState.TRAINING:
            limit_s = pause_limit_s(job, record, rules.idle_after_s, planned)
            formed = self._journal.accounts[job.name].gang
            formed_at = now if formed is None else formed.at
            watch.observe(progress, planned, reports, kinds, rules, limit_s, formed_at, now)
        elif progress.state is GangState.STARTING and job.array is None:
            machine = self._training.gang_machine(record)
            limit_s = start_limit_s(job, record, machine, rules.idle_after_s, planned)
            watch.observe_start(progress, limit_s, now)
        known = {node_id: event.issue for node_id, event in record.unhealthy.items()}
        self._journal.write(
            *(
                HealthChanged(
                    at=now,
                    job=job.name,
                    node_id=node_id,
                    issue=issue,
                    message=message or "healthy again",
                )
                for node_id, (issue, message) in watch.findings(reports, known, rules)
                if _is_news(issue, message, record.unhealthy.get(node_id))
            )
        )

    def _confirmed(self, job: Job, record: JobRecord) -> dict[str, HealthChanged]:
        """Return the issues that are seen now, and not only remembered."""
        watch = self._watches[job.name]
        return {n: e for n, e in record.unhealthy.items() if watch.is_confirmed(n, e.issue)}

    def _release_reason(self, job: Job, record: JobRecord) -> str | None:
        """Return why the job must stop: its whole gang is idle, and the policy releases it."""
        idle = _idle_nodes(self._confirmed(job, record))
        if self._rules(job).idle is not HealthAction.RELEASE or not self._gate.is_unattended:
            return None
        if self._progresses(job) or not (GANG in idle or _are_all(idle, record)):
            return None
        return record.unhealthy[min(idle)].message

    def _replace_one(self, job: Job, record: JobRecord, now: datetime) -> None:
        rules, found = self._rules(job), self._confirmed(job, record)
        idle = _idle_nodes(found) - {GANG}
        is_one_of_them = bool(idle) and not _are_all(idle, record)
        if GANG in found and rules.idle is HealthAction.REPLACE and not is_one_of_them:
            self._replace(job, record, record.members, found[GANG], now)
            return
        alone = len(record.members) == 1
        if self._progresses(job) or (_are_all(idle, record) and not alone):
            found = {n: e for n, e in found.items() if e.issue is not HealthIssue.IDLE}
        for issue in ORDER:
            for node_id in record.members:
                event = found.get(node_id)
                stays = node_id in record.live and node_id not in record.leaving
                if event is None or event.issue is not issue or not stays:
                    continue
                if rules.action(issue) is HealthAction.REPLACE:
                    self._replace(job, record, (node_id,), event, now)
                    return

    def _replace(
        self,
        job: Job,
        record: JobRecord,
        node_ids: Sequence[str],
        event: HealthChanged,
        now: datetime,
    ) -> None:
        """Replace the nodes together, unless it is too early, too often or too late for that."""
        stay = [n for n in node_ids if n in record.live and n not in record.leaving]
        if not stay:
            return
        pools = {node_id: Pool.parse(record.live[node_id].pool) for node_id in stay}
        rests = any(pool.capacity_type.is_interruptible for pool in pools.values())
        broken = self._training.progress[job.name].state is GangState.IDLE
        if not (broken or self._is_saved(job, record, event)):
            return
        violation = self._too_often(job, record, stay[0], now)
        if violation is None and not broken and not self._stands_still(job, event):
            decision = self.decisions.get(job.name)
            if decision is None:
                return
            violation = self._too_late(job, stay[0], decision, rests=rests)
        if violation is not None:
            self._guards.check_spend(job.name, violation, now)
            return
        self._journal.write(
            *(
                NodeReplaced(
                    at=now,
                    job=job.name,
                    node_id=node_id,
                    pool=str(pool),
                    message=event.message,
                    pool_rests=pool.capacity_type.is_interruptible,
                )
                for node_id, pool in pools.items()
            )
        )

    def _stands_still(self, job: Job, event: HealthChanged) -> bool:
        """Return whether the whole gang makes no progress at all: it cannot meet the deadline."""
        moved_at = self._watches[job.name].moved_at
        return event.node_id == GANG and (moved_at is None or moved_at <= event.at)

    def _is_saved(self, job: Job, record: JobRecord, event: HealthChanged) -> bool:
        """Return whether work was saved since the finding, or there is none to save."""
        if record.checkpoint_at is not None and record.checkpoint_at > event.at:
            return True
        progress = self._training.progress[job.name]
        if progress.done_units <= max(progress.saved_units, record.checkpoint_units):
            return True
        if event.issue is not HealthIssue.IDLE:
            return False
        moved_at = self._watches[job.name].moved_at
        return moved_at is None or moved_at <= event.at

    def _too_often(
        self, job: Job, record: JobRecord, node_id: str, now: datetime
    ) -> GuardViolation | None:
        recent = len({at for at in record.replacements if at > now - DAY})
        if recent < self._rules(job).max_replacements:
            return None
        return GuardViolation(
            "max_replacements",
            f"{node_id} stays: nodes were replaced {recent} times within 24 h",
        )

    def _too_late(
        self, job: Job, node_id: str, decision: Decision, *, rests: bool
    ) -> GuardViolation | None:
        """Return the violation if a restart, and the pool's rest, would take all of the slack."""
        needed_s = job.overhead_s + (self._settings.cooldown_s if rests else 0.0)
        if decision.slack_s is None or decision.slack_s > needed_s:
            return None
        return GuardViolation(
            "deadline", f"{node_id} stays: its replacement would endanger the deadline"
        )

    def _progresses(self, job: Job) -> bool:
        """Return whether the gang is known to progress: its nodes are of use, busy or not."""
        return self._watches[job.name].is_stalled is False

    def _rules(self, job: Job) -> HealthRules:
        return self._terms[job.name].policy.health


def nodes_to_replace(records: Iterable[JobRecord]) -> Mapping[str, str]:
    """Return the nodes that are to be replaced, each with the reason."""
    return {node: why for record in records for node, why in record.replaced.items()}


def _is_news(issue: HealthIssue | None, message: str, last: HealthChanged | None) -> bool:
    """Return whether the issue is another one, or a fault that has grown."""
    if (None if last is None else last.issue) is not issue:
        return True
    return issue is HealthIssue.FAULT and last is not None and len(message) > len(last.message)


def _idle_nodes(found: Mapping[str, HealthChanged]) -> set[str]:
    return {node_id for node_id, event in found.items() if event.issue is HealthIssue.IDLE}


def _are_all(idle: set[str], record: JobRecord) -> bool:
    """Return whether every living member is idle, so that none of them is the cause."""
    members = {member for member in record.members if member in record.live}
    return bool(members) and members <= idle
