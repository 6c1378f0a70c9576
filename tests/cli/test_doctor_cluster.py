"""`costopt doctor` of a provider that is a cluster."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from costopt.cli.main import cli


@pytest.mark.parametrize("provider", ["kubernetes", "slurm"])
def test_without_an_account_file_it_asks_for_one_and_not_for_regions(provider: str) -> None:
    done = CliRunner().invoke(cli, ["doctor", provider], env={"COSTOPT_ACCOUNT": ""})
    assert done.exit_code == 2
    assert "--account" in done.output
    assert "--regions" not in done.output
