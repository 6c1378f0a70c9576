"""The inventory by month and region adds up to the ledger, and says what is unknown."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from costopt.cli.main import cli
from costopt.controller.state_dir import LEDGER
from costopt.domain.contracts import ContractKind, ElectricityContract, contract_terms
from costopt.domain.events import (
    CarbonIntensityRecorded,
    ElectricityContractsRecorded,
    Event,
    NodeEnded,
    NodeLaunched,
)
from costopt.domain.fleet import EndCause
from costopt.domain.period import Period
from costopt.domain.policy import CarbonSignal
from costopt.ledger.base import open_ledger
from costopt.ledger.job_account import JobAccount
from costopt.render.exports.ghg import JobBooks, ghg_table
from costopt.render.writers import to_csv, to_html

BEGUN = datetime(2022, 2, 27, 21, 20, 7, tzinfo=UTC)
ENDED = datetime(2022, 3, 2, 5, 41, 13, tzinfo=UTC)
HOUR = timedelta(hours=1)


def launched(
    node_id: str,
    region: str = "eu-central-1",
    signal: CarbonSignal = CarbonSignal.AVERAGE,
    **other: Any,
) -> NodeLaunched:
    power = {"idle_w": 333.3, "busy_w": 777.7, "pue": 1.13, "embodied_gco2e_per_hour": 12.34}
    return NodeLaunched(
        at=BEGUN, job="job", key="k", node_id=node_id,
        pool=f"aws/{region}/{region}a/p3.2xlarge/on_demand", launched_at=BEGUN,
        micros_per_hour=4_000_000, gco2e_per_kwh=370.93, energy_basis="modelled",
        carbon_signal=signal, **{**power, **other},
    )  # fmt: skip


def ended(node_id: str) -> NodeEnded:
    return NodeEnded(
        at=ENDED, job="job", node_id=node_id, pool="aws/eu-central-1/eu-central-1a/p3.2xlarge/x",
        ended_at=ENDED, cause=EndCause.RELEASED,
    )  # fmt: skip


def hours(region: str = "aws/eu-central-1", every: int = 1) -> list[CarbonIntensityRecorded]:
    first = BEGUN.replace(minute=0, second=0)
    return [
        CarbonIntensityRecorded(
            at=first + n * HOUR, job="job", region=region, hour_at=first + n * HOUR,
            gco2e_per_kwh=200.0 + 7.31 * (n % 24), carbon_signal=CarbonSignal.AVERAGE,
            source="recorded 2022",
        )
        for n in range(0, 60, every)
    ]  # fmt: skip


def rows_of(
    *events: Event, contracts: Sequence[ElectricityContract] = ()
) -> tuple[JobAccount, list[Any], Any]:
    account = JobAccount("job")
    for event in events:
        account.apply(event)
    terms = tuple(map(contract_terms, contracts))
    account.apply(ElectricityContractsRecorded(at=ENDED, job="job", contracts=terms))
    seen = [event for event in events if isinstance(event, CarbonIntensityRecorded)]
    table = ghg_table([JobBooks(account, seen, ENDED + HOUR)])
    return account, list(table.rows), table


def micro(kilograms: Sequence[Any]) -> int:
    return sum(round(each * 1e9) for each in kilograms)


def test_the_rows_add_up_to_the_ledger_to_the_microgram() -> None:
    nodes = [launched("a"), launched("b"), launched("n", "eu-north-1")]
    account, rows, table = rows_of(*nodes, *hours(every=2), *(ended(each) for each in "abn"))
    summary = account.summary(ENDED + HOUR)
    assert [(row["month"], row["region"]) for row in rows] == [
        ("2022-02", "eu-central-1"),
        ("2022-02", "eu-north-1"),
        ("2022-03", "eu-central-1"),
        ("2022-03", "eu-north-1"),
    ]
    assert summary.gco2e is not None
    assert summary.embodied_gco2e is not None
    assert summary.wh is not None
    assert micro([row["location_based_kgco2e"] for row in rows]) == round(summary.gco2e * 1e6)
    assert micro([row["embodied_kgco2e"] for row in rows]) == round(summary.embodied_gco2e * 1e6)
    assert micro([row["kwh"] for row in rows]) == round(summary.wh * 1e6)
    assert table.facts["total_location_based_kgco2e"] == pytest.approx(summary.gco2e / 1000)
    assert "recorded 2022; annual mean" in rows[0]["sources"]
    assert 0.3 < rows[0]["hourly_share"] < 0.7
    assert rows[1]["hourly_share"] == 0


def test_market_based_is_by_contract_and_unknown_without() -> None:
    events = (launched("a"), *hours(), ended("a"))
    _, (february, march), _ = rows_of(*events)
    assert february["market_based_kgco2e"] is march["market_based_kgco2e"] is None
    wind = ElectricityContract(
        "wind",
        "aws",
        12.0,
        ("eu-central-1",),
        Period(date(2022, 3, 1), date(2022, 3, 1)),
    )
    _, (february, march), table = rows_of(*events, contracts=[wind])
    assert february["market_based_kgco2e"] is None
    assert march["market_based_kgco2e"] is None  # the second of March is under no contract
    assert table.facts["total_market_based_kgco2e"] is None
    rest = ElectricityContract("mix", "aws", 500.0, kind=ContractKind.RESIDUAL_MIX)
    _, (february, march), _ = rows_of(*events, contracts=[rest, wind])
    assert february["market_based_kgco2e"] == pytest.approx(february["kwh"] * 0.5)
    day = 24 / ((ENDED - datetime(2022, 3, 1, tzinfo=UTC)) / HOUR)
    assert march["market_based_kgco2e"] == pytest.approx(
        march["kwh"] * (day * 0.012 + (1 - day) * 0.5)
    )
    assert march["contracts"] == "mix; wind"


def test_marginal_emissions_are_not_location_based() -> None:
    _, rows, table = rows_of(launched("a", signal=CarbonSignal.MARGINAL), ended("a"))
    assert all(row["location_based_kgco2e"] is None for row in rows)
    assert all(row["marginal_kgco2e"] > 0 for row in rows)
    assert table.facts["total_location_based_kgco2e"] is None


def test_unknown_power_and_making_stay_unknown() -> None:
    dark: dict[str, Any] = {
        "idle_w": None,
        "busy_w": None,
        "pue": None,
        "embodied_gco2e_per_hour": None,
    }
    _, rows, table = rows_of(launched("a"), launched("t", **dark), ended("a"), ended("t"))
    for row in rows:
        assert row["kwh"] is row["location_based_kgco2e"] is row["embodied_kgco2e"] is None
    assert table.facts["total_kwh"] is None
    assert "unknown" in to_html(table)
    assert ",,," in to_csv(table)


def export(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["export", "ghg", *map(str, arguments)])


def test_the_command_writes_csv_json_and_a_page(tmp_path: Path) -> None:
    with open_ledger(tmp_path / LEDGER) as ledger:
        ledger.append(launched("a"), *hours(), ended("a"))
    (tmp_path / "account.yaml").write_text(
        "kind: account\nelectricity_contracts:\n"
        "  - {name: wind, provider: aws, gco2e_per_kwh: 12}\n",
        encoding="utf-8",
    )
    common = ("--state-dir", tmp_path, "--account", tmp_path / "account.yaml")
    for name in ("ghg.csv", "ghg.json", "ghg.html"):
        done = export(*common, "--out", tmp_path / name)
        assert done.exit_code == 0, done.output
    with (tmp_path / "ghg.csv").open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    response = json.loads((tmp_path / "ghg.json").read_text(encoding="utf-8"))
    assert response["schema"] == "costopt.ghg/1"
    assert [float(row["market_based_kgco2e"]) for row in read] == [
        row["market_based_kgco2e"] for row in response["rows"]
    ]
    page = (tmp_path / "ghg.html").read_text(encoding="utf-8")
    assert "scope 3, category 1" in page
    assert export("other", "--state-dir", tmp_path).exit_code == 1
    assert export(*common, "--out", tmp_path / "no" / "x.csv").exit_code != 0
