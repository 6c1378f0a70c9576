"""A month at a savings plan of $10 an hour that is used by 60 %, as docs/prices.md computes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from costopt.api.inputs import load_account
from costopt.cli.main import cli
from costopt.domain.account_price import CommitmentKind
from costopt.domain.events import Event, NodeEnded, NodeLaunched
from costopt.domain.fleet import EndCause
from costopt.domain.market import CapacityType, Pool
from costopt.ledger.base import open_ledger
from costopt.ledger.fold_cache import require_fold
from costopt.ledger.month_bill import month_bill

BEGIN, END = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
ON_DEMAND = Pool("aws", "us-east-1", "use1-az1", "g6.12xlarge", CapacityType.ON_DEMAND)
ACCOUNT = """
kind: account
commitments:
  - name: sp-2026
    kind: savings_plan
    provider: aws
    usd_per_hour: 10
    rates: {g6.12xlarge: 3.00}
credits:
  - {name: grant, provider: aws, usd: 5000, last_day: 2026-12-31}
"""


@dataclass
class Month:
    """A ledger with nodes that ran for the whole of November, and the account's file."""

    folder: Path

    def write(self, nodes: Sequence[NodeLaunched]) -> None:
        ends: list[Event] = [
            NodeEnded(
                at=END, job=node.job, node_id=node.node_id, pool=node.pool, ended_at=END,
                cause=EndCause.RELEASED,
            )
            for node in nodes
        ]  # fmt: skip
        (self.folder / "account.yaml").write_text(ACCOUNT)
        with open_ledger(self.folder / "ledger.db", create=True) as ledger:
            ledger.append(*nodes, *ends)

    def bill(self, *options: str) -> str:
        account = str(self.folder / "account.yaml")
        arguments = [
            "export",
            "bill",
            "--state-dir",
            str(self.folder / "ledger.db"),
            "--account",
            account,
            *options,
        ]
        ran = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        assert ran.exit_code == 0, ran.output
        return ran.output

    def rows(self, month: str) -> dict[str, dict[str, float | None]]:
        rows = json.loads(self.bill("--month", month, "--output", "json"))["rows"]
        return {row["item"]: row for row in rows}


def node(node_id: str, pool: Pool, usd: float, committed: float) -> NodeLaunched:
    covered = pool.commitment is not None
    return NodeLaunched(
        at=BEGIN, job="tune", key="k", node_id=node_id, pool=str(pool), launched_at=BEGIN,
        micros_per_hour=round(usd * 1e6), idle_w=None, busy_w=None, pue=None, gco2e_per_kwh=None,
        energy_basis="unknown", list_micros_per_hour=4_601_600,
        committed_micros_per_hour=round(committed * 1e6),
        commitment=CommitmentKind.SAVINGS_PLAN if covered else None,
    )  # fmt: skip


@pytest.fixture
def november(tmp_path: Path) -> Month:
    """Two nodes under the plan and one on demand, 720 hours each."""
    month, covered = Month(tmp_path), ON_DEMAND.committed_to("sp-2026")
    month.write(
        [
            node("i-1", covered, 0.0, 3.0),
            node("i-2", covered, 0.0, 3.0),
            node("i-3", ON_DEMAND, 4.6016, 0.0),
        ]
    )
    return month


def test_the_month_of_the_documentation(november: Month) -> None:
    rows = november.rows("2026-11")
    plan = rows["savings plan sp-2026"]
    assert plan["usd_micros"] == 720 * 10 * 10**6
    assert plan["used_usd_micros"] == 720 * 2 * 3 * 10**6
    assert plan["used_share"] == pytest.approx(0.6)
    nodes = rows["nodes at aws"]
    assert nodes["usd_micros"] == 720 * 4_601_600
    assert nodes["list_usd_micros"] == 3 * 720 * 4_601_600
    assert rows["in all"]["usd_micros"] == 720 * 10 * 10**6 + 720 * 4_601_600
    assert rows["credit grant"]["usd_micros"] == -5000 * 10**6
    assert rows["to be paid"]["usd_micros"] == 720 * 14_601_600 - 5000 * 10**6


def test_a_credit_is_used_up_once(november: Month) -> None:
    terms = load_account(november.folder / "account.yaml").price_terms
    with open_ledger(november.folder / "ledger.db", create=False) as ledger:
        account = require_fold(ledger, "tune").account
    end = datetime(2027, 1, 1, tzinfo=UTC)
    later = month_bill([account], terms, END, end)
    assert later.usd_micros == 744 * 10 * 10**6
    assert later.commitments[0].used_share == 0.0
    assert later.credits == {"grant": 0}
    assert later.paid_usd_micros == later.usd_micros


def test_the_documentation_shows_this_table(november: Month) -> None:
    shown = november.bill("--month", "2026-11")
    assert shown.strip() in Path("docs/prices.md").read_text()
    assert max(map(len, shown.splitlines())) <= 100


def test_a_month_that_is_none_is_refused(november: Month) -> None:
    ran = CliRunner().invoke(cli, ["export", "bill", "--account", "x", "--month", "2026-13"])
    assert ran.exit_code == 2
    assert "2026-13" in ran.output
