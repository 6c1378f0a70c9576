"""Figures read well, in one form everywhere."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import costopt.formatting
from costopt.domain.estimate import Basis, Estimate
from costopt.formatting import (
    count_text,
    gco2e_text,
    kwh_text,
    minute_text,
    number_text,
    percent_text,
    plain_text,
    pool_lines,
    pool_text,
    pools_text,
    probability_text,
    relative_to_baseline,
    second_text,
    seconds_text,
    usd_micros_text,
    usd_per_hour_text,
    usd_text,
    wh_text,
    whole_percent_text,
    work_text,
)

AT = datetime(2026, 1, 1, 2, 3, 4, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (usd_text(0), "$0.00"),
        (usd_text(0.0972), "$0.0972"),
        (usd_text(12.345), "$12.35"),
        (usd_text(12345.6), "$12,345.60"),
        (usd_text(-2.5), "-$2.50"),
        (usd_micros_text(353_041_996), "$353.04"),
        (usd_micros_text(1_234_567_890_000), "$1,234,567.89"),
        (usd_micros_text(12_345), "$0.0123"),
        (usd_per_hour_text(3.2), "$3.20/h"),
        (wh_text(81_239), "81.2 kWh"),
        (wh_text(812), "812 Wh"),
        (wh_text(0.012), "0.012 Wh"),
        (kwh_text(81.239), "81.2 kWh"),
        (gco2e_text(7), "7 g"),
        (gco2e_text(999.9), "1 kg"),
        (gco2e_text(1530), "1.53 kg"),
        (gco2e_text(33_633), "33.6 kg"),
        (gco2e_text(2.5e6), "2.5 t"),
        (gco2e_text(1.5e9), "1,500 t"),
        (seconds_text(0), "0 s"),
        (seconds_text(45), "45 s"),
        (seconds_text(90), "1 min 30 s"),
        (seconds_text(1740), "29 min"),
        (seconds_text(3599.6), "1 h"),
        (seconds_text(19_860), "5 h 31 min"),
        (seconds_text(86_399), "1 d"),
        (seconds_text(86400 * 3 + 3600), "3 d 1 h"),
        (seconds_text(86400 * 3 + 60), "3 d"),
        (seconds_text(86400 * 513 + 7200), "513 d"),
        (seconds_text(-60), "-1 min"),
        (number_text(0.12345), "0.123"),
        (number_text(999.7), "1,000"),
        (number_text(1234.5), "1,234"),
        (percent_text(0.5), "50.0 %"),
        (percent_text(0.9999), ">99.9 %"),
        (percent_text(1.0), "100.0 %"),
        (whole_percent_text(0.3077), "31 %"),
        (count_text(2, 40), "2 of 40"),
        (count_text(0, 40), "0 of 40 (<7.3 %)"),
        (count_text(40, 40), "40 of 40 (>92.7 %)"),
        (pools_text("2 × aws/us-east-1/us-east-1a/t/spot: a/b"), "2 × aws/us-east-1a/t/spot: a/b"),
        (pools_text("s3://a/b/c/d/e is no pool"), "s3://a/b/c/d/e is no pool"),
        (pool_lines(("a/r/r1/t/spot", "b/r/z/t/spot")), "a/r1/t/spot,\nb/r/z/t/spot"),
        (work_text(2400.0, "steps"), "2,400 steps"),
        (work_text(0.25, "steps"), "0.25 steps"),
        (relative_to_baseline(0.32), "32 % below"),
        (relative_to_baseline(-0.1), "10 % above"),
        (relative_to_baseline(0.001), "equal to"),
        (second_text(AT), "2026-01-01 02:03:04Z"),
        (minute_text(AT), "2026-01-01 02:03Z"),
        (minute_text("2026-01-01T02:03:04Z"), "2026-01-01 02:03Z"),
        (pool_text("aws/us-east-1/us-east-1a/t/spot"), "aws/us-east-1a/t/spot"),
        (pool_text("x/r/z/t/spot"), "x/r/z/t/spot"),
        (plain_text(None), "–"),
        (plain_text(True), "yes"),
        (plain_text(1.5), "1.5"),
        (plain_text(("a", 1)), "a, 1"),
    ],
)
def test_figures_read_well(text: str, expected: str) -> None:
    assert text == expected


@pytest.mark.parametrize(
    "text",
    [
        usd_text(None),
        usd_micros_text(None),
        usd_per_hour_text(None),
        wh_text(None),
        kwh_text(None),
        gco2e_text(None),
        seconds_text(None),
        number_text(None),
        percent_text(None),
        whole_percent_text(None),
        probability_text(None),
        work_text(None, "steps"),
        relative_to_baseline(None),
        second_text(None),
        minute_text(None),
    ],
)
def test_an_unknown_figure_is_never_zero(text: str) -> None:
    assert text == "unknown"


@pytest.mark.parametrize(
    ("hits", "draws", "expected"),
    [
        (200, 200, ">98.5 %"), (2000, 2000, ">99.8 %"), (1999, 2000, ">99.7 %"),
        (0, 200, "<1.5 %"), (0, 5, "<45.1 %"), (195, 200, "97.3 %"), (100, 200, "50.0 %"),
        (99_999, 100_000, ">99.9 %"), (1, 100_000, "<0.1 %"),
    ],
)  # fmt: skip
def test_a_probability_from_draws_is_never_shown_as_certain(
    hits: int, draws: int, expected: str
) -> None:
    assert probability_text(Estimate.of_share(hits, draws, "drawn")) == expected


@given(st.integers(1, 10**7), st.data())
def test_no_count_of_draws_reads_as_0_or_100_percent(draws: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, draws))
    estimate = Estimate.of_share(hits, draws, "drawn")
    assert 0 < estimate.value < 1
    assert estimate.low < hits / draws + 1e-12
    assert estimate.high > hits / draws - 1e-12
    assert (estimate.low, estimate.high) != (0.0, 1.0)
    assert probability_text(estimate) not in ("0.0 %", "100.0 %")


@given(st.integers(3, 10**6))
def test_the_bound_of_what_never_happened_is_the_rule_of_three(draws: int) -> None:
    never, always = (Estimate.of_share(hits, draws, "drawn") for hits in (0, draws))
    assert 1 - (1 - never.high) ** draws == pytest.approx(0.95, rel=1e-6)
    assert never.high < 3 / draws
    assert always.low == pytest.approx(1 - never.high)


def test_a_certain_probability_reads_100_percent() -> None:
    assert probability_text(Estimate.exact(1.0, Basis.MEASURED, "over")) == "100.0 %"


@pytest.mark.slow
def test_figures_are_formatted_in_one_module() -> None:
    """A function that ends in a unit and _text stands in costopt.formatting alone."""
    names = {name for name in vars(costopt.formatting) if name.endswith("_text")} - {"pool_text"}
    root = Path(costopt.__file__).parent
    definition = re.compile(rf"\bdef ({'|'.join(sorted(names))})\b")
    again = [
        f"{path.relative_to(root)}: {name}"
        for path in root.rglob("*.py")
        if path.name != "formatting.py"
        for name in definition.findall(path.read_text(encoding="utf-8"))
    ]
    assert again == []
