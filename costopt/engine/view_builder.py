"""Builds the View on which decisions rest at one tick: the market, the jobs and their state.

Also the baseline: the job's cost on the cheapest on-demand gang that meets the deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from costopt.domain.array import with_remaining_tasks
from costopt.domain.errors import LedgerError, ProviderError
from costopt.domain.estimate import Series
from costopt.domain.events import JobSubmitted
from costopt.domain.fleet import Node, NodeState
from costopt.domain.job import Job
from costopt.domain.market import InstanceType, Offer, Pool
from costopt.domain.money import to_micros
from costopt.domain.policy import CarbonSignal, Limits, Policy, RuleSignal
from costopt.domain.power import NodePower
from costopt.domain.progress import Progress
from costopt.domain.transfers import Transfer, region_key, transfer_table, volume_usd_per_hour
from costopt.domain.view import JobView, View
from costopt.engine.cohort import Cohort, effective_limits
from costopt.engine.failures import JobFailures
from costopt.engine.fleet import FleetObserver
from costopt.engine.guards import Guards, LaunchLimits
from costopt.engine.journal import Journal
from costopt.engine.measurements import with_measured_cache, with_measured_saves
from costopt.engine.offers import OfferCollector
from costopt.engine.power_sweep import with_swept_caps
from costopt.engine.settings import EngineSettings, World
from costopt.engine.stops import StopManager
from costopt.engine.training import TrainingObserver
from costopt.market.screening import screen_offers
from costopt.provider.base import Provider
from costopt.strategies.gang_options import gang_options, uninterruptible_options
from costopt.strategies.remaining_time import seconds_to_finish
from costopt.strategies.shield import choose_fallback, slack_s

ANY_POLICY = Policy("anything", limits=Limits(capacity_types=()))


@dataclass(frozen=True, slots=True)
class CohortView:
    """What one cohort sees, and the limits of its launches."""

    cohort: Cohort
    view: View
    bounds: LaunchLimits


class ViewBuilder:
    """Caches the machines and powers of pools as they first appear."""

    def __init__(
        self,
        world: World,
        journal: Journal,
        settings: EngineSettings,
        jobs: Mapping[str, Job],
        fleet: FleetObserver,
        offers: OfferCollector,
        training: TrainingObserver,
        stops: StopManager,
        guards: Guards,
        failures: JobFailures,
    ) -> None:
        self._world = world
        self._journal = journal
        self._settings = settings
        self._jobs = jobs
        self._fleet = fleet
        self._offers = offers
        self._training = training
        self._stops = stops
        self._guards = guards
        self._failures = failures
        self._machines: dict[Pool, InstanceType] = {}
        self._powers: dict[CarbonSignal, dict[Pool, NodePower]] = {s: {} for s in CarbonSignal}

    def build(
        self, cohorts: Sequence[Cohort], now: datetime, refused: frozenset[Pool]
    ) -> tuple[CohortView, ...]:
        """Observe the market, and return the view of each cohort that has a job that is due.

        Jobs whose view cannot be built are reported, and left out.
        """
        nodes = self._fleet.nodes
        self._offers.observe(nodes, now)
        for pool in (*(o.pool for o in self._offers.latest), *(n.pool for n in nodes)):
            self._learn(pool)
        counts = {cohort.policy.objective.carbon_signal for cohort in cohorts}
        seen = {signal: self._background(signal, now) for signal in counts}
        return tuple(
            view
            for cohort in cohorts
            for view in self._cohort_views(
                cohort, seen[cohort.policy.objective.carbon_signal], refused
            )
        )

    def _cohort_views(
        self, cohort: Cohort, background: View, refused: frozenset[Pool]
    ) -> tuple[CohortView, ...]:
        """Return the cohort's view, without the jobs whose own view cannot be built."""
        try:
            return (self._sight(cohort, background, refused),)
        except LedgerError:
            raise
        except Exception:
            sound = []
            for name in cohort.jobs:
                with self._failures.isolate(name, background.now):
                    self._sight(replace(cohort, jobs=(name,)), background, refused)
                    sound.append(name)
            if len(sound) == len(cohort.jobs):
                raise
            cohort = replace(cohort, jobs=tuple(sound))
            return self._cohort_views(cohort, background, refused) if sound else ()

    def _background(self, carbon_signal: CarbonSignal, now: datetime) -> View:
        """Return the view shared by all cohorts that count this carbon signal."""
        return View(
            now=now,
            tick_s=self._settings.tick_s,
            uninterruptible_s=min((_firm_s(p, now) for p in self._world.providers), default=0.0),
            jobs=(),
            offers=(),
            machines=self._machines,
            powers=self._training.measured_powers(self._powers[carbon_signal]),
            policy=ANY_POLICY,
            transfers=self._transfers(),
            account=self._guards.account,
            price_forecasts=self._price_forecasts(now),
            carbon_forecasts=self._carbon_forecasts(now, carbon_signal),
            notice_s=self._world.notice_s,
        )

    def build_all(self, view: View) -> View:
        """Return the same view with what a baseline may rest on: every uninterruptible offer to
        rent that has a price, allowed or not."""
        offers = [
            each
            for each in self._offers.latest
            if each.pool.capacity_type.is_uninterruptible and not view.account.owns(each.pool)
        ]
        priced, _ = screen_offers(offers, ANY_POLICY, view.now, check_age=False)
        return replace(view, offers=self._fit(priced))

    def _sight(self, cohort: Cohort, background: View, refused: frozenset[Pool]) -> CohortView:
        now = background.now
        jobs = tuple(self._job_view(name) for name in self._wanting(cohort, now))
        together = frozenset(cohort.jobs)
        nodes = [node for name in cohort.jobs for node in self._fleet.nodes_of(name)]
        powers = self._cappable_powers(background.powers, cohort)
        view = replace(background, jobs=jobs, policy=cohort.policy, powers=powers)
        if not jobs:
            return CohortView(cohort, view, LaunchLimits(cohort.policy.limits, {}, together))
        offers, rejections = self._offers.usable(cohort.policy, nodes, now, refused)
        view = replace(view, offers=self._fit(offers), rejections=rejections)
        limits = effective_limits(cohort.policy, len(jobs), self._min_slack_s(view), now)
        if limits is not cohort.policy.limits:
            policy = replace(cohort.policy, limits=limits)
            offers, rejections = self._offers.usable(policy, nodes, now, refused)
            fit = self._fit(offers)
            view = replace(view, offers=fit, policy=policy, rejections=rejections)
        return CohortView(cohort, view, LaunchLimits(limits, _prices(view), together))

    def _wanting(self, cohort: Cohort, now: datetime) -> Iterable[str]:
        """Yield jobs of the cohort that are due and neither over nor stopped permanently."""
        for name in cohort.jobs:
            record = self._journal.records[name]
            resting = record.submitted and self._stops.is_stopped(name)
            if now >= self._jobs[name].start_at and not (record.over or resting):
                yield name

    def _job_view(self, name: str) -> JobView:
        record = self._journal.records[name]
        job = with_measured_cache(self._jobs[name], record.cached.values())
        job = with_measured_saves(job, record.save_gbps)
        progress = self._training.progress.get(name, Progress())
        leaving = record.leaving
        staying = [n for n in self._fleet.nodes_of(name) if n.node_id not in leaving]
        return JobView(
            with_remaining_tasks(job, progress.saved_units, self._busy_gpus(staying, progress)),
            progress,
            tuple(n for n in staying if n.state is not NodeState.WAITING),
            self._training.speed_factor.get(name, 1.0),
            self._training.capped_speed(job),
            tuple(n for n in staying if n.state is NodeState.WAITING),
        )

    def _busy_gpus(self, nodes: Iterable[Node], progress: Progress) -> int:
        busy = (n.pool for n in nodes if n.node_id in progress.busy_nodes)
        return sum(self._machines[pool].gpu_count for pool in busy if pool in self._machines)

    def _cappable_powers(
        self, powers: Mapping[Pool, NodePower], cohort: Cohort
    ) -> Mapping[Pool, NodePower]:
        """Return power by pool, without caps where a node of the cohort reports that it could not
        set one. Other jobs' nodes are ignored: the jobs' commands may forge their reports."""
        records = (self._journal.records[name] for name in cohort.jobs)
        refused = {pool for record in records for pool in record.uncappable}
        swept = self._with_swept_caps(powers, cohort)
        uncapped = {p: replace(swept[p], caps=()) for p in refused & swept.keys()}
        return {**swept, **uncapped} if uncapped else swept

    def _with_swept_caps(
        self, powers: Mapping[Pool, NodePower], cohort: Cohort
    ) -> Mapping[Pool, NodePower]:
        """Return power by pool with the caps that the cohort's job measured on itself; several jobs
        that are planned together share the powers of pools, and no measurement holds for all."""
        working = [name for name in cohort.jobs if not self._journal.records[name].over]
        if len(working) != 1:
            return powers
        probed = self._journal.accounts[working[0]].measured.probes
        if not probed:
            return powers
        generation = self._journal.records[working[0]].generation
        return with_swept_caps(powers, self._machines, probed, generation)

    def _transfers(self) -> Mapping[tuple[str, str], Transfer]:
        price = self._world.transfers
        if price is None:
            return {}
        return transfer_table(
            self._jobs.values(), (offer.pool for offer in self._offers.latest), price
        )

    def _price_forecasts(self, now: datetime) -> Mapping[Pool, Series]:
        forecasts, until = self._world.forecasts, self._last_deadline_at
        if until is None:
            return {}
        offers = self._offers.latest
        listed = {} if forecasts is None else forecasts.prices([o.pool for o in offers], now, until)
        return self._settings.account.price_terms.forecasts(listed, offers, now, until)

    def _carbon_forecasts(self, now: datetime, carbon_signal: CarbonSignal) -> Mapping[str, Series]:
        forecasts, until = self._world.forecasts, self._last_deadline_at
        if forecasts is None or until is None:
            return {}
        regions = {f"{o.pool.provider}/{o.pool.region}" for o in self._offers.latest}
        return forecasts.carbon(regions, now, until, carbon_signal)

    @property
    def _last_deadline_at(self) -> datetime | None:
        return max((job.until_at for job in self._jobs.values()), default=None)

    def _fit(self, offers: Iterable[Offer]) -> tuple[Offer, ...]:
        """Return the offers whose machine is known."""
        return tuple(o for o in offers if o.pool in self._machines)

    def _min_slack_s(self, view: View) -> float | None:
        """Return the minimum slack of all jobs under the policy's own limits, if a rule uses it."""
        if not any(rule.trigger is RuleSignal.SLACK for rule in view.policy.rules):
            return None
        slacks = (slack_s(view, job_view) for job_view in view.jobs)
        return min((s for s in slacks if s is not None), default=None)

    def _learn(self, pool: Pool) -> None:
        if pool not in self._machines:
            machine = self._world.machines.instance_type(pool)
            powers = {s: self._world.powers.node_power(pool, s) for s in CarbonSignal}
            known = {signal: power for signal, power in powers.items() if power is not None}
            if machine is not None:
                self._machines[pool] = machine
                for signal, power in known.items():
                    self._powers[signal][pool] = power


def _prices(view: View) -> Mapping[Pool, float]:
    """Return dollars per node-hour of the pools with capacity, now or once gangs have shrunk."""
    return {
        o.pool: o.price_usd_per_hour.value
        for o in view.offers
        if o.price_usd_per_hour is not None
        and (o.nodes_available != 0 or view.account.owns(o.pool))
    }


def _firm_s(provider: Provider, now: datetime) -> float:
    """Return the seconds of uninterruptible capacity that a provider promises; 0 if unreachable."""
    try:
        return provider.uninterruptible_s(now)
    except ProviderError:
        return 0.0


def job_submitted_event(job: Job, policy: Policy, view: View, now: datetime) -> JobSubmitted:
    """Return the event that begins a run; without an on-demand offer the baseline is unknown, and
    its energy where the power of the pool is."""
    fresh = JobView(job, Progress())
    chosen = choose_fallback(
        view, fresh, uninterruptible_options(gang_options(view, fresh)), job.work.amount
    )
    budget_usd = job.budget.max_usd_between(job.start_at, job.until_at)
    facts = JobSubmitted(
        at=now,
        job=job.name,
        work_units=job.work.amount,
        unit=job.work.unit.value,
        start_at=job.start_at,
        deadline_at=job.deadline_at,
        policy=policy.name,
        strategy=policy.strategy.name,
        tenant=job.tenant,
        budget_usd_micros=to_micros(budget_usd),
    )
    if chosen is None:
        return facts
    at_worst = tuple(chosen.work_left(0.0))
    machine = view.machines[chosen.pool]
    work = tuple((nodes, _expected_s(job, machine, nodes, s)) for nodes, s in at_worst)
    needed_s = seconds_to_finish(chosen, job, job.work.amount) - chosen.start_s
    saves_s = needed_s - sum(seconds for _, seconds in at_worst)
    # Saves and the starts between phases are spread over the phases by their length.
    stretch = 1.0 + saves_s / sum(seconds for _, seconds in work)
    busy_node_s = sum(nodes * seconds for nodes, seconds in work) * stretch
    idle_node_s = work[0][0] * (job.startup_s + job.cache_s(machine))
    power = view.powers.get(chosen.pool)
    if power is not None:
        power = power.in_gang(job.scaling_efficiency(machine, chosen.nodes))
    volume_usd = volume_usd_per_hour(chosen.pool, lambda *way: view.transfers.get(way)) or 0.0
    usd_per_node_s = (chosen.usd_per_hour / chosen.nodes + volume_usd) / 3600
    facts = replace(
        facts,
        baseline_pool=str(chosen.pool),
        baseline_usd_micros=to_micros(usd_per_node_s * (idle_node_s + busy_node_s)),
        baseline_startup_usd_micros=to_micros(usd_per_node_s * idle_node_s),
    )
    if power is None:
        return facts
    kwh = power.kwh(idle_node_s, busy_node_s)
    return replace(
        facts,
        baseline_wh=kwh * 1000,
        baseline_startup_wh=power.kwh(idle_node_s, 0.0) * 1000,
        baseline_gco2e=_gco2e(view, chosen.pool, power, kwh, chosen.start_s + needed_s),
    )


def _gco2e(view: View, pool: Pool, power: NodePower, kwh: float, lasts_s: float) -> float | None:
    """Return grams at the mean forecast over the duration from now, else at the annual mean."""
    series = view.carbon_forecasts.get(region_key(pool))
    if series is None:
        return power.gco2e(kwh)
    return kwh * series.mean(view.now, view.now + timedelta(seconds=lasts_s))


def _expected_s(job: Job, machine: InstanceType, nodes: int, seconds: float) -> float:
    """Return seconds at the expected speed, not at its lower end: savings are not overstated."""
    speed = job.gang_units_per_s(machine, nodes)
    return seconds if speed is None else seconds * speed.low / speed.value
