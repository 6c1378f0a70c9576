"""The edition changes with whatever a replay runs or reads, and with nothing else."""

from __future__ import annotations

import linecache
from pathlib import Path
from types import FunctionType

import pytest

from costopt.backtesting import trial as module
from costopt.backtesting.trial import code_digest


def test_it_changes_with_code_and_data_that_a_replay_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "some_package"
    for folder in ("engine", "cli", "render", "engine/__pycache__"):
        (package / folder).mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "engine" / "tick.py").write_text("1")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(module, "PACKAGES", ("some_package", "one_that_is_not_installed"))
    first = code_digest()
    (package / "cli" / "main.py").write_text("1")
    (package / "render" / "table.py").write_text("1")
    (package / "engine" / "__pycache__" / "tick.pyc").write_text("1")
    assert code_digest() == first
    (package / "engine" / "tick.py").write_text("2")
    second = code_digest()
    assert second != first
    (package / "prices.csv").write_text("1")
    assert code_digest() not in (first, second)


def test_it_covers_the_engine_and_the_simulator() -> None:
    names = {folder.name for folder in module._folders()}
    assert names == {"costopt", "costopt_sim"}
    assert code_digest() == code_digest()


def test_folders_that_no_replay_runs_through_exist() -> None:
    (package,) = (folder for folder in module._folders() if folder.name == "costopt")
    names = module.EXCLUDED_PACKAGES - {"__pycache__"}
    assert {name for name in names if not (package / name).is_dir()} == set()


def test_a_strategy_of_a_cell_is_not_taken_for_another() -> None:
    """A cell of a notebook has a name and source lines, but no file, and may use other cells."""
    name = "/tmp/ipykernel_1/2.py"
    source = "def make():\n    return None\n"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    code = compile(source, name, "exec").co_consts[0]
    make = FunctionType(code, {})
    try:
        assert module._source_digest(make) != module._source_digest(make)
    finally:
        del linecache.cache[name]
    assert module._source_digest(code_digest) == module._source_digest(code_digest)
