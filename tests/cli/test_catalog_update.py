"""catalog update against a server of the real forms: feeds that are down, changed or hostile."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from click.testing import CliRunner, Result

from costopt.catalog.price_cache import PriceCache, price_cache_path, read_price_cache
from costopt.cli.main import cli
from costopt.download import DownloadLimits
from costopt.prices import UpdateSettings, update_prices
from tests.support.errors import failure
from tests.support.exhaustive import crash_points
from tests.support.price_lists import (
    ADVISOR,
    CYCLENERD,
    DSTACK,
    DSTACK_AWS,
    NAMES,
    SKYPILOT,
    SKYPILOT_AWS,
    SKYPILOT_HEADER,
    SPOT_FEED,
    Answer,
    PriceListServer,
    csv_text,
    drip,
    dstack_row,
    serve_price_lists,
    spot_feed,
    stall,
)

QUICK = DownloadLimits(connect_s=1.0, read_s=0.3, total_s=2.0)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PriceListServer]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serve_price_lists() as server:
        yield server


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["catalog", "update", *arguments])


def updated(server: PriceListServer, *arguments: str) -> dict[str, Any]:
    done = invoke("--mirror", server.url, "-o", "json", *arguments)
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def by_source(answer: dict[str, Any], key: str) -> dict[str, Any]:
    return {row["source"]: row[key] for row in answer["rows"]}


def cached() -> PriceCache:
    found = read_price_cache(price_cache_path())
    assert found is not None
    return found


def figures(source: str) -> dict[str, tuple[float, datetime]]:
    cache = cached()
    return {
        str(q.pool): (q.usd_per_hour, q.edition.observed_at)
        for q in (*cache.chosen, *cache.others)
        if q.edition.source == source
    }


def test_every_source_is_fetched_with_its_licence_version_date_and_checksum(
    server: PriceListServer,
) -> None:
    answer = updated(server)
    assert by_source(answer, "result") == dict.fromkeys(NAMES, "refreshed")
    assert by_source(answer, "version")["dstack-aws"] == server.version
    assert by_source(answer, "dated") == {
        **dict.fromkeys(NAMES, True),
        "skypilot-aws": False,
        "aws-advisor": False,
    }
    for row in answer["rows"]:
        assert row["licence"]
        assert row["terms"]
        assert row["url"].startswith(server.url)
        assert len(row["sha256"]) == 64
        assert row["age_s"] >= 0
    assert answer["held"] == []
    assert answer["path"] == str(price_cache_path())


def test_plans_use_the_zones_and_the_advisors_interruptions(server: PriceListServer) -> None:
    updated(server)
    chosen = {str(q.pool): q.usd_per_hour for q in cached().chosen}
    assert chosen["aws/us-east-2/use2-az1/p5.48xlarge/spot"] == 11.2462
    assert chosen["gcp/us-central1/us-central1*/a3-highgpu-8g/on_demand"] == 88.49
    assert "aws/us-east-2/us-east-2*/p5.48xlarge/spot" not in chosen
    assert cached().buckets["us-east-2", "p5.48xlarge"] == 3
    shown = CliRunner().invoke(cli, ["catalog", "--gpu", "H100", "-o", "json"])
    rows = {row["instance_type"]: row for row in json.loads(shown.stdout)["rows"]}
    assert rows["p5.48xlarge"]["spot_usd_per_hour"] == 11.2462
    assert "skypilot-aws" in rows["p5.48xlarge"]["spot_source"]


def test_one_source_may_be_named(server: PriceListServer) -> None:
    updated(server)
    server.asked.clear()
    answer = updated(server, "--source", "aws-spot")
    assert [row["source"] for row in answer["rows"]] == ["aws-spot"]
    assert server.asked == [SPOT_FEED]
    assert set(cached().sources) == set(NAMES)


def test_what_is_unchanged_is_not_sent_again_and_does_not_look_younger(
    server: PriceListServer,
) -> None:
    updated(server)
    before = {name: figures(name) for name in NAMES}
    server.asked.clear()
    answer = updated(server)
    assert by_source(answer, "result") == dict.fromkeys(NAMES, "unchanged")
    assert {name: figures(name) for name in NAMES} == before
    assert not [path for path in server.asked if path.endswith(".zip")]
    assert all(row["checked_at"] > row["fetched_at"] for row in answer["rows"])


def test_a_failed_source_keeps_its_figures_and_their_age(server: PriceListServer) -> None:
    updated(server)
    before = {name: figures(name) for name in NAMES}
    for path in server.answers:
        if path != SPOT_FEED:
            server.answers[path] = Answer(b"<html>down</html>", 503)
    server.answers[SPOT_FEED] = Answer(spot_feed({"us-east-1": {"g4dn.xlarge": "0.22"}} | {
        "us-east-2": {"p5.48xlarge": "11.6", "p4d.24xlarge": "6.1"}}))  # fmt: skip
    answer = updated(server)
    assert by_source(answer, "result") == {
        **dict.fromkeys(NAMES, "failed"),
        "aws-spot": "refreshed",
    }
    assert all("503" in m for name, m in by_source(answer, "message").items() if name != "aws-spot")
    assert {n: figures(n) for n in NAMES if n != "aws-spot"} == {
        n: f for n, f in before.items() if n != "aws-spot"
    }


def test_the_file_stays_as_it_was_and_the_command_fails_where_none_answers(
    server: PriceListServer,
) -> None:
    updated(server)
    path = price_cache_path()
    before = path.read_bytes()
    server.answers.clear()
    done = invoke("--mirror", server.url)
    assert failure(done).code == "none_refreshed"
    assert done.exit_code == 1
    assert all(name in done.stdout for name in NAMES)
    assert path.read_bytes() == before


BROKEN = {
    "HTML with 200": Answer(b"<!DOCTYPE html><html>Sign in</html>"),
    "empty": Answer(b""),
    "not UTF-8": Answer(b"\xff\xfe\x00"),
    "redirect to a file": Answer(status=302, headers={"Location": "file:///etc/passwd"}),
    "redirect to metadata": Answer(status=301, headers={"Location": "http://169.254.169.254/"}),
    "gzip bomb": Answer(b"\x1f\x8b broken", headers={"Content-Encoding": "gzip"}),
    "stalls": Answer(write=stall),
    "never ends": Answer(write=drip),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_feed_leaves_its_figures_alone(server: PriceListServer, broken: Answer) -> None:
    updated(server)
    before = {name: figures(name) for name in NAMES}
    for path in list(server.answers):
        server.answers[path] = broken
    report = update_prices(UpdateSettings(mirrors=(server.url,), limits=QUICK))
    assert not report.succeeded
    assert all(each.message for each in report.sources)
    assert {name: figures(name) for name in NAMES} == before


@pytest.mark.parametrize(
    ("name", "path", "answer", "why"),
    [
        ("skypilot-aws", SKYPILOT, csv_text(SKYPILOT_HEADER, SKYPILOT_AWS[:3]), "rows"),
        ("skypilot-aws", SKYPILOT, csv_text("a,b", ["1,2"]), "no column"),
        ("skypilot-aws", SKYPILOT, csv_text(SKYPILOT_HEADER, []), "holds no price"),
        ("aws-spot", SPOT_FEED, b"callback({});", "spot feed"),
        ("aws-advisor", ADVISOR, b'{"ranges": []}', "Spot Advisor"),
        ("cyclenerd-gcp", CYCLENERD, b"compute: {}\n", "price list"),
    ],
)
def test_a_list_of_another_form_is_refused(
    server: PriceListServer, name: str, path: str, answer: bytes, why: str
) -> None:
    updated(server)
    before = figures(name)
    server.answers[path] = Answer(answer)
    result = updated(server)
    assert by_source(result, "result")[name] == "failed"
    assert why in by_source(result, "message")[name]
    assert figures(name) == before


def test_a_price_that_departs_is_held_back_and_named(server: PriceListServer) -> None:
    updated(server)
    pool = "aws/us-east-1/us-east-1*/g4dn.xlarge/"
    before = figures("dstack-aws")
    rows = [row for row in DSTACK_AWS if not row.startswith("g4dn.xlarge,us-east-1")]
    rows += [
        dstack_row("g4dn.xlarge", "us-east-1", 5.26, "T4", False),
        dstack_row("g4dn.xlarge", "us-east-1", "nan", "T4", True),
        dstack_row("p4d.24xlarge", "us-east-1", 700.0, "A100", True),
    ]
    server.set_dstack("aws", rows, f"{datetime.now(UTC):%Y%m%d}-4712")
    answer = updated(server)
    held = {each["pool"]: each for each in answer["held"]}
    assert held[pool + "on_demand"]["code"] == "median"
    assert held[pool + "on_demand"]["kept_usd_per_hour"] == 0.526
    assert held[pool + "spot"]["code"] == "invalid"
    assert by_source(answer, "held")["dstack-aws"] == 3
    assert figures("dstack-aws")[pool + "spot"] == before[pool + "spot"]
    shown = invoke("--mirror", server.url, "--source", "dstack-aws").stdout
    assert "held back" not in shown, "an unchanged list is not judged twice"


def test_a_list_of_which_nothing_is_accepted_is_refused(server: PriceListServer) -> None:
    updated(server)
    before = figures("dstack-aws")
    rows = [",".join([*r.split(",")[:2], "-1", *r.split(",")[3:]]) for r in DSTACK_AWS]
    server.set_dstack("aws", rows, f"{datetime.now(UTC):%Y%m%d}-4713")
    answer = updated(server)
    assert by_source(answer, "result")["dstack-aws"] == "failed"
    assert figures("dstack-aws") == before


def test_an_older_version_does_not_take_the_place_of_a_newer_one(server: PriceListServer) -> None:
    updated(server)
    before = figures("dstack-aws")
    server.set_dstack("aws", DSTACK_AWS[:-2], "20260101-1")
    assert by_source(updated(server), "result")["dstack-aws"] == "failed"
    assert figures("dstack-aws") == before


def test_a_date_in_the_future_counts_as_now(server: PriceListServer) -> None:
    server.set_dstack("aws", DSTACK_AWS, "20991231-1")
    updated(server)
    assert max(at for _, at in figures("dstack-aws").values()) <= datetime.now(UTC)


def test_the_date_of_the_server_counts_where_the_list_has_none(server: PriceListServer) -> None:
    seen_at = datetime.now(UTC).replace(microsecond=0) - timedelta(days=3)
    server.answers[SKYPILOT].headers["Last-Modified"] = format_datetime(seen_at, usegmt=True)
    answer = updated(server)
    assert by_source(answer, "dated")["skypilot-aws"]
    assert {at for _, at in figures("skypilot-aws").values()} == {seen_at}


@pytest.mark.parametrize("version", ["../../secret", "latest", "20261122-7/../x", "", "x" * 2000])
def test_a_version_that_is_not_one_is_never_put_into_an_address(
    server: PriceListServer, version: str
) -> None:
    server.answers[f"{DSTACK}/aws/version"] = Answer(version.encode())
    assert by_source(updated(server), "result")["dstack-aws"] == "failed"
    assert not [p for p in server.asked if p.startswith(f"{DSTACK}/aws/") and p.endswith(".zip")]


def test_the_second_mirror_answers_where_the_first_is_busy(server: PriceListServer) -> None:
    with serve_price_lists() as busy:
        for path in list(busy.answers):
            busy.answers[path] = Answer(b"slow down", 429, {"Retry-After": "60"})
        done = invoke("--mirror", busy.url, "--mirror", server.url, "-o", "json")
        assert done.exit_code == 0
        assert by_source(json.loads(done.stdout), "result") == dict.fromkeys(NAMES, "refreshed")
        assert busy.asked


def test_updates_at_the_same_time_both_end_well(server: PriceListServer) -> None:
    settings = UpdateSettings(mirrors=(server.url,))
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: update_prices(settings), range(4)))
    assert all(report.succeeded for report in reports)
    assert not [each.message for report in reports for each in report.sources if each.message]
    assert set(cached().sources) == set(NAMES)


def run_update(server: PriceListServer) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "costopt", "catalog", "update", "--mirror", server.url]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_an_update_that_is_killed_leaves_the_file_and_no_lock(server: PriceListServer) -> None:
    updated(server)
    path = price_cache_path()
    before = path.read_bytes()
    reached = Event()

    def hang(request: BaseHTTPRequestHandler) -> None:
        reached.set()
        stall(request)

    held = server.answers[ADVISOR]
    server.answers[ADVISOR] = Answer(write=hang)
    process = run_update(server)
    assert reached.wait(60)
    process.send_signal(signal.SIGKILL)
    assert process.wait(30) == -signal.SIGKILL
    assert path.read_bytes() == before
    path.with_name(f".{path.name}.0badf00d.tmp").write_bytes(b"half a file")
    server.answers[ADVISOR] = held
    updated(server)
    assert {each.name for each in path.parent.iterdir()} == {"prices.json", "prices.lock"}


@pytest.mark.slow
def test_an_update_killed_at_any_moment_leaves_a_whole_file(server: PriceListServer) -> None:
    updated(server)
    begun = time.monotonic()
    assert run_update(server).wait(60) == 0
    whole_s = time.monotonic() - begun
    for share in crash_points(range(6, 12)):
        process = run_update(server)
        time.sleep(whole_s * share / 12)
        process.kill()
        process.wait(30)
        assert set(cached().sources) == set(NAMES)


def test_a_corrupt_cache_is_written_again(server: PriceListServer) -> None:
    path = price_cache_path()
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert updated(server)["notes"]
    assert set(cached().sources) == set(NAMES)


def test_a_cache_that_may_not_be_written_is_a_clear_error(
    server: PriceListServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "file"
    place.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(place))
    error = failure(invoke("--mirror", server.url))
    assert error.code == "cannot_write"
    assert str(place) in error.message
    if os.geteuid() != 0:
        folder = tmp_path / "closed"
        folder.mkdir(mode=stat.S_IRUSR | stat.S_IXUSR)
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
        assert failure(invoke("--mirror", server.url)).code == "cannot_write"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--source", "dstack"),
        ("--mirror", "file:///etc"),
        ("--mirror", "example.com"),
        ("--mirror", "https://me:secret@example.com"),
        ("--mirror", "https://[x"),
        ("--skypilot-version", "../v8"),
    ],
)
def test_wrong_options_are_refused(arguments: tuple[str, str]) -> None:
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert arguments[1] in done.stderr


def test_options_of_the_catalog_and_of_its_update_may_stand_in_a_file(
    server: PriceListServer, tmp_path: Path
) -> None:
    config = tmp_path / "costopt.toml"
    config.write_text(
        f'[catalog]\ngpu = "T4"\nprovider = "aws"\n[catalog.update]\nmirror = ["{server.url}"]\n'
    )
    run = CliRunner()
    rows = run.invoke(cli, ["--config", str(config), "catalog", "-o", "json"])
    assert {row["gpu_model"] for row in json.loads(rows.stdout)["rows"]} == {"T4"}
    assert run.invoke(cli, ["--config", str(config), "catalog", "update"]).exit_code == 0
    config.write_text("[catalog]\nupdate = 3\n")
    done = run.invoke(cli, ["--config", str(config), "catalog", "update"])
    assert failure(done).exit_code == 2
