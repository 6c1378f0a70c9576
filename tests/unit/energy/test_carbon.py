"""Carbon intensity: the annual mean, and recorded hours."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from costopt.catalog import load_catalog
from costopt.domain.market import Region
from costopt.domain.policy import CarbonSignal
from costopt.energy.carbon import (
    MAX_GAP_HOURS,
    CarbonHistory,
    RecordedCarbon,
    annual_gco2e_per_kwh,
)

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
MIDNIGHT = datetime(2027, 1, 1, tzinfo=UTC)


def region(name: str) -> Region:
    found = load_catalog().region("aws", name)
    assert found is not None
    return found


def test_the_annual_mean_is_that_of_the_signal() -> None:
    found = region("eu-north-1")
    assert annual_gco2e_per_kwh(found, CarbonSignal.AVERAGE) == 24.71
    assert annual_gco2e_per_kwh(found, CarbonSignal.MARGINAL) == 791.26


def test_an_unpublished_annual_mean_is_none() -> None:
    assert annual_gco2e_per_kwh(region("ca-west-1"), CarbonSignal.AVERAGE) is None
    marginal_only = region("cn-northwest-1")
    assert annual_gco2e_per_kwh(marginal_only, CarbonSignal.AVERAGE) is None
    assert annual_gco2e_per_kwh(marginal_only, CarbonSignal.MARGINAL) is not None


def _history(*values: float | None) -> CarbonHistory:
    return CarbonHistory(NOON, {"SE": values}, CarbonSignal.AVERAGE, "made up")


@pytest.mark.parametrize("gap", range(1, MAX_GAP_HOURS + 1))
def test_a_short_gap_is_filled_on_the_line_between_recorded_hours(gap: int) -> None:
    history = _history(100.0, *(None,) * gap, 100.0 + 10 * (gap + 1), None)
    for hour in range(1, gap + 1):
        at = NOON + timedelta(hours=hour)
        assert history.at("SE", at) is None
        assert history.interpolated("SE", at) == pytest.approx(100.0 + 10 * hour)
    after = NOON + timedelta(hours=gap + 1)
    assert history.interpolated("SE", after) is None  # recorded
    assert history.interpolated("SE", after + timedelta(hours=1)) is None  # nothing follows


def test_a_longer_gap_stays_unknown() -> None:
    history = _history(100.0, *(None,) * (MAX_GAP_HOURS + 1), 200.0)
    hours = (NOON + timedelta(hours=n) for n in range(MAX_GAP_HOURS + 3))
    assert all(history.interpolated("SE", at) is None for at in hours)
    unbegun = _history(None, 100.0)
    assert unbegun.interpolated("SE", NOON) is None
    assert unbegun.interpolated("SE", NOON - timedelta(hours=1)) is None


def test_an_interpolated_hour_says_so() -> None:
    recorded = RecordedCarbon(_history(100.0, None, 200.0), load_catalog().region)
    filled = recorded.intensity("aws/eu-north-1", NOON + timedelta(hours=1), CarbonSignal.AVERAGE)
    assert filled is not None
    assert filled.value == pytest.approx(150.0)
    assert filled.source == "interpolated: made up"
