"""The page of the Python API prints what it shows, and the notebooks what is stored of them."""

from __future__ import annotations

import doctest
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from costopt.spec import STARTER_JOB

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/python.md"
NOTEBOOKS = ROOT / "examples/notebooks"


def test_the_examples_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(STARTER_JOB, tmp_path / "job.yaml")
    shutil.copytree(NOTEBOOKS, tmp_path / "examples/notebooks")
    monkeypatch.chdir(tmp_path)
    text = "\n".join(PAGE.read_text("utf-8").split("```"))
    examples = doctest.DocTestParser().get_doctest(text, {"__name__": "page"}, PAGE.name, None, 0)
    assert len(examples.examples) > 20
    report: list[str] = []
    doctest.DocTestRunner(verbose=False).run(examples, out=report.append)
    assert "".join(report) == ""


@pytest.mark.slow
@pytest.mark.process
def test_notebooks_are_current() -> None:
    for library in ("nbclient", "ipykernel"):
        if find_spec(library) is None:
            pytest.skip(f"{library} is not installed: the notebooks were not executed")
    done = subprocess.run(
        [sys.executable, NOTEBOOKS / "refresh.py", "--check"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_no_notebook_has_a_path_of_a_machine() -> None:
    assert len(list(NOTEBOOKS.glob("*.ipynb"))) == 3
    for path in NOTEBOOKS.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            text = path.read_bytes().decode("utf-8", errors="ignore")
            assert not any(root in text for root in (str(ROOT), "/tmp/", "/home/")), path
