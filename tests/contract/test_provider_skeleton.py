"""The example provider, installed as a package of its own: costopt finds it and checks its file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
ACCOUNT = "kind: account\nversion: 1\nproviders:\n  skeleton:\n    {}: [north-1]\n"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the skeleton is installed in."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    alone = ["--no-deps", "--no-index", "--no-build-isolation", "--target", str(folder)]
    subprocess.run([*pip, *alone, str(EXAMPLES / "provider_skeleton")], check=True)
    return folder


def costopt(installed: Path, *words: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(installed), os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        [sys.executable, "-m", "costopt", *map(str, words)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(("option", "code"), [("regions", 0), ("region", 2)])
def test_its_options_are_checked_in_account_files(
    installed: Path, tmp_path: Path, option: str, code: int
) -> None:
    account = tmp_path / "account.yaml"
    account.write_text(ACCOUNT.format(option))
    done = costopt(installed, "validate", account)
    assert done.returncode == code, done.stderr
    assert code == 0 or f"{account}:5:5: providers.skeleton.region" in done.stderr


def test_a_plan_asks_it_for_offers(installed: Path, tmp_path: Path) -> None:
    account = tmp_path / "account.yaml"
    account.write_text(ACCOUNT.format("regions"))
    job = EXAMPLES / "planning" / "llama-8b.yaml"
    asked = ("--account", account, "--market", "live", "-o", "json")
    done = costopt(installed, "plan", job, *asked)
    assert done.returncode == 3, done.stderr
    assert "unknown_instance_type" in done.stderr
    assert json.loads(done.stdout)["rows"] == []
