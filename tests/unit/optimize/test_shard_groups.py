"""Sharded jobs: whole shard groups, times by the gang, and what a lost node stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from costopt.domain.gang_sizes import ladder
from costopt.domain.job import CheckpointSpec, Job, Resources
from costopt.domain.model_card import ModelCard, TrainingMethod
from costopt.domain.policy import Limits, Policy
from costopt.domain.storage import COMMIT_S, REFORM_S
from costopt.engine.measurements import with_measured_saves
from costopt.optimize.configurations import ConfigurationTable
from costopt.optimize.planner import plan, prepare
from costopt.optimize.request import PlanRequest
from tests.support.optimize_fixtures import (
    configuration_table,
    job,
    machine,
    machines_of,
    offer,
    plan_request,
    pool,
    power,
)

SPOT = pool("a")
GIB_IN_GBIT = 8.589934592


def grouped(*, gpus: int | None = 16, elastic: bool = True, most: int = 8) -> Job:
    resources = Resources(max_nodes=most, gpus_per_group=gpus)
    wanted = job(100.0, deadline_h=400.0, resources=resources, efficiency=1.0)
    saves = CheckpointSpec("s3://bucket/run", 800.0, auto_save=True, auto_restore=True)
    return replace(wanted, elastic=elastic, checkpoint=saves)


def request_of(wanted: Job, hazard: float = 0.02) -> PlanRequest:
    return plan_request([offer(SPOT, 10.0, hazard=hazard)], wanted)


def table_of(wanted: Job, hazard: float = 0.02) -> ConfigurationTable:
    return configuration_table(request_of(wanted, hazard))


@pytest.mark.parametrize(
    ("group", "expected"),
    [(None, [1, 2, 3, 4, 5, 6, 7, 8]), (4, [1, 2, 3, 4, 5, 6, 7, 8]), (16, [2, 4, 6, 8]),
     (24, [3, 6]), (12, []), (80, [])],
)  # fmt: skip
def test_gangs_are_whole_shard_groups(group: int | None, expected: list[int]) -> None:
    resources = Resources(max_nodes=8, gpus_per_group=group)
    assert list(resources.node_counts(machine())) == expected
    assert (resources.rejection_reason(machine()) is None) == bool(expected)
    if expected and group != 4:
        assert table_of(grouped(gpus=group)).nodes.tolist() == expected


def test_a_group_that_does_not_hold_the_model_is_excluded_with_the_reason() -> None:
    memory = ModelCard(70e9, TrainingMethod.PRETRAIN, 4096).memory()
    needed = memory.min_gpus(40.0)
    assert needed is not None
    assert 32 < needed < 64
    fits, small = (
        Resources(max_nodes=64, gpus_per_group=group, memory=memory) for group in (64, 32)
    )
    assert list(fits.node_counts(machine())) == list(range(8, 65, 8))
    assert list(small.node_counts(machine())) == []
    wanted = job(resources=small)
    made = plan(request_of(wanted))
    (rejection,) = made.rejections
    assert rejection.code == "resources"
    assert f"at least {needed} GPUs" in rejection.reason
    assert "a shard group has 32" in rejection.reason


def test_a_ladder_of_groups_has_steps_of_groups() -> None:
    sizes = ladder(range(3, 3001, 3), (100, 2))
    assert all(size % 3 == 0 for size in sizes)
    assert {3, 6, 48, 99, 3000} <= set(sizes)
    assert len(sizes) < 60


def test_times_follow_from_the_gang() -> None:
    wanted = grouped()
    two, eight = (wanted.on_gang(machine(), nodes).checkpoint for nodes in (2, 8))
    gbit = 800 * GIB_IN_GBIT
    # The network has 400 Gbit/s, the store 100.
    assert two.durable_s == pytest.approx(COMMIT_S + gbit / 2 / 100)
    assert two.restore_s == two.durable_s
    assert eight.durable_s == pytest.approx(COMMIT_S + gbit / 8 / 100)
    assert eight.save_s == pytest.approx(two.save_s / 4)
    assert two.save_s < 4
    slow = replace(machine(), network_gbps=10.0)
    assert wanted.on_gang(slow, 8).checkpoint.durable_s > 8 * eight.durable_s
    measured = with_measured_saves(wanted, 50.0).on_gang(machine(), 8).checkpoint
    assert measured.durable_s == pytest.approx(COMMIT_S + gbit / 8 / 50)
    stated = job()
    assert stated.on_gang(machine(), 8) is stated
    assert with_measured_saves(stated, 50.0) is stated
    table = table_of(wanted)
    assert table.save_s.tolist() == sorted(table.save_s.tolist(), reverse=True)
    assert table.start_h == pytest.approx(wanted.startup_s / 3600)
    assert table.restore_h.tolist() == sorted(table.restore_h.tolist(), reverse=True)


def test_a_lost_node_stops_its_group_and_not_the_gang() -> None:
    alone, together = (
        table_of(grouped(gpus=8, elastic=elastic), hazard=0.2) for elastic in (True, False)
    )
    assert alone.lossless.tolist() == [False, *[True] * 7]
    assert not together.lossless.any()
    assert alone.paid_units_per_hour[0] == pytest.approx(together.paid_units_per_hour[0])
    assert (alone.paid_units_per_hour[1:] > together.paid_units_per_hour[1:]).all()
    assert alone.lag_s[1:].tolist() == [REFORM_S] * 7
    # The nodes of the pool start again, and their groups load what the others hold.
    row = 7
    hazard, useful = alone.hazard[row], alone.speed[row] * 3600
    assert hazard == pytest.approx(0.2)
    restart_h = alone.start_h[row] + alone.restore_h[row] + REFORM_S / 3600
    saving = 1 + alone.save_s[row] / alone.interval_s[row]
    expected = useful / (saving * (1 + hazard * restart_h))
    assert alone.paid_units_per_hour[row] == pytest.approx(expected, rel=0.01)
    costs = [
        plan(request_of(grouped(gpus=8, elastic=e), 0.2)).forecast_of("job") for e in (True, False)
    ]
    assert costs[0] is not None
    assert costs[1] is not None
    assert costs[0].usd_p50 < costs[1].usd_p50


def test_a_lost_node_stops_a_gang_whose_groups_span_nodes() -> None:
    assert not table_of(grouped(gpus=16), hazard=0.2).lossless.any()
    assert not grouped(gpus=16).goes_on_without(machine())
    assert grouped(gpus=None).goes_on_without(machine())


def test_copies_in_another_zone_are_paid_by_spread_gangs_alone() -> None:
    a, b = pool("a"), pool("b")
    offers = (offer(a, 10.0, hazard=0.02), offer(b, 10.0, hazard=0.02))
    saves = CheckpointSpec("./run", 840.0, save_s=0.0, interval_s=60.0)

    def usd_per_hour(saves: CheckpointSpec) -> dict[bool, float]:
        wanted = replace(grouped(gpus=None, most=2), checkpoint=saves)
        request = replace(
            request_of(wanted),
            policy=Policy("wide", limits=Limits(max_zone_share=0.5)),
            offers=offers,
            machines=machines_of(offers),
            powers={a: power(), b: power()},
        )
        (part,), _ = prepare(request)
        table = part.table
        return {
            bool(table.spread[row]): float(table.usd_per_hour[row])
            for row in range(len(table))
            if table.nodes[row] == 2
        }

    near, far = usd_per_hour(saves), usd_per_hour(replace(saves, across_zones=True))
    # 70B, each minute: about a thousand dollars an hour.
    assert far[True] - near[True] == pytest.approx(840 * 0.02 * 60)
