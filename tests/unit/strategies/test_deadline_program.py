"""The dynamic program against a recursion by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest

from costopt.market.lifetime import AgeRates
from costopt.strategies.adaptive.problem import DeadlineProblem, ProgramStage, SpotOption
from costopt.strategies.adaptive.program import ValueFunction

STEP_H = 0.5
SPOT, SAFE = 1.0, 3.0


def _memoryless(up_per_hour: float, down_per_hour: float) -> AgeRates:
    return AgeRates((0.0,), (up_per_hour,), (down_per_hour,))


RATES = _memoryless(0.6, 0.9)
TERMS = DeadlineProblem(STEP_H, (SpotOption(SPOT, 1.0, 1.0, RATES),), SAFE, guard=1.0)


class Uniform:
    """Work that is the same all along, at prices that stand still."""

    def spot_usd(self, n: int, work: int) -> float:
        return SPOT

    def safe_usd(self, n: int, work: int) -> float:
        return SAFE

    def speed(self, work: int) -> int:
        return 1

    def may_wait(self, work: int) -> bool:
        return True


class Varied(Uniform):
    """The last four steps of work may not wait, go twice as fast and cost half as much again.

    From eleven steps to go on, down to eight, spot costs a third and the safe gang twice as much.
    """

    def spot_usd(self, n: int, work: int) -> float:
        return SPOT * (1.5 if work <= 4 else 1.0) * SPOT_COSTS[min(n, 12)]

    def safe_usd(self, n: int, work: int) -> float:
        return SAFE * (1.5 if work <= 4 else 1.0) * SAFE_COSTS[min(n, 12)]

    def speed(self, work: int) -> int:
        return 2 if work <= 4 else 1

    def may_wait(self, work: int) -> bool:
        return work >= 4


SPOT_COSTS = (*[1.0] * 8, *[1 / 3] * 4, 1.0)
SAFE_COSTS = (*[1.0] * 8, *[2.0] * 4, 1.0)
VARIED = replace(
    TERMS,
    lanes=(replace(TERMS.lanes[0], tariff=SPOT_COSTS),),
    safe_tariff=SAFE_COSTS,
    stages=(
        ProgramStage(math.inf, 4.0, (SPOT,), (1.0,), SAFE),
        ProgramStage(4.0, 0.0, (1.5 * SPOT,), (2.0,), 1.5 * SAFE, may_wait=False),
    ),
)


class ByHand:
    """The same program without arrays: whole steps, one class of age, one lane."""

    def __init__(self, start: int, guard: int, work: Uniform) -> None:
        self.start, self.guard, self.work = start, guard, work
        self.ends = 1 - math.exp(-RATES.up_per_hour[0] * STEP_H)
        self.comes = 1 - math.exp(-RATES.down_per_hour[0] * STEP_H)

    def next_up(self, up: bool) -> tuple[tuple[float, bool], ...]:
        chance = 1 - self.ends if up else self.comes
        return (chance, True), (1 - chance, False)

    @cache  # noqa: B019
    def spot(self, n: int, u: int) -> float:
        """After the decision for spot, which is up now."""
        if u < 0:
            return math.inf
        return sum(
            chance * (self.best_on_spot(n, u) if up else self.best_waiting(n, u, up))
            for chance, up in self.next_up(True)
        )

    @cache  # noqa: B019
    def wait(self, n: int, u: int, up: bool) -> float:
        if u < 0:
            return math.inf
        return sum(c * self.best_waiting(n, u, later) for c, later in self.next_up(up))

    @cache  # noqa: B019
    def safe(self, n: int, u: int, up: bool) -> float:
        return sum(c * self.best_on_safe(n, u, later) for c, later in self.next_up(up))

    def best_on_spot(self, n: int, u: int) -> float:
        if n - u - self.guard <= 0:
            return 0.0
        return min(self._run(n, u, n - u - self.guard, 0), self.best_waiting(n, u, True))

    def best_waiting(self, n: int, u: int, up: bool) -> float:
        if n - u - self.guard <= 0:
            return 0.0
        work = n - u - self.guard
        launch = self._run(n, u, work, self.start) if up else math.inf
        wait = self.wait(n - 1, u - 1, up) if self.work.may_wait(work) else math.inf
        return min(launch, wait, self.work.safe_usd(n, work) + self.safe(n - 1, u, up))

    def best_on_safe(self, n: int, u: int, up: bool) -> float:
        if n - u <= 0:
            return 0.0
        launch = self._run(n, u, n - u, self.start + self.guard) if up else math.inf
        stay = self.work.safe_usd(n, n - u) + self.safe(n - 1, u, up)
        may_wait = self.work.may_wait(n - u)
        wait = self.wait(n - 1, u - self.guard - 1, up) if may_wait else math.inf
        return min(stay, launch, wait)

    def _run(self, n: int, u: int, work: int, lost: int) -> float:
        return self.work.spot_usd(n, work) + self.spot(n - 1, u + self.work.speed(work) - 1 - lost)


@pytest.mark.parametrize(("terms", "work"), [(TERMS, Uniform()), (VARIED, Varied())])
@pytest.mark.parametrize("n", [1, 5, 12, 20])
def test_values_are_those_of_the_recursion(n: int, terms: DeadlineProblem, work: Uniform) -> None:
    by_hand = ByHand(start=1, guard=1, work=work)
    program = ValueFunction(terms, 20, 45, keep=21)
    for u in range(n + 1):
        assert program.on_spot(n, u, 0, 0) == pytest.approx(by_hand.spot(n, u), rel=1e-5)
        for up, lane in ((True, 0), (False, None)):
            assert program.waiting(n, u, lane, 0) == pytest.approx(by_hand.wait(n, u, up), rel=1e-5)
            assert program.on_safe(n, u, lane, 0) == pytest.approx(by_hand.safe(n, u, up), rel=1e-5)


def test_without_spare_time_the_rest_is_done_on_the_safe_gang() -> None:
    program = ValueFunction(TERMS, 20, 10)
    assert program.waiting(20, 0, lane=None, of_age=0) == pytest.approx(20 * SAFE)
    assert program.on_safe(20, 0, lane=None, of_age=0) == pytest.approx(20 * SAFE)


def test_more_time_never_costs_more() -> None:
    program = ValueFunction(TERMS, 30, 20)
    costs = [program.waiting(30, u / 4, lane=None, of_age=0) for u in range(60)]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1] + 10


def test_another_pool_is_worth_something() -> None:
    alone = ValueFunction(TERMS, 30, 10)
    lane = replace(TERMS.lanes[0], share=0.5)
    beside = ValueFunction(replace(TERMS, lanes=(lane, lane)), 30, 10)
    assert beside.on_spot(30, 5, 0, 0) < alone.on_spot(30, 5, 0, 0)
    assert beside.waiting(30, 5, None, 0) < alone.waiting(30, 5, None, 0)


def test_an_expensive_pool_that_is_up_is_not_taken_for_a_cheap_one() -> None:
    """Who waits beside a dear pool can launch the dear one, and the cheap one once it is back."""
    cheap = replace(TERMS.lanes[0], share=0.5)
    expensive = replace(cheap, cost=2.5)
    program = ValueFunction(replace(TERMS, lanes=(cheap, expensive)), 30, 10)
    waits = [program.waiting(30, 5, lane, 0) for lane in (0, 1, None)]
    assert waits == sorted(waits)
    assert waits[1] - waits[0] > 1.0


def test_all_that_may_happen_sums_to_one() -> None:
    rates = AgeRates((0.0, 1.0, 3.0), (1.0, 0.5, 0.1), (2.0, 0.5, 0.1))
    lanes = tuple(SpotOption(cost, 1.0, 1.0, rates, share) for cost, share in ((1, 0.4), (2, 0.9)))
    terms = DeadlineProblem(STEP_H, lanes, SAFE, 1.0, hop_class=1)
    program = ValueFunction(replace(terms, safe_cost=1.0), 8, 4)
    for lane in (0, 1, None):
        for of_age in range(3):
            assert program.on_safe(8, 0, lane, of_age) == pytest.approx(8.0)


def test_gangs_of_one_pool_are_lost_together() -> None:
    """Another pool can take over; a larger gang of the same pool cannot."""
    lane = replace(TERMS.lanes[0], share=0.9)
    apart = ValueFunction(replace(TERMS, lanes=(lane, lane)), 30, 10)
    pair = tuple(replace(lane, place="pool") for _ in range(2))
    together = ValueFunction(replace(TERMS, lanes=pair), 30, 10)
    alone = ValueFunction(TERMS, 30, 10)
    assert together.on_spot(30, 5, 0, 0) == pytest.approx(alone.on_spot(30, 5, 0, 0))
    assert together.waiting(30, 5, 1, 0) == pytest.approx(alone.waiting(30, 5, 0, 0))
    assert apart.on_spot(30, 5, 0, 0) < together.on_spot(30, 5, 0, 0)


def test_a_larger_gang_of_the_pool_that_comes_back_can_be_launched() -> None:
    slow = replace(TERMS.lanes[0], place="pool")
    fast = replace(slow, cost=2.1, speed=2.0)
    with_both = ValueFunction(replace(TERMS, lanes=(slow, fast)), 30, 10)
    alone = ValueFunction(TERMS, 30, 10)
    assert with_both.waiting(30, 3, None, 0) < alone.waiting(30, 3, None, 0)


def test_a_faster_pool_can_be_launched_beside_the_cheapest() -> None:
    """Work on the cheap pool alone, at half the speed, would not end in time."""
    slow = SpotOption(0.5, 0.5, 0.5, _memoryless(1e-6, 0.9), share=0.9)
    fast = replace(slow, cost=1.2, speed=1.0, start=1.0)
    both = ValueFunction(replace(TERMS, lanes=(slow, fast)), 30, 10)
    alone = ValueFunction(replace(TERMS, lanes=(slow,)), 30, 10)
    assert both.waiting(30, 5, 0, 0) < alone.waiting(30, 5, 0, 0) - 3.0
    assert both.on_safe(30, 5, 0, 0) < alone.on_safe(30, 5, 0, 0) - 3.0


def test_a_faster_gang_makes_time() -> None:
    fast = DeadlineProblem(STEP_H, (SpotOption(SPOT, 2.0, 1.0, RATES),), SAFE, guard=1.0)
    assert ValueFunction(fast, 30, 10).on_spot(30, 5, 0, 0) < ValueFunction(TERMS, 30, 10).on_spot(
        30, 5, 0, 0
    )


def test_only_the_last_steps_are_kept() -> None:
    program = ValueFunction(TERMS, 100, 10, keep=8)
    assert [program.contains(n) for n in (92, 93, 100, 101)] == [False, True, True, False]
    whole = ValueFunction(TERMS, 100, 10, keep=101)
    assert program.waiting(95, 4.5, 0, 0) == whole.waiting(95, 4.5, 0, 0)


def test_between_whole_steps_the_work_that_is_left_counts() -> None:
    """A quarter of a step of work has its price, wherever in a step it falls."""
    program = ValueFunction(TERMS, 12, 10)
    for steps in (5.0, 5.25, 5.5, 5.75):
        whole = program.on_safe(steps, steps - 1.0, None, 0)
        assert 0.2 * whole < program.on_safe(steps, steps - 0.25, None, 0) < 0.4 * whole
