"""Failures of the command count where it gets no further, and are forgotten after a day."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.controller.command_failures import (
    LASTING_RUN_S,
    MAX_AGE_S,
    failure_text,
    final_failure,
)
from costopt.protocol.messages import CommandFailure, Gang
from tests.support.engine_fixtures import task

JOB = task(1000.0, 2000.0)
SPEED = 60.0
SHORT_S = 0.1 * LASTING_RUN_S / SPEED
LONG_S = (LASTING_RUN_S + JOB.checkpoint.restore_s) / SPEED


def failure(
    number: int,
    *,
    saved: float = 0.0,
    done: float | None = None,
    ran_s: float | None = None,
    at: float = 0.0,
) -> CommandFailure:
    return CommandFailure("n1", number, 1, at, saved, "ValueError: x", "/log", done, ran_s)


def is_final(*failures: CommandFailure, max_failures: int = 3) -> bool:
    gang = Gang("j", len(failures), ("n1",), ("x",), "/", 0.0, speed=SPEED)
    job = replace(JOB, max_failures=max_failures)
    return final_failure(failures, job, gang) is not None


@pytest.mark.parametrize("unit", ["saved", "done"])
def test_three_failures_at_the_same_point_are_final(unit: str) -> None:
    at_5 = [failure(number, **{unit: 5.0}) for number in (1, 2, 3)]
    assert not is_final(*at_5[:2])
    assert is_final(*at_5)


@pytest.mark.parametrize("unit", ["saved", "done"])
def test_a_failure_further_on_is_the_first_at_its_point(unit: str) -> None:
    failures = [failure(number, **{unit: 6.0 * number}) for number in range(1, 20)]
    assert not is_final(*failures)
    again = [failure(20 + number, **{unit: 60.0}) for number in range(2)]
    assert is_final(*failures, *again), "no further than at the 19th"


def test_work_that_is_lost_and_done_again_is_not_further() -> None:
    assert is_final(*(failure(n, done=done) for n, done in enumerate((50.0, 20.0, 40.0), 1)))


def test_a_command_without_reports_is_believed_where_it_ran_for_long() -> None:
    assert not is_final(*(failure(number, ran_s=LONG_S) for number in range(1, 9)))
    assert is_final(*(failure(number, ran_s=SHORT_S) for number in range(1, 4)))
    mixed = [failure(number, ran_s=s) for number, s in enumerate((SHORT_S, LONG_S, SHORT_S), 1)]
    assert not is_final(*mixed), "the second began at another point"


def test_a_command_with_reports_is_believed_by_these_alone() -> None:
    assert is_final(*(failure(number, done=7.0, ran_s=LONG_S) for number in (1, 2, 3)))


def test_a_command_that_never_started_is_not_believed() -> None:
    assert is_final(*(failure(number) for number in (1, 2, 3)))


def test_what_is_a_day_old_does_not_count() -> None:
    day_s = MAX_AGE_S / SPEED
    assert not is_final(failure(1), failure(2), failure(3, at=1.1 * day_s))
    assert is_final(failure(1), failure(2), failure(3, at=0.9 * day_s))


@pytest.mark.parametrize("allowed", [1, 2, 10])
def test_the_job_says_how_many(allowed: int) -> None:
    failures = [failure(number) for number in range(1, allowed + 1)]
    assert is_final(*failures, max_failures=allowed)
    assert not is_final(*failures[:-1], max_failures=allowed)


def test_the_failure_of_an_earlier_generation_is_over() -> None:
    gang = Gang("j", 4, ("n1",), ("x",), "/", 0.0)
    assert final_failure([failure(number) for number in (1, 2, 3)], JOB, gang) is None


def test_a_failure_without_a_message_says_so() -> None:
    assert "printed nothing" in failure_text(replace(failure(1), message=""))
