"""What runs live and what a backtest replays is one engine under one set of defaults."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from inspect import signature
from pathlib import Path

import pytest

from costopt.catalog import load_catalog
from costopt.controller.controller import ControllerSettings
from costopt.daemon.intake import load_submission
from costopt.daemon.settings import DaemonSettings
from costopt.domain.events import InterruptionNoticed, JobFinished, ModeChanged, SignalStale
from costopt.domain.ports import RecordedEvent
from costopt.domain.view import Decision, Desired, Target, View
from costopt.energy import NodePowerModel
from costopt.engine.settings import DEFAULT_COOLDOWN_S, EngineSettings
from costopt.market.hazard import LearnedHazard
from costopt.replay.rehearsal import replay
from costopt.replay.trial import BacktestConfig
from costopt.strategies import STRATEGIES
from tests.support.daemon_fixtures import POLICY, DaemonScene, document
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, always, changing
from tests.support.market_fixtures import T0, market

HOLDING = [
    changing(SPOT_A, (0, 4, 1.0), (1.5 * HOUR_S, 0, 1.0), (1.5 * HOUR_S + 120, 4, 1.0)),
    always(SAFE, 4, 3.0),
]
"""Spot is gone for two minutes: less than a pool that took a node is left alone."""


class Moody:
    """Wants spot, and raises for a while."""

    def decide(self, view: View) -> Desired:
        if HOUR_S <= (view.now - T0).total_seconds() < 1.25 * HOUR_S:
            raise RuntimeError("out of sorts")
        wanted = (Target(SPOT_A, 1),)
        return Desired(tuple(Decision(jv.job.name, wanted, "spot") for jv in view.jobs))


@pytest.mark.process
@pytest.mark.parametrize(
    ("strategy", "checkpoint"),
    [
        ("greedy_spot", "save: 10s, restore: 1m, interval: 10m"),
        ("uniform_progress", "save: 2m, restore: 1m, interval: auto"),
        ("adaptive", "save: 10s, restore: 1m, interval: auto"),
        ("moody", "save: 10s, restore: 1m, interval: 10m"),
    ],
)
def test_a_replay_s_ledger_is_the_live_one_event_by_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, checkpoint: str
) -> None:
    """``save: 2m`` is as long as the notice."""
    monkeypatch.setitem(STRATEGIES, "moody", Moody)
    text = document(deadline="8h").replace("save: 10s, restore: 1m, interval: 10m", checkpoint)
    policy = POLICY.replace("greedy_spot", strategy)
    scene = DaemonScene(tmp_path, histories=HOLDING)
    try:
        service = scene.daemon.service
        submission = service.submit(service.read(text, policy, workdir=str(tmp_path), who="me"))
        scene.daemon.tick()
        scene.daemon.readiness.prepare()
        scene.go(8 * 60)
        live = list(scene.ledger.events("one"))
    finally:
        scene.close()
    known, catalog = load_submission(submission), load_catalog()
    replayed = replay(
        known.job,
        known.policy,
        market(*HOLDING),
        machines=catalog,
        powers=NodePowerModel(catalog),
        hazards=LearnedHazard({}),
        tick_s=60.0,
        explain=True,
    ).events
    assert _comparable(replayed) == _comparable(live)
    kinds = {type(each.event) for each in live}
    assert {InterruptionNoticed, JobFinished} <= kinds
    assert (SignalStale in kinds) == (strategy == "moody")


def _comparable(recorded: Iterable[RecordedEvent]) -> list[tuple[str, dict[str, object]]]:
    """Each event without the mode, and with launches numbered in place of their random keys."""
    keys: dict[object, int] = {}
    told = []
    for event in (each.event for each in recorded):
        if isinstance(event, ModeChanged):
            continue
        fields = asdict(event)
        if "key" in fields:
            fields["key"] = keys.setdefault(fields["key"], len(keys))
        told.append((type(event).__name__, fields))
    return told


def test_the_defaults_of_all_assemblies_are_the_engine_s() -> None:
    cooldowns = {
        EngineSettings().cooldown_s,
        ControllerSettings().cooldown_s,
        DaemonSettings(Path()).cooldown_s,
        signature(replay).parameters["cooldown_s"].default,
        BacktestConfig.__dataclass_fields__["cooldown_s"].default,
    }
    assert cooldowns == {DEFAULT_COOLDOWN_S}
