"""Where a trainer's time goes, and how fast it steps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from torch import nn

from costopt.protocol.trainer_files import TrainerStatus
from costopt.train import loop, reporter
from costopt.train.attach import attach
from costopt.train.reporter import MIN_STEPS, WARM_STEPS, WINDOW_S, StepRate, StepTimer
from tests.support.forked_commands import TRAINERS, ForkedCommand
from tests.support.manual_clock import ManualClock
from tests.support.node_folder import ROOT
from tests.support.reserved_port import reserved_port


def stepped(
    use: StepTimer, *steps: int, took_s: float = 2.0, waited_s: float | None = None
) -> float:
    now = 100.0 + 10 * steps[0]
    for step in steps:
        use.begin_step(now)
        if waited_s is not None:
            use.wait(waited_s / 2)
            use.wait(waited_s / 2)
        now += took_s
        use.end_step(step, now)
    return now


def test_goodput_is_the_share_of_steps_in_the_time_since_the_process_began() -> None:
    use = StepTimer(began=90.0)
    assert use.goodput(100.0) is None
    stepped(use, 1, 2, 3)
    assert use.goodput(130.0) == pytest.approx(6 / 40)


def test_steps_that_were_lost_count_no_more() -> None:
    use = StepTimer(began=90.0)
    stepped(use, 1, 2, 3)
    use.record_rollback(1)
    assert use.goodput(130.0) == pytest.approx(2 / 40)
    stepped(use, 2)
    assert use.goodput(130.0) == pytest.approx(4 / 40)


def test_a_repeated_step_counts_once() -> None:
    use = StepTimer(began=90.0)
    use.begin_step(100.0)
    use.wait(1.0)
    use.begin_step(105.0)
    use.wait(0.5)
    use.end_step(1, 106.0)
    assert use.goodput(110.0) == pytest.approx(1 / 20)
    assert use.data_wait_share == pytest.approx(0.5)


def test_the_wait_for_data_is_a_share_of_the_last_steps() -> None:
    use = StepTimer(began=90.0)
    stepped(use, *range(1, 200), waited_s=1.0)
    assert use.data_wait_share == pytest.approx(0.5)
    stepped(use, *range(200, 264), waited_s=0.0)
    assert use.data_wait_share == 0.0


def test_a_loop_that_fetches_its_own_data_has_no_known_wait() -> None:
    use = StepTimer(began=90.0)
    stepped(use, 1, 2)
    assert use.data_wait_share is None


def test_a_warm_process_is_as_old_as_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    now = ManualClock(monkeypatch, reporter).now_s
    monkeypatch.setenv("COSTOPT_BEGAN_AT", repr(now - 1000.0))
    use = StepTimer()
    use.begin_step(now)
    use.end_step(1, now + 100.0)
    assert use.goodput(now) == pytest.approx(0.1)


def test_a_loop_tells_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock(monkeypatch, loop, reporter, reporter)
    monkeypatch.setenv("COSTOPT_STATUS_FILE", str(tmp_path / "status.json"))
    monkeypatch.setenv("COSTOPT_BEGAN_AT", repr(clock.now_s - 15.0))
    model = nn.Linear(2, 1)

    def data(step: int, shard: int) -> torch.Tensor:
        clock.now_s += 0.75
        return torch.ones(2, 2)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    job = attach(model, optimizer, None, data, global_batch=4, virtual_shards=2)
    for _ in job.steps(5):
        for batch in job.microbatches():
            with job.microbatch(batch):
                clock.now_s += 0.25
                model(batch).sum().backward()
        job.apply()
    reported = TrainerStatus.read(tmp_path / "status.json")
    assert reported is not None
    assert reported.data_wait_share == pytest.approx(0.75)
    assert reported.goodput == pytest.approx(10 / 25)


def test_the_time_of_a_microbatch_is_the_process_own() -> None:
    use = StepTimer(began=0.0)
    assert use.microbatch_s is None
    for step in range(2 * WARM_STEPS):
        use.begin_step(10.0 * step)
        use.end_compute(10.0 * step + (9.0 if step < WARM_STEPS else 3.0), microbatches=2)
        use.end_step(step, 10.0 * step + 8.0)
    assert use.microbatch_s == pytest.approx(1.5), "neither warming up nor the gang's share of it"


SLOW_RANK = """
import os, time, torch
from costopt.train.attach import attach
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job = attach(model, optimizer, None, lambda step, shard: torch.ones(2, 2), global_batch=4,
             virtual_shards=2)
for _ in job.steps(30):
    for batch in job.microbatches():
        with job.microbatch(batch):
            time.sleep(0.05 * int(os.environ["RANK"]))
            model(batch).sum().backward()
    job.apply()
    time.sleep(0.01)
"""


@pytest.mark.slow
def test_a_slow_member_of_a_gang_differs_from_those_that_wait_for_it(tmp_path: Path) -> None:
    with reserved_port() as port:
        gang = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        files = [tmp_path / f"status-{rank}.json" for rank in range(2)]
        ranks = [
            ForkedCommand(
                ["-c", SLOW_RANK],
                ROOT,
                {**os.environ, **gang, "RANK": str(rank), "COSTOPT_STATUS_FILE": str(file)},
                TRAINERS,
            )
            for rank, file in enumerate(files)
        ]
        assert [process.wait() for process in ranks] == [0, 0]
    fast, slow = (TrainerStatus.read(file) for file in files)
    assert fast is not None
    assert slow is not None
    assert fast.microbatch_s is not None
    assert slow.microbatch_s is not None
    assert slow.microbatch_s > 0.05
    assert slow.microbatch_s > 2 * fast.microbatch_s


def paced(*lengths_s: float) -> StepRate:
    pace, now = StepRate(), 100.0
    for length_s in lengths_s:
        now += length_s
        pace.record_step(now)
    return pace


def test_the_first_steps_of_a_process_do_not_count_for_its_pace() -> None:
    warm = [7.0] * WARM_STEPS
    assert paced(*warm, *[0.5] * (MIN_STEPS - 1)).step_s is None
    assert paced(*warm, *[0.5] * MIN_STEPS).step_s == pytest.approx(0.5)


def test_steps_that_take_longer_than_the_window_have_a_pace() -> None:
    slow_s = 3 * WINDOW_S
    assert paced(*[slow_s] * (WARM_STEPS + MIN_STEPS)).step_s == pytest.approx(slow_s)
    later = paced(*[slow_s] * 20, *[2 * slow_s] * MIN_STEPS)
    assert later.step_s == pytest.approx(2 * slow_s)


def test_what_was_long_ago_is_forgotten() -> None:
    assert paced(*[1.0] * 50, *[0.1] * 200).step_s == pytest.approx(0.1)


def test_the_pause_between_two_gangs_is_not_a_step() -> None:
    pace = paced(*[0.5] * (WARM_STEPS + MIN_STEPS))
    pace.reset()
    assert pace.step_s is None
    for now in range(1000, 1001 + MIN_STEPS):
        pace.record_step(float(now))
    assert pace.step_s == pytest.approx(1.0)
