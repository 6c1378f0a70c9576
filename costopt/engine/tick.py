"""The whole control loop: one call of ``Engine.tick`` observes, decides, acts and records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from costopt.domain.errors import ProviderError
from costopt.domain.events import DecisionMade, RunStopped
from costopt.domain.fleet import Node
from costopt.domain.job import Job, Progress
from costopt.domain.market import InstanceType, Offer, Pool
from costopt.domain.plan import COOLDOWN
from costopt.domain.policy import Limits, Policy, Trigger
from costopt.domain.ports import Provider, Strategy
from costopt.domain.power import NodePower
from costopt.domain.series import Series
from costopt.domain.transfer import Transfer, transfers_of
from costopt.domain.view import Decision, Desired, JobView, View
from costopt.engine.baseline import submission
from costopt.engine.bills import Bills
from costopt.engine.execute import Executor
from costopt.engine.fleet import Fleet
from costopt.engine.gang import Gangs
from costopt.engine.guards import Guards
from costopt.engine.journal import Journal
from costopt.engine.offers import Offers
from costopt.engine.reconcile import Actual, PendingLaunch, reconcile
from costopt.engine.rules import limits_now
from costopt.engine.settings import Settings
from costopt.engine.silence import Silence
from costopt.engine.training import Training
from costopt.engine.world import World
from costopt.ledger.summary import JobState
from costopt.market.screen import screen_offers
from costopt.strategies.shield import slack_s

ATTEMPTS_PER_TICK = 4
ANYTHING = Policy("anything", limits=Limits(capacity_types=()))


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
        silence = Silence(self.journal)
        self._fleet = Fleet(world, self.journal, settings, silence)
        self._bills = Bills(world, self.journal, settings.owner)
        self._offers = Offers(world, self.journal, settings, silence, self.jobs)
        self._guards = Guards(world, self.journal, settings.account, self.jobs)
        self._executor = Executor(world, self.journal, settings, self._guards, self.jobs)
        self._gangs = Gangs(world, self.journal, settings, self.training)
        self._machines: dict[Pool, InstanceType] = {}
        self._powers: dict[Pool, NodePower] = {}
        self._stop_reasons: dict[str, str] = {}

    def tick(self) -> TickResult:
        """One pass. What a provider refuses is recorded, never raised; LedgerError is raised."""
        now = self.world.clock.now()
        self._observe(now)
        desired = self._converge(now)
        self._executor.release_drained(now)
        self._confirm_stops(now)
        return TickResult(now, self._over(), desired, self._fleet.nodes)

    def stop(self, reason: str) -> None:
        """Ask every job to checkpoint and give its nodes back; the next ticks carry it out."""
        now = self.world.clock.now()
        for name in self.jobs:
            self._stop(name, reason, now)

    def progress_of(self, job: str) -> Progress:
        """How far the job was at the last tick."""
        return self.training.progress.get(job, Progress())

    def _observe(self, now: datetime) -> None:
        self._fleet.observe(now)
        self._bills.settle(now)
        self.training.observe(now)

    def _hold_to_budgets(self, limits: Limits, now: datetime) -> None:
        for name, job in self.jobs.items():
            refusal = self._guards.over_budget(job, limits, now)
            if refusal is not None and not self.journal.records[name].over:
                self._executor.trip(name, refusal, now)
                self._stop(name, refusal.message, now)

    def _stop(self, name: str, reason: str, now: datetime) -> None:
        record = self.journal.records[name]
        if record.over or name in self._stop_reasons:
            return
        self._stop_reasons[name] = reason
        if record.submitted:
            self._record(_stopped(name), now)
        self._note_stop(name, now)

    def _confirm_stops(self, now: datetime) -> None:
        """What a gang still did while it stopped must not be the last word on the job."""
        for name in self._stop_reasons:
            record = self.journal.records[name]
            if not (record.over or record.live or record.intents):
                self._note_stop(name, now)

    def _note_stop(self, name: str, now: datetime) -> None:
        if self.journal.accounts[name].summary(now).state is not JobState.STOPPED:
            self.journal.write(RunStopped(at=now, job=name, reason=self._stop_reasons[name]))

    def _converge(self, now: datetime) -> Desired:
        """Decide and act; where a pool refuses, decide again without it."""
        desired = Desired(())
        refused: frozenset[Pool] = frozenset()
        for _ in range(ATTEMPTS_PER_TICK):
            view, limits = self._view(now, refused)
            self._hold_to_budgets(limits, now)
            self._submit(view, now)
            desired = self._decide(view, now)
            prices = {
                o.pool: o.price_usd_per_hour.value
                for o in view.offers
                if o.price_usd_per_hour is not None and o.nodes_available != 0
            }
            late, refusing = self._executor.ask_again(desired, limits, now)
            self._fleet.nodes += late
            if refusing:
                refused |= refusing
                continue
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
                priced, _ = screen_offers(self._offers.told, ANYTHING, now, check_age=False)
                everything = replace(view, offers=self._fit(priced))
                self.journal.write(submission(job_view.job, self.policy, everything, now))

    def _view(self, now: datetime, refused: frozenset[Pool]) -> tuple[View, Limits]:
        nodes = self._fleet.nodes
        self._offers.observe(nodes, now)
        for pool in (*(o.pool for o in self._offers.told), *(n.pool for n in nodes)):
            self._learn(pool)
        offers, rejections = self._offers.usable(self.policy, nodes, now, refused)
        view = View(
            now=now,
            tick_s=self.settings.tick_s,
            firm_s=min(_firm_s(p, now) for p in self.world.providers),
            jobs=tuple(self._job_views(now)),
            offers=self._fit(offers),
            machines=self._machines,
            powers=self._cappable_powers(),
            policy=self.policy,
            rejections=rejections,
            transfers=self._transfers(),
            account=self.settings.account,
            price_forecasts=self._price_forecasts(now),
            carbon_forecasts=self._carbon_forecasts(now),
        )
        limits = limits_now(self.policy, len(view.jobs), self._least_slack_s(view), now)
        if limits is self.policy.limits:
            return view, limits
        policy = replace(self.policy, limits=limits)
        offers, rejections = self._offers.usable(policy, nodes, now, refused)
        limited = replace(view, offers=self._fit(offers), policy=policy, rejections=rejections)
        return limited, limits

    def _cappable_powers(self) -> Mapping[Pool, NodePower]:
        """Power by pool, measured where it was; without caps where a node could not set one."""
        powers = self.training.measured_powers(self._powers)
        refused = {p for record in self.journal.records.values() for p in record.uncappable}
        uncapped = {p: replace(powers[p], caps=()) for p in refused & powers.keys()}
        return {**powers, **uncapped} if uncapped else powers

    def _transfers(self) -> Mapping[tuple[str, str], Transfer]:
        price = self.world.transfers
        if price is None:
            return {}
        return transfers_of(self.jobs.values(), (offer.pool for offer in self._offers.told), price)

    def _price_forecasts(self, now: datetime) -> Mapping[Pool, Series]:
        forecasts = self.world.forecasts
        if forecasts is None:
            return {}
        return forecasts.prices([o.pool for o in self._offers.told], now, self._last_deadline_at)

    def _carbon_forecasts(self, now: datetime) -> Mapping[str, Series]:
        forecasts = self.world.forecasts
        if forecasts is None:
            return {}
        regions = {f"{o.pool.provider}/{o.pool.region}" for o in self._offers.told}
        return forecasts.carbon(regions, now, self._last_deadline_at)

    @property
    def _last_deadline_at(self) -> datetime:
        return max(job.deadline_at for job in self.jobs.values())

    def _fit(self, offers: Iterable[Offer]) -> tuple[Offer, ...]:
        """Those whose machine and power are known."""
        return tuple(o for o in offers if o.pool in self._machines)

    def _least_slack_s(self, view: View) -> float | None:
        """The least slack of all jobs under the policy's own limits, where a rule asks for it."""
        if not any(rule.trigger is Trigger.SLACK for rule in self.policy.rules):
            return None
        slacks = (slack_s(view, job_view) for job_view in view.jobs)
        return min((s for s in slacks if s is not None), default=None)

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
                JobView(
                    job,
                    self.progress_of(name),
                    nodes,
                    self.training.speed_factor[name],
                    self.training.capped_speed(job),
                )
            )
        return views

    def _decide(self, view: View, now: datetime) -> Desired:
        wanted = self._strategy.decide(view)
        decisions = tuple(
            _stopped(d.job) if d.job in self._stop_reasons else d for d in wanted.decisions
        )
        for decision in decisions:
            self._record(decision, now)
        return Desired(decisions)

    def _record(self, decision: Decision, now: datetime) -> None:
        record = self.journal.records[decision.job]
        targets = tuple((str(t.pool), t.nodes) for t in decision.targets)
        # Once it stands, that a pool is no longer left alone is no news.
        cooled = record.rule == COOLDOWN and decision.rule is None
        if targets == record.targets and (cooled or decision.rule == record.rule):
            return
        weighed = decision.alternatives if self.settings.explain else ()
        self.journal.write(
            DecisionMade(
                at=now,
                job=decision.job,
                decision_id=f"{decision.job}-d{record.decision_count + 1}",
                targets=targets,
                reason=decision.reason,
                rule=decision.rule,
                slack_s=decision.slack_s,
                alternatives=tuple((a.choice, a.value_usd, a.note) for a in weighed),
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
            wants = not record.over and name not in self._stop_reasons
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


def _stopped(job: str) -> Decision:
    return Decision(job, (), "stopping: checkpoint and give the nodes back", "stop")


def _firm_s(provider: Provider, now: datetime) -> float:
    """What a provider that does not answer promises: nothing."""
    try:
        return provider.firm_s(now)
    except ProviderError:
        return 0.0
