"""A warm process becomes the script, in its folder, with its environment and log."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from costopt.agent.launch_spec import ProcessSpec
from costopt.agent.trainer import WarmStandby
from tests.support.process_state import many_open_files

pytestmark = pytest.mark.process


def warm(variables: dict[str, str], modules: str = "fractions,no_such_module") -> WarmStandby:
    standby = WarmStandby(variables, os.getpid(), modules)
    deadline = time.monotonic() + 120
    while not standby.is_warm():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return standby


SCRIPT = """
import os, sys, helper, mailbox
assert "costopt" not in mailbox.__file__
print(__name__, sys.argv, os.environ["RANK"], os.getcwd(), helper.NAME, "fractions" in sys.modules)
sys.exit(3)
"""


def test_it_runs_the_script_as_python_would(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(SCRIPT)
    (tmp_path / "helper.py").write_text("NAME = 'near'")
    log = tmp_path / "log"
    spec = ProcessSpec((), (("RANK", "1"),), ("job.py", "--x"))
    process = warm({}).activate(spec, {}, workdir=str(tmp_path), log_path=log)
    assert process is not None
    assert process.wait() == 3
    assert log.read_text() == f"__main__ ['job.py', '--x'] 1 {tmp_path} near True\n"


def test_only_a_script_of_a_warm_process_can_be(tmp_path: Path) -> None:
    standby = warm({})
    assert standby.activate(ProcessSpec((), ()), {}, workdir="/", log_path=tmp_path / "l") is None
    standby.close()
    spec = ProcessSpec((), (), ("job.py",))
    late = WarmStandby({}, os.getpid(), "time")
    late.close()
    assert late.activate(spec, {}, workdir="/", log_path=tmp_path / "l") is None


def test_an_agent_with_over_a_thousand_open_files_sees_that_it_is_warm() -> None:
    with many_open_files():
        warm({}).close()


@pytest.mark.parametrize("ended", [True, False])
def test_it_ends_with_its_agent(ended: bool) -> None:
    standby = warm({})
    process = standby._process
    if ended:
        standby.close()
    else:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
    assert process.wait(120) in (0, -9)
