"""The demo: its commands are ones that costopt has, and its clocks agree."""

from __future__ import annotations

import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from costopt.cli.main import cli

EXAMPLE = Path(__file__).parents[2] / "examples" / "finetune"


@pytest.fixture(scope="module")
def demo() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE / "demo.py"))


def parsed(arguments: tuple[str, ...]) -> dict[str, Any]:
    """The parameters of a command line. Raises click.UsageError."""
    command: click.Command | None = cli
    rest = list(arguments)
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), rest.pop(0))
    assert command is not None, arguments
    return command.make_context(command.name, rest).params


def test_its_commands_are_those_of_costopt(
    demo: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("job.yaml", "market.parquet"):
        (tmp_path / name).touch()
    (tmp_path / "state").mkdir()
    markets = [parsed(demo["_market"](profile, 3)) for profile in ("typical", "harsh")]
    assert [(each["profile"], each["seed"]) for each in markets] == [("typical", 3), ("harsh", 3)]
    for arguments in (demo["PLAN"], demo["_run"](50), demo["STATUS"], demo["REPORT"]):
        parsed(arguments)


@pytest.mark.parametrize("speed", [100, 40])
def test_a_step_lasts_as_long_as_the_job_file_declares(
    demo: dict[str, Any], tmp_path: Path, speed: int
) -> None:
    path = Path(shutil.copy(EXAMPLE / "job.yaml", tmp_path))
    demo["_set_times"](path, demo["STEP_S"] / speed, 900.0)
    job = yaml.safe_load(path.read_text("utf-8"))
    assert job["startup"] == "15m"
    assert parsed(demo["_run"](speed))["speed"] == speed
    command = job["run"]
    step_s = float(command[command.index("--step-seconds") + 1])
    (point,) = job["throughput"]["points"]
    assert step_s * speed == pytest.approx(1 / point["units_per_s"])
    assert int(command[command.index("--steps") + 1]) == job["work"]["amount"]


def test_a_machine_that_is_too_slow_is_explained_and_the_report_is_there(
    demo: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo.py", "--speed", "60"])
    monkeypatch.setitem(demo["main"].__globals__, "_measured", lambda folder: (60, 5.0))
    called: list[str] = []

    def command(arguments: tuple[str, ...], folder: Path, to: int | None = None) -> int:
        called.append(arguments[0])
        return 2 if arguments[0] == "run" else 0

    main = demo["main"]
    monkeypatch.setitem(main.__globals__, "_costopt", command)
    for is_late, code in ((True, 0), (False, 2)):
        monkeypatch.setitem(main.__globals__, "_is_late", lambda folder, late=is_late: late)
        monkeypatch.chdir(tmp_path_factory.mktemp("demo"))
        assert main() == code
        assert called[-1] == "report"
    assert "--speed 30" in capsys.readouterr().out
