"""What ``import costopt`` loads and offers."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import costopt

HEAVY = {
    "boto3", "fastapi", "google", "highspy", "numpy", "obstore", "pandas", "pulp",
    "pyarrow", "pydantic", "sqlalchemy", "torch", "yaml",
}  # fmt: skip
STUB = Path(costopt.__file__).with_suffix(".pyi")


def loaded_by(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after this code."""
    report = "import json, sys; print(json.dumps([n.split('.')[0] for n in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout))


def test_importing_costopt_loads_no_library() -> None:
    assert not HEAVY & loaded_by("import costopt")


def test_no_name_loads_a_cloud() -> None:
    names = ", ".join(name for name in costopt.__all__ if name != "__version__")
    loaded = loaded_by(f"from costopt import {names}")
    assert not {"torch", "boto3", "google", "pandas", "fastapi"} & loaded


def test_names_are_those_of_the_stub() -> None:
    tree = ast.parse(STUB.read_text("utf-8"))
    imported = {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert sorted(names) == sorted(costopt.__all__)
    assert sorted(names) == sorted([*imported, "__version__"])
    for name, module in imported.items():
        assert getattr(costopt, name) is getattr(sys.modules[str(module)], name)


def test_dir_lists_the_names_and_others_do_not_exist() -> None:
    assert dir(costopt) == sorted(costopt.__all__)
    with pytest.raises(AttributeError, match="plans"):
        costopt.plans  # type: ignore[attr-defined]  # noqa: B018
