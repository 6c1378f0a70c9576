"""costopt carbon, and what plan and what-if make of its files."""

from __future__ import annotations

import json
import math
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from costopt.domain.market import CapacityType, Pool
from costopt.domain.policy import CarbonSignal, Objective, Policy
from costopt.market.history_file import read_history
from costopt.planning.quotes import resolve_quotes
from costopt.planning.request import forecast_carbon, forecast_prices
from tests.cli.test_plan import job_file
from tests.support.command_line import invoke
from tests.support.errors import failure

START = datetime(2024, 1, 1, tzinfo=UTC)
AT = "2024-01-17T00:00:00Z"
VIRGINIA = Pool("aws", "us-east-1", "us-east-1a", "g4dn.xlarge", CapacityType.SPOT)
DEADLINE = datetime(2024, 1, 20, tzinfo=UTC)


def figures_of(done: Result) -> dict[str, Any]:
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """c.csv and c.parquet: 17 days of PJM, which us-east-1 belongs to; m.parquet: a market."""
    out = tmp_path_factory.mktemp("carbon")
    lines = ["hour_utc,US-MIDA-PJM,SE"]
    for hour in range(17 * 24):
        when = START + timedelta(hours=hour)
        lines.append(f"{when.isoformat()},{400 + 100 * math.sin(math.pi * hour / 12):.2f},")
    (out / "c.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = invoke("carbon", "import", out / "c.csv", "--out", out / "c.parquet")
    assert done.exit_code == 0, done.stderr
    assert re.search(r"\b2\b.*\b17 d", done.stderr)
    made = invoke(
        "market", "generate", "--instance-type", "g4dn.xlarge", "--region", "us-east-1",
        "--region", "eu-north-1", "--profile", "calm", "--hours", "480", "--tick", "3600",
        "--out", out / "m.parquet",
    )  # fmt: skip
    assert made.exit_code == 0, made.stderr
    return out


def test_show_tells_how_much_was_recorded(folder: Path) -> None:
    result = figures_of(invoke("carbon", "show", folder / "c.parquet", "-o", "json"))
    assert result["carbon_signal"] == "average"
    recorded, empty = result["rows"]
    assert recorded["zone"] == "US-MIDA-PJM"
    assert recorded["coverage"] == 1
    assert recorded["mean_gco2e_per_kwh"] == pytest.approx(400)
    assert empty["coverage"] == 0
    assert empty["mean_gco2e_per_kwh"] is None


def test_a_plan_says_for_which_regions_it_has_no_forecast(folder: Path, tmp_path: Path) -> None:
    done = invoke(
        "plan", job_file(tmp_path), "--market", folder / "m.parquet", "--at", AT,
        "--carbon", folder / "c.parquet", "-o", "json",
    )  # fmt: skip
    assert figures_of(done)["status"] == "optimal"
    assert "1 of 2" in done.stderr
    assert "aws/eu-north-1: " in done.stderr


def test_without_a_carbon_file_nothing_is_said_of_forecasts(folder: Path, tmp_path: Path) -> None:
    done = invoke("plan", job_file(tmp_path), "--market", folder / "m.parquet", "--at", AT)
    assert done.exit_code == 0
    assert "carbon forecast" not in done.stderr


def test_a_policy_of_marginal_intensities_does_not_use_averages(
    folder: Path, tmp_path: Path
) -> None:
    seen = resolve_quotes(
        read_history(folder / "m.parquet"), DEADLINE - timedelta(days=3), folder / "c.parquet"
    )
    average = Policy("a")
    marginal = Policy("m", Objective(carbon_signal=CarbonSignal.MARGINAL))
    assert set(forecast_carbon(seen, average, [VIRGINIA], DEADLINE).series) == {"aws/us-east-1"}
    assert not forecast_carbon(seen, marginal, [VIRGINIA], DEADLINE).series
    policy = tmp_path / "marginal.yaml"
    policy.write_text("name: marginal\nobjective: {carbon_signal: marginal}\n", encoding="utf-8")
    done = invoke(
        "what-if", job_file(tmp_path), "--market", folder / "m.parquet", "--at", AT,
        "--carbon", folder / "c.parquet", "--policies", policy, "--points", "0",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "marginal" in done.stderr
    assert "average" in done.stderr


def test_list_prices_are_not_forecast_and_a_record_can_be(folder: Path) -> None:
    assert forecast_prices(resolve_quotes(None, None), [VIRGINIA], DEADLINE) == {}
    seen = resolve_quotes(read_history(folder / "m.parquet"), DEADLINE - timedelta(days=3))
    pools = [offer.pool for offer in seen.offers]
    found = forecast_prices(seen, pools, DEADLINE)
    assert all(pool.capacity_type is CapacityType.SPOT for pool in found)
    prices = {o.pool: o.price_usd_per_hour.value for o in seen.offers if o.price_usd_per_hour}
    for pool, series in found.items():
        assert series.value(seen.now) == pytest.approx(prices[pool])


def test_a_file_that_is_not_a_carbon_history_is_named(folder: Path, tmp_path: Path) -> None:
    done = invoke("plan", job_file(tmp_path), "--carbon", folder / "c.csv")
    assert done.exit_code == 1
    assert failure(done).code == "not_parquet"


def test_a_carbon_record_that_is_not_a_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for record, said in (("pipe", "is not a regular file"), ("nope.csv", "does not exist")):
        done = invoke("carbon", "import", tmp_path / record, "--out", tmp_path / "x")
        assert done.exit_code == 1
        assert said in done.stderr
        shown = invoke("carbon", "show", tmp_path / record)
        assert shown.exit_code == 1
        assert said in shown.stderr
