"""Keep pace with the deadline."""

from __future__ import annotations

import pytest

from costopt.domain.fleet import Node
from costopt.domain.view import Target
from costopt.strategies.uniform_progress import UniformProgressStrategy
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, task
from tests.support.strategy_fixtures import build_view, nodes_in, offer, only

SPOT, NO_SPOT = offer(SPOT_A, 2.0), offer(SPOT_A, 2.0, 0)
SAFE_OFFER = offer(SAFE, 8.0)
WAIT: tuple[Target, ...] = ()
ON_SPOT, ON_SAFE = (Target(SPOT_A, 1),), (Target(SAFE, 1),)


def _decide(
    done_s: float, *, spot: bool, nodes: tuple[Node, ...] = (), hysteresis: bool = True
) -> tuple[Target, ...]:
    """4 h of work in 16 h, 8 h of which have passed: the pace is 2 h."""
    view = build_view(
        task(deadline_s=16 * HOUR_S),
        [SPOT if spot else NO_SPOT, SAFE_OFFER],
        now_s=8 * HOUR_S,
        done=done_s,
        nodes=nodes,
    )
    return only(UniformProgressStrategy(hysteresis).decide(view)).targets


@pytest.mark.parametrize(
    ("done_s", "spot", "expected"),
    [
        (2 * HOUR_S + 1, False, WAIT),
        (2 * HOUR_S - 1, False, ON_SAFE),
        (2 * HOUR_S + 1, True, ON_SPOT),
        (2 * HOUR_S - 1, True, ON_SPOT),
        (0.0, True, ON_SPOT),
    ],
)
def test_from_waiting(done_s: float, spot: bool, expected: tuple[Target, ...]) -> None:
    assert _decide(done_s, spot=spot) == expected


@pytest.mark.parametrize(
    ("ahead_s", "spot", "hysteresis", "expected"),
    [
        (74.0, True, True, ON_SAFE),
        (76.0, True, True, ON_SPOT),
        (-900.0, True, False, ON_SPOT),
        (900.0, False, True, ON_SAFE),
    ],
)
def test_on_demand_is_left_for_spot_by_the_pace_of_two_overheads(
    ahead_s: float, spot: bool, hysteresis: bool, expected: tuple[Target, ...]
) -> None:
    """Two overheads of 150 s at a pace of a quarter are 75 s of work."""
    done_s = 2 * HOUR_S + ahead_s
    decided = _decide(done_s, spot=spot, nodes=nodes_in(SAFE), hysteresis=hysteresis)
    assert decided == expected


def test_without_on_demand_it_takes_spot_or_waits() -> None:
    for spot, expected in [(SPOT, ON_SPOT), (NO_SPOT, WAIT)]:
        view = build_view(task(), [spot], now_s=30 * HOUR_S)
        assert only(UniformProgressStrategy().decide(view)).targets == expected
