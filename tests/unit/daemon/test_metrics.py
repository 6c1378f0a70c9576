"""Counters of jobs, while they go on and once they are closed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from costopt.daemon.metrics import HttpMetrics, MetricsEndpoint, _Collector
from costopt.daemon.shared_state import TickSnapshot
from costopt.ledger.job_account import JobAccount
from tests.support.daemon_api import Served, served
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
