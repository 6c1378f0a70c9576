"""costopt carbon now, and plans by live intensities, over loopback services."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from costopt.cli.main import cli
from tests.support.carbon_services import EM_KEY, CarbonServer, serve_carbon

ACCOUNT = """\
kind: account
version: 1
carbon: {source: electricity-maps, url: URL, key_file: key}
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[CarbonServer]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with serve_carbon(datetime.now(UTC)) as made:
        (tmp_path / "key").write_text(EM_KEY + "\n")
        (tmp_path / "account.yaml").write_text(ACCOUNT.replace("URL", made.url))
        yield made


def invoke(*arguments: str) -> Result:
    done = CliRunner().invoke(cli, [*arguments])
    assert EM_KEY not in done.stdout + done.stderr
    return done


def now(*regions: str, **options: str) -> Result:
    named = [word for region in regions for word in ("--region", region)]
    more = [word for key, value in options.items() for word in (f"--{key}", value)]
    return invoke("carbon", "now", "--account", "account.yaml", *named, *more)


def rows_of(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return found


def test_regions_have_their_present_intensity_and_the_next_hours(server: CarbonServer) -> None:
    (row,) = rows_of(now("aws/eu-central-1", output="json"))
    assert row["gco2e_per_kwh"] == round(server.intensity(server.newest))
    assert (row["zone"], row["carbon_signal"], row["source"]) == (
        "DE", "average", "electricity-maps",
    )  # fmt: skip
    assert 0 <= row["age_s"] < 2 * 3600
    assert len(row["forecast_gco2e_per_kwh"]) == 24
    assert row["in_1_h"] == row["forecast_gco2e_per_kwh"][0]


def test_the_table_fits_and_each_zone_is_asked_once_an_hour(server: CarbonServer) -> None:
    done = now("aws/eu-central-1", "gcp/europe-west3", "aws/us-east-1")
    assert done.exit_code == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 100
    asked = len(server.asked)
    assert now("aws/eu-central-1", "gcp/europe-west3", "aws/us-east-1").exit_code == 0
    assert len(server.asked) == asked


@pytest.mark.parametrize("status", [401, 403, 429, 500])
def test_a_service_that_refuses_is_named_and_exits_with_5(
    server: CarbonServer, status: int
) -> None:
    server.status["/v3/carbon-intensity/"] = (status, {})
    done = now("aws/eu-central-1")
    assert done.exit_code == 5
    assert "electricity-maps" in done.stderr


def test_unknown_regions_are_refused(server: CarbonServer) -> None:
    done = now("aws/eu-centrall-1")
    assert done.exit_code == 2
    assert "aws/eu-central-1" in done.stderr
    assert server.asked == []


def test_a_plan_counts_live_intensities_and_survives_their_absence(server: CarbonServer) -> None:
    assert invoke("init").exit_code == 0
    plan = (
        "plan", "job.yaml", "--policy", "greenest", "--account", "account.yaml",
        "--carbon", "live", "--output", "json",
    )  # fmt: skip
    served = invoke(*plan)
    assert served.exit_code == 0, served.stderr
    assert any("/v3/carbon-intensity/" in path for path in server.asked)
    server.status["/v3/carbon-intensity/"] = (500, {})
    (Path("cache") / "gone").mkdir(parents=True)
    Path("cache").rename("elsewhere")
    down = invoke(*plan)
    assert down.exit_code == 0, down.stderr
    assert "electricity-maps" in down.stderr
