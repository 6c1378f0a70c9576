"""Plans of several jobs that no limit of time ends, however busy the machine is."""

from __future__ import annotations

import pytest

from costopt.planning import many_jobs
from tests.support.optimize_fixtures import UNHURRIED_S


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give plans of several jobs, and the search of what would help, all the time they need."""
    for limit in ("TOGETHER_S", "EXPLAIN_S", "TRY_S"):
        monkeypatch.setattr(many_jobs, limit, UNHURRIED_S)
