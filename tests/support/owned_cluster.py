"""A cluster of owned nodes on the virtual clock, with jobs of a workload on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

import numpy as np

from costopt.catalog.site_machines import account_catalog, account_clusters
from costopt.controller.controller import Controller, ControllerSettings, build_strategy
from costopt.controller.site import Site
from costopt.controller.virtual_site import virtual_site
from costopt.domain.account import Account, Tenant
from costopt.domain.cluster import Cluster, with_clusters
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.job import CheckpointSpec, Job, Phase, Resources, WorkAmount, WorkUnit
from costopt.domain.market import CapacityType, Pool
from costopt.domain.policy import Policy, StrategySpec
from costopt.domain.ports import Ledger
from costopt.domain.throughput import Throughput, ThroughputSample
from costopt.engine.settings import deterministic_key
from costopt.ledger.base import MemoryLedger
from costopt.optimize.rounds.gangs import SpeedCurve
from costopt.workload.workload import RecordedJob, Workload
from tests.support.cant_be_late import NoHazard, OnePower

START_AT = datetime(2026, 3, 2, tzinfo=UTC)
SHAPE = {"gpu": "H100", "gpus": 8, "vcpus": 224, "memory_gib": 2048}
SPOT = Pool("aws", "us-east-1", "us-east-1a", "p5.48xlarge", CapacityType.SPOT)
POLICY = Policy("shared", strategy=StrategySpec("priced"))
RESTART_S = 60.0


def owner(nodes: int, tenants: Iterable[Tenant] = ()) -> Account:
    """An account that owns so many nodes of eight GPUs."""
    options = {"cluster": "lab", "node_types": {"dgx": SHAPE}, "nodes": {"dgx": nodes}}
    return Account(providers={"onprem": options}, tenants={each.name: each for each in tenants})


def cluster_of(account: Account) -> Cluster:
    """The cluster that the account owns."""
    return account_clusters(account)["onprem"]


def cluster_site(account: Account, spot_nodes: int = 0, spot_usd: float = 20.0) -> Site:
    """The cluster, and beside it one pool of spot, on a virtual clock."""
    ends_at = START_AT + timedelta(days=60)
    states = (MarketState(START_AT, spot_nodes, spot_usd),)
    market = MarketHistory("made", {SPOT: PoolHistory(SPOT, states, ends_at)}, None, "test")
    return virtual_site(
        with_clusters(market, account_clusters(account)),
        START_AT,
        machines=account_catalog(account),
        powers=OnePower(),
        hazards=NoHazard(),
        notice_s=120.0,
    )


def made_workload(count: int, seed: int, hours: float, tenants: Mapping[str, float]) -> Workload:
    """Jobs of one to sixteen GPUs with measured speeds and declared work."""
    draw, curve = np.random.default_rng(seed), SpeedCurve()
    submit_s = np.sort(draw.uniform(0, hours * 3600, count))
    names, shares = list(tenants), np.array(list(tenants.values()))
    jobs = []
    for index in range(count):
        gpus = int(draw.choice([1, 1, 1, 2, 4, 8, 16]))
        speeds = curve.options(gpus, None, min(4 * gpus, 32))
        jobs.append(
            RecordedJob(
                job_id=f"j{index:03}",
                tenant=str(draw.choice(names, p=shares / shares.sum())),
                submit_at=START_AT + timedelta(seconds=0.0 if not index else submit_s[index]),
                duration_s=min(float(draw.pareto(1.5) * 1500 + 120), 7200.0),
                gpus=gpus,
                smallest_gpus=speeds[0][0],
                largest_gpus=speeds[-1][0],
                work_declared=True,
                speeds=tuple(speeds),
            )
        )
    return Workload.of(jobs, title="made", source="test", starts_at=START_AT)


def job_of(recorded: RecordedJob) -> Job:
    """The recorded job as one of the engine; it starts at once and restarts in a minute."""
    points = tuple(ThroughputSample("H100", gpus, speed) for gpus, speed in recorded.speeds)
    low, high = recorded.speeds[0][0], recorded.speeds[-1][0]
    return Job(
        name=recorded.job_id,
        tenant=recorded.tenant,
        work=WorkAmount(recorded.duration_s, WorkUnit.STEPS),
        start_at=recorded.submit_at,
        deadline_at=None,
        resources=Resources(max_nodes=high, min_gpus=low, max_gpus=high, asked_gpus=recorded.gpus),
        throughput=Throughput(points),
        checkpoint=CheckpointSpec("mem:ckpt", 1.0, 0.0, RESTART_S, 3600.0),
        phases=(Phase("all", 1.0, 1, high),),
        startup_s=0.0,
        elastic=True,
        usd_per_hour_waited=recorded.usd_per_hour_waited or 1.0,
    )


def cluster_controller(
    site: Site, account: Account, jobs: Iterable[Job], ledger: Ledger | None = None
) -> Controller:
    """A controller of these jobs, all under one policy with the strategy ``priced``."""
    settings = ControllerSettings(account=account, new_key=deterministic_key)
    controller = Controller(site, MemoryLedger() if ledger is None else ledger, settings)
    strategy = build_strategy(POLICY)
    for job in jobs:
        controller.add(job, POLICY, strategy)
    return controller
