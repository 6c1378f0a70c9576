"""A halt that comes between the announcement of launches and their sending, for twenty minutes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

import pytest

from costopt.domain.events import LaunchFailed
from tests.support.daemon_faults import KillPlan
from tests.support.daemon_simulation import Outcome, Trial, trial

ANNOUNCED = "after writing LaunchIntended"
LASTS = 10
"""Ticks of two minutes."""


class HaltingFate(KillPlan):
    """Somebody halts the daemon as soon as it has announced a launch."""

    def __init__(self, kills: Collection[int] = ()) -> None:
        super().__init__(kills)
        self.halts: Callable[[], object] | None = None

    def step(self, label: str) -> None:
        if label == ANNOUNCED and self.halts is not None:
            halt, self.halts = self.halts, None
            halt()
        super().step(label)


def _run(fate: HaltingFate) -> tuple[Outcome, list[LaunchFailed]]:
    def unhalt(made: Trial) -> None:
        made.registry.unhalt("ann", made.clock.now())

    with trial(fate=fate, happenings={LASTS: unhalt}) as made:
        fate.halts = lambda: made.registry.halt("too dear", "ann", made.clock.now())
        outcome = made.run()
        events = [recorded.event for recorded in made.ledger.events()]
        return outcome, [event for event in events if isinstance(event, LaunchFailed)]


def test_launches_that_a_halt_came_before_are_known_not_to_have_been_sent() -> None:
    outcome, reported = _run(HaltingFate())
    assert outcome == Outcome(0, 0, ())
    unsent = [event for event in reported if event.error == "NotSent"]
    assert {event.job for event in unsent} == {"one", "two"}
    assert all(re.match(r"ann .*: too dear", event.message) for event in unsent)
    assert "lost" not in {event.error for event in reported}


@pytest.mark.exhaustive
@pytest.mark.parametrize("later", range(6))
def test_a_daemon_that_dies_then_leaves_no_orphan_and_launches_nothing_twice(later: int) -> None:
    whole = HaltingFate()
    _run(whole)
    step = whole.steps.index(ANNOUNCED) + 1
    outcome, _ = _run(HaltingFate({step + later}))
    assert outcome == Outcome(1, 0, ())
