"""A command that cannot run here is refused before a node is launched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costopt.controller import preflight
from costopt.controller.preflight import check_trainer
from costopt.domain.errors import MissingExtraError, SpecError
from tests.support.cant_be_late import job
from tests.support.errors import has_code


@pytest.mark.parametrize("program", ["python", "/usr/bin/python3.11", "torchrun"])
def test_python_needs_torch(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    task = replace(job(60, 0.1), run=(program, "train.py"))
    check_trainer(task)
    monkeypatch.setattr(preflight, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match="PyTorch is not installed") as caught:
        check_trainer(task)
    assert "costopt-spot[train]" in (caught.value.hint or "")


def test_other_commands_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "find_spec", lambda _: None)
    check_trainer(replace(job(60, 0.1), run=("sh", "-c", "true")))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    absent = tmp_path / "absent"
    with pytest.raises(SpecError, check=has_code("not_a_folder")):
        check_trainer(replace(job(60, 0.1), workdir=str(absent)))
