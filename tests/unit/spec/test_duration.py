"""Durations and instants as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from costopt.spec import parse_duration_s, parse_instant


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
