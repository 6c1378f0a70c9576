"""A gang that is moved to a cheaper pool saves before its nodes are given back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from costopt.domain import events as ev
from costopt.domain.fleet import EndCause
from tests.support.counting_trainer import hold, let_go
from tests.support.live_run import PATIENCE_S, UNINTERRUPTIBLE, Place, wait_until

pytestmark = pytest.mark.exhaustive("jobs on simulated nodes")

POLICY = "kind: policy\nversion: 1\nname: moving\nstrategy: milp\n"
CHEAPER_LATER = {
    "a/g4dn.xlarge/spot": ((0, 1, 0.5),),
    "b/g4dn.xlarge/spot": ((0, None, None), (3000, 1, 0.05)),
}


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_move_loses_no_work(tmp_path: Path) -> None:
    slow = {"STEPPER_SAVE_EVERY": "1000", "STEPPER_LAST_SAVE_S": "3"}
    place = Place(tmp_path, environment=slow, policy="moving.yaml")
    place.write(CHEAPER_LATER | UNINTERRUPTIBLE)
    (tmp_path / "moving.yaml").write_text(POLICY)
    hold(place.saves, 10)
    with place.controlled() as process:
        wait_until(lambda: len(place.of(ev.TrainingStarted)) == 2, "training elsewhere")
        let_go(place.saves)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
        assert place.processes() == []
    first, second = place.of(ev.NodeEnded)
    assert first.cause is second.cause is EndCause.RELEASED
    assert first.pool != second.pool
    resumed_at = int((place.saves / "starts").read_text().split()[-1])
    assert resumed_at > 0, "nothing but the move could make it save, and that was waited for"
