"""Every place that installs costopt names costopt-spot: "costopt" on the index is a stranger's."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

import costopt_aws
import costopt_gcp
from costopt.controller.payload import wheel_name
from costopt.domain.errors import DISTRIBUTION, MissingExtraError, install_hint
from costopt.engine.loop import WallClock

ROOT = Path(__file__).parents[2]
STRANGER = re.compile(
    r"(?<![\w./-])costopt\[[a-z]|pip install (-\S+ )*['\"]?costopt(?!-spot)\b(?!/)|costopt==\d"
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def _texts() -> Mapping[str, str]:
    """Every tracked file of text but the changelog, by its path."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    paths = [name for name in listed if name != "CHANGELOG.md" and (ROOT / name).is_file()]
    return {name: (ROOT / name).read_text("utf-8", errors="replace") for name in paths}


def test_nothing_installs_the_stranger() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: which files belong to the project is not known")
    found = {name: STRANGER.findall(text) for name, text in _texts().items()}
    here = str(Path(__file__).relative_to(ROOT))
    assert {name: hits for name, hits in found.items() if hits and name != here} == {}


def test_the_names_are_at_one() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert wheel_name().startswith(DISTRIBUTION.replace("-", "_") + "-")
    assert install_hint("aws") == "pip install 'costopt-spot[aws]'"


@pytest.mark.parametrize(
    "text", ["costopt[aws]", "pip install costopt", "pip install 'costopt[a]'"]
)
def test_the_check_sees_the_stranger(text: str) -> None:
    assert STRANGER.search(text)
    assert not STRANGER.search(text.replace("costopt", DISTRIBUTION))


@pytest.mark.parametrize(("name", "adapter"), [("aws", costopt_aws), ("gcp", costopt_gcp)])
def test_an_adapter_without_its_sdk_names_its_extra(
    name: str, adapter: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "find_spec", lambda _: None)
    region = {"aws": "us-east-1", "gcp": "us-central1"}[name]
    with pytest.raises(MissingExtraError) as caught:
        adapter.connect(WallClock(), {"regions": [region]})
    assert caught.value.hint == install_hint(name)


def test_nothing_is_required_that_nothing_imports() -> None:
    """pandas comes into use with the Python API: until then it is an extra."""
    always = {re.split(r"[<>=\[]", need)[0].lower() for need in PROJECT["dependencies"]}
    imported = {"yaml": "pyyaml"}
    sources = "\n".join(
        path.read_text("utf-8")
        for folder in ("costopt", "providers")
        for path in (ROOT / folder).rglob("*.py")
    )
    used = {imported.get(n, n) for n in re.findall(r"^\s*(?:import|from) (\w+)", sources, re.M)}
    assert always <= used
    assert "pandas" in PROJECT["optional-dependencies"]["frames"][0]


def test_doctor_notices_a_foreign_costopt(tmp_path: Path) -> None:
    info = tmp_path / "costopt-0.2.16.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: costopt\nVersion: 0.2.16\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from costopt.cli.main import main\n"
        f"sys.argv = ['costopt', 'doctor', '--state-dir', {str(tmp_path / 's')!r}]\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert "0.2.16" in done.stdout
    assert "pip uninstall costopt" in done.stdout
