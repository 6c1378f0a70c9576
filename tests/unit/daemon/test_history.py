"""What is asked of jobs that are over, and what a poll of a long history reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.controller.node_logs import logged_node
from costopt.domain.events import DecisionMade, Event, SignalStale
from costopt.ledger import codec, sql_ledger
from costopt.ledger.summary import JobState
from tests.support.daemon_fixtures import DaemonScene
from tests.support.market_fixtures import T0

pytestmark = pytest.mark.process


@pytest.mark.parametrize("restarted", [False, True])
def test_decisions_of_jobs_that_are_over_stay(scene: DaemonScene, restarted: bool) -> None:
    scene.submit("one", "two", hours=0.3)
    scene.go(40)
    assert scene.job("two").summary.state is JobState.FINISHED
    if restarted:
        scene.restart()
        scene.go(1)
    last = list(scene.reader.decisions())
    assert {row.decision.job for row in last} == {"one", "two"}
    for row in last:
        assert row.decision == scene.events(DecisionMade, row.decision.job)[-1]
        assert scene.reader.decision(row.decision.decision_id) == row
        assert next(scene.reader.decisions(row.decision.job)) == row
    assert [row.decision.at for row in last] == sorted((r.decision.at for r in last), reverse=True)


def test_decisions_of_runs_that_were_never_submitted_are_not_listed(scene: DaemonScene) -> None:
    scene.submit("one", hours=0.3)
    scene.go(8)
    scene.ledger.append(replace(scene.events(DecisionMade)[0], job="a-run"))
    assert {row.decision.job for row in scene.reader.decisions()} == {"one"}


def test_a_poll_reads_no_more_of_a_long_history_than_it_shows(
    scene: DaemonScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.submit("one", hours=0.3)
    scene.go(8)
    newest = next(scene.reader.decisions("one")).decision.decision_id
    scene.ledger.append(*[SignalStale(at=T0, job="one", source="s", message="m")] * 5000)
    decoded: list[str] = []

    def counting(body: str) -> Event:
        decoded.append(body)
        return codec.decode(body)

    monkeypatch.setattr(sql_ledger, "decode", counting)
    node_id = logged_node(scene.ledger, "one", None)
    assert logged_node(scene.ledger, "one", node_id) == node_id
    scene.reader.decision(newest)
    next(scene.reader.decisions("one"))
    assert 0 < len(decoded) <= 8
