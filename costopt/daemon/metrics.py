"""What the daemon measures, in Prometheus's text format: names with base units.

Counters are totals of each job since it was handed in, so they outlive the process. Where a
provider's bill corrects a total downwards, its counter stays where it was until the total is past
it again, since Prometheus takes a counter that falls for one that began anew; the ledger has the
exact figure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from threading import Lock
from typing import Any, Protocol

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from costopt.daemon.http_metrics import HttpMetrics
from costopt.daemon.service import DaemonService
from costopt.daemon.views import JobMetrics, MetricsSnapshot
from costopt.domain.control import Mode

CONTENT_TYPE = CONTENT_TYPE_LATEST
JOB = ("job", "tenant")


class Deliveries(Protocol):
    """Who counts webhooks' deliveries."""

    def deliveries(self) -> dict[tuple[str, str], int]:
        """How many, by (target, result)."""
        ...


class MetricsEndpoint:
    """What /metrics answers; safe to share between threads."""

    def __init__(self, service: DaemonService, http: HttpMetrics, hooks: Deliveries | None) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Collector(service, http, hooks))

    def text(self) -> bytes:
        """The whole page. Raises LedgerError."""
        return generate_latest(self._registry)


class _Collector(Collector):
    """Asks the daemon once per page."""

    def __init__(self, service: DaemonService, http: HttpMetrics, hooks: Deliveries | None) -> None:
        self._service = service
        self._http = http
        self._hooks = hooks
        self._lock = Lock()
        self._highest: dict[tuple[str, tuple[str, ...]], float] = {}

    def describe(self) -> list[Metric]:
        """Nothing: what there is becomes known when it is asked for."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Every metric, with its help."""
        seen = self._service.metrics_snapshot()
        health = self._service.health()
        with self._lock:
            yield from self._job_totals(seen)
            yield from self._counts(seen)
        yield from _job_gauges(seen)
        yield from _daemon_gauges(seen)
        yield _gauge("costopt_ready", "Whether the daemon can do its work.", float(health.ready))
        if health.tick_age_s is not None:
            about = "Seconds of the wall since the last tick that ended well."
            yield _gauge("costopt_tick_age_seconds", about, health.tick_age_s)
        yield _ticks(seen)

    def _job_totals(self, seen: MetricsSnapshot) -> Iterator[Metric]:
        rows: tuple[tuple[str, str, Callable[[JobMetrics], float | None]], ...] = (
            ("costopt_spend_usd", "Dollars that the provider confirmed.", _spend),
            ("costopt_energy_joules", "Energy at the data centre's meter, where known.", _energy),
            ("costopt_lost_work_units", "Work done that no checkpoint held.", _lost),
            ("costopt_interruptions", "Nodes that the provider took.", _interruptions),
        )
        for name, about, figure in rows:
            family = CounterMetricFamily(name, about, labels=JOB)
            for job in seen.jobs:
                labels, value = (job.job, job.tenant), figure(job)
                if value is not None:
                    family.add_metric(labels, self._rising(name, labels, value, job.closed))
            yield family

    def _counts(self, seen: MetricsSnapshot) -> Iterator[Metric]:
        launches = CounterMetricFamily(
            "costopt_launches", "Launches that were asked for.", labels=("result",)
        )
        for result, count in seen.launches.items():
            total = self._rising("costopt_launches", (result,), float(count))
            launches.add_metric((result,), total)
        yield launches
        yield _counter("costopt_task_runs", "Runs of tasks.", ("task", "result"), seen.task_runs)
        requests = {(op, str(status)): n for (op, status), n in self._http.requests().items()}
        about = "Answers of the API."
        yield _counter("costopt_http_requests", about, ("operation", "status"), requests)
        seconds = {(op,): s for op, s in self._http.seconds().items()}
        about = "Seconds that the API's answers took together."
        yield _counter("costopt_http_request_seconds", about, ("operation",), seconds)
        sent = {} if self._hooks is None else self._hooks.deliveries()
        about = "Webhooks sent."
        yield _counter("costopt_webhook_deliveries", about, ("target", "result"), sent)

    def _rising(self, name: str, labels: tuple[str, ...], now: float, final: bool = False) -> float:
        highest = max(now, self._highest.pop((name, labels), now))
        if highest > now or not final:
            self._highest[name, labels] = highest
        return highest


def _spend(job: JobMetrics) -> float:
    return job.spend_usd


def _energy(job: JobMetrics) -> float | None:
    return job.energy_joules


def _lost(job: JobMetrics) -> float:
    return job.lost_work_units


def _interruptions(job: JobMetrics) -> float:
    return float(job.interruptions)


def _job_gauges(seen: MetricsSnapshot) -> Iterator[Metric]:
    slack = GaugeMetricFamily(
        "costopt_deadline_slack_seconds",
        "Seconds from the projected finish to the deadline; negative is late.",
        labels=JOB,
    )
    done = GaugeMetricFamily("costopt_done_ratio", "Work done, 0 to 1.", labels=JOB)
    nodes = GaugeMetricFamily("costopt_nodes", "Living nodes.", labels=JOB)
    about = "1 while a job's own store, file or strategy fails."
    troubled = GaugeMetricFamily("costopt_job_in_trouble", about, labels=JOB)
    for job in seen.jobs:
        labels = (job.job, job.tenant)
        if job.deadline_slack_s is not None:
            slack.add_metric(labels, job.deadline_slack_s)
        if job.done_share is not None:
            done.add_metric(labels, job.done_share)
        nodes.add_metric(labels, job.nodes)
        troubled.add_metric(labels, float(job.is_failing))
    yield from (slack, done, nodes, troubled)


def _daemon_gauges(seen: MetricsSnapshot) -> Iterator[Metric]:
    info = GaugeMetricFamily("costopt_build_info", "This costopt; always 1.", labels=("version",))
    info.add_metric((seen.version,), 1.0)
    mode = GaugeMetricFamily("costopt_mode", "1 for the mode in force.", labels=("mode",))
    for each in Mode:
        mode.add_metric((each.value,), float(each is seen.mode))
    ages = GaugeMetricFamily(
        "costopt_price_age_seconds", "Age of a provider's oldest price.", labels=("provider",)
    )
    for provider, age_s in seen.price_age_s.items():
        ages.add_metric((provider,), age_s)
    yield from (info, mode, ages)
    yield _gauge("costopt_orphans", "Nodes and volumes nobody answers for.", float(seen.orphans))
    yield _gauge("costopt_halted", "Whether all launches are stopped.", float(seen.halted))
    yield _gauge("costopt_leader", "Whether this daemon leads.", float(seen.leads))
    about = "Proposals that wait for an answer."
    yield _gauge("costopt_open_proposals", about, float(seen.open_proposals))


def _ticks(seen: MetricsSnapshot) -> Metric:
    family = HistogramMetricFamily("costopt_tick_duration_seconds", "How long ticks took.")
    buckets = [(repr(most_s), float(count)) for most_s, count in seen.tick_buckets]
    buckets.append(("+Inf", float(seen.tick_count)))
    family.add_metric((), buckets, sum_value=seen.tick_sum_s)
    return family


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)


def _counter(name: str, about: str, labels: tuple[str, ...], counts: Mapping[Any, float]) -> Metric:
    family = CounterMetricFamily(name, about, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, float(count))
    return family
