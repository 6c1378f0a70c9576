"""The trainer of examples/fleet, which goes on from its newest save."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from costopt.protocol import trainer_files
from costopt.protocol.trainer_files import TrainerState, TrainerStatus
from tests.support.node_folder import ROOT

STEPS = 3


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Train in this process to the last step, and return what the agent would read then."""
    output, status = tmp_path / "output", tmp_path / "status.json"
    monkeypatch.setenv(trainer_files.GENERATION, "2")
    monkeypatch.setenv(trainer_files.STATUS_FILE, str(status))
    monkeypatch.setenv(trainer_files.NOTICE_FILE, str(tmp_path / "notice.json"))
    training = runpy.run_path(str(ROOT / "examples" / "fleet" / "train.py"))["Training"]

    def train() -> TrainerStatus:
        training(output).run(STEPS, 1e-6)
        found = TrainerStatus.read(status)
        assert found is not None
        return found

    return train


def test_a_trainer_resumed_after_its_last_step_reports_it_as_saved(trained: Any) -> None:
    for _ in range(2):
        status = trained()
        assert status.state is TrainerState.FINISHED
        assert status.done_units == status.saved_units == STEPS


def test_a_notice_at_the_last_step_leaves_the_work_done(trained: Any, tmp_path: Path) -> None:
    saved = tmp_path / "output" / f"step-{STEPS - 1:06}.json"
    saved.parent.mkdir()
    saved.write_text(json.dumps({"step": STEPS - 1, "a": 0.0, "b": 0.0}))
    (tmp_path / "notice.json").touch()
    assert trained().state is TrainerState.FINISHED
