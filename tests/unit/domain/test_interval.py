"""How often to save, and why."""

from __future__ import annotations

import pytest

from costopt.domain.checkpoint_interval import checkpoint_interval_s, explained_interval


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
    assert checkpoint_interval_s(**given) == chosen.interval_s
