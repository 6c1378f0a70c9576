"""Rounds of many jobs: gangs, prices, predictions, the policy, shares and placement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costopt.optimize.rounds.durations import DurationHistory
from costopt.optimize.rounds.gangs import NO_STEP, GangTable, Ints, SpeedCurve
from costopt.optimize.rounds.jobs import RoundJobs
from costopt.optimize.rounds.overflow import Queue
from costopt.optimize.rounds.placement import Placement, place_round
from costopt.optimize.rounds.priced import PricedPolicy
from costopt.optimize.rounds.rigid import RigidPolicy
from costopt.optimize.rounds.sizes import capacity_price, first_fit
from costopt.optimize.rounds.virtual_share import VirtualShares

ASKED = (1, 1, 2, 3, 4, 8, 16, 64)


def _table(asked: Sequence[int]) -> GangTable:
    return GangTable.of([SpeedCurve().options(n, None, None) for n in asked], asked)


def _jobs(asked: Sequence[int], seed: int) -> RoundJobs:
    draw = np.random.default_rng(seed)
    count = len(asked)
    table = _table(asked)
    column = draw.integers(0, table.last + 1)
    held, _ = table.pick(column)
    return RoundJobs(
        gangs=table,
        weight=draw.uniform(0.5, 2, count),
        held=np.where(draw.random(count) < 0.5, held, 0),
        held_s=draw.exponential(600, count),
        served_s=draw.exponential(600, count),
        remaining_s=draw.exponential(6000, count) + 1,
        spread=np.where(draw.random(count) < 0.5, 0.0, 1.5),
        index=draw.exponential(1e-3, count),
        submit_s=np.arange(count, dtype=np.float64),
        is_behind=draw.random(count) < 0.2,
        price_cap=np.full(count, np.inf),
    )


def _fit(held: Ints, gpus: int) -> Ints:
    """Held GPUs of which no more run than there are."""
    return np.where(first_fit(np.arange(len(held)), held, gpus), held, 0)


def test_gangs_halve_and_double_what_was_asked_for() -> None:
    sizes = {n: [gpus for gpus, _ in SpeedCurve().options(n, None, None)] for n in (1, 3, 8, 64)}
    assert sizes == {1: [1, 2, 4], 3: [3, 6, 12], 8: [1, 2, 4, 8, 16, 32], 64: [8, 16, 32, 64]}
    assert [gpus for gpus, _ in SpeedCurve().options(8, 4, 16)] == [4, 8, 16]


def test_taking_the_rows_of_some_jobs_copies_no_other_row() -> None:
    """numpy's take copies all of an array that is not contiguous, before it takes rows."""
    table = GangTable.of([SpeedCurve().options(8, None, None)] * 3, [8] * 3)
    assert all(getattr(table, field.name).flags.c_contiguous for field in fields(table))


def test_a_gang_that_is_never_cheapest_has_the_step_price_of_the_next() -> None:
    table = GangTable.of([[(1, 1.0), (2, 1.01), (4, 3.0), (8, 2.0)]], [1])
    assert table.gpus[0, : table.last[0] + 1].tolist() == [1, 2, 4]
    assert table.step_price[0, 0] == table.step_price[0, 1]
    prices = _table(ASKED).step_price
    falling = np.diff(prices, axis=1) <= 1e-12
    assert (falling | (prices[:, 1:] == NO_STEP)).all()


def test_where_no_restart_costs_anything_a_short_job_grows_too() -> None:
    """Jobs that may go to spot are not ranked: their gangs are planned for as long as they run."""
    one = replace(
        _jobs([1], 0), held=np.array([1]), held_s=np.array([1e4]), remaining_s=np.array([50.0]),
        price_cap=np.array([10.0]),
    )  # fmt: skip
    assert PricedPolicy(restart_s=0.0).decide(one, 4)[1].tolist() == [4]


def test_the_price_is_where_the_cheapest_gangs_fit() -> None:
    table = _table(ASKED)
    least = int(table.gpus[:, 0].sum())
    price = capacity_price(table.step_price, table.step_gpus, least, 60, 10.0)
    gpus, speed = table.pick((table.step_price > price).sum(axis=1))
    assert least <= gpus.sum() <= 60
    cost = (1 + price * table.gpus) / table.speed
    chosen = (1 + price * gpus) / speed
    assert (chosen <= cost.min(axis=1) + 1e-9).all()
    lower = (table.step_price > price * 0.999).sum(axis=1)
    assert table.pick(lower)[0].sum() > 60


@settings(max_examples=150, deadline=None)
@given(
    asked=st.lists(st.sampled_from(ASKED), min_size=1, max_size=30),
    seed=st.integers(0, 2**32 - 1),
    gpus=st.integers(8, 200),
    policy=st.sampled_from([PricedPolicy(), RigidPolicy("index"), RigidPolicy("attained-service")]),
)
def test_no_gpu_is_given_twice_and_no_gang_is_impossible(
    asked: list[int], seed: int, gpus: int, policy: PricedPolicy | RigidPolicy
) -> None:
    jobs = _jobs(asked, seed)
    jobs.held[:] = _fit(jobs.held, gpus)
    sizes = policy.decide(jobs, gpus)[1]
    assert sizes.sum() <= gpus
    possible = (jobs.gangs.gpus == sizes[:, None]).any(axis=1)
    assert (possible | (sizes == 0)).all()
    assert (policy.decide(jobs, gpus)[1] == sizes).all()
    # No GPU is idle while the smallest gang of a waiting job would fit.
    waiting = jobs.gangs.gpus[sizes == 0, 0]
    if isinstance(policy, PricedPolicy) and len(waiting):
        assert waiting.min() > gpus - sizes.sum()


def test_of_jobs_whose_work_is_declared_the_short_ones_have_larger_gangs() -> None:
    jobs = _jobs([8] * 8, 1)
    jobs.held[:], jobs.is_behind[:], jobs.weight[:] = 0, False, 1.0
    jobs.spread[:], jobs.remaining_s[:] = 0.0, [4e3, *np.linspace(3e5, 1e5, 7)]
    jobs.index[:] = 1 / jobs.remaining_s
    sizes = PricedPolicy().decide(jobs, 64)[1]
    assert sizes[0] == sizes.max() > sizes[1] == sizes.min()
    # Predicted work tells less, and next to nothing where its spread is wide.
    jobs.spread[:] = 0.1
    assert PricedPolicy().decide(jobs, 64)[1][0] > 8
    jobs.spread[:] = 50.0
    assert len(set(PricedPolicy().decide(jobs, 64)[1])) == 1
    jobs.spread[:] = 0.0
    # Not where spot has a price: an hour is worth what it is.
    jobs.price_cap[:] = 1e9
    assert len(set(PricedPolicy().decide(jobs, 64)[1])) == 1


def test_a_gang_shrinks_only_where_another_job_needs_its_gpus() -> None:
    jobs = _jobs([8] * 3, 1)
    jobs.held[:], jobs.held_s[:], jobs.is_behind[:] = [32, 8, 8], 1000.0, False
    jobs.weight[:], jobs.spread[:], jobs.index[:] = 1.0, 1.0, [1.0, 2.0, 2.0]
    jobs.remaining_s[:] = [1e6, 200.0, 200.0]
    assert PricedPolicy().decide(jobs, 48)[1].tolist() == [32, 8, 8]
    assert PricedPolicy().decide(jobs, 40)[1].tolist() == [16, 8, 8]


def test_idle_gpus_make_a_gang_faster_that_is_cheapest_at_no_price() -> None:
    jobs = _jobs([4], 1)
    table = GangTable.of([[(4, 1.0), (6, 0.9), (12, 1.5), (24, 4.0)]], [4])
    jobs = replace(jobs, gangs=table)
    jobs.held[:], jobs.held_s[:], jobs.remaining_s[:] = 4, 1000.0, 1e4
    assert [PricedPolicy().decide(jobs, gpus)[1][0] for gpus in (8, 16, 24)] == [4, 12, 24]


def test_a_job_behind_its_share_is_served_first_at_the_size_it_asked_for() -> None:
    jobs = _jobs([8] * 20, 1)
    jobs.held[:], jobs.is_behind[:] = 0, False
    jobs.is_behind[13] = True
    jobs.index[13] = 0.0
    assert PricedPolicy().decide(jobs, 24)[1][13] >= 8


def test_between_two_rounds_jobs_start_on_idle_gpus_and_no_gang_changes() -> None:
    jobs = _jobs([4] * 4, 1)
    jobs.held[:], jobs.held_s[:], jobs.is_behind[:] = [8, 4, 0, 0], 1000.0, False
    jobs.weight[:], jobs.spread[:], jobs.index[:] = 1.0, 1e6, [1.0, 1.0, 1.0, 2.0]
    at_price = float(jobs.gangs.step_price[0, jobs.gangs.asked[0] - 1]) * 0.99
    assert PricedPolicy().admit(jobs, 16, at_price).tolist() == [8, 4, 0, 4]
    assert RigidPolicy("index").admit(jobs, 12, 0.0).tolist() == [4, 4, 0, 4]
    assert PricedPolicy().admit(jobs, 12, at_price).tolist() == [8, 4, 0, 0]
    # One that is behind its share takes what another has grown by, unless that has just begun.
    jobs.is_behind[2] = True
    assert PricedPolicy().admit(jobs, 12, at_price).tolist() == [4, 4, 4, 0]
    jobs.held_s[:] = 10.0
    assert PricedPolicy().admit(jobs, 12, at_price).tolist() == [8, 4, 0, 0]


def test_the_first_minutes_of_a_gang_are_not_interrupted() -> None:
    jobs = _jobs([8] * 20, 1)
    jobs.held[:], jobs.is_behind[:] = 0, False
    jobs.held[3], jobs.held_s[3], jobs.index[3] = 8, 10.0, 0.0
    assert PricedPolicy().decide(jobs, 16)[1][3] == 8


def test_how_long_gangs_are_not_interrupted_is_the_policys() -> None:
    jobs = _jobs([8] * 20, 1)
    jobs.held[:], jobs.is_behind[:] = 0, False
    jobs.held[3], jobs.held_s[3], jobs.index[3] = 8, 10.0, 0.0
    assert PricedPolicy(protected_s=10.0).decide(jobs, 16)[1][3] == 0
    # Nor is one moved to make room for a whole node.
    jobs.held[:] = 0
    jobs.held[[3, 7]] = 4
    sizes = jobs.held.copy()
    sizes[2] = 8
    jobs.held_s[[3, 7]] = 10.0
    for protected_s in (300.0, 10.0):
        placement = Placement((8, 8))
        placement.change([(3, 4), (5, 4)], frozenset())
        placement.change([(7, 4)], frozenset())
        placement.change([(5, 0)], frozenset())
        changed = place_round(placement, np.arange(20), jobs, sizes, protected_s)
        assert changed.get(2, 0) == (8 if protected_s == 10.0 else 4)


@pytest.mark.parametrize(("cap", "sizes"), [(np.inf, [4, 4]), (0.02, [8, 0])])
def test_no_gang_is_smaller_than_what_its_gpus_cost_elsewhere(cap: float, sizes: list[int]) -> None:
    jobs = _jobs([8, 8], 1)
    table = GangTable.of([[(4, 0.9), (8, 1.0)]] * 2, [8, 8])
    jobs = replace(jobs, gangs=table, weight=np.ones(2), price_cap=np.full(2, cap))
    jobs.held[:], jobs.is_behind[:], jobs.index[:] = 0, False, (2.0, 1.0)
    jobs.remaining_s[:] = 3600.0
    assert PricedPolicy().decide(jobs, 8)[1].tolist() == sizes
    # A job that has no other place may be.
    jobs.price_cap[1] = np.inf
    assert PricedPolicy().decide(jobs, 12)[1].tolist() == [8, 4]


def test_one_after_the_other_leaves_while_that_is_worth_spot() -> None:
    # Of two alike each saves the other's time, so that once one has left there is nothing to save.
    alike = np.ones(2)
    queue = Queue(alike, 0 * alike, 3600 * alike, 0.1 * alike)
    assert queue.leaving(8).tolist() == [0]
    # The most time per dollar comes first; what cannot go stays, and time waited counts.
    waits = Queue(
        weight=np.array([1.0, 1.0, 2.0, 1.0, 1.0]),
        waited_s=np.array([3600.0, 3600.0, 3600.0, 9e9, 0.0]),
        needed_s=np.full(5, 1e-6),
        spot_usd=np.array([0.5, 0.2, 0.5, np.inf, 0.2]),
    )
    assert waits.leaving(8).tolist() == [1, 2, 0]
    assert Queue(alike[:0], alike[:0], alike[:0], alike[:0]).leaving(8).tolist() == []


def test_predictions_that_are_worse_than_the_tenants_mean_are_switched_off() -> None:
    history = DurationHistory(np.array([0, 0, 1]), 2)
    assert not history.is_off.any()
    # The groups of tenant 0 swap their durations: what they predicted is wrong from then on.
    for count, first_s, second_s in ((400, 100.0, 100_000.0), (1000, 100_000.0, 100.0)):
        history.observe(np.zeros(count, dtype=np.int64), np.full(count, first_s))
        history.observe(np.ones(count, dtype=np.int64), np.full(count, second_s))
        history.refresh()
    assert history.is_off.tolist() == [True, False]
    for _ in range(40):
        history.observe(np.full(100, 2), np.full(100, 500.0))
        history.refresh()
    assert not history.is_off[1]
    expected_s = history.remaining_s(np.array([2]), np.array([1.0]))[0]
    assert expected_s == pytest.approx(500, rel=0.25)


def test_where_durations_repeat_a_group_hardly_learns_from_others() -> None:
    history = DurationHistory(np.array([0, 0]), 1)
    unknown = history.spread(np.array([0]), np.array([1.0]))[0]
    for _ in range(40):
        history.observe(np.arange(2), np.array([100.0, 100_000.0]))
        history.refresh()
    assert history.spread(np.array([0]), np.array([1.0]))[0] < 0.6 < 2 < unknown
    assert 90 < history.remaining_s(np.array([0]), np.array([1.0]))[0] < 300


def test_what_has_run_long_is_expected_to_run_longer() -> None:
    history = DurationHistory(np.array([0]), 1)
    draw = np.random.default_rng(0)
    history.observe(np.zeros(2000, dtype=np.int64), draw.pareto(1.1, 2000) * 60 + 60)
    history.refresh()
    ages = np.array([1.0, 600.0, 60_000.0])
    group = np.zeros(3, dtype=np.int64)
    assert (np.diff(history.remaining_s(group, ages)) > 0).all()
    assert history.index(group, ages)[1] > history.index(group, ages)[2]


def test_jobs_are_behind_where_their_tenant_will_be_worse_off_than_in_its_partition() -> None:
    shares = VirtualShares(np.array([0, 0, 1]), np.array([8, 8, 1]), np.array([8, 1, 64]))
    for job in range(3):
        shares.submit(job, 1000.0)
    active = np.arange(3)
    needed_s = np.array([5000.0, 5000.0, 9000.0])

    def behind(now_s: float, served_s: list[float]) -> list[bool]:
        shares.advance(now_s, active, needed_s)
        return [bool(each) for each in shares.is_behind(active, np.array(served_s))]

    # Job 1 waits behind job 0 in the partition, too; tenant 1 has more than it would have there.
    assert behind(1000.0, [0.0, 0.0, 1500.0]) == [False, False, False]
    assert behind(1060.0, [0.0, 0.0, 1500.0]) == [True, False, False]
    mine, other = shares.worth(np.array([1, 2]))
    assert mine > other == 1
    # A tenant whose other job has gained more than it lags is not worse off; nor does it flicker.
    assert behind(1060.0, [0.0, 62.0, 1500.0]) == [True, False, False]
    assert behind(1060.0, [0.0, 200.0, 1500.0]) == [False, False, False]
    assert behind(1060.0, [0.0, 61.0, 1500.0]) == [False, False, False]
    assert (shares.worth(active) == 1).all()


def test_a_partition_has_no_rounds() -> None:
    shares = VirtualShares(np.array([0, 0]), np.array([8, 8]), np.array([8, 64]))
    active = np.arange(2)
    for job in range(2):
        shares.submit(job, 10.0 * job)
    shares.advance(60.0, active, np.full(2, 5000.0))
    # It has run there since it was submitted, and here since this round.
    assert shares.is_behind(active, np.zeros(2)).tolist() == [True, False]
    shares.end(active[:1], 120.0, np.array([70.0]))
    shares.advance(120.0, active[1:], np.array([5000.0]))
    # The next one has run there since the instant at which the first had ended, for 50 s.
    assert shares.is_behind(active[1:], np.array([49.0])).tolist() == [True]
    assert not shares.is_behind(active[1:], np.array([500.0])).any()


def test_where_too_many_ask_to_come_first_only_those_that_have_lost_do() -> None:
    shares = VirtualShares(np.array([0, 0]), np.array([8, 8]), np.array([16]))
    for job in range(2):
        shares.submit(job, 0.0)
    for now_s in (0.0, 1000.0):
        shares.advance(now_s, np.arange(2), np.full(2, 5000.0))
        assert not shares.is_behind(np.arange(2), np.zeros(2)).any()
    # They do not come first, but an hour of them is worth more, and so are larger gangs.
    assert (shares.worth(np.arange(2)) > 1).all()


def test_room_is_made_where_a_job_that_is_behind_grows() -> None:
    placement = Placement((8, 8))
    placement.change([(0, 4), (1, 3), (2, 1)], frozenset())
    placement.change([(3, 2)], frozenset())
    placement.change([(1, 0)], frozenset())
    # Thirteen GPUs of two nodes are free where the gang's own are counted, but no whole node.
    assert placement.change([(0, 8)], frozenset())[0] == {0}
    refused, moved = placement.change([(0, 8)], frozenset(), frozenset({0}))
    assert (refused, sum(placement.slices(0).values())) == (set(), 8)
    assert 0 not in moved


def test_for_a_job_that_is_behind_others_are_moved_to_make_room_for_those_that_move() -> None:
    placement = Placement((8, 8, 8))
    for job, (node, gpus) in enumerate([(0, 4), (0, 1), (1, 4), (1, 2), (2, 4), (2, 1)]):
        placement.restore(job, {node: gpus})
    # Eight GPUs are free, three of them at most on one node.
    assert placement.change([(6, 8)], frozenset()) == ({6}, set())
    assert placement.free_gpus == (3, 2, 3)
    fixed = frozenset({0, 2, 4})
    assert placement.change([(6, 8)], fixed, frozenset({6})) == ({6}, set())
    refused, moved = placement.change([(6, 8)], frozenset(), frozenset({6}))
    assert (refused, moved) == (set(), {0, 1, 5})
    assert sum(placement.free_gpus) == 0


@settings(max_examples=80, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.integers(0, 11), st.sampled_from((0, 1, 2, 3, 4, 8, 16, 24))),
        max_size=60,
    )
)
def test_every_gpu_of_a_node_has_one_job_at_most(changes: list[tuple[int, int]]) -> None:
    nodes = (8, 8, 8, 4)
    placement = Placement(nodes)
    held: dict[int, int] = {}
    for job, gpus in changes:
        refused, moved = placement.change([(job, gpus)], frozenset(), frozenset({job} - {0, 1}))
        if job not in refused:
            held[job] = gpus
        assert moved <= held.keys()
        used = [0] * len(nodes)
        for each, count in held.items():
            slices = placement.slices(each)
            assert sum(slices.values()) == count
            parts = [node for node, part in slices.items() if part < nodes[node]]
            assert len(parts) <= 1 or count <= 8
            for node, part in slices.items():
                used[node] += part
        assert [size - free for size, free in zip(nodes, placement.free_gpus, strict=True)] == used


def test_room_for_a_whole_node_is_made_by_moving_small_jobs() -> None:
    placement = Placement((8, 8))
    placement.change([(0, 4), (1, 4)], frozenset())
    placement.change([(2, 4)], frozenset())
    placement.change([(1, 1)], frozenset())
    # Job 2 fits beside no other four GPUs than its own: nothing is moved in vain.
    assert placement.change([(3, 8)], frozenset()) == ({3}, set())
    placement.change([(0, 2)], frozenset())
    assert placement.change([(3, 8)], frozenset({0, 1, 2})) == ({3}, set())
    refused, moved = placement.change([(3, 8)], frozenset())
    assert refused == set()
    assert moved in ({2}, {0, 1})
    assert sum(placement.free_gpus) == 16 - 8 - 4 - 2 - 1
