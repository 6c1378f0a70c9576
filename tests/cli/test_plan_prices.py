"""plan and what-if over price lists: the newest figure counts, and old ones do not win."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from costopt.domain.errors import StaleDataError
from tests.support.command_line import invoke
from tests.support.price_quotes import quote, write_cache

JOB = """\
name: char-gpt
work: {amount: 4e5, unit: steps}
deadline: 72h
resources: {gpu_models: [T4, H100], max_nodes: 4}
throughput: {points: [{gpu: T4, units_per_s: 2.6}, {gpu: H100, units_per_s: 39.6}]}
checkpoint: {uri: checkpoints, save: 10s}
"""
SPOT = "aws/us-east-1/us-east-1*/g4dn.xlarge/spot"
LISTED = "aws/us-east-1/us-east-1*/g4dn.xlarge/on_demand"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB)
    return path


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def planned(job: Path, *more: str) -> dict[str, Any]:
    done = invoke("plan", job, "-o", "json", "--top", "0", *more)
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def codes(result: dict[str, Any]) -> dict[str, str]:
    return {each["pool"]: each["code"] for each in result["rejections"]}


def test_without_a_cache_the_built_in_prices_count_and_the_note_says_how_to_refresh(
    job: Path,
) -> None:
    done = invoke("plan", job, "-o", "json")
    assert done.exit_code == 0
    assert "costopt catalog update" in done.stderr
    assert "price_old" not in codes(json.loads(done.stdout)).values()


def test_a_fresh_spot_price_wins_over_a_cheaper_old_one(
    job: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(cache, monkeypatch, quote(SPOT, 0.21), quote(LISTED, 0.526))
    result = planned(job)
    assert {row["pool"] for row in result["rows"]} == {SPOT, LISTED}
    assert all("dstack-aws 20261122-7" in row["price_source"] for row in result["rows"])
    assert all(7000 < row["price_age_s"] < 7500 for row in result["rows"])
    assert codes(result)["aws/ap-east-1/ap-east-1*/g4dn.xlarge/spot"] == "price_old"


def test_old_list_prices_stay_the_fallback_where_only_spot_is_fresh(
    job: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(cache, monkeypatch, quote(SPOT, 0.21))
    result = planned(job)
    spot = [row["pool"] for row in result["rows"] if row["pool"].endswith("/spot")]
    assert spot == [SPOT]
    assert LISTED in {row["pool"] for row in result["rows"]}


def test_old_prices_count_for_a_machine_that_no_fresh_list_has(
    job: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(cache, monkeypatch, quote("aws/us-east-1/us-east-1*/g5.xlarge/spot", 0.4))
    assert "price_old" not in codes(planned(job)).values()


def test_a_cache_that_is_older_than_the_built_in_figure_does_not_count(
    job: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(cache, monkeypatch, quote(SPOT, 0.21, age=timedelta(days=900)))
    row = next(row for row in planned(job)["rows"] if row["pool"] == SPOT)
    assert row["price_usd_per_hour"] != 0.21


def test_zones_take_the_place_of_their_region(
    job: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zones = [f"aws/us-east-1/use1-az{n}/g4dn.xlarge/spot" for n in (1, 2)]
    write_cache(cache, monkeypatch, *(quote(z, 0.2 + n / 50) for n, z in enumerate(zones)))
    pools = {row["pool"] for row in planned(job)["rows"]}
    assert set(zones) <= pools
    assert SPOT not in pools


@pytest.mark.parametrize("command", ["plan", "what-if"])
def test_an_age_that_no_price_keeps_fails_with_5(
    job: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    write_cache(cache, monkeypatch, quote(SPOT, 0.21), quote(LISTED, 0.526))
    done = invoke(command, job, "--max-age", "1h")
    assert done.exit_code == StaleDataError.exit_code
    assert "costopt catalog update" in done.stderr or "too old" in done.stderr
    assert invoke(command, job, "--max-age", "3h").exit_code == 0


def test_a_large_age_lets_old_prices_win(
    job: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(cache, monkeypatch, quote(SPOT, 0.21), quote(LISTED, 0.526))
    result = planned(job, "--max-age", "3000d")
    assert "price_old" not in codes(result).values()
    assert len(result["rows"]) > 100


def test_the_age_of_lists_is_refused_beside_another_source(job: Path) -> None:
    done = invoke("plan", job, "--max-age", "1d", "--market", "m.parquet")
    assert done.exit_code == 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "costopt.prices/9"}', "null"])
def test_a_corrupt_cache_never_fails_a_plan(job: Path, cache: Path, text: str) -> None:
    path = cache / "costopt" / "prices.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    done = invoke("plan", job)
    assert done.exit_code == 0
    assert str(path) in done.stderr


def test_a_cache_that_may_not_be_read_never_fails_a_plan(job: Path, cache: Path) -> None:
    (cache / "costopt" / "prices.json").mkdir(parents=True)
    done = invoke("plan", job)
    assert done.exit_code == 0
    assert "costopt catalog update" in done.stderr
