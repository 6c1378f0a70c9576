"""The wheel that ``pip install costopt-spot`` gets: all of the packages, their data, no more."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from email.message import Message
from email.parser import Parser
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "boto3", "google", "pandas", "apscheduler")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    for tool in ("build", "hatchling"):
        if find_spec(tool) is None:
            pytest.skip(f"{tool} is not installed: the wheel was not built")
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def _files(package: Path, under: str) -> set[str]:
    """The package's files by the names that they have in the wheel."""
    return {
        f"{under}/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def _metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode("utf-8"))


def test_it_holds_the_packages_with_their_data_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == (
        _files(ROOT / "costopt", "costopt")
        | _files(ROOT / "providers" / "costopt_aws", "costopt_aws")
        | _files(ROOT / "providers" / "costopt_gcp", "costopt_gcp")
        | _files(ROOT / "providers" / "costopt_kubernetes", "costopt_kubernetes")
        | _files(ROOT / "providers" / "costopt_sim", "costopt_sim")
        | _files(ROOT / "providers" / "costopt_slurm", "costopt_slurm")
        | _files(ROOT / "policies", "costopt/policies")
    )
    for needed in (
        "costopt/policies/cheapest.yaml",
        "costopt/catalog/data/instance_types.csv",
        "costopt/market/data/generator.toml",
        "costopt/market/data/sample.parquet",
        "costopt/spec/data/job.yaml",
        "costopt/render/templates/page.html.j2",
        "costopt/py.typed",
        "costopt_aws/py.typed",
        "costopt_gcp/py.typed",
        "costopt_sim/py.typed",
    ):
        assert needed in held


def test_nothing_heavy_comes_without_an_extra(wheel: zipfile.ZipFile) -> None:
    needs = _metadata(wheel).get_all("Requires-Dist") or []
    always = [need for need in needs if "extra ==" not in need]
    assert any(need.startswith("click") for need in always)
    assert not [need for need in always if need.startswith(HEAVY)]


def test_readme_license_and_extras_are_reported(wheel: zipfile.ZipFile) -> None:
    reported = _metadata(wheel)
    assert reported["Name"] == "costopt-spot"
    assert reported["License-Expression"] == "Apache-2.0"
    assert reported["Description-Content-Type"] == "text/markdown"
    assert str(reported.get_payload()).strip() == (ROOT / "README.md").read_text("utf-8").strip()
    assert {"train", "aws", "gcp", "daemon"} <= set(reported.get_all("Provides-Extra") or [])
    (license_file,) = (name for name in wheel.namelist() if name.endswith("licenses/LICENSE"))
    assert wheel.read(license_file) == (ROOT / "LICENSE").read_bytes()


def test_the_command_and_the_provider_are_entry_points(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    points = ConfigParser()
    points.read_string(wheel.read(name).decode("utf-8"))
    assert points["console_scripts"]["costopt"] == "costopt.cli.main:main"
    assert points["costopt.providers"]["sim"] == "costopt_sim:connect"
