"""Which Python of its image a node takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from costopt.provider.boot import BootError, base_python

pytestmark = pytest.mark.process

OLD, BARE, FULL = "exit 1", 'case "$2" in *torch*) exit 1;; esac', "exit 0"


def interpreters(folder: Path, *bodies: str) -> list[str]:
    """Programs that answer as an interpreter does that is too old, lacks PyTorch, or has it."""
    paths = [folder / f"python{number}" for number in range(len(bodies))]
    for path, body in zip(paths, bodies, strict=True):
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
    return [str(folder / "missing"), *map(str, paths)]


@pytest.mark.parametrize(
    ("bodies", "taken"),
    [((OLD, BARE, FULL), 2), ((FULL, FULL), 0), ((OLD, BARE, BARE), 1)],
)
def test_the_python_that_has_pytorch_is_taken_where_there_is_one(
    tmp_path: Path, bodies: tuple[str, ...], taken: int
) -> None:
    found = interpreters(tmp_path, *bodies)
    assert base_python(found) == str(tmp_path / f"python{taken}")


def test_without_a_python_that_is_new_enough_the_node_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(BootError, match="no Python"):
        base_python(interpreters(tmp_path, OLD))
