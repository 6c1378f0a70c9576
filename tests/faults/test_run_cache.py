"""A job with a cache: each node fetches it once, however often its trainer starts there."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from costopt.domain import events as ev
from costopt.store.folder import FileStore
from tests.support.counting_trainer import hold, let_go
from tests.support.live_run import CALM, PATIENCE_S, Place, wait_until

pytestmark = [
    pytest.mark.exhaustive("jobs on simulated nodes"),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]

CACHE = "cache: [{uri: bucket, to: weights, size_gib: 0.001}]\n"
WEIGHTS = b"w" * 2**20


def kill_trainer(place: Place) -> None:
    """As the kernel does where memory runs out: the node and its agent live on."""
    for pid in place.processes():
        if b"counting_trainer.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


def at_step(place: Place, step: int) -> bool:
    reported = place.of(ev.ProgressReported)
    return bool(reported) and reported[-1].done_units >= step


def test_a_second_start_on_a_node_fetches_nothing_and_another_node_does(tmp_path: Path) -> None:
    FileStore(tmp_path / "bucket").put("model/weights", WEIGHTS)
    place = Place(tmp_path, extra=CACHE)
    stepper = place.stepper(0.05)[2]
    copy = 'cat "$COSTOPT_CACHE_DIR/weights/model/weights" >> read; '
    place.run = ["sh", "-c", copy + stepper]
    hold(place.saves, 15)
    place.write(CALM)
    with place.controlled() as process:
        wait_until(lambda: at_step(place, 14), "training")
        hold(place.saves, 35)
        kill_trainer(place)
        wait_until(lambda: at_step(place, 34), "training again on the node")
        (first,) = place.of(ev.CacheFetched)
        let_go(place.saves)
        for pid in place.processes():
            os.kill(pid, signal.SIGKILL)
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
    starts = [line.split()[1] for line in (place.saves / "starts").read_text().splitlines()]
    assert len(starts) == 3
    assert starts[0] == starts[1] != starts[2]
    both = place.of(ev.CacheFetched)
    assert [each.node_id for each in both] == [starts[0], starts[2]]
    assert both[0] == first
    assert all(each.gib == pytest.approx(2**-10) and each.held_gib == 0 for each in both)
    assert (tmp_path / "read").read_bytes() == 3 * WEIGHTS
    assert place.status()["cache_gib"] == pytest.approx(2 * 2**-10)
