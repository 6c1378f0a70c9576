"""Jobs without a deadline: what waiting costs stands in its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.spec.test_job import SMALLEST, load, refusal

NO_DEADLINE = SMALLEST.replace("deadline: 72h\n", "")


@pytest.mark.parametrize(
    ("value", "usd_per_hour"),
    [("{usd_per_hour_waited: 2.5}", 2.5), ("{priority: 3}", 3.0), ("{}", 1.0)],
)
def test_a_value_stands_in_place_of_a_deadline(
    tmp_path: Path, value: str, usd_per_hour: float
) -> None:
    job = load(tmp_path, f"{NO_DEADLINE}value: {value}\n")
    assert (job.deadline_at, job.usd_per_hour_waited) == (None, usd_per_hour)
    assert job.until_at > job.start_at


def test_both_may_be_said_and_one_must(tmp_path: Path) -> None:
    job = load(tmp_path, f"{SMALLEST}value: {{usd_per_hour_waited: 2, priority: 2}}\n")
    assert job.deadline_at is not None
    assert job.usd_per_hour_waited == 4.0
    (problem,) = refusal(tmp_path, NO_DEADLINE)
    assert (problem.field, problem.code) == ("deadline", "missing")


@pytest.mark.parametrize("value", ["{priority: 0}", "{usd_per_hour_waited: -1}", "{usd: 1}"])
def test_a_value_that_makes_no_sense_is_refused(tmp_path: Path, value: str) -> None:
    assert refusal(tmp_path, f"{NO_DEADLINE}value: {value}\n")
