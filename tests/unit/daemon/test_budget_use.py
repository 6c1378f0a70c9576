"""How long budgets last at the present rate."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from costopt.daemon.watch.metrics import HttpMetrics, MetricsEndpoint
from costopt.domain.account import Account, AccountGuards
from tests.support.daemon_fixtures import POLICY, DaemonScene, document
from tests.support.market_fixtures import T0

pytestmark = pytest.mark.process


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[DaemonScene]:
    guards = AccountGuards(max_usd=10.0, max_usd_per_month=1e6)
    made = DaemonScene(tmp_path, Account(guards=guards))
    yield made
    made.close()


def submit(scene: DaemonScene, name: str, budget_usd: float) -> None:
    text = document(name, hours=8.0, more=f"budget: {{usd: {budget_usd}}}\n")
    service = scene.daemon.service
    service.submit(service.read(text, POLICY, workdir=str(scene.folder), who="me"))


def test_a_budget_says_when_it_is_spent_at_the_present_rate(scene: DaemonScene) -> None:
    submit(scene, "short", 4.0)
    submit(scene, "ample", 100.0)
    scene.go(60)
    uses = {(use.job, use.label): use for use in scene.reader.budgets()}
    short, ample = uses["short", "dollars of its budget"], uses["ample", "dollars of its budget"]
    assert short.spent_at is not None
    assert abs(short.spent_at - (T0 + timedelta(hours=4))) < timedelta(minutes=15)
    assert ample.spent_at is None, "it is done before"
    total, month = uses["", "dollars in all"], uses["", "dollars per calendar month"]
    assert total.spent_at is not None
    assert abs(total.spent_at - (T0 + timedelta(hours=5))) < timedelta(minutes=15)
    assert month.spent_at is None, "not in this month"
    alerts = [(a.job, a.kind) for a in scene.reader.alerts() if a.kind == "forecast"]
    assert sorted(alerts) == [("", "forecast"), ("short", "forecast")]
    assert scene.job("short").summary.forecast_usd_micros == pytest.approx(8e6, rel=0.1)


def test_budgets_are_metrics(scene: DaemonScene) -> None:
    submit(scene, "short", 4.0)
    scene.go(60)
    text = MetricsEndpoint(scene.daemon.service, HttpMetrics(), None).text().decode()
    labels = 'job="short",limit="dollars of its budget",tenant="default"'
    values = {
        name: float(value)
        for name, _, value in (line.partition(f"{{{labels}}} ") for line in text.splitlines())
        if value
    }
    assert values["costopt_budget_usd"] == 4.0
    assert values["costopt_budget_spent_usd"] == pytest.approx(1.0, abs=0.1)
    assert values["costopt_budget_spent_in_seconds"] == pytest.approx(3 * 3600, rel=0.1)
