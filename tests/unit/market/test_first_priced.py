"""Where a record's prices begin."""

from __future__ import annotations

import pytest

from tests.support.market_fixtures import ELSEWHERE, ON_DEMAND, SPOT, after, market, pool_history

States = list[tuple[float, int | None, float | None]]


@pytest.mark.parametrize(
    ("spot", "elsewhere", "first_s"),
    [
        ([(0, 1, 1.0)], [(0, 1, 1.0)], 0),
        ([(0, None, None), (50, 1, 1.0)], [(0, None, None), (50, 1, 1.0)], 50),
        ([(0, None, None), (50, 1, 1.0)], [(0, None, None), (80, 1, 1.0)], 50),
        ([(0, 1, 1.0), (60, None, None)], [(0, None, None), (50, 1, 1.0), (60, 1, None)], 0),
        ([(0, None, None), (50, 1, None)], [(20, None, None), (40, 1, 1.0)], 40),
        ([(0, None, None)], [(0, None, None)], 0),
        ([(0, None, None), (500, 1, 1.0)], [(0, None, None), (50, 1, 1.0)], 50),
    ],
    ids=["whole", "late", "one later", "gap", "joined", "none", "after the end"],
)
def test_a_record_is_priced_once_spot_and_on_demand_are(
    spot: States, elsewhere: States, first_s: float
) -> None:
    record = market(
        pool_history(SPOT, spot, 1000 if spot[-1][0] > 400 else 300),
        pool_history(ELSEWHERE, elsewhere, 300),
        pool_history(ON_DEMAND, [(0, None, 3.0)], 300),
    )
    assert record.first_priced_at == after(first_s)
