"""A daemon that dies at every point and whose cloud misbehaves: nothing twice, nothing left behind.

COSTOPT_DAEMON_KILLS=1000 asks for so many trials with deaths at random steps, and for half as many
with faults of the line to the cloud as well, and of the machine; ``pytest -s`` prints the table of
faults and outcomes.
"""

from __future__ import annotations

import os
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import pytest

from costopt.domain.control import Mode
from tests.support.daemon_faults import Fault, KillPlan
from tests.support.daemon_simulation import Outcome, Wrong, trial
from tests.support.machine_faults import MachineFault, happenings

KILLS = int(os.environ.get("COSTOPT_DAEMON_KILLS", "0"))
BETWEEN = (
    "after writing LaunchIntended",
    "after launch",
    "after writing NodeLaunched",
    "after writing GangFormed",
    "after runtime form_gang",
    "after writing DrainIntended",
    "after runtime drain",
    "after writing TerminateIntended",
    "after terminate",
    "before writing NodeEnded",
)
"""The points between an intent and its outcome; what comes before one comes after another."""
MAX_DEATHS = 4


class Table:
    """Faults × outcomes."""

    def __init__(self) -> None:
        self._rows: dict[str, list[Outcome]] = {}
        self._hours = defaultdict[str, float](float)

    def note(self, row: str, outcome: Outcome, hours: float) -> Outcome:
        """``hours`` are of the jobs' time."""
        self._rows.setdefault(row, []).append(outcome)
        self._hours[row] += hours
        return outcome

    def lines(self) -> Iterator[str]:
        heads = ("trials", "hours", "deaths", "faults", *(wrong.value for wrong in Wrong))
        yield f"{'':<44}" + "".join(f" | {head}" for head in heads)
        for row, outcomes in self._rows.items():
            figures = [
                len(outcomes),
                round(self._hours[row]),
                sum(outcome.deaths for outcome in outcomes),
                sum(outcome.faults for outcome in outcomes),
                *(sum(wrong in outcome.wrong for outcome in outcomes) for wrong in Wrong),
            ]
            cells = zip(heads, figures, strict=True)
            yield f"{row:<44}" + "".join(f" | {n:>{len(head)}}" for head, n in cells)


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    made = Table()
    yield made
    sys.stdout.write("\n".join(["", *made.lines(), ""]))


@cache
def _steps(mode: Mode = Mode.ENFORCE) -> tuple[str, ...]:
    """What happens in a trial in which nothing goes wrong."""
    with trial(mode=mode) as undisturbed:
        outcome = undisturbed.run()
        assert outcome == Outcome(0, 0, ())
        return tuple(undisturbed.fate.steps)


def _numbers(steps: Sequence[str], label: str) -> list[int]:
    return [number for number, step in enumerate(steps, 1) if step == label]


def _random_step(steps: Sequence[str], chances: random.Random) -> int:
    """Rare steps as likely as common ones."""
    return chances.choice(_numbers(steps, chances.choice(sorted(set(steps)))))


def _went_wrong(outcomes: Iterable[tuple[int, Outcome]]) -> dict[int, tuple[Wrong, ...]]:
    """What went wrong, by the step or seed of the trial; all trials are made first."""
    return {number: outcome.wrong for number, outcome in list(outcomes) if outcome.wrong}


@pytest.mark.exhaustive
@pytest.mark.parametrize("label", BETWEEN)
def test_killed_between_an_intent_and_its_outcome(label: str, table: Table) -> None:
    numbers = _numbers(_steps(), label)
    assert numbers, "the trial never comes there"

    def outcomes() -> Iterator[tuple[int, Outcome]]:
        for number in numbers if KILLS else (numbers[0], numbers[-1]):
            with trial(fate=KillPlan([number]), seed=number) as made:
                outcome = table.note(f"killed {label}", made.run(), made.hours)
            assert outcome.deaths == 1
            yield number, outcome

    assert _went_wrong(outcomes()) == {}


@pytest.mark.parametrize("label", ["after registry propose", "before registry answer"])
def test_killed_where_a_person_says_yes(label: str, table: Table) -> None:
    numbers = _numbers(_steps(Mode.RECOMMEND), label)

    def outcomes() -> Iterator[tuple[int, Outcome]]:
        for number in numbers if KILLS else numbers[:1]:
            with trial(fate=KillPlan([number]), mode=Mode.RECOMMEND, seed=number) as made:
                outcome = table.note(f"recommending, killed {label}", made.run(), made.hours)
            assert outcome.deaths == 1
            yield number, outcome

    assert _went_wrong(outcomes()) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("fault", list(Fault))
def test_a_line_that_misbehaves(fault: Fault, table: Table) -> None:
    def outcomes() -> Iterator[tuple[int, Outcome]]:
        for seed in range(KILLS // 20 or 1):
            with trial(faults=[fault], seed=seed) as made:
                outcome = table.note(fault, made.run(), made.hours)
            assert outcome.faults > 0
            yield seed, outcome

    assert _went_wrong(outcomes()) == {}


@pytest.mark.parametrize("fault", list(MachineFault))
def test_a_machine_that_misbehaves(fault: MachineFault, table: Table) -> None:
    lost = 0

    def outcomes() -> Iterator[tuple[int, Outcome]]:
        nonlocal lost
        for seed in range(KILLS // 10 or 3):
            planned = happenings([fault], random.Random(seed))
            with trial(happenings=planned, seed=seed) as made:
                yield seed, table.note(fault, made.run(), made.hours)
                lost += made.lost_events

    assert _went_wrong(outcomes()) == {}
    assert lost > 0 or fault is not MachineFault.FAILOVER


def test_killed_at_random_steps_with_any_fault_of_line_and_machine(table: Table) -> None:
    row = "killed at random steps, any fault of both"

    def outcomes() -> Iterator[tuple[int, Outcome]]:
        for seed in range(KILLS // 2 or 3):
            chances = random.Random(-1 - seed)
            deaths = chances.randint(0, MAX_DEATHS)
            kills = [_random_step(_steps(), chances) for _ in range(deaths)]
            planned = happenings(list(MachineFault), chances)
            with trial(
                fate=KillPlan(kills), faults=tuple(Fault), happenings=planned, seed=seed
            ) as made:
                yield seed, table.note(row, made.run(), made.hours)

    assert _went_wrong(outcomes()) == {}


@pytest.mark.parametrize("faults", [(), tuple(Fault)], ids=["line sound", "any fault"])
def test_killed_at_random_steps(faults: Sequence[Fault], table: Table) -> None:
    row = "killed at random steps" + (", any fault" if faults else "")

    def outcomes() -> Iterator[tuple[int, Outcome]]:
        for seed in range((KILLS // 2 if faults else KILLS) or 2):
            chances = random.Random(seed)
            deaths = chances.randint(1, MAX_DEATHS)
            kills = [_random_step(_steps(), chances) for _ in range(deaths)]
            with trial(fate=KillPlan(kills), faults=faults, seed=seed) as made:
                yield seed, table.note(row, made.run(), made.hours)

    assert _went_wrong(outcomes()) == {}
