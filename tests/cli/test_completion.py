"""What the shells offer: names of commands, options, policies and GPUs, and files."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from costopt.cli.main import cli
from costopt.spec import bundled_policies

FILES = ["(files)"]


def offered(*words: str) -> list[str]:
    """What is offered for the last word."""
    complete = BashComplete(cli, {}, "costopt", "_COSTOPT_COMPLETE")
    items = complete.get_completions(list(words[:-1]), words[-1])
    return ["(files)" if item.type == "file" else item.value for item in items]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("pl",), ["plan"]),
        (("plan", ""), FILES),
        (("plan", "--policy", ""), list(bundled_policies())),
        (("plan", "-p", "gre"), ["greenest"]),
        (("plan", "-p", "./my"), FILES),
        (("plan", "--top"), ["--top"]),
        (("what-if", "--policies", "cheapest,gr"), ["cheapest,greenest"]),
        (("backtest", "--policies", "b"), ["balanced"]),
        (("backtest", ""), FILES),
        (("validate", ""), FILES),
        (("market", ""), ["fill", "generate", "import", "record", "show"]),
        (("market", "show", ""), ["sample"]),
        (("daemon", "h"), ["halt"]),
        (("daemon", "--lis"), ["--listen"]),
        (("daemon", "--mode", "e"), ["enforce"]),
        (("daemon", "mode", "e"), ["enforce"]),
        (("daemon", "token", ""), ["add", "list", "revoke"]),
        (("market", "show", "./"), FILES),
        (("backtest", "job.yaml", "--market", ""), ["sample"]),
        (("plan", "job.yaml", "--market", ""), ["sample", "live"]),
        (("plan", "job.yaml", "--gpus", "8xh1"), ["8xH100-SXM5-80GB"]),
        (("run", "job.yaml", "--market", "my"), FILES),
        (("market", "import", ""), FILES),
        (("catalog", "--gpu", "h1"), ["H100-SXM5-80GB"]),
        (("schema", ""), ["job", "policy", "account", "cluster"]),
        (("plan", "-o", "m"), ["md"]),
    ],
)
def test_the_next_word_is_offered(words: tuple[str, ...], expected: list[str]) -> None:
    assert offered(*words) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_code_is_for_the_shell(shell: str) -> None:
    done = CliRunner().invoke(cli, ["completion", shell])
    assert done.exit_code == 0
    if (program := shutil.which(shell)) is None:
        pytest.skip(f"{shell} is not installed: its syntax was not checked")
    checked = subprocess.run([program, "-n"], input=done.stdout, text=True, capture_output=True)
    assert checked.returncode == 0, checked.stderr
