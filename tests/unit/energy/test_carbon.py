"""Annual carbon intensity as a signal."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from costopt.catalog import load_catalog
from costopt.domain.market import Region
from costopt.domain.policy import CarbonSignal
from costopt.domain.ports import Signal
from costopt.energy import AnnualCarbon

NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)
MIDNIGHT = datetime(2027, 1, 1, tzinfo=UTC)


def region(name: str) -> Region:
    found = load_catalog().region("aws", name)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("signal", "figure"), [(CarbonSignal.AVERAGE, 24.71), (CarbonSignal.MARGINAL, 791.26)]
)
def test_the_signal_is_the_one_asked_for(signal: CarbonSignal, figure: float) -> None:
    carbon: Signal = AnnualCarbon(region("eu-north-1"), signal)
    estimate = carbon.at(NOON)
    assert estimate is not None
    assert estimate.value == figure
    assert signal.value in estimate.source
    assert estimate.low < figure < estimate.high


def test_it_is_constant_and_tells_its_age() -> None:
    carbon = AnnualCarbon(region("us-east-1"), CarbonSignal.AVERAGE)
    estimate = carbon.at(NOON)
    assert estimate == carbon.at(MIDNIGHT)
    assert estimate is not None
    assert estimate.observed_at == datetime(2024, 12, 31, tzinfo=UTC)


def test_an_unpublished_intensity_is_none() -> None:
    unpublished = region("ca-west-1")
    assert AnnualCarbon(unpublished, CarbonSignal.AVERAGE).at(NOON) is None
    marginal_only = region("cn-northwest-1")
    assert AnnualCarbon(marginal_only, CarbonSignal.AVERAGE).at(NOON) is None
    assert AnnualCarbon(marginal_only, CarbonSignal.MARGINAL).at(NOON) is not None
