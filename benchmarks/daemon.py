"""What a daemon needs for a thousand jobs on ten thousand nodes: seconds per tick and memory.

Nodes are records and training is arithmetic, so that what is measured is the daemon itself: the
engine, the strategies, the ledger and the registry on this machine's disk. After the first tick,
which reads the jobs, and the second, which launches them, ticks of a minute follow; among them
some in which the market takes a tenth of all nodes at once. Then the same with fewer jobs that
follow the default strategy, which solves a program for each kind of job: first of seven kinds, then
each job of a kind of its own, with a policy of its own.
"""

from __future__ import annotations

import gc
import resource
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from costopt.catalog import load_catalog
from costopt.controller.site import LiveSite, connect_virtual_provider
from costopt.controller.state_dir import LEDGER
from costopt.daemon.daemon import Daemon
from costopt.daemon.reader import TenantReader
from costopt.daemon.serve import GC_THRESHOLD
from costopt.daemon.settings import DaemonSettings
from costopt.domain.account import Account, AccountGuards, Tenant
from costopt.domain.control import Mode, Submission
from costopt.domain.history import MarketHistory, MarketState, PoolHistory
from costopt.domain.market import CapacityType, Pool
from costopt.engine.loop import VirtualClock
from costopt.ledger.sql_ledger import open_sqlite_ledger
from costopt.registry.registry import REGISTRY, open_registry
from tests.support.simulated_site import simulated_site

T0 = datetime(2026, 3, 2, tzinfo=UTC)
JOBS = 1000
NODES_PER_JOB = 10
TENANTS = 10
TICK_S = 60.0
TICKS = 24
TAKEN_AT = (8, 16)
"""Before these ticks a tenth of the nodes is taken."""
STRATEGIES = ("greedy_spot", "greedy_spot", "on_demand", "greedy_spot")
ADAPTIVE_JOBS = 200
REGIONS = {"us-east-1": 1.0, "us-west-2": 1.1, "eu-west-1": 1.2}
MACHINES = {"g4dn.xlarge": 0.526, "g4dn.2xlarge": 0.752, "g5.xlarge": 1.006, "p3.2xlarge": 3.06}
Figure = tuple[str, float, str]


def run(jobs: int = JOBS) -> Iterator[Figure]:
    """(name, value, unit) of each measurement."""
    gc.set_threshold(GC_THRESHOLD)
    yield from _load("", jobs, STRATEGIES)
    yield from _load("adaptive ", min(jobs, ADAPTIVE_JOBS), ("adaptive",))
    yield from _load("unlike adaptive ", min(jobs, ADAPTIVE_JOBS), ("adaptive",), unlike=True)


def _load(
    kind: str, jobs: int, strategies: Sequence[str], *, unlike: bool = False
) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        clock = VirtualClock(T0)
        state_dir = Path(folder)
        with (
            open_registry(state_dir / REGISTRY) as registry,
            open_sqlite_ledger(state_dir / LEDGER) as ledger,
        ):
            for number in range(jobs):
                strategy = strategies[number % len(strategies)]
                submission = _submission(number, strategy)
                registry.submit(_unlike(submission, number) if unlike else submission)
            account = Account(tenants=_tenants(), guards=_guards(jobs))
            settings = DaemonSettings(state_dir, Mode.ENFORCE, tick_s=TICK_S, answer_s=600.0)
            daemon = Daemon(_site(clock, jobs), registry, ledger, account, settings)
            yield from _ticks(daemon, clock, kind, jobs)
            daemon.close()


def _ticks(daemon: Daemon, clock: VirtualClock, kind: str, jobs: int) -> Iterator[Figure]:
    took, worked = [], []
    for _ in range(TICKS):
        began_s, worked_s = time.perf_counter(), time.process_time()
        daemon.tick()
        took.append(time.perf_counter() - began_s)
        worked.append(time.process_time() - worked_s)
        daemon.readiness.prepare()
        clock.sleep(TICK_S)
    nodes = len(TenantReader(daemon.service).fleet().nodes)
    name = f"{jobs:,} {kind}jobs, {nodes:,} nodes"
    yield f"{name}: first tick, reads every job", took[0], "s"
    yield f"{name}: first tick, processor time", worked[0], "s"
    yield f"{name}: second tick, launches all nodes", took[1], "s"
    yield f"{name}: second tick, processor time", worked[1], "s"
    calm = [each for tick, each in enumerate(took) if _is_calm(tick)]
    stormy = [each for tick, each in enumerate(took) if tick > 2 and not _is_calm(tick)]
    yield f"{name}: tick, median", statistics.median(calm), "s"
    calm_work = [each for tick, each in enumerate(worked) if _is_calm(tick)]
    yield f"{name}: tick, median of processor time", statistics.median(calm_work), "s"
    yield f"{name}: tick, longest", max(calm), "s"
    yield f"{name}: tick after a tenth was taken, longest", max(stormy), "s"
    stormy_work = [each for tick, each in enumerate(worked) if tick > 2 and not _is_calm(tick)]
    yield f"{name}: the same, processor time", max(stormy_work), "s"
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield f"{name}: peak memory", peak_kib / 1024**2, "GiB"
    yield f"{name}: events per tick", sum(1 for _ in daemon.service.ledger.events()) / TICKS, ""


def _is_calm(tick: int) -> bool:
    return tick > 2 and not any(0 <= tick - taken <= 3 for taken in TAKEN_AT)


def _submission(number: int, strategy: str) -> Submission:
    name, tenant = f"job-{number:05d}", f"tenant-{number % TENANTS}"
    hours = 20 + number % 7
    document = (
        f"kind: job\nversion: 1\nname: {name}\ntenant: {tenant}\n"
        f"work: {{amount: {hours * 3600 * NODES_PER_JOB}, unit: steps}}\ndeadline: 60h\n"
        f"resources: {{gpu_models: [T4], min_nodes: {NODES_PER_JOB}, max_nodes: {NODES_PER_JOB}}}\n"
        f"throughput: {{points: [{{gpu: T4, gpus: {NODES_PER_JOB}, units_per_s: 10}}]}}\n"
        f"checkpoint: {{uri: saves/{name}, size_gib: 4, save: 30s, restore: 1m, interval: 15m}}\n"
        "startup: 3m\nrun: [python, train.py]\n"
    )
    policy = (
        f"kind: policy\nversion: 1\nname: {strategy}-{number % 4}\n"
        f"strategy: {strategy}\nrisk: {{reserve: 10m}}\n"
        f"limits: {{max_launches_per_hour: 10000}}\n"
    )
    return Submission(name, tenant, number % 3, document, policy, "/", T0, "benchmark")


def _unlike(submission: Submission, number: int) -> Submission:
    """With a speed, a deadline, a start-up and a policy of its own."""
    job = submission.job_document.replace("units_per_s: 10}", f"units_per_s: {10 + number / 40}}}")
    job = job.replace("deadline: 60h", f"deadline: {50 * 60 + 7 * number}m")
    job = job.replace("startup: 3m", f"startup: {180 + number}s")
    policy = submission.policy_document.replace("name: ", f"name: job-{number}-")
    return replace(submission, job_document=job, policy_document=policy)


def _tenants() -> dict[str, Tenant]:
    names = [f"tenant-{number}" for number in range(TENANTS)]
    return {name: Tenant(name, weight=1.0 + number % 3) for number, name in enumerate(names)}


def _guards(jobs: int) -> AccountGuards:
    """Far enough to let all jobs run, and to be checked at every launch."""
    nodes = 3 * jobs * NODES_PER_JOB
    return AccountGuards(
        max_usd_per_month=1e9, max_usd_per_hour=1e6, max_nodes=nodes, max_launches_per_hour=nodes
    )


def _site(clock: VirtualClock, jobs: int) -> LiveSite:
    market = _market(jobs * NODES_PER_JOB)
    provider = connect_virtual_provider(
        clock, {"market": market, "machines": load_catalog(), "notice_s": 120.0}
    )
    return simulated_site(clock, provider, provider.runtime, market)


def _market(nodes: int) -> MarketHistory:
    """72 pools; the cheapest spot pools hold all nodes, and lose a tenth of them at times."""
    ends_at = T0 + timedelta(days=10)
    pools = {pool: PoolHistory(pool, tuple(_states(pool, usd, nodes)), ends_at)
             for pool, usd in _pools()}  # fmt: skip
    return MarketHistory("load", pools, TICK_S, "made up for a load test")


def _pools() -> Iterable[tuple[Pool, float]]:
    for region, factor in REGIONS.items():
        for zone in "abc":
            for machine, usd in MACHINES.items():
                on_demand = Pool("aws", region, f"{region}{zone}", machine, CapacityType.ON_DEMAND)
                yield on_demand, usd * factor
                yield (
                    on_demand.with_capacity_type(CapacityType.SPOT),
                    usd * factor * 0.35 + ord(zone) / 1e4,
                )


def _states(pool: Pool, usd: float, nodes: int) -> Iterator[MarketState]:
    room = nodes // 5
    yield MarketState(T0, room, usd)
    if pool.capacity_type is CapacityType.SPOT:
        for tick in TAKEN_AT:
            at = T0 + timedelta(seconds=tick * TICK_S)
            yield MarketState(at, room * 9 // 10, usd)
            yield MarketState(at + timedelta(minutes=5), room, usd)
