"""Counters of jobs, while they go on and once they are closed."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from costopt.daemon.shared_state import TickSnapshot
from costopt.daemon.watch.metrics import HttpMetrics, MetricsEndpoint, _Collector
from costopt.daemon.watch.metrics_snapshot import collect_metrics
from costopt.domain.job import Job
from costopt.domain.runtime import NodeReport
from costopt.ledger.job_account import JobAccount
from costopt.ledger.summary import JobState
from tests.support.daemon_api import Served, served
from tests.support.daemon_fixtures import DaemonScene
from tests.support.market_fixtures import T0


def _publish(daemon: Served, usd: int, *, closed: bool) -> None:
    summary = replace(JobAccount("one").summary(T0), usd_micros=usd * 1_000_000)
    over = frozenset({"one"} if closed else ())
    daemon.board.publish(TickSnapshot(T0, summaries={"one": summary}, closed=over), 0.0)


def test_a_counter_never_falls_not_even_when_its_job_is_closed(tmp_path: Path) -> None:
    shown = []
    with served(tmp_path, fill=False) as daemon:
        daemon.submit("one")
        page = MetricsEndpoint(daemon.service, HttpMetrics(), None)
        for usd, closed in ((5, False), (3, False), (3, True), (3, True)):
            _publish(daemon, usd, closed=closed)
            shown += re.findall(r"^costopt_spend_usd_total\{.*\} (.*)", page.text().decode(), re.M)
    assert shown == ["5.0"] * 4


def test_nothing_is_remembered_of_jobs_whose_totals_change_no_more(tmp_path: Path) -> None:
    with served(tmp_path, fill=False) as daemon:
        daemon.submit("one")
        collector = _Collector(daemon.service, HttpMetrics(), None)
        for closed in (False, True):
            _publish(daemon, 5, closed=closed)
            list(collector.collect())
    assert not [labels for _, labels in collector._highest if "one" in labels]


def test_a_job_has_series_until_an_hour_after_its_end_and_its_tenant_s_sums_go_on(
    tmp_path: Path,
) -> None:
    with served(tmp_path, fill=False) as daemon:
        daemon.submit("one")
        page = MetricsEndpoint(daemon.service, HttpMetrics(), None)
        seen: list[tuple[bool, str]] = []
        for hours, usd in ((0.5, 5), (2, 5), (3, 3)):
            summary = replace(
                JobAccount("one").summary(T0),
                usd_micros=usd * 1_000_000,
                finished_at=T0,
                state=JobState.FINISHED,
            )
            now = T0 + timedelta(hours=hours)
            snapshot = TickSnapshot(now, summaries={"one": summary}, closed=frozenset({"one"}))
            daemon.board.publish(snapshot, 0.0)
            text = page.text().decode()
            (total,) = re.findall(r"^costopt_tenant_spend_usd_total\{.*\} (.*)", text, re.M)
            seen.append(('job="one"' in text, total))
            assert 'costopt_jobs{state="finished",tenant="default"} 1.0' in text
    assert seen == [(True, "5.0"), (False, "5.0"), (False, "5.0")]


def test_energy_emissions_and_goodput_are_absent_where_they_are_unknown(tmp_path: Path) -> None:
    names = (
        "idle_energy_joules_total", "emissions_grams_total", "goodput_ratio",
        "market_based_emissions_grams_total",
    )  # fmt: skip
    with served(tmp_path, fill=False) as daemon:
        daemon.submit("one")
        page = MetricsEndpoint(daemon.service, HttpMetrics(), None)

        def shown(idle_wh: float | None, gco2e: float | None, **goodputs: float) -> list[str]:
            summary = replace(
                JobAccount("one").summary(T0),
                idle_wh=idle_wh,
                gco2e=gco2e,
                carbon_signal="marginal",
                market_based_gco2e=None if gco2e is None else gco2e / 10,
            )
            snapshot = TickSnapshot(T0, summaries={"one": summary}, goodputs=goodputs)
            daemon.board.publish(snapshot, 0.0)
            text = page.text().decode()
            found = [re.search(rf"^costopt_{name}\{{.*\}} (.*)", text, re.M) for name in names]
            return ["absent" if each is None else each[1] for each in found]

        assert shown(None, None) == ["absent"] * 4
        assert shown(2.0, 7.5, one=0.25) == ["7200.0", "7.5", "0.25", "0.75"]
        assert 'costopt_emissions_grams_total{job="one",signal="marginal"' in page.text().decode()


@pytest.mark.process
def test_goodput_is_the_mean_of_what_living_nodes_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = DaemonScene(tmp_path)
    shares = iter((0.5, 0.9))
    by_node: dict[str, float] = {}

    def reports(job: Job) -> tuple[NodeReport, ...]:
        now = scene.clock.now()
        for node in scene.living(job.name):
            if node.node_id not in by_node:
                by_node[node.node_id] = next(shares)
        return tuple(NodeReport(n, T0, now, goodput=share) for n, share in by_node.items())

    def goodput() -> float | None:
        (job,) = collect_metrics(scene.daemon.service).jobs
        return job.goodput

    monkeypatch.setattr(scene.runtime, "node_reports", reports, raising=False)
    scene.submit("one")
    scene.daemon.tick()
    assert goodput() is None
    scene.go(30)
    assert goodput() == 0.5
    (node,) = scene.living()
    scene.cloud.inner.terminate(node.node_id)
    scene.go(30)
    assert goodput() == 0.9
    scene.daemon.service.pause("one", "me")
    scene.go(30)
    assert goodput() is None
    scene.close()
