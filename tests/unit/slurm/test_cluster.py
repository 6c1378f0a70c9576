"""The cluster of the tests' own behaves as a site's: it queues, preempts and accounts."""

from __future__ import annotations

import signal

from tests.support.slurm.cluster import SlurmCluster, until


def test_a_job_of_a_higher_tier_takes_the_nodes(slurm: SlurmCluster) -> None:
    job = slurm.sbatch("srun sleep 300", "-p", "spot", "-N3", "--exclusive", "--no-requeue")
    assert slurm.await_state(job, "RUNNING") == "RUNNING"
    other = slurm.preempt(2)
    assert slurm.await_state(other, "RUNNING") == "RUNNING"
    assert slurm.job(job)["PreemptTime"] != "None"
    until(lambda: f"JobId={job} " in slurm.completed.read_text(encoding="utf-8"))


def test_daemons_come_back(slurm: SlurmCluster) -> None:
    job = slurm.sbatch("sleep 300", "-p", "batch")
    slurm.await_state(job, "RUNNING")
    slurm.kill("slurmctld", signal.SIGTERM)
    slurm.kill("munged")
    slurm.start_munge()
    slurm.start_controller()
    assert slurm.state(job) == "RUNNING"
