"""The FOCUS export: rows keep the specification's rules, and their sum is the ledger's total."""

from __future__ import annotations

import csv
import json
import os
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from costopt.cli.main import cli
from costopt.domain.account_price import CommitmentKind
from costopt.domain.contracts import ContractKind
from costopt.domain.events import (
    CheckpointCommitted,
    DataMoved,
    ElectricityContractsRecorded,
    Event,
    NodeBilled,
    NodeEnded,
    NodeLaunched,
    PriceChanged,
)
from costopt.domain.fleet import EndCause
from costopt.domain.market import Pool
from costopt.domain.policy import CarbonSignal
from costopt.ledger.base import open_ledger
from costopt.ledger.job_account import JobAccount
from costopt.render.exports.focus import ChargePeriod, FocusRow, FocusSettings, focus_rows
from tests.support.focus_rules import PRESENT, violations
from tests.support.sample_run import SPOT_A, UNINTERRUPTIBLE, finished_at, sample_events

JOB = "llama-7b-finetune"
NOW = finished_at() + timedelta(hours=1)
VALIDATOR = os.environ.get("COSTOPT_FOCUS_VALIDATOR")
LAUNCHED_AT = datetime(2026, 3, 31, 22, 15, tzinfo=UTC)
NODE_END = LAUNCHED_AT + timedelta(hours=4)


def move(usd_micros: int | None = 1_750_000) -> DataMoved:
    return DataMoved(
        at=NOW - timedelta(hours=3),
        job=JOB,
        from_region="aws/us-east-2",
        to_region="gcp/us-central1",
        gib=87.5,
        usd_micros=usd_micros,
        source="list",
        why="start",
    )


def rows_of(
    events: Iterable[Event], now: datetime = NOW, period: ChargePeriod = ChargePeriod.DAY
) -> tuple[list[FocusRow], JobAccount]:
    facts = tuple(events)
    account = JobAccount(facts[0].job)
    for event in facts:
        account.apply(event)
    moves = [event for event in facts if isinstance(event, DataMoved)]
    return list(focus_rows(account, moves, now, FocusSettings(period=period))), account


def total(rows: Iterable[FocusRow], column: str) -> Decimal:
    figures = [row.get(column) for row in rows]
    return sum((each for each in figures if isinstance(each, Decimal)), Decimal(0))


def launched(node_id: str = "i-1", pool: str = SPOT_A, **known: Any) -> NodeLaunched:
    terms: dict[str, Any] = {
        "at": LAUNCHED_AT,
        "job": JOB,
        "key": "k",
        "node_id": node_id,
        "pool": pool,
        "launched_at": LAUNCHED_AT,
        "micros_per_hour": 10_000_000,
        "idle_w": 1000.0,
        "busy_w": 2000.0,
        "pue": 1.2,
        "gco2e_per_kwh": 400.0,
        "energy_basis": "modelled",
        "carbon_signal": CarbonSignal.AVERAGE,
    }
    return NodeLaunched(**(terms | known))


def ended(node_id: str = "i-1", at: datetime = NODE_END) -> NodeEnded:
    return NodeEnded(
        at=at, job=JOB, node_id=node_id, pool=SPOT_A, ended_at=at, cause=EndCause.RELEASED
    )


@pytest.mark.parametrize("period", ChargePeriod)
def test_rows_keep_the_rules_and_sum_to_the_ledger(period: ChargePeriod) -> None:
    rows, account = rows_of((*sample_events(), move()), period=period)
    assert violations(rows) == []
    summary = account.summary(NOW)
    assert total(rows, "BilledCost") * 10**6 == summary.usd_micros
    assert summary.kwh is not None
    assert float(total(rows, "x_EnergyKilowattHours")) == pytest.approx(summary.kwh, abs=1e-6)


@pytest.mark.parametrize("period", ChargePeriod)
def test_volumes_and_checkpoints_have_rows_that_sum_to_the_ledger(period: ChargePeriod) -> None:
    node = launched(volume_micros_per_hour=21_918)
    saves = [
        CheckpointCommitted(
            at=LAUNCHED_AT + timedelta(minutes=20 * number),
            job=JOB,
            units=float(number),
            uri=f"s3://bucket/saves/{number}",
            size_bytes=None,
            save_s=None,
            put_usd_micros=67_200,
            kept_usd_micros_per_month=19_320_000,
            region="aws/us-east-1",
        )
        for number in range(1, 8)
    ]
    rows, account = rows_of((node, *saves, ended()), NODE_END, period)
    assert violations(rows) == []
    summary = account.summary(NODE_END)
    assert total(rows, "BilledCost") * 10**6 == summary.usd_micros
    stored = [row for row in rows if row["ServiceCategory"] == "Storage"]
    assert {row["ServiceSubcategory"] for row in stored} == {"Block Storage", "Object Storage"}
    assert total(stored, "BilledCost") * 10**6 == summary.storage_usd_micros


@pytest.mark.parametrize("signal", CarbonSignal)
def test_market_based_emissions_sum_to_the_ledger_and_are_null_without_contract(
    signal: CarbonSignal,
) -> None:
    column, node = "x_EmissionsMarketBasedKilograms", launched(carbon_signal=signal)
    rows, account = rows_of((node, ended()), NODE_END, ChargePeriod.HOUR)
    assert {row[column] for row in rows} == {None}
    assert account.summary(NODE_END).market_based_gco2e is None
    begins_at = datetime(2026, 4, 1, tzinfo=UTC)
    wind = ("wind", "aws", 12.34, (), begins_at, None, ContractKind.CONTRACT)
    contracts = ElectricityContractsRecorded(at=LAUNCHED_AT, job=JOB, contracts=(wind,))
    rows, account = rows_of((node, contracts, ended()), NODE_END, ChargePeriod.HOUR)
    assert violations(rows) == []
    for row in rows:
        begun = row["ChargePeriodStart"]
        assert isinstance(begun, datetime)
        assert (row[column] is None) == (begun < begins_at)
    mix = ("mix", "aws", 400.0, (), None, None, ContractKind.RESIDUAL_MIX)
    contracts = ElectricityContractsRecorded(at=LAUNCHED_AT, job=JOB, contracts=(mix, wind))
    rows, account = rows_of((node, contracts, ended()), NODE_END, ChargePeriod.HOUR)
    assert float(total(rows, column)) * 1000 == account.summary(NODE_END).market_based_gco2e
    assert total(rows, column) != total(rows, "x_EmissionsLocationBasedKilograms")


def test_a_node_is_split_at_periods_months_and_prices() -> None:
    change = PriceChanged(
        at=LAUNCHED_AT + timedelta(hours=3), job=JOB, pool=SPOT_A, micros_per_hour=12_000_000
    )
    rows, _ = rows_of((launched(), change, ended()), NODE_END)
    starts = [(row["BillingPeriodStart"], row["ChargePeriodStart"]) for row in rows]
    march, april = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
    assert starts == [(march, datetime(2026, 3, 31, tzinfo=UTC)), (april, april), (april, april)]
    assert [row["ContractedUnitPrice"] for row in rows] == [10, 10, 12]
    assert [row["PricingQuantity"] for row in rows] == [Decimal("1.75"), Decimal("1.25"), 1]


def test_spot_is_dynamic_and_compared_with_on_demand() -> None:
    rows, _ = rows_of(
        (launched(), launched("i-2", UNINTERRUPTIBLE, micros_per_hour=55_040_000)), NODE_END
    )
    spot, uninterruptible = rows[0], rows[-1]
    assert (spot["PricingCategory"], uninterruptible["PricingCategory"]) == ("Dynamic", "Standard")
    assert spot["ListUnitPrice"] == uninterruptible["ListUnitPrice"] == Decimal("55.04")
    assert spot["ContractedUnitPrice"] == 10


def test_what_is_unknown_is_null() -> None:
    pool = "aws/nowhere-1/nowhere-1a/p5.48xlarge/spot"
    unknown = launched(pool=pool, idle_w=None, busy_w=None, pue=None, gco2e_per_kwh=None)
    rows, account = rows_of((unknown, move(None)), NODE_END)
    assert violations(rows) == []
    assert {row["ListUnitPrice"] for row in rows} == {None}
    assert {row.get("x_EnergyKilowattHours") for row in rows} == {None}
    assert {row.get("x_EmissionsLocationBasedKilograms") for row in rows} == {None}
    assert total(rows, "BilledCost") * 10**6 == account.summary(NODE_END).usd_micros
    assert {row["ServiceCategory"] for row in rows} == {"Compute"}, "a transfer of unknown price"


def test_marginal_emissions_are_not_location_based() -> None:
    rows, _ = rows_of((launched(carbon_signal=CarbonSignal.MARGINAL),), NODE_END)
    assert {row["x_EmissionsLocationBasedKilograms"] for row in rows} == {None}
    assert total(rows, "x_EmissionsMarginalKilograms") == Decimal("1.92")


@given(
    st.lists(st.tuples(st.integers(0, 40 * 3_600_000), st.integers(1, 10**9)), max_size=5),
    st.integers(0, 100 * 3_600_000),
    st.one_of(st.none(), st.floats(0, 7200)),
    st.sampled_from(ChargePeriod),
)
def test_any_node_sums_to_its_cost(
    prices: list[tuple[int, int]], lived_ms: int, min_billed_s: float | None, period: ChargePeriod
) -> None:
    end = LAUNCHED_AT + timedelta(milliseconds=lived_ms)
    timed = [(LAUNCHED_AT + timedelta(milliseconds=ms), micros) for ms, micros in sorted(prices)]
    events: list[Event] = [launched()]
    events += [
        PriceChanged(at=at, job=JOB, pool=SPOT_A, micros_per_hour=micros)
        for at, micros in timed
        if at <= end
    ]
    events.append(ended(at=end))
    if min_billed_s is not None:
        events.append(
            NodeBilled(
                at=end,
                job=JOB,
                node_id="i-1",
                pool=SPOT_A,
                prices=((LAUNCHED_AT, 7_000_001),),
                min_billed_s=min_billed_s,
                source="bill",
            )
        )
    rows, account = rows_of(events, end, period)
    summary = account.summary(end)
    assert violations(rows) == []
    assert total(rows, "BilledCost") * 10**6 == summary.usd_micros
    assert float(total(rows, "ConsumedQuantity")) == pytest.approx(lived_ms / 3.6e6, abs=1e-7)
    assert float(total(rows, "x_EnergyKilowattHours")) == pytest.approx(summary.kwh, abs=1e-9)


@pytest.fixture(params=["sqlite", "folder", pytest.param("postgres", marks=pytest.mark.postgres)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A ledger that holds the sample run and a transfer, as it is named on the command line."""
    named = tmp_path / "ledger.sqlite"
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with open_ledger(url or named) as ledger:
        ledger.append(*sample_events(), move())
    return url or str(tmp_path if request.param == "folder" else named)


def export(place: str, out: Path, *options: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(
        cli, ["export", "focus", "--state-dir", place, "--out", str(out), *options]
    )
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{out}\n"
    return pq.read_table(out).to_pylist() if out.suffix == ".parquet" else []


def test_the_command_writes_any_ledger(place: str, tmp_path: Path) -> None:
    rows = export(place, tmp_path / "costs.parquet", "--billing-account", "123456789012")
    assert rows[0].keys() >= PRESENT
    assert [name for name in rows[0] if name.startswith("x_")] == list(rows[0])[-8:]
    assert violations(rows) == []
    assert {row["BillingAccountId"] for row in rows} == {"123456789012"}
    assert sum(row["BilledCost"] for row in rows) * 10**6 == 360_916_996 - 7_875_000 + 1_750_000
    metadata = json.loads((tmp_path / "costs.metadata.json").read_text())
    assert metadata["FocusVersion"] == "1.2"
    assert "not an invoice" in metadata["x_Notice"]
    assert [each["ColumnName"] for each in metadata["ColumnDefinition"]] == list(rows[0])


def test_csv_holds_what_parquet_holds(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.append(*sample_events(), move())
    rows = export(str(tmp_path), tmp_path / "costs.parquet", "--focus-version", "1.3")
    export(str(tmp_path), tmp_path / "costs.csv", "--focus-version", "1.3")
    with (tmp_path / "costs.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert list(read[0]) == list(rows[0])
    assert {row["HostProviderName"] for row in read} == {"AWS", "Google Cloud"}
    for as_text, row in zip(read, rows, strict=True):
        assert Decimal(as_text["ListCost"]) == row["ListCost"]
        assert "." in as_text["PricingQuantity"], "a reader that guesses types takes 2 for a count"
        assert as_text["InvoiceId"] == ""
        assert datetime.fromisoformat(as_text["ChargePeriodEnd"]) == row["ChargePeriodEnd"]


def test_without_a_ledger_nothing_is_written(tmp_path: Path) -> None:
    out = tmp_path / "costs.parquet"
    done = CliRunner().invoke(
        cli, ["export", "focus", "--state-dir", str(tmp_path), "--out", str(out)]
    )
    assert done.exit_code == 1
    assert not out.exists()


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.append(*sample_events())
    out = tmp_path / "none" / "costs.csv"
    done = CliRunner().invoke(
        cli, ["export", "focus", "--state-dir", str(tmp_path), "--out", str(out)]
    )
    assert done.exit_code == 1
    assert str(out) in done.stderr


@pytest.mark.skipif(
    VALIDATOR is None,
    reason="focus-validator is not installed: `make focus` checks the export with it",
)
@pytest.mark.parametrize("name", ["costs.parquet", "costs.csv"])
def test_the_official_validator_finds_nothing(name: str, tmp_path: Path) -> None:
    """Its rules on invoices apart: an estimate has no invoice."""
    assert VALIDATOR is not None
    with open_ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.append(*sample_events(), move())
    export(str(tmp_path), tmp_path / name)
    criteria = [
        "AVAILABILITY_ZONE",
        "PUBLIC_PRICE_LIST",
        "USAGE_MEASUREMENT",
        "UNIT_PRICING",
        "REGION",
        "TAGGING",
        "BILLING_BASED_ON_PROVISIONED_RESOURCES",
        "RESOURCE_TYPE_ASSIGNMENT",
        "SUB_ACCOUNT",
        "MULTIPLE_PRICING_CATEGORIES",
        "ACCOUNT_NAMING",
        "NEGOTIATED_PRICING",
    ]
    packages = next(Path(VALIDATOR).parents[1].glob("lib/python*/site-packages"))
    done = subprocess.run(
        [VALIDATOR, "--data-file", tmp_path / name, "--validate-version", "1.2.0.1",
         "--block-download", "--show-violations", "--applicability-criteria",
         ",".join(f"{each}_SUPPORTED" for each in criteria)],
        cwd=packages,  # it opens a file of its own by a relative path
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    failed = [line.split()[1].rstrip(":") for line in lines if ": FAIL" in line]
    assert sum(": PASS" in line for line in lines) > 250, done.stdout + done.stderr
    assert failed == ["InvoiceId-C-005-C"]


def test_what_a_commitment_covers_is_effective_and_not_billed() -> None:
    node = launched(
        pool=str(Pool.parse(UNINTERRUPTIBLE).committed_to("sp")),
        micros_per_hour=0,
        list_micros_per_hour=10_000_000,
        contracted_micros_per_hour=8_000_000,
        committed_micros_per_hour=6_000_000,
        commitment=CommitmentKind.SAVINGS_PLAN,
    )
    rows, account = rows_of((node, ended()), NODE_END)
    assert violations(rows) == []
    assert total(rows, "BilledCost") == 0
    assert total(rows, "EffectiveCost") == 4 * 6
    assert total(rows, "ContractedCost") == 4 * 8
    assert total(rows, "ListCost") == 4 * 10
    assert total(rows, "CommitmentDiscountQuantity") == 4 * 6
    for row in rows:
        assert row["PricingCategory"] == "Committed"
        assert (row["CommitmentDiscountId"], row["CommitmentDiscountStatus"]) == ("sp", "Used")
        assert (row["CommitmentDiscountCategory"], row["CommitmentDiscountUnit"]) == (
            "Spend",
            "USD",
        )
        assert row["AvailabilityZone"] == Pool.parse(UNINTERRUPTIBLE).zone
    assert account.summary(NODE_END).committed_usd_micros == 24_000_000


def test_a_discount_shows_in_the_contracted_price() -> None:
    node = launched(
        pool=UNINTERRUPTIBLE, micros_per_hour=8_000_000, list_micros_per_hour=10_000_000
    )
    rows, _ = rows_of((node, ended()), NODE_END)
    assert violations(rows) == []
    assert total(rows, "ListCost") == 40
    assert total(rows, "ContractedCost") == 32
    assert total(rows, "BilledCost") == total(rows, "EffectiveCost") == 32
