"""A tenant's limits of open jobs and of requests; other tenants do not notice."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from costopt.client.client import DaemonClient, parse_address
from costopt.daemon.http.problems import HttpProblemError
from costopt.daemon.http.request_limits import RequestLimits
from costopt.daemon.shared_state import TickSnapshot
from costopt.domain.account import Account, Tenant
from costopt.domain.control import Scope
from costopt.domain.errors import CostoptError, GuardTrippedError
from costopt.ledger.job_account import JobAccount
from costopt.ledger.summary import JobState
from tests.support.daemon_api import served
from tests.support.errors import has_code

ACCOUNT = Account(
    tenants={
        "red": Tenant("red", prefixes=("s3://bucket",), max_open_jobs=2, max_requests_per_minute=5),
        "blue": Tenant("blue", prefixes=("s3://bucket",)),
    }
)


def test_a_tenant_has_no_more_open_jobs_than_its_limit(tmp_path: Path) -> None:
    with served(tmp_path, fill=False, account=ACCOUNT) as daemon:
        daemon.submit("one", "red")
        daemon.submit("two", "red")
        with pytest.raises(GuardTrippedError, check=has_code("max_open_jobs")):
            daemon.submit("three", "red")
        for number in range(4):
            daemon.submit(f"blue{number}", "blue")
        daemon.service.cancel("one", "test")
        daemon.submit("three", "red")
        now = datetime.now(UTC)
        ended = replace(JobAccount("two").summary(now), state=JobState.FINISHED)
        daemon.board.publish(TickSnapshot(now, summaries={"two": ended}), 0.0)
        daemon.submit("four", "red")
        with pytest.raises(GuardTrippedError):
            daemon.submit("five", "red")


def test_a_tenants_requests_are_limited_and_others_are_not(tmp_path: Path) -> None:
    with served(tmp_path, fill=False, account=ACCOUNT) as daemon:
        red, blue = (
            DaemonClient(parse_address(daemon.url), daemon.token(Scope.READ, tenant=name))
            for name in ("red", "blue")
        )
        for _ in range(5):
            red.get("jobs")
        with pytest.raises(CostoptError, match="requests per minute"):
            red.get("jobs")
        for _ in range(20):
            blue.get("jobs")
            daemon.local.get("jobs")


def test_requests_come_back_at_their_rate() -> None:
    now_s = [0.0]
    limits = RequestLimits(ACCOUNT.tenants, lambda: now_s[0])
    for _ in range(5):
        limits.charge("red")
    with pytest.raises(HttpProblemError) as refused:
        limits.charge("red")
    assert refused.value.status_code == 429
    assert refused.value.headers is not None
    now_s[0] += float(refused.value.headers["Retry-After"])
    limits.charge("red")
    with pytest.raises(HttpProblemError):
        limits.charge("red")
    limits.charge("unknown")
