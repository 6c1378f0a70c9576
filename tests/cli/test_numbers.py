"""Numbers that would have a process spin, wait for ever or reckon with nonsense are refused."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from costopt.agent.__main__ import _parser
from costopt.cli.daemon import run as daemon_run
from costopt.cli.main import cli
from costopt.cli.run import run

NONSENSE = ("nan", "inf", "-inf", "-1", "1e300")
INTERVALS = ("--tick", "--lease", "--report-every", "--refresh-prices", "--speed")


@pytest.mark.parametrize(
    ("words", "command"),
    [(["daemon"], daemon_run), (["run", "job.yaml"], run)],
    ids=["daemon", "run"],
)
@pytest.mark.parametrize("value", NONSENSE)
def test_no_option_takes_nonsense(words: list[str], command: click.Command, value: str) -> None:
    numbers = [p for p in command.params if isinstance(p.type, click.FloatRange)]
    options = [p.opts[0] for p in numbers]
    assert set(options) >= {"--tick", "--speed", "--notice"}
    for option in options:
        refused = CliRunner().invoke(cli, [*words, f"{option}={value}"])
        assert refused.exit_code == 2, (option, refused.output)
        assert f"Invalid value for '{option}'" in refused.stderr


@pytest.mark.parametrize("option", INTERVALS)
@pytest.mark.parametrize("value", ["0", *NONSENSE])
def test_nothing_is_done_without_a_pause(option: str, value: str) -> None:
    refused = CliRunner().invoke(cli, ["daemon", f"{option}={value}"])
    assert refused.exit_code == 2, refused.output
    assert f"Invalid value for '{option}'" in refused.stderr


AGENT = ("--store=s", "--job=j", "--node=n", "--notices=none", "--folder=f")


@pytest.mark.parametrize("option", ["notice-poll-s", "poll-s", "heartbeat-s", "logs-s", "grace-s"])
def test_an_agent_pauses_for_a_while_and_not_for_ever(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in (*NONSENSE, "soon", *([] if option == "grace-s" else ["0"])):
        with pytest.raises(SystemExit) as ended:
            _parser().parse_args([*AGENT, f"--{option}={value}"])
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert f"argument --{option}: " in said, (value, said)
