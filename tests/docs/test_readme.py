"""The pages' commands work as typed, and their links lead somewhere."""

# How a page marks its commands. In a fenced block ```console, a line that begins with "$ " is a
# command, and the lines up to the next one are what it prints; "\" at a line's end goes on in the
# next line. A page's commands run in order at the root of a temporary copy of examples/, policies/
# and benchmarks/, and each must exit with 0. In a block ```console exact the printed lines must
# be the command's own, stdout and stderr together, but for progress and the seconds of the solver
# (python -m tests.docs.refresh PAGE writes them). Commands of ELSEWHERE are not run: they fetch,
# install or enter the repository, or are tested elsewhere.

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.forked_commands import costopt_program

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "examples", "terraform")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(p for name in FOLDERS for p in ROOT.glob(f"{name}/**/*.md"))], key=str
)
COPIED = ("examples", "policies", "benchmarks")
ELSEWHERE = (
    "make ", "git ", "pip ", "python -m venv ", "python3 -m venv ", "cd ", "wget ",
    "costopt catalog update ",
)  # fmt: skip
TIMEOUT_S = 180

BLOCK = re.compile(r"^```console(?P<exact> exact)?\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
PROGRESS = re.compile(r"^\d+ of \d+ runs, about .*\n", re.MULTILINE)
SOLVER_TIME = re.compile(r"highs \d+\.\d+ s")
FENCED = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?P<inline>[^)\s]+)[^)]*\)|(?:src|href)=\"(?P<html>[^\"]+)\"")
HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)


class Step(NamedTuple):
    """A command, and what it must print; None: anything."""

    command: str
    printed: str | None


def steps_of(page: str) -> Iterator[Step]:
    for block in BLOCK.finditer(page):
        text = block["text"].replace("\\\n", "")
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            if not f"{command} ".startswith(ELSEWHERE):
                yield Step(command, printed if block["exact"] else None)


def _named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prepare(folder: Path, costopt: Path) -> Path:
    """Return a copy of what a reader has at the repository's root, with costopt on the PATH."""
    root, programs = folder / "root", folder / "bin"
    programs.mkdir()
    for name in COPIED:
        shutil.copytree(
            ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", ".costopt")
        )
    (programs / "costopt").symlink_to(costopt)
    return root


@pytest.fixture(scope="module")
def costopt() -> Iterator[Path]:
    with costopt_program() as program:
        yield program


@pytest.fixture
def place(tmp_path: Path, costopt: Path) -> Path:
    return prepare(tmp_path, costopt)


def run(command: str, place: Path) -> subprocess.CompletedProcess[str]:
    programs = f"{place.parent / 'bin'}:{Path(sys.executable).parent}"
    own = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'providers'}",
        "HOME": str(place.parent),
    }
    kept = {key: value for key, value in os.environ.items() if not key.startswith("COSTOPT_")}
    if "COSTOPT_DATA" in os.environ:
        own["COSTOPT_DATA"] = os.environ["COSTOPT_DATA"]
    return subprocess.run(
        ["bash", "-c", command],
        cwd=place,
        env=kept | own,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
    )


def without_progress(printed: str) -> str:
    """Return what a command printed, without the lines that say how far it is."""
    return PROGRESS.sub("", printed)


def comparable(printed: str) -> str:
    """Return what two runs print alike: no progress, no solver's seconds, no trailing blanks."""
    lines = SOLVER_TIME.sub("highs", without_progress(printed)).strip().splitlines()
    return "\n".join(line.rstrip() for line in lines)


WITH_COMMANDS = [page for page in PAGES if any(steps_of(page.read_text("utf-8")))]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=_named)
def test_the_commands_of_a_page_work_as_typed(page: Path, place: Path) -> None:
    steps = list(steps_of(page.read_text("utf-8")))
    if any("$COSTOPT_DATA" in step.command for step in steps) and "COSTOPT_DATA" not in os.environ:
        pytest.skip("COSTOPT_DATA names no folder of recorded data")
    for command, printed in steps:
        done = run(command, place)
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        if printed is not None:
            assert comparable(done.stdout) == comparable(printed), f"$ {command}"


def test_a_page_is_read_as_marked() -> None:
    page = (
        "```console\n$ make demo\n…\n$ costopt plan \\\n    job.yaml\ntable\n```\n"
        "```console exact\n$ costopt --version\ncostopt 1\n```\n```bash\n$ false\n```\n"
    )
    assert list(steps_of(page)) == [
        Step("costopt plan     job.yaml", None),
        Step("costopt --version", "costopt 1\n"),
    ]


def _anchors(page: Path) -> set[str]:
    """The headings' anchors, by GitHub's rule."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in kept}


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = FENCED.sub("", page.read_text("utf-8"))
    for match in LINK.finditer(text):
        link = match["inline"] or match["html"]
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{_named(page)}: {link}"
        assert target.resolve().is_relative_to(ROOT), f"{_named(page)}: {link}"
        if anchor:
            assert anchor in _anchors(target), f"{_named(page)}: {link}"
