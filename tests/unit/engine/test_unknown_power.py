"""Runs on nodes of unknown power: their energy is unknown in every sum, report and metric."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from costopt.daemon.shared_state import TickSnapshot
from costopt.daemon.watch.metrics import HttpMetrics, MetricsEndpoint
from costopt.domain.events import (
    CarbonIntensityRecorded,
    GuardTripped,
    JobSubmitted,
    LaunchIntended,
    NodeLaunched,
    NodeMeasured,
)
from costopt.domain.job import Budget
from costopt.domain.market import Pool
from costopt.domain.policy import CarbonSignal, Limits, Objective, Policy
from costopt.domain.power import NodePower
from costopt.ledger.codec import decode, encode
from costopt.ledger.fold_cache import deserialize_fold, serialize_fold
from costopt.ledger.job_account import JobAccount
from costopt.ledger.job_record import JobRecord
from costopt.ledger.run_view import RunView
from costopt.render.reports.run_charts import energy_plot
from costopt.views.cost import CostSums
from costopt.views.job import job_tiles
from tests.support.daemon_api import served
from tests.support.engine_fixtures import (
    HOUR_S,
    SAFE,
    SPOT_A,
    SPOT_B,
    Powers,
    Scene,
    SomeHazard,
    always,
    changing,
    rules,
    task,
)
from tests.support.known_figure import known
from tests.support.market_fixtures import T0


class PartlyKnown(Powers):
    """Knows the power of all pools but these."""

    def __init__(self, *unknown: Pool) -> None:
        self.unknown = unknown

    def node_power(
        self, pool: Pool, carbon_signal: CarbonSignal = CarbonSignal.AVERAGE
    ) -> NodePower | None:
        return None if pool in self.unknown else super().node_power(pool, carbon_signal)


def scene(strategy: str = "greedy_spot", policy: Policy | None = None, **budget: float) -> Scene:
    """A cheap spot pool whose power is unknown beside one whose power is known."""
    return Scene(
        always(SPOT_A, 2, 1.0),
        always(SPOT_B, 2, 2.0),
        always(SAFE, 9, 8.0),
        jobs=[replace(task(), budget=Budget(**budget))],
        policy=policy or rules(strategy),
        hazards=SomeHazard(),
        powers=PartlyKnown(SPOT_A),
        tick_s=300,
    )


@pytest.mark.parametrize("strategy", ["greedy_spot", "uniform_progress", "adaptive", "milp"])
def test_every_strategy_finishes_a_job_on_nodes_of_unknown_power(strategy: str) -> None:
    made = scene(strategy)
    made.finish()
    launched = made.events(NodeLaunched)
    assert {event.pool for event in launched} == {str(SPOT_A)}
    assert {(e.idle_w, e.busy_w, e.pue, e.gco2e_per_kwh) for e in launched} == {(None,) * 4}
    summary = made.summary()
    assert summary.on_time
    assert summary.usd > 0
    assert summary.wh is summary.idle_wh is summary.busy_wh is summary.kwh is None
    assert summary.gco2e is summary.saved_wh is None
    assert summary.carbon_basis is None
    assert summary.energy_basis == "unknown"
    assert known(summary.baseline_wh) > 0


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["greedy_spot", "adaptive", "milp"])
def test_a_job_whose_energy_counts_never_launches_one(strategy: str) -> None:
    weighing = replace(rules(strategy), objective=Objective(usd_per_kwh=1e-3))
    limited = rules(strategy, limits=Limits(max_kw=100.0))
    for made in (scene(strategy, max_kwh=1e6), scene(policy=weighing), scene(policy=limited)):
        made.finish()
        assert {event.pool for event in made.events(LaunchIntended)} == {str(SPOT_B)}
        assert known(made.summary().wh) > 0


@pytest.mark.slow
def test_one_node_of_unknown_power_makes_the_sums_unknown() -> None:
    """Spot of unknown power goes after an hour; the rest is done where power is known."""
    made = Scene(
        changing(SPOT_A, (0, 1, 1.0), (HOUR_S, 0, 1.0)),
        always(SAFE, 9, 8.0),
        jobs=[task()],
        powers=PartlyKnown(SPOT_A),
        tick_s=300,
    )
    made.finish()
    account = made.engine.journal.accounts["job"]
    rows = {row.pool: row for row in account.intervals(made.clock.now())}
    assert rows[SPOT_A].wh is rows[SPOT_A].gco2e is None
    assert known(rows[SAFE].wh) > 0
    summary = made.summary()
    assert summary.wh is summary.gco2e is None
    assert summary.energy_basis == "modelled and unknown"
    run = RunView.of([r.event for r in made.all_events()], made.clock.now())
    assert run.curves.spend[-1].wh is None
    assert "unknown" in energy_plot(run).alt
    tile = next(tile for tile in job_tiles(run) if tile.name == "Energy")
    assert tile.value == "unknown"


def test_the_baseline_on_a_pool_of_unknown_power_has_dollars_alone() -> None:
    made = Scene(
        always(SPOT_B, 2, 2.0), always(SAFE, 9, 8.0), jobs=[task()], powers=PartlyKnown(SAFE)
    )
    made.finish()
    (submitted,) = made.events(JobSubmitted)
    assert submitted.baseline_pool == str(SAFE)
    assert known(submitted.baseline_usd_micros) > 0
    assert submitted.baseline_wh is submitted.baseline_gco2e is None
    assert submitted.baseline_startup_wh is None
    summary = made.summary()
    assert known(summary.wh) > 0
    assert summary.saved_wh is None


def test_a_budget_in_kwh_stops_a_job_whose_energy_is_unknown() -> None:
    """A job that ran without one gets a budget in kWh: what it has used cannot be shown."""
    made = scene()
    made.go(HOUR_S)
    assert made.pools() == [SPOT_A]
    made.jobs = [replace(made.jobs[0], budget=Budget(max_kwh=1e6))]
    made.restart()
    made.go(HOUR_S)
    assert [event.guard for event in made.events(GuardTripped)] == ["max_kwh"]
    assert not made.living()


LAUNCHED = NodeLaunched(
    at=T0,
    job="job",
    key="k",
    node_id="n",
    pool=str(SPOT_A),
    launched_at=T0,
    micros_per_hour=1_000_000,
    idle_w=None,
    busy_w=None,
    pue=None,
    gco2e_per_kwh=None,
    energy_basis="unknown",
)


def test_neither_a_measurement_nor_an_intensity_makes_part_of_it_known() -> None:
    """What a node measured is at its plug: without a PUE it says nothing of the meter."""
    later = T0.replace(hour=3)
    account = JobAccount("job")
    for event in (
        LAUNCHED,
        CarbonIntensityRecorded(
            at=later, job="job", region="aws/us-east-1", hour_at=T0, gco2e_per_kwh=400.0,
            carbon_signal=CarbonSignal.AVERAGE, source="test",
        ),
        NodeMeasured(at=later, job="job", node_id="n", from_at=T0, until_at=later, wh=500.0),
    ):  # fmt: skip
        account.apply(decode(encode(event)))
    summary = account.summary(later)
    assert summary.wh is summary.gco2e is summary.hourly_carbon_share is None
    assert summary.energy_basis == "unknown"
    assert summary.usd == 3.0
    assert account.summary(T0).wh == 0.0
    thawed, _ = deserialize_fold(serialize_fold(account, JobRecord("job")))
    assert thawed.summary(later) == summary


def test_pages_and_metrics_leave_unknown_energy_out(tmp_path: Path) -> None:
    account = JobAccount("one")
    account.apply(replace(LAUNCHED, job="one"))
    unknown = account.summary(T0.replace(hour=3))
    counted = replace(unknown, job="two", wh=700.0, gco2e=10.0)
    assert CostSums.of([counted]).wh == 700.0
    assert CostSums.of([counted, unknown]).wh is CostSums.of([counted, unknown]).gco2e is None
    with served(tmp_path, fill=False) as daemon:
        for name in ("one", "two"):
            daemon.submit(name)
        both = {"one": unknown, "two": counted}
        daemon.board.publish(TickSnapshot(T0, summaries=both, closed=frozenset()), 0.0)
        page = MetricsEndpoint(daemon.service, HttpMetrics(), None).text().decode()
    drawn = re.findall(r'^costopt_energy_joules_total\{job="(\w+)".*\} (.*)', page, re.M)
    assert [(job, float(joules)) for job, joules in drawn] == [("two", 2_520_000.0)]
    assert len(re.findall(r"^costopt_spend_usd_total\{", page, re.M)) == 2
