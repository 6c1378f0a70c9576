"""Cron expressions, the jobs that recur by them, durations and instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costopt.spec import parse_duration_s, parse_instant, parse_job, parse_planned_job
from costopt.spec.cron import CronExpression
from costopt.spec.schedule import occurrence_document, parse_schedule
from costopt.spec.yaml_document import SpecFileError, parse_document

BERLIN = ZoneInfo("Europe/Berlin")


JOB = """
name: nightly
work: {amount: 1000, unit: steps}
deadline: 6h
schedule: {cron: "0 2 * * *", time_zone: Europe/Berlin}
throughput: {points: [{gpu: A100, units_per_s: 1}]}
checkpoint: {uri: checkpoints}
"""


NOW = datetime(2026, 3, 1, tzinfo=UTC)


def _local(text: str, after: str, count: int, zone: ZoneInfo = BERLIN) -> list[str]:
    begin = datetime.fromisoformat(after).replace(tzinfo=zone)
    times = CronExpression.parse(text).occurrences(zone, begin)
    return [f"{at.astimezone(zone):%a %d %b %H:%M%z}" for at in islice(times, count)]


@pytest.mark.parametrize(
    ("text", "after", "found"),
    [
        (
            "30 4 * * mon-fri",
            "2026-11-20T05:00",
            ["Mon 23 Nov 04:30+0100", "Tue 24 Nov 04:30+0100"],
        ),
        ("0 0 * * 7", "2026-11-20T00:00", ["Sun 22 Nov 00:00+0100", "Sun 29 Nov 00:00+0100"]),
        ("0 12 13 * 5", "2026-11-01T00:00", ["Fri 06 Nov 12:00+0100", "Fri 13 Nov 12:00+0100"]),
        ("0 0 29 2 *", "2026-01-01T00:00", ["Tue 29 Feb 00:00+0100"]),
        ("*/20 6 1 jan,jul *", "2026-01-01T06:20", ["Thu 01 Jan 06:40+0100"]),
        ("5/25 3 * * *", "2026-01-01T03:05", ["Thu 01 Jan 03:30+0100", "Thu 01 Jan 03:55+0100"]),
    ],
)
def test_an_expression_means_what_crontab_says(text: str, after: str, found: list[str]) -> None:
    assert _local(text, after, len(found)) == found


def test_a_time_of_the_day_takes_place_once_each_day_when_the_clocks_move() -> None:
    assert _local("30 2 * * *", "2026-03-28T03:00", 2) == [
        "Sun 29 Mar 03:30+0200",
        "Mon 30 Mar 02:30+0200",
    ]
    assert _local("30 2 * * *", "2026-10-24T03:00", 2) == [
        "Sun 25 Oct 02:30+0200",
        "Mon 26 Oct 02:30+0100",
    ]


def test_every_so_many_hours_follows_the_hours_that_pass() -> None:
    for after in ("2026-03-28T22:00", "2026-10-24T22:00"):
        begin = datetime.fromisoformat(after).replace(tzinfo=BERLIN)
        times = islice(CronExpression.parse("0 * * * *").occurrences(BERLIN, begin), 30)
        assert {(b - a).total_seconds() for a, b in pairwise(times)} == {3600}


@pytest.mark.parametrize(
    "text",
    ["", "* * * *", "60 * * * *", "* 24 * * *", "0 0 31 4,6 *", "a * * * *", "*/0 * * * *",
     "5-1 * * * *", "@daily", "0 0 0 * *", "-1 * * * *", "1,,2 * * * *", "١ * * * *"],
)  # fmt: skip
def test_what_crontab_would_refuse_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        CronExpression.parse(text)


@given(
    st.sampled_from(["0 2 * * *", "*/7 * * * *", "15 */3 * * 1-5", "0 0 1 * *"]),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"]),
    st.integers(0, 3650 * 1440),
)
def test_occurrences_ascend_and_resume_where_they_were_left(
    text: str, name: str, minutes: int
) -> None:
    zone, begin = ZoneInfo(name), datetime(2020, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    expression = CronExpression.parse(text)
    times = list(islice(expression.occurrences(zone, begin), 20))
    assert begin < times[0]
    assert all(a < b for a, b in pairwise(times))
    assert list(islice(expression.occurrences(zone, times[9]), 10)) == times[10:]


def test_a_plan_is_of_the_next_occurrence_and_says_so() -> None:
    document = parse_document(JOB, "job.yaml")
    job = parse_planned_job(document, NOW)
    # 2:00 in Berlin, an hour ahead of UTC on 1 March.
    assert job.start_at == datetime(2026, 3, 1, 1, tzinfo=UTC)
    assert job.deadline_at == datetime(2026, 3, 1, 7, tzinfo=UTC)
    (note,) = job.time_notes
    assert all(part in note for part in ("2026-03-01 01:00Z", "0 2 * * *", "Europe/Berlin"))
    assert parse_planned_job(document, job.start_at).start_at == job.start_at
    once = parse_document(JOB.replace("schedule:", "data: {uri: x} #"), "job.yaml")
    assert parse_planned_job(once, NOW).start_at == NOW


def test_an_occurrence_of_a_job_with_a_plain_place_has_one_below_it() -> None:
    text = JOB.replace("{uri: checkpoints}", "s3://bucket/nightly")
    at = datetime(2026, 3, 1, 1, tzinfo=UTC)
    made = parse_job(parse_document(occurrence_document(text, at), "job.yaml"), at)
    assert made.checkpoint.uri == "s3://bucket/nightly/20260301T0100Z"


def test_an_occurrence_is_a_job_of_its_own(tmp_path: Path) -> None:
    at = datetime(2026, 3, 2, 1, tzinfo=UTC)
    text = occurrence_document(JOB, at)
    job = parse_job(parse_document(text, str(tmp_path / "job.yaml")), at)
    assert job.name == "nightly-20260302T0100Z"
    assert job.checkpoint.uri == str(tmp_path / "checkpoints" / "20260302T0100Z")
    assert (job.until_at - at).total_seconds() == 6 * 3600
    assert dict(job.env)["SCHEDULED_AT"] == "2026-03-02T01:00:00Z"
    assert parse_schedule(text) is None


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("deadline: 6h", "deadline: 2030-01-01T00:00:00Z", "deadline"),
        ("deadline: 6h", "deadline: 6h\nstart: 1h", "start"),
        ("name: nightly", "name: " + 50 * "n", "name"),
        ("0 2 * * *", "0 25 * * *", "schedule.cron"),
        ("Europe/Berlin", "Mars/Olympus", "schedule.time_zone"),
        ("Europe/Berlin", "../../etc/passwd", "schedule.time_zone"),
        ("time_zone: Europe/Berlin", "catch_up: all", "schedule.catch_up"),
    ],
)
def test_a_schedule_that_cannot_recur_is_refused_at_its_field(
    old: str, new: str, field: str
) -> None:
    with pytest.raises(SpecFileError) as refusal:
        parse_job(parse_document(JOB.replace(old, new), "job.yaml"), NOW)
    assert [problem.field for problem in refusal.value.problems] == [field]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("72h", 72 * 3600),
        ("90m", 5400),
        ("90 min", 5400),
        ("1d 12h", 129600),
        ("1d12h", 129600),
        ("2.5H", 9000),
        ("1w", 604800),
        ("0s", 0),
        ("86400", 86400),
        (" 1.5 ", 1.5),
    ],
)
def test_a_duration_is_the_sum_of_its_parts(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "1d 30", "-5", "1e3", "h", "72x", "1h 1h", "30m 5min", "-1h", "1e3s", "11000w"]
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_duration_s(text)


def test_an_instant_is_reported_in_utc() -> None:
    assert parse_instant("2026-05-01T10:00:00+02:00") == datetime(2026, 5, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["2026-05-01T10:00:00", "2026-05-01", "tomorrow", "0001-01-01T00:00+14:00"]
)
def test_an_instant_without_zone_or_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_instant(text)
