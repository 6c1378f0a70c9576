"""The oracles against each other: trying everything, and the compact program."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from costopt.optimize.request import PlanRequest
from tests.support.fleet_requests import lone_jobs
from tests.support.optimize_enumeration import cheapest_usd
from tests.support.optimize_oracle import optimum_usd


@settings(max_examples=80, deadline=None)
@given(lone_jobs())
def test_the_oracles_agree(request: PlanRequest) -> None:
    tried, solved = cheapest_usd(request), optimum_usd(request, exclusive=True)
    if tried is None or solved is None:
        assert tried is solved
        return
    assert solved == pytest.approx(tried, rel=1e-5)
    mixed = optimum_usd(request, exclusive=False)
    assert mixed is not None
    assert mixed <= solved * (1 + 1e-6)
