"""The jobs that a newcomer writes first, against arithmetic by hand: examples/first_jobs.

Prices are those of the built-in lists, whichever the chosen pool has; hours are by hand.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import costopt as co
from costopt.domain.plan import Candidate, Forecast

FOLDER = Path(__file__).parents[3] / "examples" / "first_jobs"
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
HOUR_S = 3600.0


def planned(name: str) -> tuple[Candidate, Forecast, co.Job]:
    """The pool that a plan takes, what following it costs, and the job."""
    job = co.load_job(FOLDER / name, now=NOW)
    made = co.plan(job, "cheapest", at=NOW).plan
    (candidate,) = (each for each in made.candidates if each.chosen)
    proposal = made.proposal_of(job.name) or made.forecast_of(job.name)
    assert proposal is not None
    return candidate, proposal, job


def by_hand_usd(candidate: Candidate, hours: float) -> float:
    return candidate.nodes * candidate.price_usd_per_hour * hours


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_has_at_most_ten_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 10


def test_a_lora_of_70b_on_eight_h100_by_monday() -> None:
    candidate, cost, job = planned("lora-70b.yaml")
    # 4 · 70e9 of products without weight gradients, and attention over 4,096 tokens: 3.13e11 a
    # token; eight H100 of 989 TFLOPS at 40 %.
    hours = 150e6 * 3.13e11 / (8 * 989e12 * 0.40) / HOUR_S
    assert hours == pytest.approx(4.12, abs=0.01)
    assert "H100" in job.resources.gpu_models
    assert cost.usd_mean == pytest.approx(by_hand_usd(candidate, hours), rel=0.1)
    assert cost.finish_p50_at - NOW == pytest.approx(
        timedelta(hours=hours), abs=timedelta(minutes=20)
    )


def test_forty_evaluations_at_night() -> None:
    candidate, cost, job = planned("nightly-eval.yaml")
    # Two in the morning in Berlin is one in UTC; forty half hours are 20 node-hours.
    assert job.start_at == datetime(2026, 11, 29, 1, tzinfo=UTC)
    assert job.deadline_at == datetime(2026, 11, 29, 5, tzinfo=UTC)
    hours = 20 / candidate.nodes
    # 20 node-hours, five minutes of starts for each node, and half a task that a start may lose.
    usd = by_hand_usd(candidate, hours)
    assert usd <= cost.usd_mean <= 1.4 * usd + 0.1
    assert timedelta(hours=hours) <= cost.finish_p50_at - job.start_at <= timedelta(hours=4)


def test_seven_billion_parameters_on_64_gpus_in_three_weeks() -> None:
    candidate, cost, job = planned("pretrain-7b.yaml")
    # 6 · 7e9 of products and attention over 4,096 tokens: 4.88e10 a token; 64 H100 at 40 % of
    # one node, of which three doublings between nodes keep 0.98 each.
    hours = 400e9 * 4.88e10 / (64 * 989e12 * 0.40 * 0.98**3) / HOUR_S
    assert hours == pytest.approx(227.6, abs=1)
    assert candidate.nodes == 8
    assert cost.usd_mean == pytest.approx(by_hand_usd(candidate, hours), rel=0.1)
    assert cost.usd_p95 <= 1.6 * cost.usd_mean
    assert cost.on_time.low > 0.95
    assert job.deadline_at == NOW + timedelta(days=21)


def test_ten_epochs_of_forty_minutes_on_one_a100() -> None:
    candidate, cost, job = planned("ten-epochs.yaml")
    assert candidate.nodes == 1
    speed = candidate.speed
    # On one A100: 400 minutes. On one H100, which is what is cheapest: 989 over 312 TFLOPS, of
    # which it reaches 1 / 1.43 of the share that an A100 does (docs/models.md): 2.2 times as fast.
    assert "H100" in speed.source
    assert speed.value == pytest.approx(989 / 312 / 1.43 / 2400, rel=0.01)
    hours = 10 * 40 / 60 / (989 / 312 / 1.43)
    assert hours == pytest.approx(3.0, abs=0.05)
    assert cost.usd_mean == pytest.approx(by_hand_usd(candidate, hours), rel=0.1)
    assert job.resources.max_gpus == 1


def test_on_the_gpu_that_it_was_measured_on_it_takes_what_it_took() -> None:
    job = co.load_job(FOLDER / "ten-epochs.yaml", now=NOW, gpus="1xA100")
    made = co.plan(job, "cheapest", at=NOW).plan
    (candidate,) = (each for each in made.candidates if each.chosen)
    # 6.67 h of training and a start of some minutes.
    proposal = made.proposal_of(job.name)
    assert proposal is not None
    assert candidate.speed.value == pytest.approx(1 / 2400)
    assert proposal.usd_mean == pytest.approx(by_hand_usd(candidate, 400 / 60), rel=0.1)
