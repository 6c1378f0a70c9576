"""Runs and daemons do not share a state directory; several of one kind do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from costopt.controller.market_clock import load_market_clock
from costopt.controller.state_dir import CLOCK, CLOUD, daemon_lock, job_now, run_lock
from costopt.domain.errors import LedgerError
from tests.support.errors import has_code

HOLD = """
import sys, time
from pathlib import Path
from costopt.controller.state_dir import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_several_of_a_kind_share_a_directory(tmp_path: Path) -> None:
    for use in (run_lock, daemon_lock):
        with ExitStack() as held:
            for _ in range(3):
                held.enter_context(use(tmp_path))


def test_the_other_kind_is_refused_until_the_last_has_ended(tmp_path: Path) -> None:
    for mine, other, hint in (
        (run_lock, daemon_lock, "costopt submit"),
        (daemon_lock, run_lock, "costopt status"),
    ):
        with other(tmp_path):
            with other(tmp_path), pytest.raises(LedgerError) as refused, mine(tmp_path):
                pass
            assert str(tmp_path) in refused.value.message
            assert hint in (refused.value.hint or "")
            with pytest.raises(LedgerError), mine(tmp_path):
                pass
        with mine(tmp_path):
            pass


def test_a_run_that_was_killed_holds_nothing(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, env=dict(os.environ)
    )
    try:
        assert run.stdout is not None
        assert run.stdout.readline() == b"held\n"
        with pytest.raises(LedgerError), daemon_lock(tmp_path):
            pass
    finally:
        run.send_signal(signal.SIGKILL)
        run.communicate(timeout=30)
    with daemon_lock(tmp_path):
        pass


def test_a_directory_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "runs.lock").mkdir()
    with pytest.raises(LedgerError, check=has_code("cannot_lock")), run_lock(tmp_path):
        pass


def test_a_daemons_simulated_cloud_has_the_time_of_its_jobs(tmp_path: Path) -> None:
    begun_at = datetime(2024, 1, 1, tzinfo=UTC)
    load_market_clock(tmp_path / CLOUD / CLOCK, begun_at, 60.0)
    assert begun_at <= job_now(tmp_path, "any", begun_at) < begun_at + timedelta(days=1)
    wall = datetime.now(UTC)
    assert job_now(tmp_path / "elsewhere", "any", begun_at) >= wall
