"""The daemon's metrics in Prometheus's text format: one table, with base units in the names.

Counters are totals of each job since it was submitted, so they survive a restart. Series are of the
jobs that are open or ended within the hour; sums by tenant are of all. If a provider's
bill corrects a total downwards, the counter stays at its highest value until the total exceeds it,
since Prometheus treats a decrease as a restart of the counter; the ledger has the exact figure.
HTTP requests are counted by operation and status, with the time that the responses took.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from threading import Lock
from typing import Protocol

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as MetricFamily
from prometheus_client.registry import Collector

from costopt.daemon.reader import TenantReader
from costopt.daemon.service import DaemonService
from costopt.daemon.shared_state import BudgetUse, Health, JobMetrics, MetricsSnapshot
from costopt.daemon.watch.metrics_snapshot import collect_metrics
from costopt.domain.control import Mode

CONTENT_TYPE = CONTENT_TYPE_LATEST
JOULES_PER_WH = 3600.0

Labels = tuple[str, ...]
Sample = tuple[Labels, float | None]
"""The values of a metric's labels, and its own; None is unknown, and is not exposed."""


class Deliveries(Protocol):
    """Counts webhook deliveries."""

    def deliveries(self) -> dict[tuple[str, str], int]:
        """Return the number of deliveries by (target, result)."""
        ...


class MetricKind(StrEnum):
    """How Prometheus treats a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Scrape:
    """The values read for one scrape; HTTP and webhook figures count since the process started.

    ``shown`` are the jobs that have series of their own.
    """

    seen: MetricsSnapshot
    shown: tuple[JobMetrics, ...]
    health: Health
    http_requests: Mapping[tuple[str, int], int]
    http_seconds: Mapping[str, float]
    deliveries: Mapping[tuple[str, str], int]


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric: ``value`` returns its samples, each with one label value per name in ``labels``.

    A counter's exposed name ends in _total. A histogram's samples are its cumulative buckets by
    upper bound, then the count under "+Inf" and the sum under "sum".
    """

    name: str
    kind: MetricKind
    help: str
    labels: Labels
    value: Callable[[Scrape], Iterable[Sample]]

    @property
    def exposed_names(self) -> tuple[str, ...]:
        """The names that Prometheus stores."""
        match self.kind:
            case MetricKind.COUNTER:
                return (f"{self.name}_total",)
            case MetricKind.GAUGE:
                return (self.name,)
            case MetricKind.HISTOGRAM:
                return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))


ENDED_SHOWN = timedelta(hours=1)
"""Series of more jobs than have run of late would make each scrape longer for ever."""


def _has_series(job: JobMetrics, now: datetime) -> bool:
    ended_at = job.summary.finished_at or job.summary.now
    return not job.closed or now - ended_at <= ENDED_SHOWN


def _of_jobs(figure: Callable[[JobMetrics], float | None]) -> Callable[[Scrape], Iterable[Sample]]:
    return lambda scrape: (((job.job, job.tenant), figure(job)) for job in scrape.shown)


def _emissions(scrape: Scrape) -> Iterator[Sample]:
    for job in scrape.shown:
        if job.summary.carbon_signal is not None:
            yield (job.job, job.tenant, job.summary.carbon_signal), job.summary.gco2e


def _of_tenants(
    figure: Callable[[JobMetrics], float | None],
    signal: Callable[[JobMetrics], str | None] | None = None,
) -> Callable[[Scrape], Iterable[Sample]]:
    """Return the sums over all jobs of a tenant, by ``signal`` where there is one; what is unknown
    of a job is left out."""

    def sums(scrape: Scrape) -> Iterable[Sample]:
        found: dict[Labels, float] = {}
        for job in scrape.seen.jobs:
            value, kind = figure(job), "" if signal is None else signal(job)
            if value is not None and kind is not None:
                labels = (job.tenant,) if signal is None else (job.tenant, kind)
                found[labels] = found.get(labels, 0.0) + value
        return found.items()

    return sums


def _joules(wh: float | None) -> float | None:
    return None if wh is None else wh * JOULES_PER_WH


def _jobs_by_state(scrape: Scrape) -> Iterable[Sample]:
    counts = Counter((job.tenant, job.summary.state.value) for job in scrape.seen.jobs)
    return counts.items()


def _of_daemon(figure: Callable[[Scrape], float | None]) -> Callable[[Scrape], Iterable[Sample]]:
    return lambda scrape: (((), figure(scrape)),)


def _counts(counts: Mapping[tuple[str, int], int] | Mapping[tuple[str, str], int]) -> list[Sample]:
    return [((str(one), str(other)), count) for (one, other), count in counts.items()]


def _tick_durations(scrape: Scrape) -> Iterator[Sample]:
    for max_s, count in scrape.seen.tick_buckets:
        yield (repr(max_s),), count
    yield ("+Inf",), scrape.seen.tick_count
    yield ("sum",), scrape.seen.tick_sum_s


def _of_budgets(
    figure: Callable[[Scrape, BudgetUse], float | None],
) -> Callable[[Scrape], Iterable[Sample]]:
    return lambda scrape: (
        ((use.job, use.tenant or "", use.label), figure(scrape, use)) for use in scrape.seen.budgets
    )


def _seconds_until_spent(scrape: Scrape, use: BudgetUse) -> float | None:
    return None if use.spent_at is None else (use.spent_at - scrape.seen.now).total_seconds()


JOB = ("job", "tenant")
TENANT = ("tenant",)
BUDGET = ("job", "tenant", "limit")
_COUNTER, _GAUGE = MetricKind.COUNTER, MetricKind.GAUGE

METRICS = (
    MetricSpec("costopt_spend_usd", _COUNTER, "Dollars that the provider confirmed.", JOB,
               _of_jobs(lambda job: job.summary.usd)),
    MetricSpec("costopt_energy_joules", _COUNTER,
               "Energy at the data centre's meter; absent where it is unknown.", JOB,
               _of_jobs(lambda job: _joules(job.summary.wh))),
    MetricSpec("costopt_idle_energy_joules", _COUNTER,
               "Energy of nodes while they did not train; absent where it is unknown.", JOB,
               _of_jobs(lambda job: _joules(job.summary.idle_wh))),
    MetricSpec("costopt_emissions_grams", _COUNTER,
               "CO2e of that energy, by the hour where it was recorded, average (location-based) or"
               " marginal as the job's policy counts; absent where it is unknown.",
               (*JOB, "signal"), _emissions),
    MetricSpec("costopt_market_based_emissions_grams", _COUNTER,
               "CO2e of that energy by the account's electricity contracts; absent where none"
               " covers all of it.", JOB,
               _of_jobs(lambda job: job.summary.market_based_gco2e)),
    MetricSpec("costopt_embodied_emissions_grams", _COUNTER,
               "CO2e of making the machines, their hours' share, not part of the emissions; absent"
               " where it is unknown.", JOB,
               _of_jobs(lambda job: job.summary.embodied_gco2e)),
    MetricSpec("costopt_lost_work_units", _COUNTER, "Work done that no checkpoint held.", JOB,
               _of_jobs(lambda job: job.summary.lost_units)),
    MetricSpec("costopt_interruptions", _COUNTER, "Nodes that the provider took.", JOB,
               _of_jobs(lambda job: job.summary.interruptions)),
    MetricSpec("costopt_replaced_nodes", _COUNTER, "Unhealthy nodes that were replaced.", JOB,
               _of_jobs(lambda job: job.summary.replaced_nodes)),
    MetricSpec("costopt_tenant_spend_usd", _COUNTER,
               "Dollars that the provider confirmed, of all jobs of a tenant.", TENANT,
               _of_tenants(lambda job: job.summary.usd)),
    MetricSpec("costopt_tenant_energy_joules", _COUNTER,
               "Energy of all jobs of a tenant, where it is known.", TENANT,
               _of_tenants(lambda job: _joules(job.summary.wh))),
    MetricSpec("costopt_tenant_emissions_grams", _COUNTER,
               "CO2e of all jobs of a tenant, where it is known.", (*TENANT, "signal"),
               _of_tenants(lambda job: job.summary.gco2e, lambda job: job.summary.carbon_signal)),
    MetricSpec("costopt_tenant_interruptions", _COUNTER,
               "Nodes that the provider took, of all jobs of a tenant.", TENANT,
               _of_tenants(lambda job: job.summary.interruptions)),
    MetricSpec("costopt_launches", _COUNTER, "Launches, by result: ok or failed.", ("result",),
               lambda scrape: [((each,), n) for each, n in scrape.seen.launches.items()]),
    MetricSpec("costopt_task_runs", _COUNTER, "Runs of the daemon's tasks.", ("task", "result"),
               lambda scrape: _counts(scrape.seen.task_runs)),
    MetricSpec("costopt_http_requests", _COUNTER, "Answers of the API.", ("operation", "status"),
               lambda scrape: _counts(scrape.http_requests)),
    MetricSpec("costopt_http_request_seconds", _COUNTER,
               "Seconds that the API's answers took together.", ("operation",),
               lambda scrape: [((each,), s) for each, s in scrape.http_seconds.items()]),
    MetricSpec("costopt_webhook_deliveries", _COUNTER, "Deliveries of webhooks.",
               ("target", "result"), lambda scrape: _counts(scrape.deliveries)),
    MetricSpec("costopt_deadline_slack_seconds", _GAUGE,
               "Seconds from the projected finish to the deadline; negative is late.", JOB,
               _of_jobs(lambda job: job.deadline_slack_s)),
    MetricSpec("costopt_done_ratio", _GAUGE, "Work done, 0 to 1.", JOB,
               _of_jobs(lambda job: job.summary.done_share)),
    MetricSpec("costopt_goodput_ratio", _GAUGE,
               "Share of the trainers' time that went into steps that count, 0 to 1.", JOB,
               _of_jobs(lambda job: job.goodput)),
    MetricSpec("costopt_jobs", _GAUGE, "Jobs, those that ended included, by what they are doing.",
               (*TENANT, "state"), _jobs_by_state),
    MetricSpec("costopt_nodes", _GAUGE, "Living nodes.", JOB,
               _of_jobs(lambda job: job.summary.nodes_alive)),
    MetricSpec("costopt_unhealthy", _GAUGE, "1 while nodes of a job are idle, slow or faulty.", JOB,
               _of_jobs(lambda job: bool(job.summary.health))),
    MetricSpec("costopt_job_in_trouble", _GAUGE,
               "1 while a job's own store, file or strategy fails.", JOB,
               _of_jobs(lambda job: job.is_failing)),
    MetricSpec("costopt_budget_usd", _GAUGE,
               "A limit on dollars: of a job, of a tenant, or, without either, of the account.",
               BUDGET, _of_budgets(lambda _, use: use.limit_usd)),
    MetricSpec("costopt_budget_spent_usd", _GAUGE, "Dollars spent of that limit.",
               BUDGET, _of_budgets(lambda _, use: use.usd)),
    MetricSpec("costopt_budget_spent_in_seconds", _GAUGE,
               "Seconds until the limit is reached at the present rate; absent where that is not"
               " before its month or its job ends.", BUDGET, _of_budgets(_seconds_until_spent)),
    MetricSpec("costopt_build_info", _GAUGE, "This costopt; always 1.", ("version",),
               lambda scrape: [((scrape.seen.version,), 1)]),
    MetricSpec("costopt_mode", _GAUGE, "1 for the mode in force.", ("mode",),
               lambda scrape: [((each.value,), each is scrape.seen.mode) for each in Mode]),
    MetricSpec("costopt_price_age_seconds", _GAUGE, "Age of a provider's oldest price.",
               ("provider",),
               lambda scrape: [((each,), s) for each, s in scrape.seen.price_age_s.items()]),
    MetricSpec("costopt_price_list_age_seconds", _GAUGE,
               "Age of a public price list; absent where it was never fetched.", ("source",),
               lambda scrape: [((each,), s) for each, s in scrape.seen.list_age_s.items()]),
    MetricSpec("costopt_carbon_intensity_age_seconds", _GAUGE,
               "Seconds since the beginning of the newest hour that the carbon service has of a"
               " grid zone in use; absent where it has none.", ("source", "zone"),
               lambda scrape: list(scrape.seen.carbon_age_s.items())),
    MetricSpec("costopt_orphans", _GAUGE, "Orphaned nodes and volumes.", (),
               _of_daemon(lambda scrape: scrape.seen.orphans)),
    MetricSpec("costopt_halted", _GAUGE, "Whether all launches are stopped.", (),
               _of_daemon(lambda scrape: scrape.seen.halted)),
    MetricSpec("costopt_leader", _GAUGE, "Whether this daemon leads.", (),
               _of_daemon(lambda scrape: scrape.seen.leads)),
    MetricSpec("costopt_open_proposals", _GAUGE, "Proposals that wait for an answer.", (),
               _of_daemon(lambda scrape: scrape.seen.open_proposals)),
    MetricSpec("costopt_ready", _GAUGE, "Whether the daemon can do its work.", (),
               _of_daemon(lambda scrape: scrape.health.ready)),
    MetricSpec("costopt_tick_age_seconds", _GAUGE, "Seconds since the last successful tick.", (),
               _of_daemon(lambda scrape: scrape.health.tick_age_s)),
    MetricSpec("costopt_tick_duration_seconds", MetricKind.HISTOGRAM, "How long ticks took.", (),
               _tick_durations),
)  # fmt: skip
"""Every metric of the daemon: a new one is a row here."""


OF_JOBS = frozenset(spec.name for spec in METRICS if spec.labels[: len(JOB)] == JOB)


class MetricsEndpoint:
    """The response of /metrics; safe to share between threads."""

    def __init__(self, service: DaemonService, http: HttpMetrics, hooks: Deliveries | None) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(service, http, hooks))

    def text(self) -> bytes:
        """Return the whole page. Raise LedgerError."""
        return generate_latest(self._registry)


class _Collector(Collector):
    """Reads the daemon once per scrape."""

    def __init__(self, service: DaemonService, http: HttpMetrics, hooks: Deliveries | None) -> None:
        self._service = service
        self._http = http
        self._hooks = hooks
        self._lock = Lock()
        self._highest: dict[tuple[str, Labels], float] = {}

    def describe(self) -> list[MetricFamily]:
        """Return nothing: which metrics exist is known only when they are collected."""
        return []

    def collect(self) -> Iterator[MetricFamily]:
        """Return every metric of the table, with its help."""
        seen = collect_metrics(self._service)
        scrape = Scrape(
            seen=seen,
            shown=tuple(job for job in seen.jobs if _has_series(job, seen.now)),
            health=TenantReader(self._service).health(),
            http_requests=self._http.requests(),
            http_seconds=self._http.seconds(),
            deliveries={} if self._hooks is None else self._hooks.deliveries(),
        )
        closed: set[Labels] = {(job.job, job.tenant) for job in scrape.shown if job.closed}
        with self._lock:
            families = [self._family(spec, scrape, closed) for spec in METRICS]
            shown = {(job.job, job.tenant) for job in scrape.shown}
            self._highest = {
                (name, labels): value
                for (name, labels), value in self._highest.items()
                if name not in OF_JOBS or labels[: len(JOB)] in shown
            }
        return iter(families)

    def _family(self, spec: MetricSpec, scrape: Scrape, closed: set[Labels]) -> MetricFamily:
        samples = [(labels, float(v)) for labels, v in spec.value(scrape) if v is not None]
        if spec.kind is MetricKind.HISTOGRAM:
            return _histogram(spec, samples)
        if spec.kind is MetricKind.GAUGE:
            gauge = GaugeMetricFamily(spec.name, spec.help, labels=spec.labels)
            for labels, value in samples:
                gauge.add_metric(labels, value)
            return gauge
        counter = CounterMetricFamily(spec.name, spec.help, labels=spec.labels)
        for labels, value in samples:
            final = labels[: len(JOB)] in closed
            counter.add_metric(labels, self._rising(spec.name, labels, value, final))
        return counter

    def _rising(self, name: str, labels: Labels, now: float, final: bool) -> float:
        """Return the highest value so far; a final value is not remembered."""
        highest = max(now, self._highest.pop((name, labels), now))
        if highest > now or not final:
            self._highest[name, labels] = highest
        return highest


def _histogram(spec: MetricSpec, samples: list[tuple[Labels, float]]) -> MetricFamily:
    *buckets, (_, total) = [(labels[0], value) for labels, value in samples]
    family = HistogramMetricFamily(spec.name, spec.help)
    family.add_metric((), buckets, sum_value=total)
    return family


class HttpMetrics:
    """Counts API requests since this process started; safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, float] = {}

    def count(self, operation: str, status: int, took_s: float) -> None:
        """Count one response."""
        with self._lock:
            self._requests[operation, status] += 1
            self._seconds[operation] = self._seconds.get(operation, 0.0) + took_s

    def requests(self) -> dict[tuple[str, int], int]:
        """Return the number of requests by (operation, HTTP status)."""
        with self._lock:
            return dict(self._requests)

    def seconds(self) -> dict[str, float]:
        """Return the total response time by operation, in seconds."""
        with self._lock:
            return dict(self._seconds)
