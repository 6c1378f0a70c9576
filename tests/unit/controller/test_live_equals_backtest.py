"""Runs, the daemon and backtests are one composition: one recorded market gives one ledger.

Each case is run live in virtual time by ``costopt run``'s and by the daemon's own code, and as a
backtest; their ledgers are equal event by event.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from inspect import signature
from pathlib import Path

import pytest

from costopt.backtesting.backtest import backtest_config
from costopt.backtesting.replay import replay
from costopt.backtesting.trial import BacktestConfig, Trial, Window
from costopt.catalog import load_catalog
from costopt.controller.controller import ControllerSettings
from costopt.controller.forecasts import CatalogModels
from costopt.controller.live_run import open_run
from costopt.controller.simulated_site import SimulatedSiteConfig
from costopt.controller.state_dir import LEDGER
from costopt.daemon.daemon import Daemon
from costopt.daemon.settings import DaemonSettings
from costopt.domain.account import UNLIMITED, Account, AccountGuards, Quota
from costopt.domain.control import Mode
from costopt.domain.events import (
    CarbonIntensityRecorded,
    DataMoved,
    DecisionMade,
    Event,
    InterruptionNoticed,
    JobFinished,
    ModeChanged,
    SignalStale,
)
from costopt.domain.job import Job
from costopt.domain.market import CapacityType
from costopt.domain.policy import CarbonSignal, Policy
from costopt.domain.ports import RecordedEvent
from costopt.domain.view import Decision, Desired, Target, View
from costopt.energy.carbon import CarbonHistory, RecordedCarbon
from costopt.energy.carbon_files import write_carbon
from costopt.engine.engine import TickResult
from costopt.engine.loop import run_until_done
from costopt.engine.settings import EngineSettings
from costopt.ledger.sql_ledger import open_sqlite_ledger
from costopt.registry.registry import REGISTRY, open_registry
from costopt.spec import load_job, load_policy
from costopt.strategies import build
from tests.support.daemon_fixtures import POLICY, document, unhurried
from tests.support.engine_fixtures import HOUR_S, SAFE, SPOT_A, always, changing
from tests.support.installed_strategy import install_strategy
from tests.support.market_fixtures import T0, market
from tests.support.node_folder import ROOT
from tests.support.simulated_site import VirtualSiteConfig

TICK_S = 120.0
HOURS = 8
ENDS_AT = T0 + timedelta(hours=HOURS)
HOLDING = market(
    changing(SPOT_A, (0, 4, 1.0), (1.5 * HOUR_S, 0, 1.0), (1.5 * HOUR_S + 120, 4, 1.0)),
    always(SAFE, 4, 3.0),
)
"""Spot is gone for two minutes: less than a pool that took a node is left alone."""
SAVES_QUICKLY = "save: 10s, restore: 1m, interval: 10m"
SAVES_ON_NOTICE = "save: 2m, restore: 1m, interval: auto"
"""As long as the notice: it saves on half of them."""


class Moody:
    """Wants spot, and raises for a while."""

    def decide(self, view: View) -> Desired:
        if HOUR_S <= (view.now - T0).total_seconds() < 1.25 * HOUR_S:
            raise RuntimeError("out of sorts")
        wanted = (Target(SPOT_A, 1),)
        return Desired(tuple(Decision(jv.job.name, wanted, "spot") for jv in view.jobs))


@dataclass(frozen=True)
class Case:
    """What a job meets, and the kind of events that show that it did."""

    name: str
    shows: tuple[type[Event], ...]
    strategy: str = "greedy_spot"
    checkpoint: str = SAVES_QUICKLY
    nodes: int = 1
    more: str = ""
    account: Account = UNLIMITED
    signals: bool = False
    policy: str = ""

    @property
    def job_text(self) -> str:
        text = document(nodes=self.nodes, deadline=f"{HOURS}h", more=self.more)
        return text.replace(SAVES_QUICKLY, self.checkpoint)

    @property
    def policy_text(self) -> str:
        return POLICY.replace("greedy_spot", self.strategy) + self.policy


INTERRUPTED = (InterruptionNoticed, JobFinished)
CASES = (
    Case("greedy", INTERRUPTED),
    Case("uniform progress", INTERRUPTED, "uniform_progress", SAVES_ON_NOTICE),
    Case("adaptive", INTERRUPTED, "adaptive", "save: 10s, restore: 1m, interval: auto"),
    Case("milp", (DecisionMade, JobFinished), "milp", SAVES_ON_NOTICE),
    Case("failing strategy", (*INTERRUPTED, SignalStale), "moody"),
    Case(
        "data elsewhere",
        (DataMoved, JobFinished),
        more="data: {uri: s3://data/set, size_gib: 20, region: aws/us-west-2}\n",
    ),
    Case(
        "recorded signals",
        (CarbonIntensityRecorded, JobFinished),
        "milp",
        signals=True,
        policy="objective: {usd_per_tonne_co2e: 5000}\n",
    ),
    Case(
        "quota",
        (DecisionMade,),
        account=Account(quotas=(Quota("no spot", capacity_type=CapacityType.SPOT, max_nodes=0),)),
    ),
    Case(
        "a gang beyond the quota",
        (DecisionMade,),
        nodes=2,
        account=Account(quotas=(Quota("one node", max_nodes=1),)),
    ),
    Case(
        "guards",
        (DecisionMade,),
        account=Account(guards=AccountGuards(max_usd_per_hour=2.0, max_nodes=8)),
    ),
)


@dataclass(frozen=True)
class Setting:
    """One case in a folder of its own."""

    case: Case
    folder: Path

    @property
    def job(self) -> Job:
        path = self.folder / "job.yaml"
        path.write_text(self.case.job_text)
        return load_job(path, T0, self.case.account)

    @property
    def policy(self) -> Policy:
        path = self.folder / "plain.yaml"
        path.write_text(self.case.policy_text)
        return load_policy(str(path))

    @property
    def site(self) -> VirtualSiteConfig:
        catalog = load_catalog()
        carbon = RecordedCarbon(intensities(), catalog.region) if self.case.signals else None
        return VirtualSiteConfig(
            HOLDING, T0, models=CatalogModels(catalog, carbon, self.case.signals)
        )

    @property
    def settings(self) -> ControllerSettings:
        return ControllerSettings(TICK_S, account=self.case.account, explain=True)


def intensities() -> CarbonHistory:
    """Of the test's grid zone: three weeks of days before the job, and its own."""
    region = load_catalog().region("aws", "us-east-1")
    assert region is not None
    assert region.electricity_maps_zone is not None
    values = tuple(300.0 + 20.0 * (hour % 24) for hour in range(24 * 30))
    zones = {region.electricity_maps_zone: values}
    return CarbonHistory(T0 - timedelta(days=21), zones, CarbonSignal.AVERAGE, "typed for a test")


def by_run(setting: Setting) -> Iterable[RecordedEvent]:
    """Live, by what ``costopt run`` runs."""
    job = setting.job
    with open_run(
        lambda _: job, setting.policy, setting.site, setting.folder / "run", setting.settings
    ) as live:

        def stop_at_the_end(result: TickResult) -> None:
            if result.now >= ENDS_AT and live.engine.unfinished:
                live.engine.stop("the test ends")

        run_until_done(live.engine, stop_at_the_end)
        return list(live.ledger.events(job.name))


def by_daemon(setting: Setting) -> Iterable[RecordedEvent]:
    """Live, by the daemon."""
    state = setting.folder / "daemon"
    state.mkdir()
    site = setting.site.connect(state)
    with open_registry(state / REGISTRY) as registry, open_sqlite_ledger(state / LEDGER) as ledger:
        settings = unhurried(state, Mode.ENFORCE, TICK_S)
        daemon = Daemon(site, registry, ledger, setting.case.account, settings)
        service = daemon.service
        texts = setting.case.job_text, setting.case.policy_text
        name = service.submit(service.read(*texts, workdir=str(setting.folder), who="me")).name
        daemon.tick()
        while site.clock.now() < ENDS_AT:
            daemon.readiness.prepare()
            daemon.readiness.join()
            daemon.tick()
            site.clock.sleep(TICK_S)
        daemon.close()
        return list(ledger.events(name))


def by_backtest(setting: Setting) -> Iterable[RecordedEvent]:
    """By what ``costopt backtest`` runs each trial with."""
    carbon = None
    if setting.case.signals:
        carbon = setting.folder / "carbon.parquet"
        write_carbon(intensities(), carbon)
    config = backtest_config(
        {HOLDING.name: HOLDING},
        notice_s=setting.site.notice_s,
        cooldown_s=setting.settings.cooldown_s,
        price_forecasts=setting.case.signals,
        carbon=carbon,
        account=setting.case.account,
        past_s=0.0,
    )
    trial = Trial(Window(HOLDING.name, setting.job), setting.policy)
    return replace(config, tick_s=TICK_S).rehearse(trial, explain=True).events


def by_passed_strategy(setting: Setting) -> Iterable[RecordedEvent]:
    """In a backtest of a strategy that is passed rather than named by a policy."""
    catalog, spec = load_catalog(), setting.policy.strategy
    models = setting.site.models
    config = BacktestConfig(
        {HOLDING.name: HOLDING},
        catalog,
        models.powers,
        models.hazards,
        tick_s=TICK_S,
        transfers=catalog.transfer,
        forecasts=models.forecasts,
        carbon=models.carbon,
        trial_strategy=lambda _: build(spec),
        account=setting.case.account,
    )
    trial = Trial(Window(HOLDING.name, setting.job), setting.policy)
    return config.rehearse(trial, explain=True).events


COMPOSITIONS: Mapping[str, Callable[[Setting], Iterable[RecordedEvent]]] = {
    "run": by_run,
    "daemon": by_daemon,
    "backtest": by_backtest,
    "backtest of a passed strategy": by_passed_strategy,
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_composition_writes_the_same_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    install_strategy(monkeypatch, tmp_path, "moody", f"{__name__}:Moody")
    setting = Setting(case, tmp_path)
    ledgers = {name: list(compose(setting)) for name, compose in COMPOSITIONS.items()}
    expected = _comparable(ledgers["backtest"])
    assert {kind.__name__ for kind in case.shows} <= {kind for kind, _ in expected}
    for name, ledger in ledgers.items():
        assert _comparable(ledger) == expected, name


def _comparable(recorded: Iterable[RecordedEvent]) -> list[tuple[str, dict[str, object]]]:
    """Each event of the test's time without the mode, which only a daemon has, and with launches
    numbered in place of their random keys."""
    keys: dict[object, int] = {}
    reported = []
    for event in (each.event for each in recorded):
        if isinstance(event, ModeChanged) or event.at >= ENDS_AT:
            continue
        fields = asdict(event)
        if "key" in fields:
            fields["key"] = keys.setdefault(fields["key"], len(keys))
        reported.append((type(event).__name__, fields))
    return reported


def test_the_defaults_of_all_compositions_are_the_controller_s() -> None:
    own = ControllerSettings()
    assert DaemonSettings(Path()).tick_s == own.tick_s
    assert EngineSettings().tick_s == own.tick_s
    cooldowns = {
        EngineSettings().cooldown_s,
        DaemonSettings(Path()).cooldown_s,
        signature(replay).parameters["cooldown_s"].default,
        BacktestConfig.__dataclass_fields__["cooldown_s"].default,
    }
    assert cooldowns == {own.cooldown_s}
    assert DaemonSettings(Path()).patience_s == own.patience_s
    notices = {
        signature(replay).parameters["notice_s"].default,
        BacktestConfig.__dataclass_fields__["notice_s"].default,
        SimulatedSiteConfig.__dataclass_fields__["notice_s"].default,
    }
    assert len(notices) == 1


@pytest.mark.slow
def test_only_the_controller_assembles_an_engine() -> None:
    """Anything else that would be a composition of its own, beside this test's."""
    assembled = {
        (str(path.relative_to(ROOT)), name)
        for folder in ("costopt", "providers", "benchmarks", "examples")
        for path in (ROOT / folder).rglob("*.py")
        for name in _called(ast.parse(path.read_text()))
        if name in {"Engine", "World", "EngineSettings"}
    }
    controller = "costopt/controller/controller.py"
    assert assembled == {(controller, n) for n in ("Engine", "World", "EngineSettings")}


def _called(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    yield name
