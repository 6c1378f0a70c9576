"""What every command keeps to: light start, one way to fail, clean stdout, a page of its own."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from costopt.cli.groups import LazyGroup
from costopt.cli.main import MOVED, SECTIONS, cli
from costopt.domain.errors import CostoptError, GuardTrippedError, StaleDataError
from costopt.ledger.sql_ledger import open_sqlite_ledger
from docs.generated.commands import commands
from tests.support.errors import failure
from tests.support.sample_run import sample_events

ROOT = Path(__file__).parents[2]
HEAVY = (
    "pandas", "numpy", "pulp", "highspy", "boto3", "google", "torch", "pydantic",
    "pyarrow", "rich", "yaml", "jinja2", "fastapi", "starlette",
)  # fmt: skip


def invoke(*arguments: str, env: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(cli, arguments, env=env)


def process(
    code: str, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'providers'}", **(env or {})},
    )


def costopt(*arguments: str, env: Mapping[str, str] | None = None) -> str:
    """stdout of a real process that must succeed."""
    done = process("from costopt.cli.main import main; main()", *arguments, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_imports_nothing_heavy(argument: str) -> None:
    code = (
        "import sys\n"
        "from costopt.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert end.code == 0, end.code\n"
        "print('\\n'.join(sorted({name.split('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    done = process(code, argument)
    assert done.returncode == 0, done.stderr
    assert "costopt" in done.stdout
    assert not set(done.stderr.split()) & set(HEAVY)


@pytest.mark.parametrize("command", ["status", "events"])
def test_reading_a_ledger_file_imports_no_sqlalchemy(tmp_path: Path, command: str) -> None:
    with open_sqlite_ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.append(*sample_events())
    code = (
        "import sys\n"
        "from costopt.cli.main import main\n"
        "try:\n    main()\n"
        "except SystemExit as end:\n    assert end.code == 0, end.code\n"
        "assert not {'sqlalchemy', 'numpy'} & set(sys.modules)"
    )
    job = () if command == "status" else ("llama-7b-finetune",)
    done = process(code, command, *job, "--state-dir", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_help_lists_every_command() -> None:
    reported = costopt("--help", env={"COLUMNS": "80"})
    headings = re.findall(r"^([A-Z][\w ]+):$", reported, flags=re.MULTILINE)
    assert headings == ["Options", *SECTIONS]
    for entries in SECTIONS.values():
        for name, entry in entries.items():
            assert f"  {name} " in reported
            assert entry.help in reported


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=str)
def test_every_command_and_option_has_help(path: str, command: click.Command) -> None:
    assert command.help
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{path} {parameter.opts}"


OF_MANY = ("--market", "--provider", "--at", "--max-age", "--account", "--carbon", "--state-dir",
           "--server", "--token-file")  # fmt: skip
OF_THEIR_OWN = {
    "costopt backtest --market", "costopt catalog --provider", "costopt diff --market",
    "costopt market generate --provider",
    "costopt market record --provider", "costopt plan --server", "costopt reconcile --state-dir",
}  # fmt: skip
"""Where the word means another thing: a filter, a record alone or its source, a switch, folders."""


@pytest.mark.parametrize("name", OF_MANY)
def test_an_option_of_several_commands_is_the_same_in_all(name: str) -> None:
    found = {
        (option.help, option.metavar, str(option.envvar))
        for path, command in commands()
        for option in command.params
        if isinstance(option, click.Option) and name in option.opts
        if f"{path} {name}" not in OF_THEIR_OWN
    }
    # --state-dir is where commands that run jobs write, and which ledger those that read do.
    assert len(found) == (2 if name == "--state-dir" else 1)


def test_the_list_tells_each_commands_first_sentence() -> None:
    known = dict(commands())
    for path, command in known.items():
        for name, entry in command.entries.items() if isinstance(command, LazyGroup) else ():
            assert (known[f"{path} {name}"].help or "").startswith(entry.help), name


@pytest.mark.parametrize(("name", "now"), MOVED.items())
def test_a_name_of_before_leads_to_the_command_of_today(name: str, now: str) -> None:
    done = invoke(name, "anything")
    assert done.exit_code == 2
    assert f"use costopt {now}" in done.stderr
    words = [word for word in now.split() if word.islower() and word[0] != "-"]
    assert " ".join(["costopt", *words]) in dict(commands())


def test_a_misspelt_command_is_answered_with_the_nearest() -> None:
    done = invoke("statsu")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert "'statsu'" in done.stderr
    assert "'status'" in done.stderr
    assert "costopt --help" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("words", [(), ("run",)])
def test_a_daemon_is_started_with_and_without_its_command(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[daemon]\nmode = "odd"\n')
    named = invoke("--config", str(file), "daemon", *words, "--market", "sample")
    assert (named.exit_code, "'--mode'" in named.stderr) == (2, True)
    by_environment = invoke("daemon", *words, env={"COSTOPT_DAEMON_TICK_S": "0"})
    assert (by_environment.exit_code, "'--tick'" in by_environment.stderr) == (2, True)
    wrong = invoke("daemon", "halti")
    assert (wrong.exit_code, "'halt'" in wrong.stderr) == (2, True)
    assert "unhalt" in invoke("daemon", "--help").stdout


def test_without_a_command_the_help_is_shown() -> None:
    for words in ((), ("market",)):
        done = invoke(*words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith("Usage: costopt")


def test_a_wrong_option_is_a_usage_error() -> None:
    done = invoke("schema", "--foo")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert "--foo" in done.stderr
    assert "costopt schema --help" in done.stderr


Failing = Callable[[BaseException], None]


class Boom(click.Command):
    """A command that fails as it is reported."""

    def __init__(self, error: BaseException) -> None:
        super().__init__("boom")
        self.error = error

    def invoke(self, ctx: click.Context) -> None:
        raise self.error


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    def install(error: BaseException) -> None:
        monkeypatch.setattr(cli, "get_command", lambda ctx, name: Boom(error))

    return install


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (CostoptError("it broke", hint="mend it"), 1, "error: it broke\n  → mend it\n"),
        (GuardTrippedError("no more"), 4, "error: no more\n"),
        (StaleDataError("too old"), 5, "error: too old\n"),
        (KeyError("x"), 1, "KeyError: 'x'\n  → costopt --debug "),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (click.Abort(), 1, "stopped\n"),
    ],
)
def test_an_error_is_one_message_and_an_exit_code(
    failing: Failing, error: BaseException, code: int, said: str
) -> None:
    failing(error)
    done = invoke("doctor")
    assert done.exit_code == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("how", ["flag", "environment"])
def test_debug_shows_the_traceback(failing: Failing, how: str) -> None:
    failing(KeyError("x"))
    flag = ["--debug"] if how == "flag" else []
    done = invoke(*flag, "doctor", env={"COSTOPT_DEBUG": "1"} if how == "environment" else None)
    assert done.exit_code == 1
    assert "Traceback (most recent call last)" in done.stderr


def test_ctrl_c_ends_a_real_process_with_130() -> None:
    code = (
        "import click, time\n"
        "from costopt.cli.main import cli, main\n"
        "def wait():\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "cli.get_command = lambda ctx, name: click.Command('doctor', callback=wait)\n"
        "main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, "doctor"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=30)
    assert child.returncode == 130
    assert said.strip() == "interrupted"


def test_a_reader_that_leaves_is_not_an_error() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "from costopt.cli.main import main; main()", "schema", "job"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as child:
        assert child.stdout is not None
        child.stdout.close()
        assert child.stderr is not None
        said = child.stderr.read()
        child.wait(timeout=30)
    assert said == ""
    assert child.returncode == 141


def test_a_config_file_sets_options_below_environment_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "costopt.toml"
    file.write_text('output = "json"\n[catalog]\nprovider = "gcp"\n')
    base = ("--config", str(file), "catalog", "--gpu", "T4")
    reported = json.loads(invoke(*base).stdout)
    assert {row["provider"] for row in reported["rows"]} == {"gcp"}
    by_environment = invoke(*base, env={"COSTOPT_CATALOG_PROVIDER": "aws"}).stdout
    assert {row["provider"] for row in json.loads(by_environment)["rows"]} == {"aws"}
    by_flag = invoke(*base, "--provider", "gcp", env={"COSTOPT_CATALOG_PROVIDER": "aws"}).stdout
    assert {row["provider"] for row in json.loads(by_flag)["rows"]} == {"gcp"}
    assert invoke(*base, "--output", "csv").stdout.startswith("provider,")
    assert invoke(*base, env={"COSTOPT_OUTPUT": "csv"}).stdout.startswith("provider,")


def test_the_working_folders_config_wins_over_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home" / "costopt").mkdir(parents=True)
    (tmp_path / "home" / "costopt" / "config.toml").write_text(
        '[catalog]\nprovider = "aws"\noutput = "json"\n'
    )
    (tmp_path / "costopt.toml").write_text('[catalog]\nprovider = "gcp"\n')
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    reported = json.loads(invoke("catalog", "--gpu", "T4").stdout)
    assert {row["provider"] for row in reported["rows"]} == {"gcp"}


@pytest.mark.parametrize(
    ("text", "code", "names"),
    [
        ("x = ", "not_toml", ()),
        ("outptu = 'json'", "unknown_key", ("outptu", "'output'")),
        ("[doctor]\nstate-dri = 'x'", "unknown_key", ("[doctor] state-dri", "'state_dir'")),
        ("[doctor]\napply = true", "command_line_only", ("apply",)),
        ("doctor = 3", "unknown_key", ("doctor",)),
    ],
)
def test_a_wrong_config_file_is_refused(
    tmp_path: Path, text: str, code: str, names: tuple[str, ...]
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    done = invoke("--config", str(file), "doctor")
    assert done.exit_code == 2
    assert failure(done).code == code
    assert all(name in done.stderr for name in (str(file), *names))


def test_a_missing_config_file_is_reported() -> None:
    done = invoke("--config", "/nowhere.toml", "doctor")
    assert done.exit_code == 2
    assert failure(done).code == "unreadable"


def test_what_spends_money_is_never_taken_from_the_environment() -> None:
    spending = [
        option
        for _, command in commands()
        for option in command.params
        if isinstance(option, click.Option) and option.name == "apply"
    ]
    assert spending
    assert not any(option.allow_from_autoenv or option.envvar for option in spending)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_code_names_the_program(shell: str) -> None:
    reported = invoke("completion", shell).stdout
    assert "_COSTOPT_COMPLETE" in reported


def test_completion_answers_a_shell() -> None:
    reported = costopt(
        env={
            "_COSTOPT_COMPLETE": "bash_complete",
            "COMP_WORDS": "costopt cat",
            "COMP_CWORD": "1",
        }
    )
    assert reported == "plain,catalog\n"


def test_config_keys_are_the_options_words_and_one_value_is_a_list(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[market.generate]\ngpu = "T4"\nregion = ["us-east-1"]\nhours = 2\n')
    out = tmp_path / "m.parquet"
    done = invoke("--config", str(file), "market", "generate", "--out", str(out))
    assert done.exit_code == 0, done.stderr
    reported = json.loads(invoke("market", "show", str(out), "-o", "json").stdout)
    assert {row["pool"].split("/")[1] for row in reported["rows"]} == {"us-east-1"}
    file.write_text("[backtest]\nnotice_s = 3\n")
    done = invoke("--config", str(file), "backtest", "job.yaml", "--market", "m.parquet")
    assert done.exit_code == 2
    assert failure(done).code == "unknown_key"
    assert "[backtest] notice_s" in done.stderr
    assert "'notice'" in done.stderr


def test_a_pipe_is_not_a_config_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = invoke("--config", str(tmp_path / "pipe"), "doctor")
    assert done.exit_code == 2
    assert failure(done).code == "not_a_file"


def test_a_full_disk_is_reported_in_one_line() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full: a full disk was not tried")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from costopt.cli.main import main; main()", "schema", "job"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
    assert done.returncode == 1
    assert done.stderr == f"error: {os.strerror(errno.ENOSPC).lower()}\n"


def test_every_extra_that_a_hint_names_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    sources = [*ROOT.glob("costopt/**/*.py"), *ROOT.glob("providers/**/*.py")]
    named = {
        extra
        for source in sources
        for extra in re.findall(
            r"install_hint\([\"'](\w+)[\"']\)", source.read_text(encoding="utf-8")
        )
    }
    assert named
    assert named <= set(project["optional-dependencies"])
