"""A whole ``costopt run`` with a live source of intensities, on a market of the present."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from click.testing import CliRunner, Result

from costopt.cli.main import cli
from costopt.domain.events import CarbonIntensityRecorded, NodeLaunched, SignalStale
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import Pool
from costopt.formatting import pluralize
from costopt.market.history_file import write_history
from tests.support.carbon_services import EM_KEY, CarbonServer, serve_carbon
from tests.support.live_run import Place, no_traceback

pytestmark = pytest.mark.process

GREEN = (
    "kind: policy\nversion: 1\nname: green\nstrategy: adaptive\n"
    "objective: {usd: 0.05, usd_per_kwh: 0.3, usd_per_tonne_co2e: 1000, carbon_signal: average}\n"
)
ACCOUNT = """\
kind: account
version: 1
carbon: {source: electricity-maps, url: URL, key_file: key}
electricity_contracts: [{name: wind, provider: aws, gco2e_per_kwh: 10}]
"""


@pytest.fixture
def server() -> Iterator[CarbonServer]:
    with serve_carbon(datetime.now(UTC)) as made:
        made.by_zone = {"GB": lambda _: 900.0, "US-MIDA-PJM": lambda _: 40.0}
        yield made


@pytest.fixture
def place(server: CarbonServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """One price in both regions; by annual means London is the cleaner: 188 g/kWh, not 396."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    made = Place(tmp_path, steps=20)
    made.write()
    begins_at = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    pools = [
        Pool.parse(f"aws/{region}/{region}a/g4dn.xlarge/{terms}")
        for region in ("us-east-1", "eu-west-2")
        for terms in ("spot", "on_demand")
    ]
    days = begins_at + timedelta(days=20)
    known = {
        pool: PoolHistory(pool, (MarketState(begins_at, 4, 0.3),), days)
        for pool in pools
    }  # fmt: skip
    market = MarketHistory("now", known, 60.0, "typed for a test")
    write_history(market, tmp_path / "market.parquet")
    (tmp_path / "green.yaml").write_text(GREEN)
    (tmp_path / "key").write_text(EM_KEY + "\n")
    (tmp_path / "account.yaml").write_text(ACCOUNT.replace("URL", server.url))
    yield made
    made.clear()


def run(place: Place, *more: str) -> CompletedProcess[str]:
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return place.call(
        "run", "job.yaml", "--market", "market.parquet", "--at", at, "--tick", "1",
        "--state-dir", "state", "--policy", "green.yaml", "--account", "account.yaml",
        "--apply", *more,
    )  # fmt: skip


def invoke(*arguments: str) -> Result:
    """Run a command on what the run has left, in this process."""
    return CliRunner().invoke(cli, [*arguments, "--state-dir", "state"])


def status() -> dict[str, Any]:
    (row,) = json.loads(invoke("status", "tiny", "--output", "json").stdout)["rows"]
    return dict(row)


def region(place: Place) -> str:
    return Pool.parse(place.of(NodeLaunched)[0].pool).region


def test_a_run_goes_where_the_live_source_says_it_is_clean(
    place: Place, server: CarbonServer
) -> None:
    done = run(place, "--carbon", "live")
    assert done.returncode == 0, done.stderr
    assert region(place) == "us-east-1"
    hours = place.of(CarbonIntensityRecorded)
    assert {event.gco2e_per_kwh for event in hours} == {40.0}
    row = status()
    assert row["carbon_basis"] == "average intensity, hourly"
    assert row["gco2e"] == pytest.approx(row["wh"] / 1000 * 40, abs=1e-5)
    assert row["market_based_gco2e"] == pytest.approx(row["wh"] / 1000 * 10, abs=1e-5)


def test_a_run_whose_source_is_down_says_so_and_is_filled_in_once_later(
    place: Place, server: CarbonServer
) -> None:
    server.status["/v3"] = 503, {"X-Echo": EM_KEY}
    done = run(place, "--carbon", "live")
    assert done.returncode == 0, done.stderr
    assert region(place) == "eu-west-2"
    assert "503" in done.stderr
    assert "503" in place.of(SignalStale)[0].message
    before = status()
    assert before["carbon_basis"] == "average intensity, annual mean"
    server.status.clear()
    ahead = datetime.now(UTC).timestamp() + 1
    os.utime(place.folder / "key", (ahead, ahead))
    fill = ("carbon", "fill", "--account", "account.yaml")
    filled, again = invoke(*fill), invoke(*fill)
    hours = place.of(CarbonIntensityRecorded)
    assert filled.stdout == f"tiny: {pluralize(len(hours), 'hour')} recorded\n", filled.stderr
    assert again.stdout == "tiny: 0 hours recorded\n", again.stderr
    after = status()
    assert after["carbon_basis"] == "average intensity, hourly"
    assert after["wh"] == before["wh"]
    assert after["gco2e"] == pytest.approx(after["wh"] / 1000 * 900, abs=1e-5)
    report = invoke("report", "tiny", "-o", "html")
    assert report.exit_code == 0, report.stderr
    assert "Market-based emissions" in report.stdout
    shown = invoke("events", "tiny", "--output", "json")
    assert json.loads(shown.stdout)["rows"]
    for each in (done, filled, again, report, shown):
        assert EM_KEY not in each.stdout + each.stderr
        assert no_traceback(each.stderr)
    written = [path for path in place.folder.rglob("*") if path.is_file() and path.name != "key"]
    assert "ledger.sqlite" in {path.name for path in written}
    assert not [path for path in written if EM_KEY.encode() in path.read_bytes()]
