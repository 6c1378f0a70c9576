"""Plans of several jobs that no limit of time ends, however busy the machine is."""

from __future__ import annotations

import pytest

from costopt.planning import many_jobs
from costopt.planning.forecast import replay_forecast
from tests.support.optimize_fixtures import UNHURRIED_S


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give plans of several jobs, and the search of what would help, all the time they need; of
    their replays, one does."""
    for limit in ("TOGETHER_S", "EXPLAIN_S", "TRY_S"):
        monkeypatch.setattr(many_jobs, limit, UNHURRIED_S)
    monkeypatch.setattr(replay_forecast, "FORECAST_LIMIT_S", UNHURRIED_S)
    monkeypatch.setattr(replay_forecast, "FORECAST_REPLAYS", 1)
