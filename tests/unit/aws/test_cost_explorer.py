"""What Cost Explorer says of a job, and how far the ledger is from it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner

from costopt.cli.main import cli
from costopt.domain.errors import ForbiddenError
from costopt.domain.fleet import ProviderCharge
from costopt.ledger.run_view import RunView
from costopt.ledger.sql_ledger import open_sqlite_ledger
from costopt.views.bill import ledger_drift
from costopt_aws.billing import CostExplorer
from costopt_aws.clients import Clients
from tests.support.aws.cloud import Cloud
from tests.support.aws.overlay.faults import unauthorized
from tests.support.sample_run import finished_at, sample_events

SINCE = datetime(2026, 3, 1, 10, tzinfo=UTC)
UNTIL = datetime(2026, 3, 2, 9, tzinfo=UTC)


def preload(cloud: Cloud, *responses: dict[str, Any]) -> None:
    """Let moto answer with these, one after the other."""
    body = json.dumps({"account_id": "123456789012", "results": responses}).encode()
    url = f"{cloud.endpoint}/moto-api/static/ce/cost-and-usage-results"
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(url, body, headers)) as response:
        assert response.status == 201


def days(*usd: float, estimated: bool = False) -> dict[str, Any]:
    return {
        "ResultsByTime": [
            {
                "TimePeriod": {"Start": f"2026-03-{n + 1:02}", "End": f"2026-03-{n + 2:02}"},
                "Total": {"UnblendedCost": {"Amount": str(value), "Unit": "USD"}},
                "Groups": [],
                "Estimated": estimated,
            }
            for n, value in enumerate(usd)
        ],
        "DimensionValueAttributes": [],
    }


def test_days_are_added_up_over_pages(cloud: Cloud, aws_clients: Clients) -> None:
    preload(cloud, days(1.25) | {"NextPageToken": "more"}, days(2.0, estimated=True))
    charge = CostExplorer(aws_clients).charge("me", "job", SINCE, UNTIL)
    assert charge == ProviderCharge(
        "aws",
        "job",
        datetime(2026, 3, 1, tzinfo=UTC),
        datetime(2026, 3, 3, tzinfo=UTC),
        3.25,
        "Cost Explorer, still an estimate",
    )


def test_no_cost_at_all_is_not_known(cloud: Cloud, aws_clients: Clients) -> None:
    preload(cloud, days(0.0, 0.0))
    assert CostExplorer(aws_clients).charge("me", "job", SINCE, UNTIL) is None


def test_a_refusal_names_the_permission(cloud: Cloud, aws_clients: Clients) -> None:
    cloud.faults.on("ce", "GetCostAndUsage", unauthorized)
    with pytest.raises(ForbiddenError, match="ce:GetCostAndUsage"):
        CostExplorer(aws_clients).charge("me", "job", SINCE, UNTIL)


def test_the_drift_is_reported_both_ways() -> None:
    run = RunView.of(sample_events(), finished_at())
    counted = sum(r.usd_micros for r in run.intervals if r.pool.provider == "aws") / 1e6
    charge = ProviderCharge("aws", run.summary.job, SINCE, UNTIL, counted / 1.1, "test")
    assert "(+10.0%) more" in ledger_drift(charge, run)
    charge = ProviderCharge("aws", run.summary.job, SINCE, UNTIL, counted / 0.9, "test")
    assert "(-10.0%) less" in ledger_drift(charge, run)
    assert "billed $" in ledger_drift(charge, run)


@pytest.mark.process
def test_the_report_holds_the_bill(cloud: Cloud, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    events = sample_events()
    with open_sqlite_ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.append(*events)
    account = tmp_path / "account.yaml"
    account.write_text("owner: me\nproviders: {aws: {regions: [us-east-1]}}\n")
    preload(cloud, days(5.0))
    asked = ["report", events[0].job, "--state-dir", str(tmp_path), "-o", "html"]
    done = CliRunner().invoke(cli, [*asked, "--account", str(account)])
    assert done.exit_code == 0, done.output
    assert "aws billed $5.00" in done.stderr
    assert "aws billed $5.00" in done.stdout
    cloud.faults.on("ce", "GetCostAndUsage", unauthorized)
    done = CliRunner().invoke(cli, [*asked, "--account", str(account)])
    assert done.exit_code == 0, done.output
    assert "not compared with the bill" in done.stderr
