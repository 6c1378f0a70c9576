"""Jobs of a cluster that overflow to spot, and come back where there is room for them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import groupby

import pytest

from costopt.domain.account import Account, Quota
from costopt.domain.events import JobSubmitted
from costopt.domain.job import Job
from costopt.domain.progress import Progress
from costopt.domain.view import JobView
from costopt.engine.loop import VirtualClock
from costopt.ledger.base import MemoryLedger
from costopt.strategies.priced import overflow
from costopt.strategies.priced.cluster_job import ClusterGangs, ClusterJob
from costopt.strategies.priced.overflow import SpotSearch
from tests.support.engine_fixtures import SPOT_A, SPOT_B, task
from tests.support.owned_cluster import (
    START_AT,
    cluster_controller,
    cluster_site,
    job_of,
    made_workload,
    owner,
)
from tests.support.strategy_fixtures import build_view, offer

Speeds = tuple[tuple[int, float], ...]
SPEEDS = tuple((1 << power, 1.7**power) for power in range(4))
JOBS = (
    (8, 700, 4.0, 0),
    (4, 400, 2.0, 0),
    (2, 200, 1.0, 0),
    (1, 100, 0.5, 0),
    (8, 600, 3.0, 0),
    (4, 300, 2.0, 20),
    (4, 400, 2.0, 20),
    (2, 150, 1.0, 40),
    (1, 60, 0.5, 40),
    (2, 150, 1.0, 60),
)
"""GPUs asked for, half minutes of work on one, dollars an hour waited, minute of submission."""


def _jobs() -> list[Job]:
    recorded = made_workload(len(JOBS), seed=1, hours=0.0, tenants={"a": 1.0}).jobs
    shapes = zip(recorded, JOBS, strict=True)
    jobs = [
        replace(
            each,
            gpus=gpus,
            smallest_gpus=1,
            largest_gpus=8,
            duration_s=work * 30.0,
            speeds=SPEEDS,
            usd_per_hour_waited=usd,
        )
        for each, (gpus, work, usd, _) in shapes
    ]
    return [
        replace(job_of(job), start_at=START_AT + timedelta(minutes=minute))
        for job, (*_, minute) in zip(jobs, JOBS, strict=True)
    ]


def _job(name: str, gpus: int, hours: float, minute: int, speeds: Speeds, usd: float) -> Job:
    (recorded,) = made_workload(1, seed=1, hours=0.0, tenants={"a": 1.0}).jobs
    shape = replace(
        recorded,
        job_id=name,
        gpus=gpus,
        duration_s=hours * 3600,
        speeds=speeds,
        usd_per_hour_waited=usd,
    )
    return replace(job_of(shape), start_at=START_AT + timedelta(minutes=minute))


def _beside_others(first_h: float, second_h: float) -> list[Job]:
    """One that may have two GPUs, asks for four and can use eight, when others have all eight."""
    return [
        _job("first", 4, first_h, 0, ((4, 1.0),), 40.0),
        _job("second", 2, second_h, 0, ((2, 1.0),), 40.0),
        _job("third", 2, 9.0, 0, ((2, 1.0),), 40.0),
        _job("ours", 4, 2.8, 2, ((2, 0.6), (4, 1.0), (8, 1.05)), 4.0),
    ]


def _stays(account: Account, jobs: list[Job], ticks: int, tick_s: float) -> dict[str, list[str]]:
    """Where each job was, one after the other; empty while it waited."""
    site = cluster_site(account, spot_nodes=9, spot_usd=1.5)
    assert isinstance(site.clock, VirtualClock)
    engine = cluster_controller(site, account, jobs).engine
    places: dict[str, list[str]] = {}
    for _ in range(ticks):
        result = engine.tick()
        for each in result.desired.decisions:
            place = each.targets[0].pool.provider if each.targets else ""
            places.setdefault(each.job, []).append(place)
        site.clock.sleep(tick_s)
        if result.is_done:
            break
    return {job: [place for place, _ in groupby(each)] for job, each in places.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first_h", "second_h", "tick_s", "expected"),
    [
        # Once it has left two GPUs are idle: too few. To take those of others costs more.
        (9.0, 2.5, 60.0, ["", "aws"]),
        (9.0, 2.5, 400.0, ["", "aws"]),
        # Four are.
        (3.0, 9.0, 60.0, ["", "aws", "onprem"]),
        (3.0, 9.0, 400.0, ["", "aws", "onprem"]),
        # Four are, but minutes before its end.
        (4.33, 9.0, 60.0, ["", "aws"]),
    ],
)
def test_a_job_comes_back_only_where_that_pays(
    first_h: float, second_h: float, tick_s: float, expected: list[str]
) -> None:
    stays = _stays(owner(1), _beside_others(first_h, second_h), 600, tick_s)
    assert stays.pop("ours") == expected
    assert all(each == ["onprem"] for each in stays.values()), stays


def test_a_job_that_spot_refuses_has_what_the_cluster_has() -> None:
    account = replace(owner(1), quotas=(Quota("cloud", provider="aws", max_gpus=0),))
    stays = _stays(account, _beside_others(9.0, 2.5), 160, 60.0)
    assert stays["ours"][-1] == "onprem"


@pytest.mark.parametrize("tick_s", [60.0, 400.0])
def test_a_job_that_came_back_does_not_leave_again(tick_s: float) -> None:
    """Of ticks that last longer than a gang is protected, too."""
    account, ledger = owner(2), MemoryLedger()
    site = cluster_site(account, spot_nodes=9, spot_usd=1.5)
    assert isinstance(site.clock, VirtualClock)
    engine = cluster_controller(site, account, _jobs(), ledger).engine
    places: dict[str, list[str]] = {}
    while not (result := engine.tick()).is_done:
        for each in result.desired.decisions:
            for target in each.targets[:1]:
                places.setdefault(each.job, []).append(target.pool.provider)
        site.clock.sleep(tick_s)
    stays = {job: [place for place, _ in groupby(each)] for job, each in places.items()}
    assert any("aws" in each and each[-1] == "onprem" for each in stays.values()), "none came back"
    for job, stay in stays.items():
        assert "onprem, aws, onprem, aws" not in ", ".join(stay), (job, stay)
    submitted = [each.event for each in ledger.events() if isinstance(each.event, JobSubmitted)]
    assert [each.deadline_at for each in submitted] == [None] * len(JOBS)


def test_all_pools_are_weighed_in_turn_and_the_best_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overflow, "MAX_OPTIONS", 2)
    offers = [offer(SPOT_A, 2.0), offer(SPOT_B, 3.0)]
    views = [
        JobView(task(deadline_s=90_000.0, name=name), Progress(0.0, 0.0)) for name in ("a", "b")
    ]
    gangs = ClusterGangs(((1, 1.0),), 1, 1.0)
    jobs = [
        (each, ClusterJob(each.job.name, "", gangs, 1.0, 0.0, 0.0, 3600.0, is_urgent=False))
        for each in views
    ]
    view, search = build_view(views[0].job, offers), SpotSearch()
    assert search.rests(view, jobs).keys() == {"a"}
    # Now it is the turn of the other, and the first one has what was best.
    found = search.rests(view, jobs)
    assert [found[name].option.pool for name in ("a", "b")] == [SPOT_A, SPOT_A]
    # Of those that were good the other one is left; and then none is.
    found = search.rests(build_view(views[0].job, offers[1:]), jobs)
    assert [found[name].option.pool for name in ("a", "b")] == [SPOT_B, SPOT_B]
    assert not search.rests(build_view(views[0].job, []), jobs)
