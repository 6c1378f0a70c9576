"""Who gets room where there is not enough for all."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from costopt.engine.admission import ResourceRequest, share_capacity
from costopt.engine.quotas import Limit

NODES: Limit = ("q", "nodes")
GPUS: Limit = ("q", "GPUs")


def request(
    job: str,
    nodes: float,
    tenant: str = "a",
    weight: float = 1.0,
    priority: int = 0,
    *,
    runs: bool = False,
    order: int = 0,
    wait_usd: float = 0.0,
) -> ResourceRequest:
    load = {NODES: nodes}
    return ResourceRequest(job, tenant, weight, priority, runs, order, load, wait_usd)


def served(requests: list[ResourceRequest], nodes: float, *overdue: str) -> set[str]:
    held = share_capacity(requests, {NODES: nodes}, frozenset(overdue))
    return {w.job for w in requests} - held.keys()


def test_no_job_waits_where_there_is_room_for_all() -> None:
    assert served([request("x", 4), request("y", 6)], 10) == {"x", "y"}


def test_a_higher_priority_takes_the_room_of_one_that_runs() -> None:
    runs, urgent = request("runs", 6, runs=True), request("urgent", 6, priority=1)
    assert served([runs, urgent], 10) == {"urgent"}


def test_of_equals_the_one_that_runs_stays() -> None:
    assert served([request("new", 6), request("runs", 6, runs=True, order=1)], 10) == {"runs"}


def test_the_job_that_waiting_costs_most_goes_first() -> None:
    runs, tight = (
        request("runs", 6, runs=True, wait_usd=0.2),
        request("tight", 6, wait_usd=0.5, order=1),
    )
    late = request("late", 6, wait_usd=math.inf, order=2)
    assert served([runs, tight], 10) == {"tight"}
    assert served([runs, tight, late], 10) == {"late"}
    assert served([request("first", 6, priority=1), late], 10) == {"first"}


def test_gangs_come_whole_and_smaller_ones_fill_the_rest() -> None:
    requests = [
        request("big", 8, priority=2),
        request("middle", 4, priority=1),
        request("small", 2),
    ]
    assert served(requests, 10) == {"big", "small"}


def test_tenants_share_by_weight() -> None:
    heavy = [request(f"heavy{i}", 1, "heavy", 3.0, order=i) for i in range(20)]
    light = [request(f"light{i}", 1, "light", 1.0, order=i) for i in range(20)]
    inside = served(heavy + light, 8)
    assert len([job for job in inside if job.startswith("heavy")]) == 6


def test_a_tenant_that_waits_too_long_goes_first() -> None:
    requests = [request("runs", 6, "a", runs=True), request("big", 8, "b")]
    assert served(requests, 10) == {"runs"}
    assert served(requests, 10, "b") == {"big"}


def test_what_a_tenant_does_not_want_others_get() -> None:
    requests = [request("one", 1, "a"), *(request(f"b{i}", 1, "b", order=i) for i in range(12))]
    assert len(served(requests, 10)) == 10


def test_what_never_fits_is_left_to_the_guards() -> None:
    held = share_capacity([request("huge", 11), request("x", 6)], {NODES: 10}, frozenset())
    assert held == {}


def test_the_reason_names_the_quota() -> None:
    held = share_capacity([request("x", 6), request("y", 6, order=1)], {NODES: 10}, frozenset())
    assert "quota q allows 10 nodes across all jobs that share it; this job needs 6" in held["y"]


REQUESTS = st.lists(
    st.builds(
        ResourceRequest,
        job=st.uuids().map(str),
        tenant=st.sampled_from("abc"),
        weight=st.just(1.0),
        priority=st.integers(0, 2),
        runs=st.booleans(),
        order=st.integers(0, 100),
        load=st.fixed_dictionaries({NODES: st.integers(1, 6), GPUS: st.integers(1, 48)}),
    ),
    max_size=30,
    unique_by=lambda w: w.job,
)


@given(REQUESTS, st.integers(6, 40), st.integers(48, 200))
def test_what_is_served_fits_and_no_job_waits_beside_free_room(
    requests: list[ResourceRequest], nodes: int, gpus: int
) -> None:
    most: dict[Limit, float] = {NODES: nodes, GPUS: gpus}
    held = share_capacity(requests, most, frozenset())
    inside = [w for w in requests if w.job not in held]
    used = {limit: sum(w.load[limit] for w in inside) for limit in most}
    assert all(used[limit] <= most[limit] for limit in most)
    for waiting in (w for w in requests if w.job in held):
        assert any(used[limit] + waiting.load[limit] > most[limit] for limit in most)


@given(REQUESTS, st.integers(6, 40))
def test_no_tenant_has_nothing_while_another_has_more_than_it_asks_for(
    requests: list[ResourceRequest], nodes: int
) -> None:
    """The tenant served least never waits for a job that fits into what another has beyond it."""
    most: dict[Limit, float] = {NODES: nodes}
    requests = [
        ResourceRequest(w.job, w.tenant, 1.0, 0, False, w.order, {NODES: 1.0}) for w in requests
    ]
    held = share_capacity(requests, most, frozenset())
    has = {t: sum(1 for w in requests if w.tenant == t and w.job not in held) for t in "abc"}
    for waiting in (w for w in requests if w.job in held):
        assert has[waiting.tenant] >= max(has.values()) - 1
