"""The whole control loop: one call of ``Engine.tick`` observes, decides, acts and records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from costopt.domain.events import DecisionMade, RunStopped
from costopt.domain.fleet import Node
from costopt.domain.job import GangState, Job, Progress
from costopt.domain.market import InstanceType, Pool
from costopt.domain.policy import Limits, Policy
from costopt.domain.ports import Strategy
from costopt.domain.power import NodePower
from costopt.domain.view import Decision, Desired, JobView, View
from costopt.engine.baseline import submission
from costopt.engine.execute import Executor
from costopt.engine.fleet import Fleet
from costopt.engine.gang import Gangs
from costopt.engine.guards import Guards, Refusal
from costopt.engine.journal import Journal
from costopt.engine.offers import Offers
from costopt.engine.reconcile import Actual, PendingLaunch, reconcile
from costopt.engine.rules import limits_now
from costopt.engine.settings import Settings
from costopt.engine.training import Training
from costopt.engine.world import World

ATTEMPTS_PER_TICK = 4


@dataclass(frozen=True, slots=True)
class TickResult:
    """``over`` means that no job wants anything and no node of theirs is left."""

    now: datetime
    over: bool
    desired: Desired
    nodes: tuple[Node, ...]


class Engine:
    """Runs jobs under one policy. All it knows it can have again from the ledger."""

    def __init__(
        self,
        jobs: Sequence[Job],
        policy: Policy,
        strategy: Strategy,
        world: World,
        settings: Settings,
    ) -> None:
        self.jobs = {job.name: job for job in jobs}
        self.policy = policy
        self.settings = settings
        self.world = world
        self.journal = Journal(world.ledger, self.jobs)
        self.training = Training(world, self.journal, self.jobs)
        self._strategy = strategy
        self._fleet = Fleet(world, self.journal, settings)
        self._offers = Offers(world, self.journal, settings)
        self._guards = Guards(self.journal)
        self._executor = Executor(world, self.journal, settings, self._guards, self.jobs)
        self._gangs = Gangs(world, self.journal, settings, self.training)
        self._machines: dict[Pool, InstanceType] = {}
        self._powers: dict[Pool, NodePower] = {}
        self._stopping: set[str] = set()

    def tick(self) -> TickResult:
        """One pass. What a provider refuses is recorded, never raised; LedgerError is raised."""
        now = self.world.clock.now()
        self._observe(now)
        desired = self._converge(now)
        self._executor.release_drained(now)
        return TickResult(now, self._over(), desired, self._fleet.nodes)

    def stop(self, reason: str) -> None:
        """Ask every job to checkpoint and give its nodes back; the next ticks carry it out."""
        now = self.world.clock.now()
        for name, record in self.journal.records.items():
            if not record.over and name not in self._stopping:
                self.journal.write(RunStopped(at=now, job=name, reason=reason))
                self._stopping.add(name)

    def progress_of(self, job: str) -> Progress:
        """How far the job was at the last tick."""
        return self.training.progress.get(job, Progress())

    def _observe(self, now: datetime) -> None:
        before = {name: set(record.live) for name, record in self.journal.records.items()}
        self._fleet.observe(now)
        for name, record in self.journal.records.items():
            if before[name] - set(record.live) and record.training:
                self.training.broke(name, now)
        self.training.observe(now)
        for name, job in self.jobs.items():
            refusal = self._guards.over_budget(job, self.policy.limits, now)
            if refusal is not None and not self.journal.records[name].over:
                self._stop_for(name, refusal, now)

    def _stop_for(self, name: str, refusal: Refusal, now: datetime) -> None:
        self._executor.trip(name, refusal, now)
        self._stopping.add(name)

    def _converge(self, now: datetime) -> Desired:
        """Decide and act; where a pool refuses, decide again without it."""
        desired = Desired(())
        refused: frozenset[Pool] = frozenset()
        for _ in range(ATTEMPTS_PER_TICK):
            view, limits = self._view(now, refused)
            self._submit(view, now)
            desired = self._decide(view, now)
            prices = {
                o.pool: o.price_usd_per_hour.value
                for o in view.offers
                if o.price_usd_per_hour is not None
            }
            self._fleet.nodes += self._executor.ask_again(desired, now)
            actions = reconcile(desired, self._actual())
            new, refusing = self._executor.execute(actions, self._fleet.nodes, prices, limits, now)
            self._fleet.nodes += new
            if not refusing - refused and not self._unanswered(desired):
                break
            refused |= refusing
        for decision in desired.decisions:
            self._gangs.form(self.jobs[decision.job], decision, self._fleet.nodes, now)
        return desired

    def _unanswered(self, desired: Desired) -> bool:
        """Whether a launch that is wanted still has no answer."""
        return any(
            intent.pool in {str(target.pool) for target in decision.targets}
            for decision in desired.decisions
            for intent in self.journal.records[decision.job].intents.values()
        )

    def _submit(self, view: View, now: datetime) -> None:
        """Begin the runs that are due; the baseline looks at all offers, allowed or not."""
        for job_view in view.jobs:
            if not self.journal.records[job_view.job.name].submitted:
                priced = (o for o in self._offers.told if o.price_usd_per_hour is not None)
                everything = replace(
                    view, offers=tuple(o for o in priced if o.pool in self._machines)
                )
                self.journal.write(submission(job_view.job, self.policy, everything, now))

    def _view(self, now: datetime, refused: frozenset[Pool]) -> tuple[View, Limits]:
        job_views = tuple(self._job_views(now))
        limits = limits_now(self.policy, job_views, now)
        policy = self.policy if limits is self.policy.limits else _limited(self.policy, limits)
        offers, rejections = self._offers.observe(policy, self._fleet.nodes, now)
        for offer in self._offers.told:
            self._learn(offer.pool)
        usable = tuple(
            o
            for o in offers
            if o.pool in self._machines and o.pool in self._powers and o.pool not in refused
        )
        firm_s = min(p.firm_s(now) for p in self.world.providers)
        view = View(
            now=now,
            tick_s=self.settings.tick_s,
            firm_s=firm_s,
            jobs=job_views,
            offers=usable,
            machines=self._machines,
            powers=self._powers,
            policy=policy,
            rejections=rejections,
        )
        return view, limits

    def _learn(self, pool: Pool) -> None:
        if pool not in self._machines:
            machine = self.world.machines.machine(pool)
            power = self.world.powers.node_power(pool)
            if machine is not None and power is not None:
                self._machines[pool] = machine
                self._powers[pool] = power

    def _job_views(self, now: datetime) -> list[JobView]:
        views = []
        for name, job in self.jobs.items():
            record = self.journal.records[name]
            if record.over or now < job.start_at:
                continue
            leaving = record.draining.keys() | record.noticed.keys()
            nodes = tuple(
                n for n in self._fleet.nodes if n.job == name and n.node_id not in leaving
            )
            views.append(
                JobView(job, self.progress_of(name), nodes, self.training.speed_factor[name])
            )
        return views

    def _decide(self, view: View, now: datetime) -> Desired:
        wanted = self._strategy.decide(view)
        decisions = tuple(
            Decision(d.job, (), "stopping: checkpoint and give the nodes back", "stop")
            if d.job in self._stopping
            else d
            for d in wanted.decisions
        )
        for decision in decisions:
            self._record(decision, now)
        return Desired(decisions)

    def _record(self, decision: Decision, now: datetime) -> None:
        record = self.journal.records[decision.job]
        targets = tuple((str(t.pool), t.nodes) for t in decision.targets)
        if targets == record.targets and decision.rule == record.rule:
            return
        self.journal.write(
            DecisionMade(
                at=now,
                job=decision.job,
                decision_id=f"{decision.job}-d{record.decision_count + 1}",
                targets=targets,
                reason=decision.reason,
                rule=decision.rule,
                slack_s=decision.slack_s,
            )
        )

    def _actual(self) -> Actual:
        records = self.journal.records.values()
        seen = {n.key for n in self._fleet.nodes}
        return Actual(
            nodes=self._fleet.nodes,
            draining=frozenset(n for r in records for n in r.draining),
            doomed=frozenset(n for r in records for n in r.noticed),
            pending=tuple(
                PendingLaunch(r.name, Pool.parse(i.pool), i.nodes)
                for r in records
                for i in r.intents.values()
                if i.key not in seen
            ),
        )

    def _over(self) -> bool:
        for name, record in self.journal.records.items():
            wants = not record.over and name not in self._stopping
            if wants or record.live or record.intents:
                return False
        return True

    @property
    def failed(self) -> dict[str, str]:
        """Jobs that failed, with the reason."""
        records = self.journal.records.items()
        return {name: r.failed for name, r in records if r.failed is not None}

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Jobs that are neither finished nor failed."""
        return tuple(name for name, r in self.journal.records.items() if not r.over)

    def is_training(self, job: str) -> bool:
        """Whether the job's gang does work now."""
        return self.progress_of(job).state is GangState.TRAINING


def _limited(policy: Policy, limits: Limits) -> Policy:
    return replace(policy, limits=limits)
