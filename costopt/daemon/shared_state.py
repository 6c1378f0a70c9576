"""State that the daemon's threads share, and the frozen views of it that any thread may read.

Each tick publishes a new TickSnapshot; it is never changed.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Event, Lock

from costopt.daemon.watch.alert_kinds import AlertKind
from costopt.domain.account import Quota
from costopt.domain.control import Halt, Mode, Submission
from costopt.domain.events import DecisionMade
from costopt.domain.fleet import NodeState
from costopt.domain.market import Offer
from costopt.domain.view import View
from costopt.ledger.summary import JobSummary

BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
MAX_ALERTS = 1000


class SharedState:
    """Safe to share between threads. ``began`` is the daemon's clock at construction.

    ``forecasts`` are by job; they are replaced, never changed.
    ``quotas`` are the account's, as the providers report them. ``lists_observed_at`` is by source
    of public prices, on the wall clock.
    """

    def __init__(self, began: datetime) -> None:
        self._lock = Lock()
        self._snapshot = TickSnapshot(began)
        self._alerts: deque[Alert] = deque(maxlen=MAX_ALERTS)
        self._alert_count = 0
        self._standing: dict[tuple[str, str], str] = {}
        self._buckets = [0] * (len(BUCKETS_S) + 1)
        self.tick_count = 0
        self.tick_sum_s = 0.0
        self.ticked_at: datetime | None = None
        self.tick_failure = ""
        self.orphans: tuple[str, ...] = ()
        self.quotas: tuple[Quota, ...] = ()
        self.lists_observed_at: Mapping[str, datetime] = {}
        self.carbon_ages_s: Mapping[tuple[str, str], float] = {}
        self.forecasts: Mapping[str, JobForecast] = {}
        self.leads = True
        self.is_awaited = Event()
        self._ticked_mono_s: float | None = None
        self._looped_mono_s = time.monotonic()
        self.has_ended_tick = False
        self._task_runs: Counter[tuple[str, str]] = Counter()

    def publish(self, snapshot: TickSnapshot, took_s: float) -> None:
        """Publish the snapshot of a successful tick."""
        with self._lock:
            self._snapshot = snapshot
            self.ticked_at = snapshot.now
            self.tick_failure = ""
            self._ticked_mono_s = time.monotonic()
            self.end_tick()
            self.tick_count += 1
            self.tick_sum_s += took_s
            self._buckets[bisect_left(BUCKETS_S, took_s)] += 1

    def set_standby(self) -> None:
        """Record that the loop runs while another daemon leads."""
        with self._lock:
            self.tick_failure = ""
            self._ticked_mono_s = time.monotonic()
            self.end_tick()

    @property
    def snapshot(self) -> TickSnapshot:
        """Return the last tick's snapshot; empty before the first."""
        return self._snapshot

    @property
    def tick_age_s(self) -> float | None:
        """Return the seconds of real time since the loop last succeeded; None before it first
        did."""
        at = self._ticked_mono_s
        return None if at is None else time.monotonic() - at

    def end_tick(self) -> None:
        """Record that a tick has ended, whether it succeeded or not."""
        self.has_ended_tick = True
        self._looped_mono_s = time.monotonic()

    @property
    def loop_age_s(self) -> float:
        """Return the seconds of real time since the last tick ended in whatever way; before the
        first one, since construction."""
        return time.monotonic() - self._looped_mono_s

    def tick_buckets(self) -> tuple[tuple[float, int], ...]:
        """Return (upper bound in seconds, number of ticks no longer than it), ascending."""
        with self._lock:
            sums = [sum(self._buckets[: i + 1]) for i in range(len(BUCKETS_S))]
        return tuple(zip(BUCKETS_S, sums, strict=True))

    def record_task_run(self, task: str, result: str) -> None:
        """Count a run of a task; ``result`` is "ok", "failed" or "missed"."""
        with self._lock:
            self._task_runs[task, result] += 1

    def task_runs(self) -> dict[tuple[str, str], int]:
        """Return the number of runs by (task, result)."""
        with self._lock:
            return dict(self._task_runs)

    def alert(self, at: datetime, kind: AlertKind, job: str, message: str) -> None:
        """Raise an alert, once while the same condition lasts: until ``settled``."""
        with self._lock:
            if self._standing.get((kind, job)) is not None:
                return
            self._standing[kind, job] = message
            self._alert_count += 1
            self._alerts.append(Alert(self._alert_count, at, kind, job, message))

    def settled(self, kind: AlertKind, job: str) -> None:
        """Record that the condition is over; if it returns, it raises a new alert."""
        with self._lock:
            self._standing.pop((kind, job), None)

    def alerts(self, after: int) -> tuple[Alert, ...]:
        """Return the alerts with a higher number, oldest first; only the newest are retained."""
        with self._lock:
            return tuple(alert for alert in self._alerts if alert.seq > after)


@dataclass(frozen=True, slots=True)
class FleetNode:
    """A living node. ``usd_per_hour`` is the price at launch, ``health`` what is wrong, or ""."""

    node_id: str
    job: str
    tenant: str
    pool: str
    state: NodeState
    launched_at: datetime
    usd_per_hour: float
    draining: bool
    interrupts_at: datetime | None
    health: str = ""


@dataclass(frozen=True, slots=True)
class JobForecast:
    """What a job is expected to cost in all, and when it is done, as of ``made_at``.

    Dollars are the mean and the 95th percentile, ``usd_to_come`` and ``kwh_to_come`` what is not
    spent yet. ``on_time`` is a probability; ``source`` says what it is of.
    """

    made_at: datetime
    usd: float
    usd_p95: float
    usd_to_come: float
    kwh_to_come: float | None
    finish_p50_at: datetime
    finish_p95_at: datetime
    on_time: float
    source: str


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A submitted job and its state.

    ``summary`` is of the last tick. ``blocked_by`` gives the reason why it gets no nodes now, "" if
    there is none. ``slack_s`` is as of the last tick, None if unknown. ``next_at`` is the
    next occurrence of a recurring job, None of others. ``forecast`` is None before it was made.
    """

    submission: Submission
    summary: JobSummary
    blocked_by: str
    slack_s: float | None
    decision: DecisionMade | None
    nodes: tuple[FleetNode, ...]
    next_at: datetime | None = None
    forecast: JobForecast | None = None

    @property
    def finish_at_pace(self) -> datetime | None:
        """Return when the job is done if it trains on at its present pace; None if unknown."""
        known = self.summary
        if not known.units_per_s or not known.work_units or not known.nodes_alive:
            return None
        left_s = max(0.0, known.work_units - known.done_units) / known.units_per_s
        return known.now + timedelta(seconds=left_s)

    @property
    def safest_finish_at(self) -> datetime | None:
        """Return when it would be done if it went to the safest capacity at once, which leaves its
        slack until the deadline; None if unknown."""
        due = self.summary.deadline_at
        if due is None or self.slack_s is None:
            return None
        return due - timedelta(seconds=self.slack_s)


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """Dollars spent of a limit on dollars (``label``): of a tenant, or of the account if None.

    The limit is that of one ``job`` if it is not "". ``spent_at`` is when the limit is reached if
    as much per hour is spent as now, None if that is not before its month or its job ends.
    """

    tenant: str | None
    label: str
    usd: float
    limit_usd: float
    job: str = ""
    spent_at: datetime | None = None

    @property
    def holder(self) -> str:
        """Return whose limit it is, in words."""
        if self.job:
            return f"job {self.job}"
        return "account" if self.tenant is None else f"tenant {self.tenant}"


@dataclass(frozen=True, slots=True)
class FleetView:
    """All living nodes at the last tick, and the orphans."""

    now: datetime
    nodes: tuple[FleetNode, ...]
    usd_per_hour: float
    mode: Mode
    halt: Halt | None
    orphans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MarketRow:
    """A pool as last reported; ``price_age_s`` is None if the price or its time is unknown."""

    offer: Offer
    price_age_s: float | None


@dataclass(frozen=True, slots=True)
class MarketView:
    """The providers' offers. ``silent`` gives, by name, why a provider is unreachable."""

    now: datetime
    rows: tuple[MarketRow, ...]
    provider_errors: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """A decision with its place in the ledger."""

    seq: int
    decision: DecisionMade


@dataclass(frozen=True, slots=True)
class Health:
    """``alive``: the loop runs, though its ticks may fail. ``ready``: they succeed.

    ``problems`` are sentences, empty if there are none. ``tick_age_s`` is in seconds of real time.
    """

    alive: bool
    ready: bool
    problems: tuple[str, ...]
    last_tick_at: datetime | None
    tick_age_s: float | None
    leads: bool


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that an operator should see, numbered from 1.

    ``job`` is "" if the alert concerns no single job.
    """

    seq: int
    at: datetime
    kind: AlertKind
    job: str
    message: str


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """The metrics of one job: totals since it was submitted. None is unknown.

    Those of a ``closed`` job are final. ``goodput`` is the mean over its living nodes.
    """

    tenant: str
    summary: JobSummary
    deadline_slack_s: float | None
    is_failing: bool
    closed: bool
    goodput: float | None = None

    @property
    def job(self) -> str:
        """Return the job's name."""
        return self.summary.job


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """All metrics, at one instant; counts are since this process started.

    ``launches`` and ``task_runs`` are by result and by (task, result), ``price_age_s`` is by
    provider, ``list_age_s`` by source of public prices, ``carbon_age_s`` by (source, grid zone).
    ``tick_buckets`` are (upper bound in seconds, ticks no longer than it), ascending.
    """

    now: datetime
    version: str
    mode: Mode
    halted: bool
    leads: bool
    jobs: tuple[JobMetrics, ...]
    launches: dict[str, int]
    price_age_s: dict[str, float]
    list_age_s: dict[str, float]
    carbon_age_s: dict[tuple[str, str], float]
    orphans: int
    tick_count: int
    tick_sum_s: float
    tick_buckets: tuple[tuple[float, int], ...]
    task_runs: dict[tuple[str, str], int]
    open_proposals: int
    budgets: tuple[BudgetUse, ...] = ()


@dataclass(frozen=True, slots=True)
class TickSnapshot:
    """The state after a tick; its mappings are by job where they concern jobs.

    ``held`` gives the reason why a job gets no nodes, ``troubles`` the failure of one job alone,
    ``failing_nodes`` which of its nodes failed or are unhealthy, ``guarded`` why a
    guard has stopped it. Nothing more happens to jobs that are ``closed``. ``silent`` gives the
    reason why a provider is unreachable. ``slacks`` are of this tick, in seconds. ``views`` are
    what each strategy's jobs were decided on.
    """

    now: datetime
    nodes: tuple[FleetNode, ...] = ()
    nodes_of: Mapping[str, tuple[FleetNode, ...]] = field(default_factory=dict)
    summaries: Mapping[str, JobSummary] = field(default_factory=dict)
    decisions: Mapping[str, DecisionMade] = field(default_factory=dict)
    slacks: Mapping[str, float] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)
    troubles: Mapping[str, str] = field(default_factory=dict)
    failing_nodes: Mapping[str, str] = field(default_factory=dict)
    guarded: Mapping[str, str] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    offers: tuple[Offer, ...] = ()
    budgets: tuple[BudgetUse, ...] = ()
    goodputs: Mapping[str, float] = field(default_factory=dict)
    silent: Mapping[str, str] = field(default_factory=dict)
    views: tuple[View, ...] = ()
