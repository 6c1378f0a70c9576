"""Every path and dotted name of costopt that the documentation mentions exists."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
FOLDERS = (
    "benchmarks",
    "costopt",
    "deploy",
    "examples",
    "policies",
    "providers",
    "terraform",
    "tests",
)
PACKAGES = sorted(path.name for path in (ROOT / "costopt").iterdir() if path.is_dir())
FIRST = "|".join({*FOLDERS, *PACKAGES})
FILE = re.compile(rf"(?<![\w/.-])((?:{FIRST})/[\w/.-]*\w\.(?:py|json|yaml|toml|md|j2))\b")
"""A path from the repository's root, or from costopt/ in short."""
DOTTED = re.compile(r"(?<![\w./-])(costopt(?:_aws|_gcp|_sim)?(?:\.[A-Za-z]\w*)+)")
OTHERWISE = re.compile(
    r"costopt\.(?:example\.com|fish|json|providers|service|sock|toml|NAME)\b|.*\bNAME\b"
)
"""Files, groups of entry points and placeholders that look like modules."""


def _exists(dotted: str) -> bool:
    """Whether a module has the name, or one before it in the path has the rest as attributes."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            continue
        value: object = importlib.import_module(name) if length < len(parts) else None
        for part in parts[length:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_exist(page: Path) -> None:
    named = {each for each in FILE.findall(page.read_text(encoding="utf-8")) if "NAME" not in each}
    assert [
        each
        for each in sorted(named)
        if not any((root / each).exists() for root in (ROOT, ROOT / "costopt"))
    ] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_dotted_names_exist(page: Path) -> None:
    named = set(DOTTED.findall(page.read_text(encoding="utf-8")))
    assert [
        each for each in sorted(named) if not OTHERWISE.fullmatch(each) and not _exists(each)
    ] == []
