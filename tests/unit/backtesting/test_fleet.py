"""The replay of many jobs on one cluster: schedules, figures, sizes, and the commands."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from costopt.backtesting.fleet.policies import POLICY_NAMES, FleetTrial, replay_fleet
from costopt.backtesting.fleet.queues import QueueSchedule
from costopt.backtesting.fleet.replay import FleetSchedule, ReplaySettings
from costopt.backtesting.fleet.sizing import find_fleet_size
from costopt.cli import fleet as commands
from costopt.cli.main import cli
from costopt.domain.cluster import Cluster
from costopt.domain.errors import WorkloadError
from costopt.optimize.rounds.gangs import SpeedCurve
from costopt.workload.workload import RecordedJob, Workload
from costopt.workload.workload_file import write_workload

START_AT = datetime(2026, 3, 1, tzinfo=UTC)
CLUSTER = Cluster("small", (8, 8), usd_per_gpu_hour=2.0)
CLUSTER_FILE = "kind: cluster\nname: small\nnodes: [{count: 2, gpus: 8}]\n"


def _workload(jobs: Sequence[RecordedJob]) -> Workload:
    return Workload.of(jobs, title="made", source="test", starts_at=START_AT)


def _job(name: str, tenant: str, submit_s: float, duration_s: float, gpus: int) -> RecordedJob:
    return RecordedJob(name, tenant, START_AT + timedelta(seconds=submit_s), duration_s, gpus)


def _made(count: int = 120, seed: int = 0) -> Workload:
    draw = np.random.default_rng(seed)
    submit_s = np.sort(draw.uniform(0, 86_400, count))
    return _workload(
        [
            _job(
                f"j{index:03}",
                ("speech", "vision")[int(draw.random() < 0.3)],
                float(submit_s[index]),
                float(draw.pareto(1.5) * 1200 + 60),
                int(draw.choice([1, 1, 1, 2, 4, 8, 16])),
            )
            for index in range(count)
        ]
    )


def _trial(workload: Workload, cluster: Cluster = CLUSTER) -> FleetTrial:
    return FleetTrial(workload, workload.window(START_AT, 1)[1], cluster, 1.0)


@pytest.fixture(scope="module")
def made() -> Workload:
    return _made()


@pytest.fixture(scope="module")
def priced(made: Workload) -> FleetSchedule:
    return _trial(made).replay("priced")


def test_backfill_starts_what_delays_the_first_of_the_queue_by_nothing() -> None:
    arrays = (
        np.array([0.0, 1.0, 2.0, 3.0]),
        np.array([100.0, 50.0, 98.0, 99.0]),
        np.array([3, 4, 1, 1]),
    )
    fifo = QueueSchedule(*arrays, 4).run(backfill=False)
    easy = QueueSchedule(*arrays, 4).run(backfill=True)
    assert fifo.tolist() == [0, 100, 150, 150]
    # Job 2 ends when job 1 could start; job 3 would end later.
    assert easy.tolist() == [0, 100, 2, 150]


@pytest.mark.slow
@pytest.mark.parametrize("policy", [name for name in POLICY_NAMES if name != "static"])
def test_a_schedule_conserves_work_and_capacity(
    made: Workload, priced: FleetSchedule, policy: str
) -> None:
    trial = _trial(made)
    schedule = priced if policy == "priced" else trial.replay(policy)
    assert (schedule.first_run_s >= made.submit_s).all()
    assert (schedule.end_s > schedule.first_run_s).all()
    assert schedule.busy_gpus.max() <= CLUSTER.gpus
    # A job of n GPUs takes at least its duration by the greatest speed, and no work is lost: what
    # is held is the work, the restarts, and what growth costs beyond it.
    curve = SpeedCurve()
    best = [curve.options(int(n), None, None)[-1][1] for n in made.gpus]
    assert (schedule.end_s - schedule.first_run_s >= made.duration_s / best - 1e-6).all()
    asked_s = made.gpus * made.duration_s
    if policy != "priced":
        held_s = asked_s + schedule.restarts * made.gpus * trial.settings.restart_s
        assert (schedule.gpu_s <= held_s + 1e-3).all()
        assert (schedule.gpu_s >= asked_s - 1e-3).all()


@pytest.mark.slow
def test_the_same_jobs_give_the_same_schedule(made: Workload, priced: FleetSchedule) -> None:
    again = _trial(made).replay("priced")
    assert (priced.end_s == again.end_s).all()
    assert (priced.gpu_s == again.gpu_s).all()


@pytest.mark.parametrize("policy", ["priced", "gittins", "attained-service"])
def test_a_job_that_finds_idle_gpus_waits_for_no_round(policy: str) -> None:
    jobs = [_job("first", "speech", 0.0, 3000.0, 4), _job("second", "vision", 95.0, 600.0, 4)]
    schedule = _trial(_workload(jobs), Cluster("one", (64,))).replay(policy)
    assert schedule.first_run_s.tolist() == [0.0, 95.0]


def test_a_resize_costs_a_restart_and_no_work() -> None:
    # Alone it begins on its largest gang.
    job = replace(_job("a", "t", 0, 36_000, 1), work_declared=True, largest_gpus=2)
    trial = replace(_trial(_workload([job])), settings=ReplaySettings(restart_s=600))
    alone = trial.replay("priced")
    assert alone.end_s[0] == pytest.approx(36_000 / 2**0.68)
    # A short job takes the GPUs of a long one, which restarts without loss of work.
    jobs = [_job("a", "t", 0, 36_000, 16), _job("b", "t", 6000, 1200, 16)]
    workload = _workload([replace(each, largest_gpus=16) for each in jobs]).with_declared_work()
    schedule = replace(_trial(workload), settings=ReplaySettings(restart_s=600)).replay("priced")
    assert schedule.restarts.sum() >= 1
    # Shrunk to g GPUs a job of n has speed (g/n)^0.85, so that it holds no more GPU-time than at n.
    held_s = float(schedule.gpu_s.sum())
    assert held_s <= 16 * (37_200 + 600 * schedule.restarts.sum())
    assert held_s >= 16 * 37_200 * (2 / 16) ** 0.15


@pytest.mark.slow
def test_priced_uses_fewer_gpus_than_partitions_for_the_same_time(made: Workload) -> None:
    trial = _trial(made, replace(CLUSTER, node_gpus=(8,) * 6))
    figures = {each.policy: each for each in replay_fleet(trial, POLICY_NAMES).figures}
    static, priced = figures["static"], figures["priced"]
    assert static.static_ratio == 1
    assert static.later_share == 0
    assert static.gpus == trial.partitions.sum()
    assert priced.mean_s < static.mean_s
    assert priced.usd == pytest.approx(2 * priced.gpu_hours)
    assert priced.kwh is None
    *tried, found = find_fleet_size(trial, "priced", 1.0)
    assert found.is_enough
    assert all(each.is_enough == (each.mean_s <= each.target_s) for each in tried)
    assert found.gpus == min(each.gpus for each in tried if each.is_enough)


def test_jobs_that_completed_are_measured_apart(made: Workload) -> None:
    states = ("COMPLETED", "Pass", "Killed", "")
    jobs = [replace(job, state=states[n % 4]) for n, job in enumerate(made.jobs)]
    trial = _trial(_workload(jobs))
    (figures,) = replay_fleet(trial, ("easy",)).figures
    completed = np.arange(len(jobs)) % 4 < 2
    easy_s, static_s = (
        (schedule.end_s - trial.workload.submit_s)[completed].mean()
        for schedule in (trial.replay("easy"), trial.static())
    )
    assert figures.completed_jobs == completed.sum()
    assert figures.completed_ratio == pytest.approx(easy_s / static_s)
    (unknown,) = replay_fleet(_trial(made), ("easy",)).figures
    assert (unknown.completed_jobs, unknown.completed_ratio) == (0, None)


def test_known_watts_give_energy(made: Workload) -> None:
    powered = replace(CLUSTER, busy_w_per_gpu=300.0, idle_w_per_gpu=60.0)
    (figures,) = replay_fleet(_trial(made, powered), ("easy",)).figures
    idle_h = (1 - figures.allocated_share) * 16 * 24
    assert figures.kwh == pytest.approx((300 * figures.gpu_hours + 60 * idle_h) / 1000)


def test_measured_speeds_are_taken_instead_of_the_curve() -> None:
    # It gains nothing from more GPUs, and is alone.
    job = replace(_job("a", "t", 0, 36_000, 2), speeds=((2, 5.0), (4, 5.1)), largest_gpus=4)
    schedule = _trial(_workload([job])).replay("priced")
    assert 36_000 * 5 / 5.1 - 1 <= schedule.end_s[0] <= 36_000


def test_a_gang_larger_than_the_cluster_is_refused() -> None:
    trial = _trial(_workload([_job("huge", "t", 0, 60, 256)]))
    with pytest.raises(WorkloadError) as raised:
        trial.replay("priced")
    assert (raised.value.code, raised.value.subject) == ("too_large", "huge")


def test_partitions_must_hold_their_tenants_jobs(made: Workload) -> None:
    for named in ({"speech": 16}, {"speech": 16, "vision": 1}):
        with pytest.raises(WorkloadError):
            _ = _trial(made, replace(CLUSTER, partition_gpus=named)).partitions
    given = {"speech": 16, "vision": 24}
    assert _trial(made, replace(CLUSTER, partition_gpus=given)).partitions.tolist() == [16, 24]


def test_the_command_offers_every_policy() -> None:
    assert commands.POLICY_NAMES == POLICY_NAMES


@pytest.mark.slow
def test_the_commands(tmp_path: Path) -> None:
    write_workload(_made(40), tmp_path / "jobs.parquet")
    (tmp_path / "cluster.yaml").write_text(CLUSTER_FILE)
    options = ["--workload", str(tmp_path / "jobs.parquet")]
    options += ["--cluster", str(tmp_path / "cluster.yaml"), "--from", "2026-03-01T00:00:00Z"]
    replay = ["fleet", "replay", *options, "--days", "1"]
    done = CliRunner().invoke(cli, [*replay, "-o", "json"])
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row["policy"] for row in rows] == list(POLICY_NAMES)
    assert rows[0]["kwh"] is None
    assert set(rows[-1]["tenant_ratios"]) == {"speech", "vision"}
    page = CliRunner().invoke(cli, [*replay, "-o", "html"]).stdout
    assert all(f'id="{name}"' in page for name in ("busy", "spread", "tenants", "table"))
    done = CliRunner().invoke(cli, [*replay, "--policies", "priced", "-o", "csv"])
    assert [row["policy"] for row in csv.DictReader(io.StringIO(done.stdout))] == ["priced"]
    sized = CliRunner().invoke(cli, ["fleet", "size", *options, "--share", "0.9", "-o", "json"])
    assert json.loads(sized.stdout)["rows"][0]["gpus"] % 8 == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--policies", "pricd"],
        ["--speed", "2,1"],
        ["--policies", ","],
    ],
)
def test_wrong_options_are_usage_errors(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER_FILE)
    write_workload(_made(5), tmp_path / "jobs.csv")
    options = ["--workload", str(tmp_path / "jobs.csv")]
    options += ["--cluster", str(tmp_path / "cluster.yaml")]
    done = CliRunner().invoke(cli, ["fleet", "replay", *options, *arguments])
    assert done.exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        "kind: cluster\nname: a\nnodes: []\n",
        "kind: cluster\nname: a\nnodes: [{count: 1, gpus: 0}]\n",
        "kind: cluster\nname: a\nnodes: [{count: 1, gpus: 8}]\nusd_per_gpu_hour: -1\n",
        "kind: cluster\nname: a\nnodes: [{count: 1, gpus: 8}]\n"
        "tenants: [{name: t, gpus: 8}, {name: t, gpus: 8}]\n",
    ],
)
def test_an_impossible_cluster_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    from costopt.spec.cluster_file import load_cluster
    from costopt.spec.yaml_document import SpecFileError

    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(SpecFileError) as raised:
        load_cluster(path)
    assert raised.value.problems[0].line >= 1
