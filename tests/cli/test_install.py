"""What ``pip install costopt-spot`` gives runs the README's commands, without torch or an extra."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import venv
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.test_readme import steps_of

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.process, pytest.mark.slow]


def _required(name: str, found: set[str]) -> set[str]:
    """Add the package and what it requires without extras, as far as it is installed here."""
    if name in found:
        return found
    try:
        needs = distribution(name).requires or []
    except PackageNotFoundError:
        return found
    found.add(name)
    for need in needs:
        if "extra ==" not in need:
            _required(re.split(r"[^\w.-]", need, maxsplit=1)[0].lower(), found)
    return found


def _link_dependencies(into: Path) -> None:
    """Link the files of costopt's dependencies, and of no other package, into a folder."""
    library = Path(sysconfig.get_path("purelib"))
    for name in sorted(_required("costopt-spot", set()) - {"costopt-spot"}):
        for file in distribution(name).files or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (into / top).exists():
                (into / top).symlink_to(library / top)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that has the built wheel and its dependencies."""
    for tool in ("build", "hatchling"):
        if find_spec(tool) is None:
            pytest.skip(f"{tool} is not installed: the wheel was not built")
    folder = tmp_path_factory.mktemp("install")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist")]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True, timeout=240)
    (wheel,) = (folder / "dist").glob("*.whl")
    assert list((folder / "dist").glob("*.tar.gz"))
    venv.create(folder / "venv", symlinks=True)
    programs = folder / "venv" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install"]
    subprocess.run(
        [*pip, "--quiet", "--no-deps", "--no-index", str(wheel)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    (library,) = (folder / "venv" / "lib").glob("python*/site-packages")
    _link_dependencies(library)
    return programs


def _run(command: str, programs: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )


def test_the_commands_of_the_readme_run_without_torch(installed: Path, tmp_path: Path) -> None:
    for module in ("torch", "boto3", "pandas"):
        absent = _run(f"python -c 'import {module}'", installed, tmp_path)
        assert "ModuleNotFoundError" in absent.stdout
    ran = []
    for command, _ in steps_of((ROOT / "README.md").read_text("utf-8")):
        few = re.sub(r"--starts \d+", "--starts 1", command)  # tests/docs runs all of them
        done = _run(few, installed, tmp_path)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        ran.append(command.split()[1])
    assert ran == ["init", "plan", "backtest"]
