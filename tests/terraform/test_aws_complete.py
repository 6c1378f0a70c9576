"""The complete example comes and goes while the minimal one is looked at."""

from __future__ import annotations

import pytest

from tests.support.terraform.complete_example import Started
from tests.support.terraform.workspace import missing

PATIENCE_S = 900.0
pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.worker_group("terraform"),
]


def test_the_complete_example_comes_and_goes(complete_example: Started) -> None:
    code = complete_example.process.wait(PATIENCE_S)
    assert code == 0, complete_example.log.read_text(encoding="utf-8")
