"""Power caps that decisions ask for: asked of the gang, recorded as the nodes tell, accounted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.estimate import Basis
from costopt.domain.events import GangFormed, GuardTripped, PowerLimitReported
from costopt.domain.job import Job
from costopt.domain.market import Pool
from costopt.domain.policy import CarbonSignal, Limits
from costopt.domain.power import NodePower, PowerCap
from costopt.domain.runtime import PowerLimitRecord
from costopt.domain.view import Target
from tests.support import engine_fixtures
from tests.support.engine_fixtures import HOUR_S, SPOT_A, Follow, Scene, always, rules, task
from tests.support.forwarding import Forwarding

MILD = PowerCap(250.0, 0.9, 700.0, "test")
HARD = PowerCap(150.0, 0.5, 450.0, "test")


class CappedPowers:
    """1 kW busy, 700 W and 450 W under the two caps."""

    def node_power(
        self, pool: Pool, carbon_signal: CarbonSignal = CarbonSignal.AVERAGE
    ) -> NodePower | None:
        return NodePower(500, 1000, 1.0, 400, Basis.MODELLED, 0.1, "test", (HARD, MILD))


@pytest.fixture(autouse=True)
def _caps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_fixtures, "Powers", CappedPowers)


def scene(*targets: Target) -> Scene:
    return Scene(
        always(SPOT_A, 2, 2.0),
        jobs=[task(2 * HOUR_S, nodes=(1, 2), save_s=0.0)],
        strategy=Follow(*targets),
    )


def limits(of: Scene) -> list[tuple[str, float | None, float | None]]:
    return [(e.node_id, e.cap_w, e.busy_w) for e in of.events(PowerLimitReported)]


def want(of: Scene, *targets: Target) -> None:
    assert isinstance(of.strategy, Follow)
    of.strategy.targets = targets


def test_a_capped_gang_is_slower_draws_less_and_is_reported() -> None:
    capped = scene(Target(SPOT_A, 1, 250.0))
    capped.finish()
    assert limits(capped) == [("sim-0001", 250.0, 700.0)]
    assert capped.summary().busy_wh == pytest.approx(700 * 2 / 0.9, rel=1e-3)
    assert capped.summary().done_units == 2 * HOUR_S


def test_every_node_of_the_gang_is_capped_once_by_any_controller() -> None:
    capped = scene(Target(SPOT_A, 2, 250.0))
    for _ in range(2):
        capped.go(1200)
        assert limits(capped) == [("sim-0001", 250.0, 700.0), ("sim-0002", 250.0, 700.0)]
        assert len(capped.events(GangFormed)) == 1
        capped.restart()


def test_a_changed_cap_holds_at_once_without_a_new_gang() -> None:
    changed = scene(Target(SPOT_A, 1))
    changed.go(HOUR_S)
    assert limits(changed) == []
    want(changed, Target(SPOT_A, 1, 150.0))
    changed.go(HOUR_S)
    want(changed, Target(SPOT_A, 1))
    changed.finish()
    assert limits(changed) == [("sim-0001", 150.0, 450.0), ("sim-0001", None, 1000.0)]
    assert len(changed.events(GangFormed)) == 1
    summary = changed.summary()
    assert summary.lost_units == 0
    assert summary.busy_wh == pytest.approx(1000 * 1.5 + 450 * 1, rel=2e-2)


def test_a_cap_makes_no_job_count_as_slow() -> None:
    capped = scene(Target(SPOT_A, 1, 150.0))
    capped.go(HOUR_S)
    assert capped.engine.training.speed_factor["job"] == 1.0
    assert isinstance(capped.strategy, Follow)
    (job_view,) = capped.strategy.views[-1].jobs
    assert job_view.capped_speed == 0.5
    assert job_view.progress.measured_units_per_s == pytest.approx(0.5)


def test_an_unmeasured_cap_is_not_requested() -> None:
    unknown = scene(Target(SPOT_A, 1, 222.0))
    unknown.go(1200)
    assert limits(unknown) == []


class Refusing(Forwarding):
    """A runtime whose nodes have no right to limit their power."""

    def power_limits(self, job: Job) -> tuple[PowerLimitRecord, ...]:
        reported = self._inner.power_limits(job)
        return tuple(replace(one, cap_w=None, message="not allowed") for one in reported)


def test_where_a_node_may_not_set_its_cap_that_is_reported_and_none_is_planned_any_more() -> None:
    refused = scene(Target(SPOT_A, 1, 250.0))
    refused.cloud.runtime = Refusing(refused.cloud.runtime)
    refused.restart()
    refused.go(1200)
    (reported,) = refused.events(PowerLimitReported)
    assert (reported.asked_w, reported.cap_w, reported.busy_w) == (250.0, None, 1000.0)
    assert reported.message == "not allowed"
    assert isinstance(refused.strategy, Follow)
    first, last = refused.strategy.views[0], refused.strategy.views[-1]
    assert first.powers[SPOT_A].caps == (HARD, MILD)
    assert last.powers[SPOT_A].caps == ()
    assert last.jobs[0].capped_speed == 1.0
    refused.restart()
    refused.tick()
    assert refused.strategy.views[-1].powers[SPOT_A].caps == ()


def test_capped_nodes_leave_room_under_the_policys_kilowatts() -> None:
    """Another job's nodes count without a cap until they tell of one."""
    capped = Scene(
        always(SPOT_A, 4, 2.0),
        jobs=[task(nodes=(1, 2), name="one"), task(name="two")],
        policy=rules("greedy_spot", limits=Limits(max_kw=2.5)),
        strategy=Follow(one=(Target(SPOT_A, 2, 250.0),), two=(Target(SPOT_A, 1),)),
    )
    capped.tick()
    assert len(capped.living("one")) == 2
    (tripped,) = capped.events(GuardTripped, "two")
    assert tripped.guard == "max_kw"
    assert "3 kW" in tripped.message
    assert "2.5" in tripped.message
    capped.tick()
    assert len(capped.living("two")) == 1


def test_a_gang_fits_under_the_policys_kilowatts_by_its_cap_alone() -> None:
    limits = Limits(max_kw=1.5)
    for cap_w, nodes in ((250.0, 2), (None, 0)):
        asked = Scene(
            always(SPOT_A, 4, 2.0),
            jobs=[task(nodes=(1, 2))],
            policy=rules("greedy_spot", limits=limits),
            strategy=Follow(Target(SPOT_A, 2, cap_w)),
        )
        asked.go(600)
        assert len(asked.living()) == nodes
