"""Live carbon intensities against a local server of the documented forms, sound and broken."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costopt.catalog import load_catalog
from costopt.domain.account import CarbonSource, CarbonSourceName
from costopt.domain.errors import SignalError
from costopt.domain.policy import CarbonSignal
from costopt.download import DownloadLimits
from costopt.energy.live import LiveCarbon
from costopt.energy.live.services import open_live_carbon
from tests.support.carbon_services import (
    EM_KEY,
    HOUR,
    WT_KEY,
    WT_TOKEN,
    CarbonServer,
    daily,
    serve_carbon,
)

NOW = datetime(2026, 3, 10, 14, 20, tzinfo=UTC)
PRESENT = NOW.replace(minute=0)
LIMITS = DownloadLimits(connect_s=5.0, read_s=10.0, total_s=20.0)
EM, WT, GB = (
    CarbonSourceName.ELECTRICITY_MAPS,
    CarbonSourceName.WATTTIME,
    CarbonSourceName.GB_CARBON_INTENSITY,
)
REGION = "aws/eu-west-2"
AVERAGE, MARGINAL = CarbonSignal.AVERAGE, CarbonSignal.MARGINAL
SIGNAL = {EM: AVERAGE, WT: MARGINAL, GB: AVERAGE}
ANSWERS = {EM: "/v3/carbon-intensity", WT: "/v3/historical", GB: "/intensity"}


@pytest.fixture
def server() -> Iterator[CarbonServer]:
    with serve_carbon(NOW) as server:
        yield server


def key_file(folder: Path, source: CarbonSourceName) -> Path | None:
    if source is GB:
        return None
    path = folder / "key"
    if not path.exists():
        path.write_text(f"{EM_KEY if source is EM else WT_KEY}\n")
        os.utime(path, (NOW.timestamp() - 3600,) * 2)
    return path


def live(
    server: CarbonServer, source: CarbonSourceName, folder: Path, region: str = REGION
) -> LiveCarbon:
    made = CarbonSource(source, server.url, key_file(folder, source))
    found = open_live_carbon(made, load_catalog().region, folder / "cache", LIMITS)
    found.use([region])
    return found


def problem(found: LiveCarbon, now: datetime = NOW) -> tuple[str, str]:
    (only,) = found.problems(now)
    return only.code, only.message


def assert_unknown(found: LiveCarbon, source: CarbonSourceName) -> None:
    assert found.intensity(REGION, PRESENT, SIGNAL[source]) is None
    assert found.present(REGION, NOW) is None


@pytest.mark.parametrize("source", [EM, WT, GB])
def test_hours_that_are_over_are_those_of_the_service(
    server: CarbonServer, source: CarbonSourceName, tmp_path: Path
) -> None:
    found = live(server, source, tmp_path)
    found.refresh(NOW)
    for hours in range(1, 24):
        at = PRESENT - hours * HOUR
        known = found.intensity(REGION, at, SIGNAL[source])
        assert known is not None
        assert known.value == pytest.approx(daily(at), rel=1e-6)
        assert known.source == source.value
    assert not found.problems(NOW)


@pytest.mark.parametrize("source", [EM, WT, GB])
def test_the_other_signal_is_unknown(
    server: CarbonServer, source: CarbonSourceName, tmp_path: Path
) -> None:
    found = live(server, source, tmp_path)
    found.refresh(NOW)
    other = AVERAGE if SIGNAL[source] is MARGINAL else MARGINAL
    assert found.intensity(REGION, PRESENT - HOUR, other) is None
    assert found.carbon([REGION], NOW, NOW + HOUR, other) == {}


@pytest.mark.parametrize("source", [EM, WT])
def test_the_present_hour_is_provisional(
    server: CarbonServer, source: CarbonSourceName, tmp_path: Path
) -> None:
    found = live(server, source, tmp_path)
    found.refresh(NOW)
    known = found.intensity(REGION, PRESENT, SIGNAL[source])
    assert known is not None
    assert known.source == f"{source.value}, provisional"
    assert known.value == pytest.approx(daily(PRESENT))


def test_pounds_per_megawatt_hour_are_converted_once(server: CarbonServer, tmp_path: Path) -> None:
    server.intensity = lambda at: 453.59237
    found = live(server, WT, tmp_path)
    found.refresh(NOW)
    known = found.intensity(REGION, PRESENT - HOUR, MARGINAL)
    assert known is not None
    assert known.value == pytest.approx(453.59237)


def test_the_british_service_measures_a_half_hour_when_it_is_over(
    server: CarbonServer, tmp_path: Path
) -> None:
    found = live(server, GB, tmp_path)
    found.refresh(NOW)
    assert found.intensity(REGION, PRESENT, AVERAGE) is None
    server.now = NOW + timedelta(minutes=46)
    found.refresh(server.now)
    present = found.intensity(REGION, PRESENT, AVERAGE)
    assert present is not None
    assert present.value == pytest.approx(daily(PRESENT))


def test_regions_outside_great_britain_are_not_asked_for(
    server: CarbonServer, tmp_path: Path
) -> None:
    found = live(server, GB, tmp_path, "aws/eu-central-1")
    found.refresh(NOW)
    assert not server.asked
    assert "aws/eu-central-1" in found.forecast(["aws/eu-central-1"], NOW, NOW + HOUR).missing


@pytest.mark.parametrize("source", [EM, WT, GB])
def test_the_forecast_of_the_service_counts(
    server: CarbonServer, source: CarbonSourceName, tmp_path: Path
) -> None:
    found = live(server, source, tmp_path)
    found.refresh(NOW)
    series = found.carbon([REGION], NOW, NOW + 90 * HOUR, SIGNAL[source])[REGION]
    assert series.source.startswith(f"{source.value} forecast of 2026-03-10 14:20Z")
    spread = 3.0 if source is GB else 0.01
    for hours in range(1, 90):
        at = NOW + hours * HOUR
        assert series.value(at) == pytest.approx(daily(at), abs=spread)


@pytest.mark.parametrize(("source", "status"), [(EM, 403), (EM, 401), (WT, 403)])
def test_a_refused_forecast_gives_way_to_costopt_s_own(
    server: CarbonServer, source: CarbonSourceName, status: int, tmp_path: Path
) -> None:
    path = "/v3/carbon-intensity/forecast" if source is EM else "/v3/forecast"
    server.status[path] = status, {}
    found = live(server, source, tmp_path)
    found.refresh(NOW)
    known = found.intensity(REGION, PRESENT - HOUR, SIGNAL[source])
    assert known is not None
    (note,) = found.notes(NOW)
    assert str(status) in note
    made = found.forecast([REGION], NOW, NOW + 24 * HOUR)
    if source is WT:  # two weeks of hours are known at once
        assert made.series[REGION].source.startswith("mean day of 14 days")
        at = NOW + 6 * HOUR
        assert made.series[REGION].value(at) == pytest.approx(daily(at), abs=1)
    else:
        assert "fewer than 7" in made.missing[REGION]


def test_a_zone_is_asked_for_once_an_hour_also_by_another_process(
    server: CarbonServer, tmp_path: Path
) -> None:
    found = live(server, GB, tmp_path)
    found.refresh(NOW)
    first = len(server.asked)
    assert first == 2
    for minutes in (1, 20, 39):
        found.refresh(NOW + timedelta(minutes=minutes))
        live(server, GB, tmp_path).refresh(NOW + timedelta(minutes=minutes))
    assert len(server.asked) == first
    other = live(server, GB, tmp_path)
    other.refresh(NOW + timedelta(minutes=20))
    assert other.intensity(REGION, PRESENT - HOUR, AVERAGE) is not None
    server.now = NOW + HOUR
    found.refresh(server.now)
    assert len(server.asked) == first + 2
    assert server.asked[-2].startswith("/intensity/2026-03-10T14:00Z/")


@pytest.mark.parametrize("source", [EM, WT, GB])
@pytest.mark.parametrize(
    ("status", "code"), [(500, "unavailable"), (401, "refused"), (403, "refused")]
)
def test_a_service_that_refuses_is_reported(
    server: CarbonServer, source: CarbonSourceName, status: int, code: str, tmp_path: Path
) -> None:
    server.status[ANSWERS[source]] = status, {}
    found = live(server, source, tmp_path)
    found.refresh(NOW)
    assert problem(found)[0] == code
    assert str(status) in problem(found)[1]
    assert_unknown(found, source)
    assert found.forecast([REGION], NOW, NOW + HOUR).series == {}


@pytest.mark.parametrize("source", [EM, WT, GB])
def test_retry_after_is_kept(
    server: CarbonServer, source: CarbonSourceName, tmp_path: Path
) -> None:
    server.status[ANSWERS[source]] = 429, {"Retry-After": "1200"}
    found = live(server, source, tmp_path)
    found.refresh(NOW)
    assert problem(found)[0] == "throttled"
    asked = len(server.asked)
    server.status.clear()
    found.refresh(NOW + timedelta(seconds=1100))
    live(server, source, tmp_path).refresh(NOW + timedelta(seconds=1100))
    assert len(server.asked) == asked
    server.now = NOW + timedelta(seconds=1201)
    found.refresh(server.now)
    assert not found.problems(server.now)


def test_one_throttled_zone_makes_the_others_wait(server: CarbonServer, tmp_path: Path) -> None:
    server.status["/v3"] = 429, {"Retry-After": "1200"}
    found = live(server, EM, tmp_path)
    found.refresh(NOW)
    asked = len(server.asked)
    found.use(["aws/eu-central-1"])
    found.refresh(NOW + timedelta(seconds=60))
    assert len(server.asked) == asked


@pytest.mark.parametrize("source", [EM, WT, GB])
@pytest.mark.parametrize(
    "body", [b'{"zone": "GB", "data": [', b"<html>", b"[]", b"null", b"[" * 100_000, b"\xff"]
)
def test_what_is_not_in_the_documented_form_is_reported(
    server: CarbonServer, source: CarbonSourceName, body: bytes, tmp_path: Path
) -> None:
    server.body[ANSWERS[source]] = body
    found = live(server, source, tmp_path)
    found.refresh(NOW)
    assert problem(found)[0] == "malformed"
    assert_unknown(found, source)


@pytest.mark.parametrize("source", [EM, WT, GB])
@pytest.mark.parametrize("value", [-5.0, 5000.0, float("nan"), float("inf"), "250", True])
def test_an_intensity_that_no_grid_has_is_never_used(
    server: CarbonServer, source: CarbonSourceName, value: object, tmp_path: Path
) -> None:
    def spoil(body: object) -> object:
        text = json.dumps(body)
        for name in ("carbonIntensity", "value", "actual"):
            head, found, tail = text.partition(f'"{name}": ')
            if found:
                rest = tail[min(tail.find(end) % (len(tail) + 1) for end in ",}") :]
                text = f"{head}{found}{json.dumps(value)}{rest}"
        return json.loads(text)

    server.change = spoil
    found = live(server, source, tmp_path)
    found.refresh(NOW)
    assert problem(found)[0] in ("nonsense", "malformed")
    assert_unknown(found, source)


@pytest.mark.parametrize(
    ("source", "field", "unit"),
    [(EM, "unit", "lbs/MWh"), (EM, "unit", "kgCO2eq/kWh"), (WT, "units", "percentile"),
     (WT, "units", "g_co2_per_kwh")],
)  # fmt: skip
def test_another_unit_is_never_converted(
    server: CarbonServer, source: CarbonSourceName, field: str, unit: str, tmp_path: Path
) -> None:
    def restate(body: dict[str, object]) -> object:
        target = body.get("meta", body)
        assert isinstance(target, dict)
        return body if "token" in body else (target.update({field: unit}) or body)

    server.change = restate
    found = live(server, source, tmp_path)
    found.refresh(NOW)
    assert problem(found)[0] == "wrong_unit"
    assert unit in problem(found)[1]
    assert_unknown(found, source)


def test_made_up_intensities_of_a_sandbox_key_are_never_used(
    server: CarbonServer, tmp_path: Path
) -> None:
    made_up = "SANDBOX_MODE_DATA"

    def spoil(body: dict[str, object]) -> object:
        rows = body.get("history") or body.get("forecast") or [body]
        assert isinstance(rows, list)
        for row in rows:
            row.update(isEstimated=True, estimationMethod=made_up)
        return body

    server.change = spoil
    found = live(server, EM, tmp_path)
    found.refresh(NOW)
    assert problem(found)[0] == "sandbox"
    assert_unknown(found, EM)
    assert found.forecast([REGION], NOW, NOW + HOUR).series == {}


@pytest.mark.parametrize("keeps_past", [True, False])
def test_hours_of_a_long_outage_are_fetched_where_the_plan_keeps_them(
    server: CarbonServer, keeps_past: bool, tmp_path: Path
) -> None:
    server.keeps_past = keeps_past
    found = live(server, EM, tmp_path)
    for _ in range(2):
        found.refresh(server.now)
        server.now += HOUR
    for hours in (25, 100, 330):
        known = found.intensity(REGION, PRESENT - hours * HOUR, AVERAGE)
        assert (known is not None) == keeps_past
    assert sum("past-range" in path for path in server.asked) == (2 if keeps_past else 1)
    assert not found.problems(NOW + HOUR)


@pytest.mark.parametrize("source", [EM, WT, GB])
def test_what_is_older_than_two_hours_is_not_the_present(
    server: CarbonServer, source: CarbonSourceName, tmp_path: Path
) -> None:
    server.lag = 4 * HOUR
    found = live(server, source, tmp_path)
    found.refresh(NOW)
    code, message = problem(found)
    assert code == "stale"
    assert "2026-03-10" in message
    assert_unknown(found, source)


@pytest.mark.parametrize("source", [EM, WT, GB])
def test_a_slow_service_is_cut_off(
    server: CarbonServer, source: CarbonSourceName, tmp_path: Path
) -> None:
    server.slow_s = 3.0
    found = live(server, source, tmp_path)
    began_s = time.monotonic()
    found.refresh(NOW, within_s=0.3)
    assert time.monotonic() - began_s < server.slow_s
    assert_unknown(found, source)


def test_a_service_that_is_down_is_reported(tmp_path: Path) -> None:
    with serve_carbon(NOW) as gone:
        pass
    found = live(gone, GB, tmp_path)
    found.refresh(NOW)
    assert problem(found)[0] == "unavailable"


def test_a_huge_answer_is_not_read(
    server: CarbonServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("costopt.energy.live.api.MAX_BYTES", 1000)
    found = live(server, GB, tmp_path)
    found.refresh(NOW)
    assert problem(found)[0] == "unavailable"
    assert "larger than 1,000 bytes" in problem(found)[1]


def test_hours_before_an_outage_stay_known(server: CarbonServer, tmp_path: Path) -> None:
    found = live(server, GB, tmp_path)
    found.refresh(NOW)
    server.status["/"] = 503, {}
    found.refresh(NOW + HOUR)
    assert problem(found, NOW + HOUR)[0] == "unavailable"
    assert found.intensity(REGION, PRESENT - HOUR, AVERAGE) is not None


def test_an_expired_token_is_renewed(server: CarbonServer, tmp_path: Path) -> None:
    found = live(server, WT, tmp_path)
    found.refresh(NOW)
    server.tokens += 1
    server.now = NOW + HOUR
    found.refresh(server.now)
    assert not found.problems(server.now)


def test_a_new_key_is_tried_at_once(server: CarbonServer, tmp_path: Path) -> None:
    path = key_file(tmp_path, EM)
    assert path is not None
    path.write_text("wrong-key")
    os.utime(path, (NOW.timestamp() - 60,) * 2)
    found = live(server, EM, tmp_path)
    found.refresh(NOW)
    assert problem(found)[0] == "refused"
    path.write_text(EM_KEY)
    os.utime(path, (NOW.timestamp() + 60,) * 2)
    again = live(server, EM, tmp_path)
    again.refresh(NOW + timedelta(seconds=61))
    assert not again.problems(NOW)


@pytest.mark.parametrize("source", [EM, WT])
def test_no_error_and_no_file_of_the_cache_holds_a_key(
    server: CarbonServer, source: CarbonSourceName, tmp_path: Path
) -> None:
    secrets = (EM_KEY, WT_KEY, WT_KEY.split(":")[1], WT_TOKEN)
    server.body["/v3"] = " ".join(secrets).encode()
    found = live(server, source, tmp_path)
    found.refresh(NOW)
    text = " ".join(p.message for p in found.problems(NOW))
    for path in (tmp_path / "cache").rglob("*.json"):
        text += path.read_text()
    assert text
    assert not any(secret in text for secret in secrets)


@pytest.mark.parametrize("text", ["", "two words", "ümlaut", "a\nb", "x" * 5000])
def test_a_key_file_of_another_form_is_refused_without_its_content(
    server: CarbonServer, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    with pytest.raises(SignalError) as caught:
        live(server, EM, tmp_path)
    assert caught.value.code == "no_key"
    assert not text or text not in caught.value.message


def test_a_corrupt_cache_is_as_none(server: CarbonServer, tmp_path: Path) -> None:
    found = live(server, GB, tmp_path)
    found.refresh(NOW)
    (path,) = (tmp_path / "cache").rglob("*.json")
    for damage in ("{", '{"schema": 1}', path.read_text().replace("true", "1e9", 1)[:-9]):
        path.write_text(damage)
        again = live(server, GB, tmp_path)
        again.refresh(NOW)
        assert again.intensity(REGION, PRESENT - HOUR, AVERAGE) is not None
