"""What a strategy weighed goes into the ledger where it is asked for, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

from costopt.backtesting.replay import replay
from costopt.domain.events import DecisionMade
from costopt.domain.view import Alternative, Decision, Desired, JobView, Target, View
from costopt.strategies.shield import ShieldedStrategy
from tests.support.cant_be_late import NoHazard
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, Machines, Powers, rules, task
from tests.support.market_fixtures import market, pool_history

WEIGHED = (
    Alternative(f"1 × {SPOT_A}", 3.5, "lasts 2.1 h"),
    Alternative("wait", None, "would be late"),
)


class Weighing:
    """Wants spot, and says what else it thought of."""

    def decide(self, view: View) -> Desired:
        return Desired(tuple(self._decide(job_view) for job_view in view.jobs))

    def _decide(self, job_view: JobView) -> Decision:
        return Decision(job_view.job.name, (Target(SPOT_A, 1),), "cheapest", alternatives=WEIGHED)


def _decisions(*, explain: bool) -> list[DecisionMade]:
    record = market(
        pool_history(SPOT_A, [(0, 1, 2.0), (HOUR_S, 0, 2.0)], 40 * HOUR_S),
        pool_history(SAFE, [(0, 9, 8.0)], 40 * HOUR_S),
        tick_s=600.0,
    )
    done = replay(
        task(3 * HOUR_S, 4 * HOUR_S),
        rules("greedy_spot"),
        record,
        machines=Machines(),
        powers=Powers(),
        hazards=NoHazard(),
        strategy=ShieldedStrategy(Weighing()),
        explain=explain,
    )
    events = (recorded.event for recorded in done.events)
    return [event for event in events if isinstance(event, DecisionMade)]


def test_alternatives_are_recorded_also_where_the_shield_overrules() -> None:
    made = _decisions(explain=True)
    assert made[0].rule is None
    assert "shield" in [event.rule for event in made]
    for event in made:
        assert event.alternatives == (
            (f"1 × {SPOT_A}", 3.5, "lasts 2.1 h"),
            ("wait", None, "would be late"),
        )


def test_without_being_asked_nothing_of_them_is_kept() -> None:
    made = _decisions(explain=False)
    assert made == [replace(event, alternatives=()) for event in _decisions(explain=True)]
