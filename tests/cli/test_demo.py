"""The demo: its commands are ones that costopt has, and its clocks agree."""

from __future__ import annotations

import runpy
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
    for name in ("PLAN", "RUN", "REPORT"):
        parsed(demo[name])


def test_a_step_lasts_as_long_as_the_job_file_declares(demo: dict[str, Any]) -> None:
    job = yaml.safe_load((EXAMPLE / "job.yaml").read_text("utf-8"))
    speed = float(demo["RUN"][demo["RUN"].index("--speed") + 1])
    command = job["run"]
    step_s = float(command[command.index("--step-seconds") + 1])
    (point,) = job["throughput"]["points"]
    assert step_s * speed == pytest.approx(1 / point["units_per_s"])
    assert int(command[command.index("--steps") + 1]) == job["work"]["amount"]
