"""The whole control loop: one call of ``Engine.tick`` observes, decides, acts and records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import starmap

from costopt.domain.account import Account
from costopt.domain.errors import LedgerError
from costopt.domain.fleet import Node
from costopt.domain.job import Job
from costopt.domain.market import Offer, Pool
from costopt.domain.progress import Progress
from costopt.domain.view import Decision, Desired, Target, View
from costopt.engine.admission import FairAdmission
from costopt.engine.billing import BillCollector, SpendTracker
from costopt.engine.cohort import DecisionScheduler, JobTerms, SequentialDecider, group_into_cohorts
from costopt.engine.decision_log import DecisionLog
from costopt.engine.emissions import Emissions
from costopt.engine.executor import Executor
from costopt.engine.failures import STRATEGY, JobFailures, ProviderFailures
from costopt.engine.fleet import FleetObserver, outlived, resting_pools
from costopt.engine.gangs import GangManager
from costopt.engine.gate import EnforcingGate, Gate, Releases
from costopt.engine.guards import Guards, LaunchLimits
from costopt.engine.health import HealthManager, nodes_to_replace
from costopt.engine.journal import Journal
from costopt.engine.kept_nodes import KeptNodes
from costopt.engine.launcher import Launcher, LaunchResults
from costopt.engine.node_ends import EndEstimator
from costopt.engine.node_failures import NodeFailures, waiting_jobs
from costopt.engine.offers import OfferCollector
from costopt.engine.overdue import OverdueJobs
from costopt.engine.power_sweep import PowerSweeper
from costopt.engine.quotas import GuardViolation
from costopt.engine.reconcile import Actual, PendingLaunch, reconcile
from costopt.engine.settings import EngineSettings, World
from costopt.engine.stops import StopManager, stop_decision
from costopt.engine.training import TrainingObserver
from costopt.engine.view_builder import CohortView, ViewBuilder, job_submitted_event
from costopt.strategies.fault_isolation import FAILED

ATTEMPTS_PER_TICK = 4


@dataclass(frozen=True, slots=True)
class TickResult:
    """``over`` means that no job needs anything and none of their nodes remains. ``refused`` holds,
    by job, which guard or provider refused its last launch, and why."""

    now: datetime
    is_done: bool
    desired: Desired
    nodes: tuple[Node, ...]
    refused: Mapping[str, str]


class Engine:
    """Runs jobs, each under its own policy. All of its state can be restored from the ledger."""

    def __init__(
        self,
        world: World,
        settings: EngineSettings,
        gate: Gate | None = None,
        decider: DecisionScheduler | None = None,
    ) -> None:
        """Make an engine without jobs. Only ``costopt.controller`` may assemble one."""
        self.jobs: dict[str, Job] = {}
        self.settings = settings
        self.world = world
        self._gate = gate or EnforcingGate()
        self._decider = decider or SequentialDecider()
        self._terms: dict[str, JobTerms] = {}
        self.views: tuple[View, ...] = ()
        self.journal = Journal(world.ledger, ())
        self.troubles = JobFailures(self.journal)
        self._log = DecisionLog(self.journal, self.troubles, explain=settings.explain)
        self.training = TrainingObserver(world, self.journal, self.jobs, self.troubles)
        self._node_failures = NodeFailures(
            world, self.journal, settings, self.jobs, self.troubles
        )  # fmt: skip
        self.stops = StopManager(self.journal)
        self.spending = SpendTracker(self.journal, self.jobs, self._terms)
        self._silence = silence = ProviderFailures(self.journal)
        self._emissions = emissions = Emissions(
            world, self.journal, self._terms, settings.account.electricity_contracts
        )
        ends = EndEstimator(world.runtime, self.jobs)
        self._fleet = FleetObserver(
            world, self.journal, settings, silence, self._gate, emissions, ends
        )  # fmt: skip
        self._bills = BillCollector(world, self.journal, settings)
        self._offers = OfferCollector(world, self.journal, settings, silence, self.jobs)
        self._guards = Guards(world, self.journal, settings.account, self.jobs, self.spending)
        releases = Releases(world, self.journal)
        self._launcher = Launcher(
            world, self.journal, settings, self._guards, self._gate, releases, emissions
        )  # fmt: skip
        self._executor = Executor(
            world, self.journal, settings, self.jobs, self._launcher, releases, self.troubles
        )  # fmt: skip
        self._gangs = GangManager(
            world, self.journal, settings, self.jobs, self._fleet, self.training, self.troubles
        )  # fmt: skip
        self._sweeper = PowerSweeper(world, self.journal)
        self._admission = FairAdmission(settings, self._guards)
        self._kept = KeptNodes(self.journal, self.jobs)
        self._overdue = OverdueJobs(self.journal, self.jobs)
        self._health = HealthManager(
            self.journal, settings, self.jobs, self._terms, self.training, self._guards,
            self._gate, self.troubles,
        )  # fmt: skip
        self.released: dict[str, str] = {}
        self._outlook = ViewBuilder(
            world, self.journal, settings, self.jobs, self._fleet, self._offers, self.training,
            self.stops, self._guards, self.troubles,
        )  # fmt: skip

    def add(self, job: Job, terms: JobTerms) -> None:
        """Control one more job, resuming from what the ledger holds of it. Raises LedgerError.

        The new terms apply to a job that is already controlled.
        """
        if job.name not in self.jobs:
            self.journal.open(job.name)
            self.jobs[job.name] = job
            self.spending.reopen(job.name)
            self._guards.reopen(job.name)
        self._terms[job.name] = terms

    def reprioritize(self, job: str, priority: int) -> None:
        """Set the job's priority from the next tick on."""
        if self._terms[job].priority != priority:
            self._terms[job] = replace(self._terms[job], priority=priority)

    def remove(self, job: str) -> None:
        """Stop controlling a job; its cost still counts. Raises LedgerError for one that still has
        nodes, or an unanswered launch."""
        record = self.journal.records[job]
        if record.live or record.intents:
            raise LedgerError(
                f"job {job!r} still has nodes", hint="stop it first", code="has_nodes"
            )
        payer, now = self.spending.payer(job), self.world.clock.now()
        self.spending.close(job, payer, now)
        self._guards.close(job, payer, now)
        del self.jobs[job], self._terms[job]
        self.stops.end(job)
        self.training.forget(job)
        self._gangs.forget(job)
        self._node_failures.forget(job)
        self._health.forget(job)
        self._overdue.forget(job)
        self._kept.forget(job)
        self.journal.close(job)

    def retry(self, job: str) -> None:
        """Let a failed job try again. Raises LedgerError."""
        begun = self.journal.accounts[job].submitted
        if self.journal.records[job].failed is not None and begun is not None:
            self._kept.forget(job)
            self.journal.write(replace(begun, at=self.world.clock.now()))

    def set_account(self, account: Account) -> None:
        """Apply these quotas, tenants and guards to plans and launches from the next tick on."""
        self._guards.set_account(account)

    def tick(self) -> TickResult:
        """Run one pass. A provider's refusal, and a failure of one job's own store, is recorded and
        never raised. Raises LedgerError."""
        now = self.world.clock.now()
        self.troubles.turn()
        self._observe(now)
        desired, why = self._converge(now)
        if self._gate.is_acting:
            stopping = [name for name in self.jobs if name in self.stops]
            self._executor.terminate_drained(now, stopping)
        self.stops.confirm(now)
        return TickResult(now, self._over(), desired, self._fleet.nodes, why)

    def stop(self, reason: str, job: str | None = None) -> None:
        """Ask a job, or all, to checkpoint and release its nodes; the next ticks do so."""
        now = self.world.clock.now()
        for name in tuple(self.jobs) if job is None else (job,):
            self._stop(name, reason, now)

    @property
    def next_start_at(self) -> datetime | None:
        """Return when the next job begins of those that may start between two ticks, if any."""
        waiting = (
            job.start_at
            for name, job in self.jobs.items()
            if getattr(self._terms[name].strategy, "starts_between_ticks", False)
            and not self.journal.records[name].submitted
            and not self.journal.records[name].over
        )
        return min(waiting, default=None)

    def awaits_bill(self, job: str, since: datetime) -> bool:
        """Return whether a bill of a node of the job that ended after ``since`` may still come."""
        return self._bills.is_pending(job, since)

    def progress_of(self, job: str) -> Progress:
        """Return the job's progress at the last tick."""
        return self.training.progress.get(job, Progress())

    @property
    def offers(self) -> tuple[Offer, ...]:
        """Return the providers' offers at the last tick."""
        return self._offers.latest

    @property
    def failing_nodes(self) -> dict[str, str]:
        """Return, by job, which nodes have failed since it last saved work, are unhealthy, or save
        nothing after the deadline."""
        found: dict[str, str] = {}
        sources = (self._node_failures.reported, self._health.reported, self._overdue.reported)
        for job, why in (item for source in sources for item in source.items() if item[1]):
            found[job] = f"{found[job]}; {why}" if job in found else why
        return found

    @property
    def provider_errors(self) -> dict[str, str]:
        """Return, by provider or part of one, the error for which it is unreachable."""
        return self._silence.record

    def _observe(self, now: datetime) -> None:
        with self.journal.batch():
            self._emissions.observe(now)
            self._fleet.observe(now)
            self._bills.collect(now)
            self.training.observe(now)
            self._node_failures.observe(now)
            idle = self._health.observe(now)
            self._overdue.observe(now)
        for name, reason in idle.items():
            if name not in self.stops:
                self.released[name] = reason
                self._guards.check_spend(name, GuardViolation("idle", reason), now)
                self._stop(name, reason, now)

    def _hold_to_budgets(self, sights: Iterable[CohortView], now: datetime) -> None:
        for sight in sights:
            for name in sight.cohort.jobs:
                if not self.journal.records[name].over:
                    with self.troubles.isolate(name, now):
                        self._hold_to_budget(name, sight.bounds, now)

    def _hold_to_budget(self, name: str, bounds: LaunchLimits, now: datetime) -> None:
        refusal = self._guards.over_budget(self.jobs[name], bounds, now)
        if refusal is None:
            self.stops.guard_allows(name)
            return
        self._guards.check_spend(name, refusal, now)
        self._stop(name, refusal.message, now, by_guard=True)

    def _stop(self, name: str, reason: str, now: datetime, *, by_guard: bool = False) -> None:
        if self.journal.records[name].over:
            self._kept.release(name)
        stops_now = name in self.stops or self.journal.records[name].over
        if not stops_now and self.journal.records[name].submitted:
            self._log.record([stop_decision(name)], now)
        self.stops.begin(name, reason, now, by_guard=by_guard)

    def _converge(self, now: datetime) -> tuple[Desired, Mapping[str, str]]:
        """Decide and act; where a pool refuses, decide again without it. Also returns, by job, why
        its launches were refused."""
        desired, why = Desired(()), dict[str, str]()
        sights: tuple[CohortView, ...] = ()
        refused: frozenset[Pool] = frozenset()
        for _ in range(ATTEMPTS_PER_TICK):
            sights = self._outlook.build(group_into_cohorts(self._terms.items()), now, refused)
            self.views = tuple(replace(sight.view) for sight in sights)
            self._hold_to_budgets(sights, now)
            self._submit(sights, now)
            desired = self._decide(sights, now)
            self._health.decisions = {each.job: each for each in desired.decisions}
            done = self._act(desired, self._bounds(sights), now)
            why |= {launch.job: reason for launch, reason in done.refused.items()}
            settled = not done.refusing - refused and not self._unanswered(desired)
            if settled or self._launcher.is_overdue(now):
                break
            refused |= done.refusing
        if self._gate.is_acting:
            self._gangs.form(desired, now)
            self._sweep_power_limits(desired, sights, now)
        return desired, why

    def _bounds(self, sights: Iterable[CohortView]) -> Mapping[str, LaunchLimits]:
        """Return the limits of each job's launches; a job without a view has no price for one."""
        unseen = {
            name: LaunchLimits(terms.policy.limits, {}, frozenset((name,)))
            for name, terms in self._terms.items()
        }
        return unseen | {name: sight.bounds for sight in sights for name in sight.cohort.jobs}

    def _sweep_power_limits(
        self, desired: Desired, sights: Iterable[CohortView], now: datetime
    ) -> None:
        views = {each.job.name: sight.view for sight in sights for each in sight.view.jobs}
        for decision in desired.decisions:
            if decision.job in views:
                with self.troubles.isolate(decision.job, now):
                    self._sweeper.advance(decision, views[decision.job], now)

    def _act(
        self, desired: Desired, bounds: Mapping[str, LaunchLimits], now: datetime
    ) -> LaunchResults:
        if self._gate.is_acting:
            again = self._launcher.retry_unanswered(desired, bounds, now)
            self._fleet.add(again.nodes)
            if again.refusing:
                return again
        actions = self._gate.permitted(reconcile(desired, self._actual(now)), bounds, now)
        done = self._executor.execute(actions, self._fleet.nodes, bounds, now)
        self._gate.settle(done.refused, now)
        self._fleet.add(done.nodes)
        return done

    def _unanswered(self, desired: Desired) -> bool:
        """Whether a launch that is still needed, and may be retried, has no answer yet."""
        if not self._gate.is_acting or self._gate.halt() is not None:
            return False
        return any(
            intent.pool in {str(target.pool) for target in decision.targets}
            for decision in desired.decisions
            for intent in self.journal.records[decision.job].intents.values()
        )

    def _submit(self, sights: Iterable[CohortView], now: datetime) -> None:
        """Begin the runs that are due; the baseline considers all offers, allowed or not."""
        with self.journal.batch():
            for sight in sights:
                new = [j for j in sight.view.jobs if not self.journal.records[j.job.name].submitted]
                if new:
                    everything = self._outlook.build_all(sight.view)
                for each in new:
                    with self.troubles.isolate(each.job.name, now):
                        policy = sight.cohort.policy
                        begun = job_submitted_event(each.job, policy, everything, now)
                        self.journal.write(begun)

    def _decide(self, sights: Sequence[CohortView], now: datetime) -> Desired:
        asked = [(sight.cohort.strategy, sight.view) for sight in sights if sight.view.jobs]
        wanted = self._decider.decide(asked)
        for decision in wanted:
            if decision.rule == FAILED:
                self.troubles.report(decision.job, STRATEGY, decision.reason, now)
        wanted.sort(key=lambda decision: -self._terms[decision.job].priority)
        decisions = [stop_decision(d.job) if d.job in self.stops else d for d in wanted]
        decisions = self._admission.admit(decisions, sights, self._terms, now)
        decisions += self._decide_without_view({each.job for each in decisions})
        self._log.record(decisions, now)
        return Desired(tuple(decisions))

    def _decide_without_view(self, decided: Collection[str]) -> Iterator[Decision]:
        """Yield decisions for jobs whose view could not be built: those that do not stop keep the
        nodes that they have."""
        for name in self.jobs.keys() & self.troubles.reported.keys() - set(decided):
            record = self.journal.records[name]
            nodes = [n for n in self._fleet.nodes_of(name) if n.node_id not in record.leaving]
            if name in self.stops and not record.over:
                yield stop_decision(name)
            elif nodes and not record.over:
                targets = Counter(node.pool for node in nodes)
                why = f"it cannot be planned ({self.troubles.reported[name]}): what runs is kept"
                yield Decision(name, tuple(starmap(Target, targets.items())), why, FAILED)

    def _actual(self, now: datetime) -> Actual:
        records = self.journal.records.values()
        cooldown = timedelta(seconds=self.settings.cooldown_s)
        seen = {n.key for n in self._fleet.nodes}
        return Actual(
            nodes=self._fleet.nodes,
            draining=frozenset(n for r in records for n in r.draining),
            interruption_noticed=frozenset(n for r in records for n in r.noticed),
            given_up=frozenset(n for r in records for n in r.given_up),
            replaced=nodes_to_replace(records),
            kept=self._kept.find(now),
            waiting=waiting_jobs(records, now),
            outlived=frozenset(n for r in records for n in outlived(r, now)),
            unconfirmed=frozenset(n for r in records for n in r.unconfirmed),
            busy=frozenset(n for p in self.training.progress.values() for n in p.busy_nodes),
            resting=frozenset(
                (r.name, pool) for r in records for pool in resting_pools(r, cooldown, now)
            ),
            pending=tuple(
                PendingLaunch(r.name, Pool.parse(i.pool), i.nodes)
                for r in records
                for i in r.intents.values()
                if i.key not in seen
            ),
        )

    def _over(self) -> bool:
        for name, record in self.journal.records.items():
            wants = not record.over and name not in self.stops
            if wants or record.live or record.intents:
                return False
        return True

    @property
    def failed(self) -> dict[str, str]:
        """Return the failed jobs, each with its reason."""
        records = self.journal.records.items()
        return {name: r.failed for name, r in records if r.failed is not None}

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Return the jobs that have neither finished nor failed."""
        return tuple(name for name, r in self.journal.records.items() if not r.over)
