"""costopt market record on what Google tells, over HTTP against the test cloud."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from costopt.cli.main import cli
from costopt.market.history_file import read_history
from tests.support.gcp.cloud import Cloud

TYPE = "g2-standard-4"


def test_spot_prices_of_every_zone_are_written_down(
    gcp_cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSTOPT_GCP_ENDPOINT", gcp_cloud.endpoint)
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "project-1")
    now = datetime.now(UTC)
    gcp_cloud.region("us-central1", "us-central1-a", "us-central1-b")
    gcp_cloud.price("us-central1", TYPE, 0.2, now - timedelta(days=20))
    gcp_cloud.price("us-central1", TYPE, 0.3, now - timedelta(days=3))
    out = tmp_path / "gcp.parquet"
    asked = ["market", "record", "--provider", "gcp", "--regions", "us-central1"]
    done = CliRunner().invoke(cli, [*asked, "--types", "g2-standard-4", "--out", str(out)])
    assert done.exit_code == 0, done.output
    spot = {
        pool.zone: [state.price_usd_per_hour for state in history.states]
        for pool, history in read_history(out).pools.items()
        if pool.capacity_type.is_interruptible
    }
    # Before the first price that Google tells nothing is known, and nothing is made up.
    prices = [None, 0.2, 0.3]
    assert spot == {"us-central1-a": prices, "us-central1-b": prices}


def test_without_credentials_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    out = tmp_path / "gcp.parquet"
    asked = ["market", "record", "--provider", "gcp", "--regions", "us-central1"]
    refused = CliRunner().invoke(cli, [*asked, "--out", str(out)])
    assert refused.exit_code == 1
    assert "project: compute.* " in refused.stderr
    assert "gcloud auth application-default login" in refused.stderr
    assert not out.exists()
