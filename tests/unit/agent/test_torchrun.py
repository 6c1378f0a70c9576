"""torchrun under a notice: it ends as by SIGTERM, and its log holds no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from costopt.agent.launch_spec import TORCHRUN
from tests.support.live_run import wait_until

OPTIONS = ("--standalone", "--nproc-per-node=1", "--no-python")


@pytest.mark.process
@pytest.mark.slow
def test_a_notice_leaves_no_traceback(tmp_path: Path) -> None:
    began = tmp_path / "began"
    command = ("sh", "-c", f"touch {began}; exec sleep 600")
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", TORCHRUN, *OPTIONS, *command],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            wait_until(began.exists, "the worker")
            process.terminate()
            assert process.wait(60) == 128 + signal.SIGTERM
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert "Traceback" not in (tmp_path / "log").read_text()
