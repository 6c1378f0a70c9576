"""How often to save, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.checkpoint_interval import explained_interval
from costopt.domain.fleet import Node, NodeState
from costopt.domain.job import CheckpointSpec
from costopt.domain.transfers import save_paid_s
from tests.support.optimize_fixtures import NOW, job, pool


@pytest.mark.parametrize(
    ("given", "interval_s", "said"),
    [
        ({"hazard_per_hour": 0.5, "blocking_save_s": 2.0}, 169.7, "every 2 h, a save stops"),
        (
            {"hazard_per_hour": 0.5, "blocking_save_s": 2.0, "noticed_share": 0.9},
            536.7,
            "every 20 h",
        ),
        ({"hazard_per_hour": 0.5, "blocking_save_s": 0.0, "persist_s": 40.0}, 40.0, "durable"),
        ({"hazard_per_hour": 0.001, "blocking_save_s": 60.0}, 1800.0, "1800 s may be lost"),
        ({"hazard_per_hour": 0.0, "blocking_save_s": 1.0}, 1800.0, "no interruption"),
    ],
)
def test_the_reason_names_what_bound_it(
    given: dict[str, float], interval_s: float, said: str
) -> None:
    chosen = explained_interval(**given)
    assert chosen.interval_s == pytest.approx(interval_s, rel=1e-3)
    assert said in chosen.reason


def test_dollars_of_a_save_lengthen_the_interval() -> None:
    free = explained_interval(hazard_per_hour=1.0, blocking_save_s=10.0)
    paid = explained_interval(hazard_per_hour=1.0, blocking_save_s=10.0, paid_s=30.0)
    assert paid.interval_s == pytest.approx(2 * free.interval_s)
    assert "30 s" in paid.reason


def test_what_a_save_pays_is_counted_in_seconds_of_the_gang() -> None:
    wanted = job(100.0)
    far = CheckpointSpec("./run", 100.0, across_zones=True)
    nodes = tuple(
        Node(
            f"n{n}", "o", "j", replace(pool(zone), provider="aws"), "k", NodeState.RUNNING, NOW, 3.6
        )
        for n, zone in enumerate("ab")
    )
    wanted = replace(wanted, checkpoint=far)
    assert save_paid_s(wanted, nodes, None) == pytest.approx(3600 * 100 * 0.02 / 7.2)
    assert save_paid_s(wanted, nodes[:1], None) == 0.0
    assert save_paid_s(replace(wanted, checkpoint=CheckpointSpec("./run", 100.0)), nodes, None) == 0
