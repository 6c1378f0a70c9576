"""The systemd unit is well formed, hardened, and starts what there is."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from docs.generated.commands import commands
from tests.support.node_folder import ROOT

UNIT = ROOT / "deploy" / "systemd" / "costopt.service"
EXPOSED_AT_MOST = 2.0
"""Of 10, as systemd-analyze security counts; the daemon needs the network."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="needs Debian's systemd"
)


def settings() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text("utf-8"), re.MULTILINE):
        found.setdefault(name, []).append(value)
    return found


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that every machine has."""
    text = UNIT.read_text("utf-8").replace("/opt/costopt/bin/costopt", "/bin/true")
    copy = tmp_path / UNIT.name
    copy.write_text(text, encoding="utf-8")
    return copy


@needs_systemd
def test_systemd_finds_no_fault_with_it(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_it_is_hardened(unit: Path) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "offline" in done.stderr:
        pytest.skip("this systemd-analyze judges running units only")
    overall = re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert overall, done.stdout + done.stderr
    assert float(overall[1]) <= EXPOSED_AT_MOST


def test_it_starts_the_daemon_with_options_that_exist() -> None:
    said = settings()
    program, name, *arguments = said["ExecStart"][0].split()
    assert (Path(program).name, name, arguments) == ("costopt", "daemon", [])
    options = {each.name for each in dict(commands())["costopt daemon run"].params}
    named = re.findall(r"COSTOPT_DAEMON_(\w+)", UNIT.read_text("utf-8"))
    assert {each.lower() for each in named} <= options
    state = f"/var/lib/{said['StateDirectory'][0]}"
    assert f"COSTOPT_STATE_DIR={state}" in said["Environment"]
    assert said["WorkingDirectory"] == [state]


def test_it_ends_the_daemon_and_no_node() -> None:
    said = settings()
    assert said["KillSignal"] == ["SIGTERM"]
    assert said["KillMode"] == ["mixed"]
    assert int(said["TimeoutStopSec"][0]) >= 60
    assert said["Restart"] == ["always"]
    assert said["RestartPreventExitStatus"] == ["2"], "wrong usage is not tried for ever"


def test_it_ends_a_daemon_that_hangs_and_none_that_waits_for_its_database() -> None:
    said = settings()
    assert said["Type"] == ["notify"]
    assert said["NotifyAccess"] == ["main"]
    assert said["WatchdogSec"] == ["2min"]
    assert said["TimeoutStartSec"] == ["infinity"]
