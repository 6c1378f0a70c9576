"""The account of one job: cost, energy and progress, folded from its events one at a time.

A node costs, per stretch of one price, micros_per_hour × milliseconds // 3,600,000 micro-dollars,
from ``launched_at`` to ``ended_at`` as the provider confirmed them; the provider's bill replaces
these prices. It draws ``busy_w`` while the gang that it belongs to trains and ``idle_w`` otherwise,
times PUE; from a report of a power limit on, ``busy_w`` is that of the report. Where the node
measured its energy, that counts. Where the power of any node is unknown, so are the job's energy
and emissions. The energy of an hour emits by the intensity that is recorded for
that hour and region, else by the annual mean of the node's launch. Transfers of data between
regions cost what their events say.

Also the baseline, the cost of the whole job on on-demand capacity at the measured speed, and the
accounts of all jobs of a ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from costopt.domain import events as ev
from costopt.domain.array import TaskOutcome
from costopt.domain.errors import LedgerError
from costopt.domain.events.node import NOT_SENT_ERROR
from costopt.domain.fleet import SIMULATED_NODE
from costopt.domain.market import Pool
from costopt.domain.ports import Ledger
from costopt.ledger.account_parts import FleetAccount, TransferAccount, WorkAccount
from costopt.ledger.node_account import MeasurementAccount, NodeAccount, NodeInterval
from costopt.ledger.node_emissions import signals_text
from costopt.ledger.node_meter import to_milliseconds
from costopt.ledger.storage_costs import CheckpointStorage
from costopt.ledger.summary import JobState, JobSummary, RunCurves, sci_gco2e_per_unit, spend_points


class JobAccount:
    """The account of one job. Applying an event takes constant time per node that it names;
    a summary takes time in the number of living and lost nodes."""

    def __init__(self, job: str) -> None:
        self.job = job
        self.submitted: ev.JobSubmitted | None = None
        self.last_decision: ev.DecisionMade | None = None
        self.gang: ev.GangFormed | None = None
        self.failure: str | None = None
        self.finished_at: datetime | None = None
        self.work = WorkAccount()
        self._launches: set[str] = set()
        self._failed_launches = 0
        self.fleet = FleetAccount()
        self.transfers = TransferAccount()
        self.storage = CheckpointStorage()
        self.measured = MeasurementAccount()
        self._stopped = False
        self._training = False
        self._gang_pools: frozenset[Pool] = frozenset()
        self._checkpoints_refused = self._pool_switches = 0
        self._cache_gib = self._cache_node_s = 0.0

    @property
    def generation(self) -> int:
        """Return the number of the newest gang, 0 before the first."""
        return 0 if self.gang is None else self.gang.generation

    @property
    def training(self) -> bool:
        """Return whether the newest gang does new work."""
        return self._training

    def apply(self, event: ev.Event) -> None:
        """Fold one event in. Raises LedgerError for another job's event."""
        if event.job != self.job:
            raise LedgerError(
                f"an event of job {event.job!r} in the account of job {self.job!r}",
                hint="fold each job's events into its own account",
                code="wrong_job",
            )
        fold = _FOLDS.get(type(event))
        if fold is not None:
            fold(self, event)

    def live_nodes(self) -> Mapping[str, NodeAccount]:
        """Return, by id, the nodes that were launched and have not ended."""
        return dict(self.fleet.alive)

    def node(self, node_id: str) -> NodeAccount | None:
        """Return a node that the job ever had, or None."""
        return self.fleet.nodes.get(node_id)

    def intervals(self, now: datetime) -> tuple[NodeInterval, ...]:
        """Return every node's row in the timeline, in the order of launch."""
        now_ms = to_milliseconds(now)
        nodes = self.fleet.nodes.values()
        ordered = sorted(nodes, key=lambda node: (node.launched_ms, node.node_id))
        return tuple(node.interval(now_ms) for node in ordered)

    def curves(self, now: datetime) -> RunCurves:
        """Return spend and progress over time, until ``now``."""
        nodes, stored = self.fleet.nodes.values(), self.storage.usd_micros_until
        spend = spend_points(nodes, self.transfers.moves, to_milliseconds(now), stored)
        return RunCurves(spend, tuple(self.work.curve))

    def usd_micros_between(self, start: datetime, end: datetime) -> int:
        """Return what the job cost from ``start`` to ``end``, for limits per hour or month."""
        start_ms, end_ms = to_milliseconds(start), to_milliseconds(end)
        moved = self.transfers.usd_micros_until(end_ms) - self.transfers.usd_micros_until(start_ms)
        kept = self.storage.usd_micros_until(end_ms) - self.storage.usd_micros_until(start_ms)
        return moved + kept + self.fleet.usd_micros_between(start_ms, end_ms)

    def summary(self, now: datetime) -> JobSummary:
        """Return the figures at ``now``, which must not precede any event."""
        bill = self.fleet.bill(to_milliseconds(now))
        stored_micros = bill.volume_usd_micros + self.storage.usd_micros_until(to_milliseconds(now))
        unpriced = bill.unpriced_volumes or self.storage.has_unknown
        terms, baseline = self.submitted, baseline_at(self.submitted, self.work.speed_ratio)
        return JobSummary(
            job=self.job,
            now=now,
            state=self.state,
            strategy=None if terms is None else terms.strategy,
            policy=None if terms is None else terms.policy,
            unit=None if terms is None else terms.unit,
            work_units=None if terms is None else terms.work_units,
            start_at=None if terms is None else terms.start_at,
            deadline_at=None if terms is None else terms.deadline_at,
            finished_at=self.finished_at,
            on_time=self._on_time(now),
            done_units=self.work.done_units,
            saved_units=self.work.saved_units,
            lost_units=self.work.lost_units,
            units_per_s=self.work.units_per_s,
            usd_micros=bill.usd_micros + self.transfers.usd_micros + stored_micros,
            storage_usd_micros=None if unpriced else stored_micros,
            spot_usd_micros=bill.spot_usd_micros,
            on_demand_usd_micros=bill.on_demand_usd_micros,
            list_usd_micros=bill.list_usd_micros + self.transfers.usd_micros + stored_micros,
            committed_usd_micros=None if bill.uncounted_ms else bill.committed_usd_micros,
            transfer_usd_micros=self.transfers.known_usd_micros,
            wh=bill.wh,
            idle_wh=bill.idle_wh,
            busy_wh=bill.busy_wh,
            gco2e=bill.gco2e,
            carbon_basis=self.fleet.carbon_basis(bill),
            carbon_signal=signals_text(self.fleet.carbon_signals) or None,
            market_based_gco2e=bill.market_based_gco2e
            if self.fleet.electricity.contracts
            else None,
            energy_basis=self.fleet.energy_basis(bill),
            measured_wh=bill.measured_uwh / 1e6,
            embodied_gco2e=bill.embodied_gco2e,
            sci_gco2e_per_unit=sci_gco2e_per_unit(
                bill.gco2e, bill.embodied_gco2e, self.work.done_units
            ),
            hourly_carbon_wh=bill.emitted.hourly_uwh / 1e6,
            guarantee=self.measured.guarantee,
            failure=self.failure or "",
            health="" if self.finished_at is not None else self.measured.health,
            replaced_nodes=self.measured.replaced_nodes,
            budget_usd_micros=None if terms is None else terms.budget_usd_micros,
            usd_micros_per_hour=sum(
                node.cost.micros_per_hour + (node.launched.volume_micros_per_hour or 0)
                for node in self.fleet.alive.values()
            ),
            node_seconds=bill.node_ms / 1000,
            nodes_alive=len(self.fleet.alive),
            nodes_launched=len(self.fleet.nodes),
            is_simulated=any(node.startswith(SIMULATED_NODE) for node in self.fleet.nodes),
            launches=len(self._launches),
            failed_launches=self._failed_launches,
            interruptions=self.fleet.interruptions,
            checkpoints=self.work.checkpoints,
            checkpoints_refused=self._checkpoints_refused,
            pool_switches=self._pool_switches,
            generation=self.generation,
            speed_ratio=self.work.speed_ratio,
            tasks_done=self.work.tasks_with(TaskOutcome.DONE),
            tasks_failed=self.work.tasks_with(TaskOutcome.FAILED),
            cache_gib=self._cache_gib,
            cache_node_s=self._cache_node_s,
            task_starts=sum(task.starts for task in self.work.tasks.values()),
            baseline_pool=baseline.pool,
            baseline_usd_micros=baseline.usd_micros,
            baseline_wh=baseline.wh,
            baseline_gco2e=baseline.gco2e,
        )

    @property
    def state(self) -> JobState:
        """Return what the job is doing."""
        if self.failure is not None:
            return JobState.FAILED
        if self.finished_at is not None:
            return JobState.FINISHED
        if self._stopped:
            return JobState.STOPPED
        if self._training and self.fleet.alive:
            return JobState.TRAINING
        return JobState.STARTING if self.fleet.alive else JobState.WAITING

    def _on_time(self, now: datetime) -> bool | None:
        due = None if self.submitted is None else self.submitted.deadline_at
        if due is None:
            return None
        if self.finished_at is not None:
            return self.finished_at <= due
        return False if self.failure is not None or now > due else None

    def _submit(self, event: ev.JobSubmitted) -> None:
        self.submitted = event
        self.finished_at = None
        self.failure = None
        self._stopped = False
        self.storage.end(None)
        self.work.record_point(event.at)

    def _decide(self, event: ev.DecisionMade) -> None:
        self.last_decision = event
        self._stopped = False

    def _intend_launch(self, _: ev.LaunchIntended) -> None:
        self._stopped = False

    def _launch_failed(self, event: ev.LaunchFailed) -> None:
        self._failed_launches += event.error != NOT_SENT_ERROR

    def _node_launched(self, event: ev.NodeLaunched) -> None:
        if not event.waiting and self.fleet.launch(event):
            self._launches.add(event.key)

    def _gang_formed(self, event: ev.GangFormed) -> None:
        if self._training and event.generation != self.generation:
            self._stop_training(event.at)
        self.gang = event
        nodes = self.fleet.nodes
        pools = frozenset(nodes[i].pool for i in event.node_ids if i in nodes)
        if self._gang_pools and pools and pools != self._gang_pools:
            self._pool_switches += 1
        self._gang_pools = pools or self._gang_pools
        for node in (nodes[i] for i in event.node_ids if i in nodes):
            node.join_gang(to_milliseconds(event.at), event.scaling_efficiency)

    def _training_started(self, event: ev.TrainingStarted) -> None:
        if event.generation != self.generation:
            return
        self._training = True
        self._stopped = False
        if self.gang is not None:
            self.fleet.start_training(self.gang.node_ids, to_milliseconds(event.at))
        self._reach(event)

    def _training_stopped(self, event: ev.TrainingStopped) -> None:
        if event.generation != self.generation:
            return
        self._stop_training(event.at)
        self._reach(event)

    def _reach(self, event: ev.TrainingStarted | ev.TrainingStopped) -> None:
        if event.units is not None:
            self.work.record_done(event.at, event.units)

    def _stop_training(self, at: datetime) -> None:
        self._training = False
        for node in self._gang_nodes():
            node.stop_training(to_milliseconds(at))

    def _gang_nodes(self) -> list[NodeAccount]:
        return [] if self.gang is None else self.fleet.unsettled(self.gang.node_ids)

    def _cache_fetched(self, event: ev.CacheFetched) -> None:
        self._cache_gib += event.gib
        self._cache_node_s += event.seconds

    def _checkpoint_committed(self, event: ev.CheckpointCommitted) -> None:
        self.work.commit(event)
        self.storage.commit(event)

    def _checkpoint_refused(self, _: ev.CheckpointRefused) -> None:
        self._checkpoints_refused += 1

    def _node_measured(self, event: ev.NodeMeasured) -> None:
        self.measured.measure(event)
        self.fleet.measure(event)

    def _node_ended(self, event: ev.NodeEnded) -> None:
        self.fleet.record_end(event)
        self.measured.unhealthy.pop(event.node_id, None)

    def _finish(self, event: ev.JobFinished) -> None:
        self._stop_training(event.at)
        self.finished_at = event.at
        self.storage.end(to_milliseconds(event.at))
        self.work.finish(event.at, event.units)

    def _fail(self, event: ev.JobFailed) -> None:
        self._stop_training(event.at)
        self.failure = event.message
        self.storage.end(to_milliseconds(event.at))

    def _run_stopped(self, _: ev.RunStopped) -> None:
        self._stopped = True


def _of_node(take: Callable[[NodeAccount, Any], None]) -> Callable[[JobAccount, Any], None]:
    """Return the fold of an event that only affects its node."""

    def fold(account: JobAccount, event: Any) -> None:
        node = account.node(event.node_id)
        if node is not None:
            take(node, event)

    return fold


_FOLDS: dict[type[ev.Event], Callable[[JobAccount, Any], None]] = {
    ev.JobSubmitted: JobAccount._submit,
    ev.DecisionMade: JobAccount._decide,
    ev.LaunchIntended: JobAccount._intend_launch,
    ev.LaunchFailed: JobAccount._launch_failed,
    ev.NodeLaunched: JobAccount._node_launched,
    ev.PriceChanged: lambda account, event: account.fleet.change_price(event),
    ev.CarbonIntensityRecorded: lambda account, event: account.fleet.record_intensity(event),
    ev.ElectricityContractsRecorded: lambda account, event: account.fleet.record_contracts(event),
    ev.GangFormed: JobAccount._gang_formed,
    ev.CacheFetched: JobAccount._cache_fetched,
    ev.TrainingStarted: JobAccount._training_started,
    ev.TrainingStopped: JobAccount._training_stopped,
    ev.ProgressReported: lambda account, event: account.work.report(event),
    ev.CheckpointCommitted: JobAccount._checkpoint_committed,
    ev.DataMoved: lambda account, event: account.transfers.move(event),
    ev.CheckpointRefused: JobAccount._checkpoint_refused,
    ev.PowerLimitReported: _of_node(NodeAccount.limit_power),
    ev.NodeMeasured: JobAccount._node_measured,
    ev.PowerLimitProbed: lambda account, event: account.measured.probe(event),
    ev.CheckpointIntervalChanged: lambda account, event: account.measured.change_interval(event),
    ev.GuaranteeChanged: lambda account, event: account.measured.change_guarantee(event),
    ev.InterruptionExpected: lambda account, event: account.measured.record_interruption_warning(
        event
    ),
    ev.WorkLost: lambda account, event: account.work.lose(event),
    ev.TaskEnded: lambda account, event: account.work.end_task(event),
    ev.InterruptionNoticed: _of_node(NodeAccount.note),
    ev.NoticeWithdrawn: _of_node(NodeAccount.withdraw_notice),
    ev.DrainIntended: _of_node(NodeAccount.drain),
    ev.TerminateIntended: _of_node(NodeAccount.terminate),
    ev.HealthChanged: lambda account, event: account.measured.change_health(event),
    ev.NodeReplaced: lambda account, event: account.measured.count_replaced(event),
    ev.NodeEnded: JobAccount._node_ended,
    ev.NodeReturned: lambda account, event: account.fleet.reinstate(event),
    ev.NodeBilled: lambda account, event: account.fleet.settle(event),
    ev.JobFinished: JobAccount._finish,
    ev.JobFailed: JobAccount._fail,
    ev.RunStopped: JobAccount._run_stopped,
}


@dataclass(frozen=True, slots=True)
class Baseline:
    """The job on one on-demand pool without interruptions; None is unknown."""

    pool: str | None = None
    usd_micros: int | None = None
    wh: float | None = None
    gco2e: float | None = None


def baseline_at(terms: ev.JobSubmitted | None, speed_ratio: float | None) -> Baseline:
    """Return the baseline of ``terms`` if the job trains ``speed_ratio`` times as fast as declared;
    as declared where that is None. The start-up takes as long at any speed, and the pool remains
    the one that was cheapest at the declared speed."""
    if terms is None:
        return Baseline()
    if speed_ratio is None or speed_ratio == 1.0:
        return Baseline(
            terms.baseline_pool, terms.baseline_usd_micros, terms.baseline_wh, terms.baseline_gco2e
        )
    usd_micros = _scaled(terms.baseline_usd_micros, terms.baseline_startup_usd_micros, speed_ratio)
    wh = _scaled(terms.baseline_wh, terms.baseline_startup_wh, speed_ratio)
    gco2e = terms.baseline_gco2e
    if gco2e is not None and wh is not None and terms.baseline_wh:
        gco2e *= wh / terms.baseline_wh
    return Baseline(
        terms.baseline_pool, None if usd_micros is None else round(usd_micros), wh, gco2e
    )


def _scaled(whole: float | None, startup: float | None, speed_ratio: float) -> float | None:
    """Return the whole with all but the start-up scaled, None where either is unknown."""
    if whole is None or startup is None:
        return None
    return startup + (whole - startup) / speed_ratio


def accounts(ledger: Ledger) -> dict[str, JobAccount]:
    """Return every job's account, in the order of their first event. Raises LedgerError."""
    by_job: dict[str, JobAccount] = {}
    for recorded in ledger.events():
        job = recorded.event.job
        by_job.setdefault(job, JobAccount(job)).apply(recorded.event)
    return by_job
