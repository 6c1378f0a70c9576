"""Two daemons on one PostgreSQL: one leads, the other takes over, and none does anything twice."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from costopt.domain import events as ev
from tests.support.counting_trainer import hold, let_go
from tests.support.forked_commands import run
from tests.support.live_daemon import DaemonPlace
from tests.support.live_run import PATIENCE_S, wait_until
from tests.support.node_folder import variables
from tests.support.postgres_server import PostgresServer

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
    pytest.mark.worker_group("postgres"),
]

LEASE = ("--lease", "1")


def test_daemons_outlive_their_server_and_each_other(
    tmp_path: Path, postgres: PostgresServer, postgres_url: str
) -> None:
    place = DaemonPlace(tmp_path, postgres_url).write()
    place.submit("one")
    hold(place.saves("one"), 40)
    # The simulated cloud reads its nodes when it starts, so the second daemon starts after them.
    with place.controlled(*LEASE) as first:
        wait_until(lambda: bool(place.of("one", ev.TrainingStarted)), "training")
        with place.controlled(*LEASE, "--listen", "unix:second.sock") as second:
            ask = ("-m", "costopt", "daemon", "mode", "--server", "unix:second.sock")
            wait_until(
                lambda: run(ask, tmp_path, variables(), PATIENCE_S).returncode == 0,
                "an answer of the other",
            )
            postgres.stop("immediate")
            postgres.start()
            first.send_signal(signal.SIGSTOP)
            let_go(place.saves("one"))
            wait_until(lambda: bool(place.of("one", ev.JobFinished)), "finish by the other")
            first.send_signal(signal.SIGCONT)
            wait_until(lambda: place.processes() == [], "end of all nodes")
            for process in (first, second):
                process.send_signal(signal.SIGTERM)
                _, said = process.communicate(timeout=PATIENCE_S)
                assert process.returncode == 0, said
                assert "Traceback" not in said
    assert len(place.of("one", ev.NodeLaunched)) == 1
    assert len(place.of("one", ev.NodeEnded)) == 1
    assert len(place.of("one", ev.JobFinished)) == 1
    assert place.of("one", ev.WorkLost) == []
